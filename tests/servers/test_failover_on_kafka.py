"""A real Spark job reads a real Kafka, is lost, and goes on from its standby: its totals are those of
the topic, each record counted once, and what was lost is told.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import (
    ROOT,
    end_jobs,
    environment,
    kill_jobs,
    running,
    stateshift,
    wait_until,
)
from tests.servers.standby import LOST, SECONDS_MAX, following
from tests.support.servers import Servers, Unavailable, downloads, group, start, stop

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.row("W-22", on="Kafka"),
]
APPLICATION = Path(__file__).with_name("totals_job.py")
TOPIC, PARTITIONS, KEYS = "numbers", 2, 7
Totals = dict[str, list[int]]


@dataclass
class Region:
    """The job's topic and clusters. Its primary is at `here`, its standby at `there`."""

    folder: Path
    kafka: str
    jars: str
    servers: Servers
    topic: str = TOPIC
    sent: int = 0
    expired: Totals = field(default_factory=dict)

    @property
    def here(self) -> Path:
        return self.folder / "here"

    @property
    def there(self) -> Path:
        return self.folder / "there"

    def words(self, output: str = "output") -> tuple[str, ...]:
        place = str(self.folder / output)
        return ("--kafka", self.kafka, "--topic", self.topic, "--output", place)

    def spec(self, name: str, **keys: Any) -> Path:
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            "spark.driver.extraClassPath": self.jars,
        }
        cluster = {
            "kind": "spark_submit",
            "master": "local[2]",
            "conf": settings,
            "state_dir": str(self.folder / "jobs"),
        }
        submit = {
            "application": str(APPLICATION),
            "arguments": [*self.words()],
            "seconds_max": SECONDS_MAX,
        }
        job = {
            "name": "totals",
            "checkpoint_location": str(self.here),
            "target_cluster": "local",
            "submit": submit,
        }
        plain = {
            "version": 1,
            "engine": "spark",
            "restart": "remote_location" in keys,
            "clusters": {"local": cluster},
            "kafka": keys.pop("kafka", {"bootstrap_servers": self.kafka}),
            "jobs": [{**job, **keys}],
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(plain))
        return path

    def feed(self, count: int) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self.kafka, acks="all")
        for number in range(self.sent, self.sent + count):
            producer.send(
                self.topic,
                str(number).encode(),
                key=f"key-{number % KEYS}".encode(),
                partition=number % PARTITIONS,
            )
        producer.flush()
        producer.close()
        self.sent += count

    def recomputed(self) -> Totals:
        """The totals of all that the topic holds, and of what it has held."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.kafka)
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        totals = {key: [*total] for key, total in self.expired.items()}
        while any(consumer.position(each) < ends[each] for each in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                for record in batch:
                    total = totals.setdefault(record.key.decode(), [0, 0])
                    total[0] += 1
                    total[1] += int(record.value)
        consumer.close()
        return totals

    def expire(self) -> None:
        """Retention removes every record that the topic has."""
        from kafka import TopicPartition
        from kafka.admin import KafkaAdminClient

        self.expired = self.recomputed()
        admin = KafkaAdminClient(bootstrap_servers=self.kafka)
        end = self.sent // PARTITIONS
        admin.delete_records(
            {TopicPartition(self.topic, number): end for number in range(PARTITIONS)}
        )
        admin.close()

    def commits(self, checkpoint: Path) -> dict[int, bytes]:
        found = (checkpoint / "commits").glob("[0-9]*")
        return {int(path.name): path.read_bytes() for path in found}

    def epoch(self, checkpoint: Path) -> int:
        return max(self.commits(checkpoint), default=-1)

    def totals(self, checkpoint: Path) -> Totals:
        """The job's totals, by the newest batch that it has committed."""
        path = self.folder / "output" / f"{self.epoch(checkpoint):06}.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def counted(self, checkpoint: Path, count: int) -> None:
        """Wait until the job has counted so many records."""

        def is_done() -> bool:
            return sum(counted for counted, _ in self.totals(checkpoint).values()) == count

        self.until(is_done, f"{count} records are not counted")

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        wait_until(done, otherwise, SECONDS_MAX, logs=self.folder / "jobs")

    def said(self, *words: str | Path) -> Any:
        return stateshift(*words, "--json", cwd=ROOT).json

    def lag(self) -> Any:
        """Return the standby's status. On a busy machine the broker's answer may be late."""
        told: list[Any] = []

        def has_answer() -> bool:
            told.append(self.said("status", self.there))
            return told[-1]["rpo_records"] is not None

        self.until(has_answer, "the broker gives no answer")
        return told[-1]


@pytest.fixture
def region(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Region]:
    from kafka.admin import KafkaAdminClient, NewTopic

    try:
        jars = sorted(downloads.jars("kafka-spark-4.3").glob("*.jar"))
    except Unavailable as reason:
        pytest.skip(f"Kafka's connector cannot be had: {reason}")
    with group(tmp_path_factory.mktemp("kafka"), "kafka") as servers:
        kafka = servers.exports()["STATESHIFT_KAFKA"]
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        admin = KafkaAdminClient(bootstrap_servers=kafka)
        admin.create_topics([topic])
        admin.close()
        try:
            yield Region(tmp_path, kafka, ":".join(map(str, jars)), servers)
        finally:
            end_jobs(tmp_path, ("here", "there"))
            stop(servers, "kafka-2", "mirrormaker")


