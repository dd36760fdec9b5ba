"""Real Flink jobs that read on at other brokers. There the topic has another name and one partition
more, and the same records at other offsets: behind others, with the ends of transactions between
them, and without those that were read long ago. Sums by key, of which every one is written, are
those of a batch over all records: none is lost, and none is added twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import ROOT, Ran, stateshift
from tests.support.flink import Cluster, cluster_of, lines, until
from tests.support.flink_kafka import connector_jars, job_jar, started
from tests.support.servers import Unavailable, group

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.row("W-5")]
SHOWN_ON = "Flink, Kafka"

OLD, NEW = "orders", "shop-orders"
READ, ALL, GONE = 100, 140, 20  # records of the old topic; those that the new one has no more
LATE = range(1000, 1008)  # of the new topic's third partition
FIRST_MS = int(time.time() - 3600) * 1000  # brokers throw away what is older than a week


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of the old brokers and of the new ones."""
    folder = tmp_path_factory.mktemp("brokers")
    with group(folder / "old", "kafka") as old, group(folder / "new", "kafka") as new:
        yield old.exports()["STATESHIFT_KAFKA"], new.exports()["STATESHIFT_KAFKA"]


@dataclass(frozen=True)
class Shop:
    """A Flink, the brokers that the job reads before and afterwards, and a folder."""

    cluster: Cluster
    jar: Path
    old: str
    new: str
    folder: Path

    def start(self, main_class: str, brokers: str, topic: str, image: Path | None = None) -> str:
        words = {"brokers": brokers, "topic": topic, "output": self.folder / "sums"}
        return started(self.cluster, self.jar, f"jobs.{main_class}", words, image)

    def written(self, count: int) -> dict[str, list[tuple[int, int]]]:
        """Every count and sum of each key, once so many are written."""
        until(lambda: len(lines(self.folder / "sums")) >= count)
        time.sleep(2)  # one that is read twice would come now
        found: dict[str, list[tuple[int, int]]] = {}
        for key, each, total in lines(self.folder / "sums"):
            found.setdefault(key, []).append((each, total))
        return {key: sorted(own) for key, own in found.items()}

    def reposition(self, image: Path, target: Path, topic: str, *flags: str, code: int = 0) -> Ran:
        ends = ("--from-brokers", self.old, "--to-brokers", self.new, "--topic", topic)
        env = {"STATESHIFT_WORKDIRS": str(self.folder / "runs"), "PYTHONPATH": str(ROOT)}
        words = ("reposition", image, "--to", target, *ends, *flags, "--yes", "--json")
        return stateshift(*words, cwd=self.folder, code=code, env=env)


def make(brokers: str, topic: str, partitions: int) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=brokers)
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    admin.close()


def feed(brokers: str, topic: str, numbers: Sequence[int]) -> None:
    """Records in their order, a few of them a transaction, each of which ends with a marker."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=brokers, acks="all", transactional_id=f"to-{topic}")
    producer.init_transactions()
    for start in range(0, len(numbers), 7):
        producer.begin_transaction()
        for number in numbers[start : start + 7]:
            where = {"partition": number % 2 if number < 1000 else 2}
            when = {"timestamp_ms": FIRST_MS + 1000 * number}
            producer.send(topic, str(number).encode(), key=b"k", **where, **when)
        producer.flush()
        producer.commit_transaction()
    producer.close()


def counts(*numbers: int) -> dict[str, int]:
    """How many records each key has."""
    keys = [str(number % 5) for number in numbers]
    return {key: keys.count(key) for key in set(keys)}


def sums(*numbers: int) -> dict[str, int]:
    """What a batch over these records adds up, by key."""
    added: dict[str, int] = {}
    for number in numbers:
        key = str(number % 5)
        added[key] = added.get(key, 0) + number
    return added


def assert_exact(found: dict[str, list[tuple[int, int]]], *numbers: int) -> None:
    """Each count of each key is there once, and the last sums are those of a batch."""
    expected = counts(*numbers)
    assert {key: [count for count, _ in own] for key, own in found.items()} == {
        key: list(range(1, count + 1)) for key, count in expected.items()
    }
    assert {key: own[-1][1] for key, own in found.items()} == sums(*numbers)


@pytest.mark.parametrize(
    ("server", "version", "main_class"),
    [
        ("flink-1.20", "1.20.5", "SumsOfKafka"),
        ("flink-1.20", "1.20.5", "SumsOfKafkaBefore"),
        ("flink-a", "2.3.0", "SumsOfKafka"),
    ],
)
def test_a_job_reads_on_at_other_brokers_without_a_loss_and_without_a_repetition(
    brokers: tuple[str, str], tmp_path: Path, server: str, version: str, main_class: str
) -> None:
    try:
        connector = connector_jars(version)
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    own = f"-{version}-{main_class}".lower()  # topics of its own
    old_topic, new_topic = OLD + own, NEW + own
    old, new = brokers
    with group(tmp_path / "servers", server) as servers:
        cluster = cluster_of(servers, server)
        shop = Shop(cluster, job_jar(cluster.lib, connector, tmp_path), old, new, tmp_path)
        make(old, old_topic, 2)
        feed(old, old_topic, range(READ))
        job = shop.start(main_class, old, old_topic)
        shop.written(READ)
        if main_class.endswith("Before"):
            # Stopped with a savepoint, this source leaves no offsets in it.
            image = cluster.saved(job, tmp_path / "taken")
            cluster.cancelled(job)
        else:
            image = cluster.stopped(job, tmp_path / "taken")

        feed(old, old_topic, range(READ, ALL))
        make(new, new_topic, 3)
        feed(new, new_topic, [-2 - number for number in range(35)])
        feed(new, new_topic, range(GONE, ALL))
        feed(new, new_topic, LATE)
        unread = ALL - READ

        target, topic = tmp_path / "repositioned", f"{old_topic}={new_topic}"
        refused = shop.reposition(image, target, topic, "--by", "latest", code=4)
        assert f"{unread} records would be skipped" in refused.out and not target.exists()
        told: list[dict[str, Any]]
        told = shop.reposition(image, target, topic, "--by", "records").json["sources"]
        assert [each["partition"] for each in told] == [f"{new_topic}/{n}" for n in range(3)]
        assert {(each["again"], each["skipped"]) for each in told} == {(0, 0)}
        assert all(each["from"] != each["to"] for each in told), "they are elsewhere there"
        stateshift("verify", target, "--deep", cwd=tmp_path)

        job = shop.start(main_class, new, new_topic, target)
        found = shop.written(ALL + len(LATE))
        assert_exact(found, *range(ALL), *LATE)
        cluster.cancelled(job)
