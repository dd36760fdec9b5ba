"""A real query of Spark 4.3 on a real Kafka (query.py). A batch costs more than the sleep over its
records, so that what the query can take is what it took while more came.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advise import Counted, Episode, Look
from loads import SPARK_LOADS, Load

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "servers.d")]

from tests.acceptance.support import running, wait_until  # noqa: E402
from tests.support.servers import downloads, group  # noqa: E402

APPLICATION = Path(__file__).with_name("query.py")
TOPIC, PARTITIONS, CORES, TAKES = "load", 4, 2, 0.025
CALIBRATE_SECONDS = 45.0


@dataclass
class Feed:
    """Gives the topic records at a rate that may change."""

    kafka: str
    rate: float = 0.0
    sent: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        from kafka import KafkaProducer

        producer, owed, until = KafkaProducer(bootstrap_servers=self.kafka), 0.0, time.time()
        while not self.ended.wait(0.2):
            now = time.time()
            owed += (now - until) * self.rate
            until = now
            for _ in range(int(owed)):
                producer.send(TOPIC, str(self.sent).encode(), partition=self.sent % PARTITIONS)
                self.sent += 1
            owed -= int(owed)
            producer.flush()


@contextmanager
def feeding(kafka: str) -> Iterator[Feed]:
    from kafka.admin import KafkaAdminClient, NewTopic

    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    KafkaAdminClient(bootstrap_servers=kafka).create_topics([topic])
    feed = Feed(kafka)
    thread = threading.Thread(target=feed.run, daemon=True)
    thread.start()
    try:
        yield feed
    finally:
        feed.ended.set()
        thread.join()


def measured(step: float, look: float) -> list[Episode]:
    folder = Path(tempfile.mkdtemp(prefix="stateshift-advise-"))
    jars = ":".join(map(str, sorted(downloads.jars("kafka-spark-4.3").glob("*.jar"))))
    with group(folder / "servers", "kafka") as servers:
        kafka = servers.exports()["STATESHIFT_KAFKA"]
        spec = _spec(folder, kafka)
        with feeding(kafka) as feed:
            feed.rate = 3 * CORES / TAKES
            words = (APPLICATION, folder, kafka, jars, CORES, TAKES)
            with running(folder / "query.log", *words):
                wait_until(
                    lambda: len(list(folder.glob("checkpoint/commits/[0-9]*"))) > 1,
                    "no batches",
                    600,
                    folder,
                )
                before = _counted(folder, feed)
                time.sleep(CALIBRATE_SECONDS)
                after = _counted(folder, feed)
                can = (after.done - before.done) / (after.time - before.time)
                feed.rate = 0.0
                wait_until(lambda: _waits(folder, feed) < can, "not drained", 600, folder)
                ground = _Ground(folder, spec, feed, can)
                return [ground.under(load, step, look) for load in SPARK_LOADS]


def _spec(folder: Path, kafka: str) -> Path:
    job = {
        "name": "load",
        "checkpoint_location": str(folder / "checkpoint"),
        "remote_location": str(folder / "moved"),
        "kafka": {"bootstrap_servers": kafka},
    }
    spec = folder / "spec.json"
    spec.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    return spec


def _counted(folder: Path, feed: Feed) -> Counted:
    pairs = [file.read_text().split() for file in folder.glob("done-*")]
    busy = sum(float(busy) for _, busy in pairs) / 1e9
    return Counted(time.time(), feed.sent, sum(float(done) for done, _ in pairs), busy)


def _waits(folder: Path, feed: Feed) -> float:
    counted = _counted(folder, feed)
    return counted.arrived - counted.done


@dataclass
class _Ground:
    folder: Path
    spec: Path
    feed: Feed
    can: float

    def under(self, load: Load, step: float, look: float) -> Episode:
        """Return the looks under a load. Its cost is that of one of as many records as it can take
        a second.
        """
        began = time.time()
        one = Episode(f"query, {CORES} cores", load, 1, self._counted(0.0))
        while (seconds := time.time() - began) < step:
            self.feed.rate = load.at(seconds) * self.can
            if seconds >= (len(one.looks) + 1) * look:
                told = self._advised()
                reason = "; ".join(told["reasons"])
                number = len(one.looks) + 1
                counted = self._counted(0.0)
                word, wanted = told["verdict"], told["wanted"]
                one.looks.append(Look(one.job, load.name, number, word, wanted, counted, reason))
                print(f"{load.name}: {number}: {word}: {reason}", flush=True)
            time.sleep(0.5)
        ended = self._counted(0.0)
        one.ended = Counted(
            ended.time, ended.arrived, ended.done, (ended.done - one.began.done) / self.can
        )
        return one

    def _counted(self, busy: float) -> Counted:
        counted = _counted(self.folder, self.feed)
        return Counted(counted.time, counted.arrived, counted.done, busy)

    def _advised(self) -> Any:
        words = ["advise", str(self.spec), "--cores", str(CORES), "--json", "--sample", "10s"]
        words += ["--history", str(self.folder / "history"), "--workdirs", str(self.folder)]
        ran = subprocess.run(
            [sys.executable, "-m", "stateshift", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise SystemExit(ran.stderr[-4000:])
        (told,) = json.loads(ran.stdout)
        return told


def head(step: float, look: float) -> list[str]:
    return [
        f"`./scripts/bench/advise --engine spark --step {step:g} --look {look:g}`, Python "
        f"{platform.python_version()}; {time.strftime('%Y-%m-%d %H:%M')}, the load "
        f"{os.getloadavg()[0]:.1f}. A real query of Spark 4.3 on a real Kafka, with a trigger of two "
        f"seconds; it sleeps for {TAKES * 1000:g} ms over each record. What it can take is what it "
        "took while three times as much came.",
    ]