@pytest.mark.row("W-5", on="Spark, Kafka")
def test_the_job_reads_on_at_the_brokers_of_its_standby(region: Region) -> None:
    """The primary's brokers are lost with it; MirrorMaker 2 has copied them, to other offsets."""
    here, there, folder, servers = region.here, region.there, region.folder, region.servers
    region.feed(20)
    region.expire()  # before a mirror has seen them: its offsets are others
    region.expired = {}
    region.feed(180)
    region.said("apply", region.spec("first"), "--yes", "--workdir", folder / "first")
    region.counted(here, 180)
    start(servers, "kafka-2", "mirrormaker")
    remote = replace(region, kafka=servers.exports()["STATESHIFT_KAFKA_2"], topic=f"a.{TOPIC}")

    def is_copied() -> bool:
        with suppress(KeyError):  # the topic is not there yet
            return region.recomputed() == remote.recomputed()
        return False

    region.until(is_copied, "the mirror does not copy")
    change = {"kind": "reposition", "topics": {TOPIC: remote.topic}, "by": "mirrormaker"}
    brokers = {"bootstrap_servers": remote.kafka, "source_bootstrap_servers": region.kafka}
    keys = {"mode": "warm", "cutover": "never", "remote_location": str(there)}
    more = {"transform": [change], "kafka": brokers, "waive": ["paths-stay"]}
    spec = remote.spec("standby", **keys, **more, source_cluster="local")
    with following(folder, spec, there, environment()) as fed:
        fed.says(f"can be started from epoch {region.epoch(here)}")
        region.feed(60)
        region.counted(here, 240)
        fed.says(f"can be started from epoch {region.epoch(here)}")
        region.until(is_copied, "the mirror lags")
        kill_jobs(folder / "jobs")
        here.rename(folder / "gone")
        servers.kill("kafka", "broker")
        remote.sent = region.sent
        remote.feed(40)
        told = region.said("failover", there, "--primary-is-down", "--yes")
    (job,) = told["report"]["jobs"]
    assert [(each["again"], each["skipped"]) for each in told["sources"]] == [(0, 0), (0, 0)]
    assert all(each["from"] - 10 == each["to"] for each in told["sources"])
    assert job["failover"]["rpo"]["records"] is None
    remote.counted(there, 280)
    assert remote.totals(there) == remote.recomputed()


def test_the_job_counts_each_record_of_its_topic_once(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, folder = region.here, region.there, region.folder
    region.feed(200)
    region.said("apply", region.spec("first"), "--yes", "--workdir", folder / "first")
    region.counted(here, 200)
    keys = {"mode": "warm", "cutover": "never", "remote_location": str(there)}
    spec = region.spec("standby", **keys, source_cluster="local", waive=["paths-stay"])
    with following(folder, spec, there, environment()) as fed:
        fed.says(f"can be started from epoch {region.epoch(here)}")
        level = region.lag()
        assert (level["rpo_batches"], level["rpo_records"]) == (0, 0)

        # From here on the state alone knows what was read. What feeds the standby hangs, and the
        # job goes on.
        region.expire()
        os.kill(fed.process.pid, signal.SIGSTOP)
        for _ in range(3):
            region.feed(20)
            region.counted(here, region.sent)
        lost = region.epoch(here) - level["epoch"]
        behind = region.lag()
        assert (behind["rpo_batches"], behind["rpo_records"]) == (lost, 60)

        # Its region is gone; records keep coming.
        kill_jobs(folder / "jobs")
        here.rename(folder / "gone")
        os.kill(fed.process.pid, signal.SIGCONT)
        region.feed(40)
        fed.says(LOST)
        dark = region.lag()
        assert (dark["rpo_batches"], dark["rpo_records"]) == (None, 100)
        report = region.said("failover", there, "--primary-is-down", "--yes")["report"]
        assert fed.process.wait(60) == 4, fed.told.read_text()
    (job,) = report["jobs"]
    told = job["failover"]
    assert (told["epoch"], told["rpo"]["batches"], told["rpo"]["records"]) == (
        level["epoch"],
        None,
        100,
    )
    region.counted(there, region.sent)
    region.feed(50)
    region.counted(there, region.sent)
    assert region.totals(there) == region.recomputed()

    # The old primary wakes up.
    (folder / "gone").rename(here)
    fenced = region.said("failover", there)
    assert fenced["fenced"] and fenced["batches_ahead"] == lost
    before = region.commits(here)
    monkeypatch.setenv("STATESHIFT_CHECKPOINT", str(here))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-class-path {region.jars} pyspark-shell")
    with running(folder / "woken.log", APPLICATION, *region.words("of-the-primary")) as process:
        assert process.wait(SECONDS_MAX) != 0, "it cannot go on, and ends"
    assert f"Failed to read log file file:{here}/" in (folder / "woken.log").read_text()
    assert region.commits(here) == before, "the fence, and nothing else"
    region.feed(10)
    region.counted(there, region.sent)
    assert region.totals(there) == region.recomputed()
