"""Small Spark checkpoints, written by our own encoders: for tests that need a shape rather than a
real engine's bytes (those are in tests/golden). HDFS-backed, one operator, a few shards; every
batch puts a few keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.formats.spark import state_files
from stateshift.formats.spark.offsets import PARTITIONS
from stateshift.storage.protocol import Storage
from tests.support import encoders

QUERY = "11111111-2222-3333-4444-555555555555"
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "HDFSBackedStateStoreProvider",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "false",
}


@dataclass(frozen=True)
class Checkpoint:
    """What to write: batches 0 to `batches` - 1 committed, one more planned if asked for; a
    snapshot at each version named; with `inputs`, the absolute location of a file source's
    directory, one file read per batch. The state of the planned batch is `written` where its tasks
    had ended when the job died.
    """

    batches: int = 3
    shards: int = 2
    keys: int = 3
    planned: bool = False
    written: bool = False
    snapshots: tuple[int, ...] = ()
    inputs: str | None = None
    query: str = QUERY

    def files(self) -> dict[str, bytes]:
        found = {"metadata": self.metadata()}
        for batch in range(self.batches + self.planned):
            found[f"offsets/{batch}"] = self.offsets(batch)
            if self.inputs:
                found[f"sources/0/{batch}"] = self._log(batch)
        for batch in range(self.batches):
            found[f"commits/{batch}"] = COMMIT
        for batch in range(self.batches + self.written):
            for shard in range(self.shards):
                records = list(self._records(batch, shard))
                found[f"state/0/{shard}/{batch + 1}.delta"] = b"".join(
                    state_files.encode_delta(records)
                )
        for version in self.snapshots:
            for shard in range(self.shards):
                whole = {r.key: r for batch in range(version) for r in self._records(batch, shard)}
                content = b"".join(state_files.encode_delta(list(whole.values())))
                found[f"state/0/{shard}/{version}.snapshot"] = content
        return found

    def write(self, storage: Storage, prefix: str = "") -> None:
        for path, content in self.files().items():
            put(storage, f"{prefix}/{path}" if prefix else path, content)
        storage.sync()

    def metadata(self) -> bytes:
        return b'{"id":"%s"}' % self.query.encode()

    def offsets(self, batch: int) -> bytes:
        settings = {**SETTINGS, PARTITIONS: str(self.shards)}
        conf = ",".join(f'"{key}":"{value}"' for key, value in settings.items())
        source = f'{{"logOffset":{batch}}}' if self.inputs else f'{{"topic":{{"0":{batch * 10}}}}}'
        return f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{1000 + batch},"conf":{{{conf}}}}}\n{source}'.encode()

    def _log(self, batch: int) -> bytes:
        path = f"{self.inputs}/f{batch}.json"
        return b"".join(
            encoders.encode_source_log([{"path": path, "timestamp": batch, "batchId": batch}])
        )

    def _records(self, batch: int, shard: int) -> Iterator[state_files.StateRecord]:
        for key in range(self.keys):
            name = b"key-%04d-%04d" % (shard, key)
            yield state_files.StateRecord(name.ljust(16, b"\0"), (batch + 1).to_bytes(8, "little"))


def put(storage: Storage, path: str, content: bytes) -> None:
    storage.write(path, lambda: iter((content,)))


def held(storage: Storage) -> dict[str, bytes]:
    """Everything at the storage's location."""
    return {file.path: storage.read(file.path) for file in storage.list()}


def commit_next(storage: Storage) -> None:
    """What a job does that goes on there: it plans one batch more, and commits it."""
    last = max(int(file.path.rpartition("/")[2]) for file in storage.list("commits"))
    put(storage, f"offsets/{last + 1}", Checkpoint().offsets(last + 1))
    put(storage, f"commits/{last + 1}", COMMIT)
