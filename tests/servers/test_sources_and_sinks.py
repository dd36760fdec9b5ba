"""Sources beside sinks: a real job is moved at rest, moved while it runs, moved without
Spark's commit of the batch that its sink has, forked, rewound, and lost to its standby. What
readers of the sink see in the end is what a job that was never interrupted writes.

Kafka's sink has no memory: a batch that runs again is there twice, at the target as in place.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import Numbered, Row
from tests.acceptance.support import environment, last_number, stateshift, wait_until, write_spec
from tests.acceptance.test_numbered_sinks import brought, on_tables
from tests.acceptance.test_rewind_beside_sinks import (
    BACK_TO,
    RENUMBERED,
    emptied,
    gone_back,
    removed,
    version_in,
)
from tests.servers.standby import LOST, SECONDS_MAX, following
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]
SHOWN_ON = "Spark, Kafka, Delta, Iceberg"

FED = 5  # files before
STARTING = """
import subprocess, sys
log, process, *command = sys.argv[1:]
streams = {"stdin": subprocess.DEVNULL, "stdout": open(log, "wb"), "stderr": subprocess.STDOUT}
open(process, "w").write(str(subprocess.Popen(command, start_new_session=True, **streams).pid))
print("job")
"""  # a process that goes on by itself

PAIRS = [
    *(("files", sink) for sink in ("foreach-batch", "file", "delta", "iceberg", "kafka")),
    *((source, "foreach-batch") for source in ("kafka", "delta", "iceberg")),
    *((kind, kind) for kind in ("kafka", "delta", "iceberg")),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("cells"), "kafka") as servers:
        yield servers


class Cells:
    """One job, which begins again and again from its folder as it was kept."""

    def __init__(self, folder: Path, source: str, sink: str, brokers: str) -> None:
        python, jars = "", ()
        for kind in ("delta", "iceberg", "kafka"):
            python, more = on_tables(f"{kind}-spark-4.0")
            jars += more if kind in (source, sink) else ()
        topic = f"{source}-{sink}"
        place = folder / "job"
        self.job = Numbered(place, sink, "hdfs", 1, python, jars, source, brokers, topic)
        self.folder, self.here, self.there = folder, place / "checkpoint", place / "moved"
        self.before: list[Row] = []
        self.fed = 0

    def keep(self) -> None:
        shutil.copytree(self.job.folder, self.folder / "kept")
        self.before = self.in_topic()

    def begin_again(self) -> None:
        """From the folder that was kept; a topic does not go back."""
        shutil.rmtree(self.job.folder)
        shutil.copytree(self.folder / "kept", self.job.folder)
        for place in ("run", "gone", "failover"):
            shutil.rmtree(self.folder / place, ignore_errors=True)
        self.since = len(self.in_topic())
        if self.job.source != "kafka":
            self.fed = FED

    def feed(self, files: int) -> None:
        """So many more. All that were ever fed to a topic are in it."""
        first = 0 if self.job.source == "kafka" else self.fed
        self.fed += files
        self.job.feed(first, self.fed)

    def in_topic(self) -> list[Row]:
        """What the sink's topic holds of all the job's lives, in order."""
        if self.job.sink != "kafka":
            return []
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.job.brokers)
        where = TopicPartition(f"{self.job.topic}-rows", 0)
        consumer.assign([where])
        consumer.seek_to_beginning()
        (end,) = consumer.end_offsets([where]).values()
        rows: list[Row] = []
        while consumer.position(where) < end:
            for batch in consumer.poll(timeout_ms=500).values():
                found = (json.loads(record.value) for record in batch)
                rows += [(each["start"], each["key"], each["count"], each["sum"]) for each in found]
        consumer.close()
        return rows

    def rows(self) -> list[Row]:
        if self.job.sink != "kafka":
            return self.job.rows()
        return sorted(self.before + self.in_topic()[self.since :])

    def ends(self, repeated: bool = False, restore: int | None = None) -> None:
        """Start it at the target: it reads on to the end."""
        self.feed(2)
        assert self.job.run(self.there, restore) == ""
        rows, expected = self.rows(), self.job.expected(self.fed)
        if repeated and self.job.sink == "kafka":
            assert len(rows) >= len(expected)
            rows = sorted(set(rows))
        assert rows == expected

    def take_commit(self) -> None:
        """Take Spark's newest commit away, as if the job had been killed between the commits. The
        sinks that can be watched are killed for real in tests/acceptance/test_numbered_sinks.py.
        """
        newest = last_number(self.here / "commits")
        for name in (str(newest), f".{newest}.crc"):
            (self.here / "commits" / name).unlink(missing_ok=True)

    def cluster_of(self, group: int) -> dict[str, Any]:
        return {
            "kind": "command",
            "find": f"kill -0 {group} 2>/dev/null && echo running {group} || echo absent",
            "stop": [sys.executable, "-c", f"import os; os.killpg({group}, 9)"],
            "submit": "false",
        }

    def warm(self) -> None:
        """Bring it over while it runs, and stop it by SIGKILL."""
        self.feed(1)
        with self.job.running(self.here) as group:
            warm = {"mode": "warm", "until": "remaining < 60s", "stop": {"seconds_max": 60}}
            clusters = {"ours": self.cluster_of(group)}
            brought(self.folder, self.job, **warm, source_cluster="ours", clusters=clusters)
        report = json.loads((self.folder / "run" / "report.json").read_text())
        assert report["jobs"][0]["rounds"]

    def lost(self) -> None:
        """Its standby follows it. Then it is gone, and goes on at the standby."""
        self.feed(1)
        keys = {"mode": "warm", "cutover": "never", "waive": ["paths-stay"], "name": "windows"}
        places = {"checkpoint_location": str(self.here), "remote_location": str(self.there)}
        clusters = {"source_cluster": "ours", "target_cluster": "theirs", "submit": {}}
        spec = write_spec(self.folder / "standby.json", **keys, **places, **clusters)
        log, process = self.folder / "theirs.log", self.folder / "theirs.pid"
        starting = [sys.executable, "-c", STARTING, log, process, *self.job.command(self.there)]
        theirs = {
            "kind": "command",
            "find": f"kill -0 $(cat {process}) 2>/dev/null && echo running job || echo absent",
            "submit": [*map(str, starting), "--for-ever"],
        }
        with self.job.running(self.here) as group:
            plain = json.loads(spec.read_text())
            plain["clusters"] = {"ours": self.cluster_of(group), "theirs": theirs}
            spec.write_text(json.dumps(plain))
            with following(self.folder, spec, self.there, environment()) as fed:

                def is_level() -> bool:
                    newest = last_number(self.here / "commits")
                    return f"can be started from epoch {newest} " in fed.told.read_text()

                wait_until(is_level, "the standby is behind", SECONDS_MAX, self.folder)
                os.killpg(group, signal.SIGKILL)
                self.here.rename(self.folder / "gone")
                fed.says(LOST)
                self.feed(1)
                words = ("--primary-is-down", "--yes", "--workdir", self.folder / "failover")
                try:
                    stateshift("failover", self.there, *words, cwd=self.folder)
                finally:
                    os.killpg(int(process.read_text()), signal.SIGKILL)
                fed.process.wait(60)

    def take_back(self, keys: dict[str, Any]) -> int | None:
        """Do what the plan of a rewind says is to be done to the sink. Return to where its table
        goes back.
        """
        newest = last_number(self.here / "commits")
        sink, output = self.job.sink, self.job.output
        place = output / "db" / "rows" if sink == "iceberg" else output
        if sink in ("file", "delta", "iceberg"):
            keys = {**keys, "sink": {"kind": sink, "location": str(place)}}
        hint = gone_back(self.folder, self.job, keys)["hint"]
        (self.job.folder / "there").rename(self.there)
        match sink:
            case "file":
                emptied(self.job, newest)
            case "foreach-batch":
                removed(self.job, newest)
            case "delta":
                return version_in(hint, "AS OF")
            case "iceberg":
                return version_in(hint, "snapshot")
        return None


@pytest.mark.row("W-1", "W-4")
@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_what_readers_see_is_what_an_undisturbed_job_writes(
    servers: Servers, tmp_path: Path, source: str, sink: str
) -> None:
    cells = Cells(tmp_path, source, sink, servers.exports()["STATESHIFT_KAFKA"])
    cells.feed(FED)
    assert cells.job.run(cells.here) == ""
    assert last_number(cells.here / "commits") > BACK_TO
    cells.keep()

    cells.begin_again()
    cells.take_commit()
    brought(tmp_path, cells.job)
    cells.ends(repeated=True)

    for keys in ({}, {"mode": "fork"}):
        cells.begin_again()
        brought(tmp_path, cells.job, **keys)
        cells.ends()

    cells.begin_again()
    cells.ends(repeated=True, restore=cells.take_back(RENUMBERED))

    cells.begin_again()
    cells.warm()
    cells.ends(repeated=True)

    cells.begin_again()
    cells.lost()
    cells.ends(repeated=True)
