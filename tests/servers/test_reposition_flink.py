"""Real Flink jobs that read on at other brokers, or in files that were copied. At the brokers the
topic has another name and one partition more, and the same records at other offsets: behind others,
with the ends of transactions between them, and without those that were read long ago. Sums by key,
of which every one is written, are those of a batch over all records: none is lost, and none is
added twice.
"""

from __future__ import annotations

import shutil
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


@pytest.mark.parametrize(
    ("server", "version"), [("flink-1.20", "1.20.5"), ("flink-a", "2.3.0")], ids=["1.20.5", "2.3.0"]
)
def test_a_job_reads_on_in_copied_files_without_a_loss_and_without_a_repetition(
    tmp_path: Path, server: str, version: str
) -> None:
    """Two files are half read, others wait, and some come later. The old ones are then gone."""
    try:
        connector = connector_jars(version)
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    old, new = tmp_path / "in", tmp_path / "elsewhere" / "in"
    each, count = 120, 8  # lines of a file, and files

    def put(folder: Path, number: int) -> None:
        held = range(each * number, each * (number + 1))
        (folder / f"part {number}.txt").write_text("".join(f"{line}\n" for line in held))

    old.mkdir()
    for number in range(count):
        put(old, number)
    with group(tmp_path / "servers", server) as servers:
        cluster = cluster_of(servers, server)
        shop = Shop(cluster, job_jar(cluster.lib, connector, tmp_path), "", "", tmp_path)
        words = {"output": tmp_path / "sums", "line-ms": 20}
        job = started(cluster, shop.jar, "jobs.SumsOfFiles", {**words, "files": old})
        shop.written(each)
        image = cluster.stopped(job, tmp_path / "taken")
        assert len(lines(tmp_path / "sums")) < each * count

        target = tmp_path / "repositioned"
        env = {"STATESHIFT_WORKDIRS": str(tmp_path / "runs"), "PYTHONPATH": str(ROOT)}
        command = ("reposition", image, "--to", target, "--root", new, "--from-root", old, "--yes")
        shutil.copytree(old, new)
        for file in new.iterdir():
            file.write_text("0\n")
        refused = stateshift(*command, cwd=tmp_path, code=4, env=env)
        assert "is shorter than the file that the job reads" in refused.err and not target.exists()
        for number in range(count):
            put(new, number)
        told = stateshift(*command, "--json", cwd=tmp_path, env=env).json["sources"]
        assert len(told) > 2 and {(one["again"], one["skipped"]) for one in told} == {(0, 0)}
        assert all(one["partition"].startswith(f"file:{new}/part ") for one in told)
        assert any(one["from"] for one in told), "a file that is half read"
        stateshift("verify", target, "--deep", cwd=tmp_path)

        shutil.rmtree(old)
        put(new, count)  # a file that the job has not seen before
        words = {**words, "line-ms": 0, "files": new}
        job = started(cluster, shop.jar, "jobs.SumsOfFiles", words, target)
        assert_exact(shop.written(each * (count + 1)), *range(each * (count + 1)))
        cluster.cancelled(job)
