from stateshift.formats.spark import state_files
from stateshift.world import Entry
def entries(read, shard, settings):
    m = {}
    for f in shard.files:
        for r in state_files.decode_delta(read(f)):
            if r.value is None: m.pop(r.key, None)
            else: m[r.key] = r.value
    for k, v in m.items():
        yield Entry(shard.operator, shard.store, k, v)
