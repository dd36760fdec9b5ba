"""A checkpoint in memory as a query of Spark keeps it, and the command before it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stateshift.advise.evaluate.spark_batches import PlannedBatch, SparkSample
from stateshift.advise.metrics.spark import Brokers, Checkpoint, SparkQuery
from stateshift.migration import Adapters
from stateshift.specification.model import KafkaSpec
from stateshift.storage.protocol import Storage
from tests.advise.measured_flink import BEGAN
from tests.cli.support import SOURCE, Outside, Said
from tests.support.ground import Clock

NOW = BEGAN


def batches(
    count: int, every: float, takes: float, records: int | None, first: int = 0
) -> tuple[PlannedBatch, ...]:
    """The last `count` batches before NOW, all alike."""
    begin = NOW - count * every
    return tuple(
        PlannedBatch(first + i, begin + i * every, begin + i * every + takes, records)
        for i in range(count)
    )


@dataclass
class QueryGround(Outside):
    """A checkpoint in memory, brokers, and the command before them."""

    clock: Clock = field(default_factory=lambda: Clock(BEGAN))
    ends: dict[int, int] = field(default_factory=dict)
    arrives: float = 0.0  # a second

    @property
    def adapters(self) -> Adapters:
        return replace(super().adapters, ask_topics=self.ask)

    def storage(self) -> Storage:
        return self.disk.open(SOURCE)

    def write_batches(
        self,
        made: Sequence[PlannedBatch],
        prefix: str = "",
        conf: str = "",
        read: int = 0,
        real_time: bool = False,
    ) -> None:
        """Write batches; the one before them has read so many records. In real-time mode a batch's
        offset log is written when it ends.
        """
        storage = self.storage()
        before = PlannedBatch(made[0].id - 1, made[0].started - 60, made[0].started - 30, 0)
        for batch in (before, *made):
            read += batch.records or 0
            header = json.dumps(
                {
                    "batchWatermarkMs": 0,
                    "batchTimestampMs": int(batch.started * 1000),
                    "conf": {"spark.sql.shuffle.partitions": conf or "200"},
                }
            )
            offsets = json.dumps({"orders": {"0": read // 2, "1": read - read // 2}})
            content = f"v1\n{header}\n{offsets}".encode()
            place = f"{prefix}/" if prefix else ""
            written = batch.committed if real_time else batch.started
            path = f"{place}offsets/{batch.id}"
            storage.write(path, lambda content=content: iter([content]), written)
            if batch.committed is not None:
                storage.write(
                    f"{place}commits/{batch.id}",
                    lambda: iter([b'v1\n{"nextBatchWatermarkMs":0}']),
                    batch.committed,
                )
        self.ends = {0: read // 2, 1: read - read // 2}

    def ask(
        self, kafka: KafkaSpec, topics: Sequence[str]
    ) -> Mapping[str, Mapping[int, tuple[int, int]]]:
        assert kafka.bootstrap_servers == "here:9092"
        more = int(self.arrives * (self.clock.time - BEGAN) / 2)
        return {topic: {n: (0, end + more) for n, end in self.ends.items()} for topic in topics}

    def look(self) -> SparkSample:
        brokers = Brokers(KafkaSpec("here:9092"), self.ask)
        return SparkQuery(Checkpoint(self.storage()), self.clock, 900.0, brokers).look()

    def advise(self, *argv: str) -> Said:
        return self.run("advise", *argv, "--workdirs", str(self.folder))

    def spec(self, **job: Any) -> str:
        path = self.folder / "spec.json"
        plain = {
            "name": "orders",
            "checkpoint_location": SOURCE,
            "remote_location": "hdfs://there:8020/ck/orders",
            "kafka": {"bootstrap_servers": "there:9092", "source_bootstrap_servers": "here:9092"},
            **job,
        }
        path.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [plain]}))
        return str(path)
