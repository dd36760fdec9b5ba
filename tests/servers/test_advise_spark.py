"""A real query of Spark that a real Kafka gives more than it can take is told how many cores it
needs; with those, what waits gets less. There is no agent in the query.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import running, wait_until
from tests.cli.support import said
from tests.support.servers import Unavailable, downloads, group

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.row("IF-19", on="Spark"),
    pytest.mark.row("W-11", on="Spark, Kafka"),
]
APPLICATION = Path(__file__).with_name("loaded_query.py")
TOPIC, PARTITIONS = "load", 12
ARRIVES, TAKES = 60.0, 0.025  # records a second; seconds over each
SECONDS_MAX = 600.0  # a busy machine takes minutes to start a Spark


@dataclass
class Ground:
    """A query, its checkpoint and its brokers."""

    folder: Path
    kafka: str
    jars: str

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def batches(self) -> int:
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))

    @contextmanager
    def running(self, cores: int) -> Iterator[None]:
        """Run the query until it has committed a few more batches, and while this lasts."""
        words = ("--checkpoint", str(self.checkpoint), "--kafka", self.kafka, "--jars", self.jars)
        before = self.batches()
        asked = ("--cores", cores, "--seconds", TAKES)
        with running(self.folder / f"{cores}.log", APPLICATION, *words, *asked):
            wait_until(lambda: self.batches() >= before + 3, "no batches", SECONDS_MAX, self.folder)
            yield

    def advised(self, cores: int) -> Any:
        job = {
            "name": "load",
            "checkpoint_location": str(self.checkpoint),
            "remote_location": str(self.folder / "moved"),
            "kafka": {"bootstrap_servers": self.kafka},
        }
        spec = self.folder / "spec.json"
        spec.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
        ran = said(
            *("advise", str(spec), "--cores", str(cores), "--sample", "20s", "--json"),
            *("--set", "metrics.window=60s", "--workdirs", str(self.folder)),
        )
        assert ran.code == 0, ran.err
        (told,) = ran.document
        print({key: told[key] for key in told if key not in ("inputs", "vertices")}, flush=True)
        return told


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    try:
        jars = sorted(downloads.jars("kafka-spark-4.3").glob("*.jar"))
    except Unavailable as reason:
        pytest.skip(f"Kafka's connector cannot be had: {reason}")
    with group(tmp_path / "servers", "kafka") as servers:
        kafka = servers.exports()["STATESHIFT_KAFKA"]
        with feeding(kafka):
            yield Ground(tmp_path, kafka, ":".join(map(str, jars)))


@contextmanager
def feeding(kafka: str) -> Iterator[None]:
    """Give the topic records at a steady pace while this lasts."""
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    KafkaAdminClient(bootstrap_servers=kafka).create_topics(
        [NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)]
    )
    producer, ended = KafkaProducer(bootstrap_servers=kafka), threading.Event()

    def feed() -> None:
        number = 0
        while not ended.wait(1.0):
            for _ in range(int(ARRIVES)):
                producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
                number += 1
            producer.flush()

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_query_that_falls_back_is_told_how_many_cores_it_needs(ground: Ground) -> None:
    with ground.running(cores=1):
        before = ground.advised(cores=1)
    assert before["verdict"] == "scale"
    assert before["drain_seconds"] is None
    cores = before["wanted"]
    assert cores >= 2
    with ground.running(cores=cores):
        after = ground.advised(cores=cores)
        later = ground.advised(cores=cores)
    assert after["verdict"] != "unknown"
    assert later["lag"] < after["lag"]
    (vertex,) = after["vertices"]
    assert vertex["true_rate"] > 1.5 * before["vertices"][0]["true_rate"]
