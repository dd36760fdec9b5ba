"""Brokers with a topic of numbers, a real Spark that adds them up, and `stateshift reposition`."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.support import ROOT, Ran, _run, stateshift
from tests.support.servers import downloads, spark

JOB = Path(__file__).with_name("repositioned_job.py")
FIRST_MS = int(time.time() - 3600) * 1000  # brokers throw away what is older than a week
SECONDS_MAX = 420

# Its number, which is also what it says of its time; partition and key follow from it.
Numbers = Sequence[int]


@dataclass(frozen=True)
class Shop:
    """The brokers, and a folder for checkpoints and what comes out."""

    brokers: str
    folder: Path
    topic: str = "orders"  # as the old brokers call it

    def make(self, topic: str, partitions: int) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic

        admin = KafkaAdminClient(bootstrap_servers=self.brokers)
        made = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        admin.create_topics([made])
        admin.close()

    def feed(self, topic: str, numbers: Numbers, in_transactions: bool = False) -> None:
        """Records in their order; a few of them a transaction, each of which ends with a marker."""
        from kafka import KafkaProducer

        more = {"transactional_id": f"to-{topic}"} if in_transactions else {}
        producer = KafkaProducer(bootstrap_servers=self.brokers, acks="all", **more)
        if in_transactions:
            producer.init_transactions()
        for start in range(0, len(numbers), 7):
            if in_transactions:
                producer.begin_transaction()
            for number in numbers[start : start + 7]:
                where = {"partition": number % 2 if number < 1000 else 2}
                when = {"timestamp_ms": FIRST_MS + 1000 * number}
                value, key = str(number).encode(), f"k{number % 5}".encode()
                producer.send(topic, value, key=key, **where, **when)
            producer.flush()
            if in_transactions:
                producer.commit_transaction()
        producer.close()

    def run(self, *jobs: tuple[Path, str]) -> list[dict[str, list[int]]]:
        """Let one Spark read these topics from these checkpoints; what each state then holds."""
        words: list[str | Path] = []
        for checkpoint, topic in jobs:
            words += [checkpoint, topic, self.folder / f"{checkpoint.name}.json"]
        path = spark.class_path(spark.installed_home(), downloads.jars("kafka-spark-4.3"))
        submit = f"--conf spark.driver.extraClassPath={path} pyspark-shell"
        command = [sys.executable, str(JOB), self.brokers, *map(str, words)]
        _run(command, self.folder, 0, {"PYSPARK_SUBMIT_ARGS": submit}, SECONDS_MAX)
        outs = [self.folder / f"{checkpoint.name}.json" for checkpoint, _ in jobs]
        return [json.loads(out.read_text()) for out in outs]

    def words(self, source: Path, target: Path, to: Shop) -> tuple[str | Path, ...]:
        """The command by which a job reads on at another shop."""
        brokers = ("--from-brokers", self.brokers, "--to-brokers", to.brokers)
        topic = ("--topic", f"{self.topic}={to.topic}")
        return ("reposition", source, "--to", target, *topic, *brokers, "--fork", "--yes", "--json")

    def reposition(self, source: Path, target: Path, to: Shop, *flags: str, code: int = 0) -> Ran:
        words = (*self.words(source, target, to), *flags)
        return stateshift(*words, cwd=self.folder, code=code, env=self.env)

    @property
    def env(self) -> dict[str, str]:
        return {"STATESHIFT_WORKDIRS": str(self.folder / "runs"), "PYTHONPATH": str(ROOT)}


def sums(*numbers: int) -> dict[str, list[int]]:
    """What a batch over these records computes."""
    added: dict[str, list[int]] = {}
    for number in numbers:
        count, total = added.get(f"k{number % 5}", [0, 0])
        added[f"k{number % 5}"] = [count + 1, total + number]
    return added


def planned_again(checkpoint: Path, copy: Path) -> Path:
    """A copy whose last batch was planned and not committed."""
    shutil.copytree(checkpoint, copy)
    last = max(int(path.name) for path in (copy / "commits").iterdir() if path.name.isdecimal())
    for path in (copy / "commits" / str(last), copy / "commits" / f".{last}.crc"):
        path.unlink(missing_ok=True)
    return copy
