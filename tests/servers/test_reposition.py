"""Real Spark jobs that read on in another topic: two topics of one broker stand for two clusters.
The second one holds the same records at other offsets: behind others, with the ends of transactions
between them, without those that were read long ago, and with a partition more.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import ROOT, Ran, _run, stateshift
from tests.servers.scene_specs import _artifact
from tests.support.servers import Servers, Unavailable, downloads, group

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.row("W-5")]
SHOWN_ON = "Spark, Kafka"

JOB = Path(__file__).with_name("repositioned_job.py")
OLD, NEW = "orders", "shop-orders"
FIRST_MS = int(time.time() - 3600) * 1000  # brokers throw away what is older than a week
READ, ALL, GONE = 100, 140, 20  # records of the old topic; those that the new one has no more
SECONDS_MAX = 420

# Its number, which is also what it says of its time; partition and key follow from it.
Numbers = Sequence[int]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    try:
        downloads.jars("kafka-spark-4.3")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    with group(tmp_path_factory.mktemp("reposition"), "kafka") as servers:
        yield servers


@dataclass(frozen=True)
class Shop:
    """The brokers, and a folder for checkpoints and what comes out."""

    brokers: str
    folder: Path

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
        import pyspark

        home = Path(pyspark.__file__).parent / "jars"
        known = {_artifact(jar) for jar in home.glob("*.jar")}
        jars = downloads.jars("kafka-spark-4.3").glob("*.jar")
        path = ":".join(str(jar) for jar in sorted(jars) if _artifact(jar) not in known)
        submit = f"--conf spark.driver.extraClassPath={path} pyspark-shell"
        command = [sys.executable, str(JOB), self.brokers, *map(str, words)]
        _run(command, self.folder, 0, {"PYSPARK_SUBMIT_ARGS": submit}, SECONDS_MAX)
        outs = [self.folder / f"{checkpoint.name}.json" for checkpoint, _ in jobs]
        return [json.loads(out.read_text()) for out in outs]

    def reposition(self, source: Path, target: Path, *flags: str, code: int = 0) -> Ran:
        brokers = ("--from-brokers", self.brokers, "--to-brokers", self.brokers)
        topic = ("--topic", f"{OLD}={NEW}")
        words = ("reposition", source, "--to", target, *topic, *brokers, *flags)
        runs = self.folder / "runs"
        env = {"STATESHIFT_WORKDIRS": str(runs), "PYTHONPATH": str(ROOT)}
        return stateshift(*words, "--fork", "--yes", "--json", cwd=self.folder, code=code, env=env)


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


def test_a_job_reads_on_in_another_topic_without_a_loss_and_without_a_repetition(
    servers: Servers, tmp_path: Path
) -> None:
    shop = Shop(servers.exports()["STATESHIFT_KAFKA"], tmp_path)
    shop.make(OLD, 2)
    shop.feed(OLD, range(READ))
    source = tmp_path / "source"
    (read,) = shop.run((source, OLD))
    assert read == sums(*range(READ))
    planned = planned_again(source, tmp_path / "planned")

    shop.feed(OLD, range(READ, ALL))
    shop.make(NEW, 3)
    foreign = [-2 - number for number in range(35)]
    shop.feed(NEW, foreign)
    shop.feed(NEW, range(GONE, ALL), in_transactions=True)
    new = range(1000, 1008)  # of the third partition, which the job has not read before
    shop.feed(NEW, new)
    expected = sums(*range(ALL), *new)

    ways: dict[str, tuple[str, ...]] = {
        "records": ("--by", "records"),
        "timestamp": ("--by", "timestamp"),
    }
    targets = {name: tmp_path / f"by-{name}" for name in ways}
    told: dict[str, Any] = {}
    for name, flags in ways.items():
        told[name] = shop.reposition(source, targets[name], *flags).json["sources"]
        assert [each["partition"] for each in told[name]] == [f"{NEW}/{n}" for n in range(3)]
        assert {(each["again"], each["skipped"]) for each in told[name]} == {(0, 0)}
    offsets = {each["partition"]: each["to"] for each in told["records"]}
    assert offsets[f"{NEW}/0"] != READ // 2, "they stand elsewhere there"

    file = tmp_path / "offsets.csv"
    lines = [f"{NEW},{number},{offsets[f'{NEW}/{number}']}" for number in range(3)]
    file.write_text("topic,partition,offset\n" + "\n".join(lines[:2]))
    by_file = ("--by", "offsets", "--offsets", str(file))
    targets["offsets"] = tmp_path / "by-offsets"
    refused = shop.reposition(source, targets["offsets"], *by_file, code=4)
    assert f"does not name {NEW}/2" in refused.out
    assert not targets["offsets"].exists()
    file.write_text("\n".join(lines))
    shop.reposition(source, targets["offsets"], *by_file)

    targets["planned"] = tmp_path / "by-planned"
    shop.reposition(planned, targets["planned"], "--by", "records")
    assert NEW in (targets["planned"] / "offsets" / _newest(targets["planned"])).read_text()

    targets["latest"] = tmp_path / "by-latest"
    unread = ALL - READ
    refused = shop.reposition(source, targets["latest"], "--by", "latest", code=4)
    assert f"{unread} records would be skipped" in refused.out
    accepted = ("--by", "latest", "--accept-skipped", str(unread))
    shop.reposition(source, targets["latest"], *accepted)

    names = list(targets)
    ended = dict(zip(names, shop.run(*((targets[name], NEW) for name in names)), strict=True))
    for name in ("records", "timestamp", "offsets", "planned"):
        assert ended[name] == expected, name
    assert ended["latest"] == sums(*range(READ), *new)


def _newest(checkpoint: Path) -> str:
    names = [name for name in os.listdir(checkpoint / "offsets") if name.isdecimal()]
    return max(names, key=int)
