"""Two images are equal when their entries are: whatever holds them, and in whatever shards."""

from __future__ import annotations

import pytest

from stateshift import look
from stateshift.formats.spark.offsets import PARTITIONS, decode_offsets, encode_offsets, with_conf
from stateshift.formats.spark.state_files import StateRecord, decode_delta, encode_delta
from tests.formats.golden import CASES
from tests.look.golden_images import HERE, NEWEST, contents, on_a_disk, write

THERE = "file:///there/orders"


def both(here, there):
    """A disk with two images; `there` is a case's name, or files."""
    disk = on_a_disk(NEWEST[here])
    write(disk.open(THERE), contents(NEWEST[there]) if isinstance(there, str) else there)
    return disk


def difference(disk, show=0):
    return look.diff(HERE, THERE, disk.open, show)


def counts(found):
    return {s.store: (s.added, s.removed, s.changed, s.same) for s in found.stores}


@pytest.mark.parametrize("name", sorted(NEWEST))
def test_a_copy_is_equal(name):
    found = difference(both(name, name))
    assert found.equal and not found.incomparable


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("window-hdfs", "window-rocksdb"),
        ("window-rocksdb-changelog", "window-hdfs"),
        ("window-rocksdb", "window-rocksdb-format2"),
        ("join-hdfs-checksum", "join-rocksdb-v3-checksum"),
        ("join-rocksdb-v3", "join-hdfs"),
        ("dedup-zstd", "dedup-rocksdb-checksum"),
        ("dedup-snappy", "dedup-lzf"),
    ],
)
def test_the_same_state_is_equal_across_providers_codecs_and_formats(one, other):
    found = difference(both(one, other))
    assert found.equal, counts(found)
    assert sum(store.same for store in found.stores) > 0


PAIRS = [
    (case, case.with_name(case.name.replace("-hdfs", "-rocksdb")))
    for case in CASES
    if case.name in ("window-hdfs", "session-hdfs", "total-hdfs")
]


@pytest.mark.parametrize(
    ("hdfs", "rocksdb"),
    [pytest.param(a, b, id=f"{a.parent.name}/{a.name}") for a, b in PAIRS if b in CASES],
)
def test_both_providers_of_one_version_hold_the_same_state(hdfs, rocksdb):
    """Keys of session windows are put together in another way by RocksDB, and are compared by
    their columns.
    """
    disk = on_a_disk(rocksdb, THERE, on_a_disk(hdfs))
    found = difference(disk)
    assert found.equal and sum(store.same for store in found.stores) > 0


def mutated(name="window-hdfs"):
    """One entry taken away, one put in another's place, one changed: in the newest snapshot of
    each shard.
    """
    files = contents(NEWEST[name])
    records = list(decode_delta([files["state/0/0/6.snapshot"]]))
    assert len(records) >= 3
    gone, changed = records[0], records[1]
    value = changed.value[:8] + (77).to_bytes(8, "little") + changed.value[16:]
    new = gone.key[:-8] + b"x".ljust(8, b"\0")
    kept = [StateRecord(changed.key, value), *records[2:], StateRecord(new, gone.value)]
    files["state/0/0/6.snapshot"] = b"".join(encode_delta(kept))
    return files


def test_what_was_added_removed_and_changed_is_counted_and_shown():
    found = difference(both("window-hdfs", mutated()), show=5)
    assert not found.equal
    assert counts(found) == {"default": (1, 1, 1, 8)}
    shown = {one.change: one for one in found.shown}
    assert shown["changed"].after["count"] == 77 and shown["changed"].before["count"] != 77
    assert shown["added"].before is None and shown["removed"].after is None
    assert set(shown["added"].key) == {"window", "word"}


def test_differences_across_providers_are_the_same_ones():
    disk = both("window-rocksdb", mutated())
    found = difference(disk, show=1)
    assert counts(found) == {"default": (1, 1, 1, 8)}
    assert len(found.shown) == 1


def respread(files, shards):
    """The same entries, dealt out over another number of shards, with no regard for where they
    belong.
    """
    moved = {
        path: content
        for path, content in files.items()
        if not path.endswith((".delta", ".snapshot"))
    }
    records = [
        r for shard in range(3) for r in decode_delta([files[f"state/0/{shard}/6.snapshot"]])
    ]
    for shard in range(shards):
        moved[f"state/0/{shard}/6.snapshot"] = b"".join(encode_delta(records[shard::shards]))
    for path in [path for path in moved if path.startswith("offsets/")]:
        moved[path] = encode_offsets(
            with_conf(decode_offsets(moved[path]), {PARTITIONS: str(shards)})
        )
    return moved


@pytest.mark.parametrize("shards", [1, 3, 5])
def test_entries_have_no_shard(shards):
    found = difference(both("window-hdfs", respread(contents(NEWEST["window-hdfs"]), shards)))
    assert found.equal and counts(found) == {"default": (0, 0, 0, 10)}


def test_an_entry_that_one_image_holds_twice_is_a_difference():
    files = contents(NEWEST["window-hdfs"])
    again = next(decode_delta([files["state/0/0/6.snapshot"]]))
    twice = [*decode_delta([files["state/0/1/6.snapshot"]]), again]
    files["state/0/1/6.snapshot"] = b"".join(encode_delta(twice))
    assert counts(difference(both("window-hdfs", files))) == {"default": (1, 0, 0, 10)}


def test_an_operator_that_only_one_image_has_is_all_added():
    disk = both("files", "window-hdfs")
    assert counts(difference(disk)) == {"default": (10, 0, 0, 0)}


def test_what_cannot_be_compared_is_named_and_is_not_called_equal():
    files = contents(NEWEST["window-rocksdb"])
    del files["state/0/0/_metadata/schema"]
    found = difference(both("window-hdfs", files))
    assert not found.equal and not found.stores
    assert [(operator, store) for operator, store, _ in found.incomparable] == [("0", "default")]


def test_join_formats_that_keep_other_things_are_told_store_by_store():
    found = difference(both("join-rocksdb-v3", "join-rocksdb-v4"))
    assert not found.equal
    assert {s.store for s in found.stores if s.added} == {
        f"{side}-{kind}"
        for side in ("left", "right")
        for kind in ("keyWithTsToValues", "tsWithKey")
    }
