"""Where it happens: two HDFS, and a job with so much state that lives on either of them.

The job is a driver on this machine that is its own executor (`spark_submit`, local[2]): two
standalone clusters would have six more JVMs share two cores, and while one job waits for the
other's image there are two of it. Both clusters of the spec are such: what differs between them is
the HDFS.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feed import Feed
from seen import Seen

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PARTITIONS = 16
PLACES = ("hdfs-a", "hdfs-b")
ENTRY_BYTES = 2000
STORE = "spark.sql.streaming.stateStore."
PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "hdfs": {},
    "rocksdb": {
        f"{STORE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{STORE}rocksdb.changelogCheckpointing.enabled": "true",
        # one store a partition for a join, and not four
        "spark.sql.streaming.join.stateFormatVersion": "3",
    },
}
# A job that is moved every minute never tidies up at Spark's usual 60 s, and what it has as files
# grows from way to way, as of none that has run for long. Of much state the files that come in
# between are few beside it.
UNDER_WAY_MB = 1000
UNDER_WAY: Mapping[str, str] = {f"{STORE}maintenanceInterval": "10s"}
SECONDS_MAX = 900.0
STEADY_SECONDS = 10.0  # of output that is looked at before and after a move


@dataclass(frozen=True)
class Case:
    query: str
    provider: str
    mb: int

    @property
    def keys(self) -> int:
        return self.mb * 1_000_000 // ENTRY_BYTES

    @property
    def memory(self) -> str:
        """HDFS-backed state lies on the heap."""
        return "2g" if self.mb < 100 else "3g" if self.mb < 1000 else "7g"

    @property
    def told(self) -> str:
        return f"{self.query}, {self.provider}, {self.mb} MB"


@dataclass
class Ground:
    """One case at work. `place` is where the job lives now, and `tags` how often it was started."""

    case: Case
    folder: Path
    environment: Mapping[str, str]
    feed: Feed
    seen: Seen
    name: str
    place: str = "hdfs-a"
    started: int = 0
    clusters: dict[str, Any] = field(default_factory=dict)
    places: tuple[str, str] = PLACES

    @property
    def location(self) -> str:
        return self.location_at(self.place)

    @property
    def other(self) -> str:
        return next(place for place in self.places if place != self.place)

    def location_at(self, place: str) -> str:
        if place.startswith("s3-"):
            return f"s3a://stateshift/downtime/{self.name}"
        return f"hdfs://{place}/downtime/{self.name}"

    def cluster_spec(self, place: str) -> dict[str, Any]:
        conf = {
            "spark.driver.memory": self.case.memory,
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self.folder / "spark"),
            "spark.sql.shuffle.partitions": str(PARTITIONS),
            "spark.sql.session.timeZone": "UTC",
            **PROVIDERS[self.case.provider],
            **(UNDER_WAY if self.case.mb < UNDER_WAY_MB else {}),
            **(s3a(self.environment) if any("s3-" in place for place in self.places) else {}),
        }
        return {
            "kind": "spark_submit",
            "master": "local[2]",
            "conf": conf,
            "state_dir": str(self.folder / place),
        }

    @property
    def submission(self) -> dict[str, Any]:
        options = ("--query", self.case.query, "--keys", str(self.case.keys))
        places = ("--input", str(self.folder / "input"), "--output", str(self.folder / "output"))
        return {
            "application": str(HERE / "job.py"),
            "arguments": [*options, *places],
            "seconds_max": SECONDS_MAX,
        }

    def cluster(self, place: str) -> Any:
        """As the program itself opens it."""
        from stateshift.clusters.kind import Contacts, open_cluster
        from stateshift.specification import ClusterSpec
        from stateshift.storage.opening import open_patiently

        if place not in self.clusters:
            told = self.cluster_spec(place)
            spec = ClusterSpec(place, told.pop("kind"), told)
            self.clusters[place] = open_cluster(
                spec, str(self.folder / "clusters"), Contacts(open_patiently)
            )
        return self.clusters[place]

    def start(self) -> None:
        """The job, where it lives."""
        from stateshift.clusters.protocol import Submission

        self.started += 1
        options = {key: value for key, value in self.submission.items() if key != "seconds_max"}
        self.cluster(self.place).submit(
            Submission(f"started-{self.started}", "downtime", self.location, None, options)
        )

    def stop(self, place: str | None = None) -> None:
        """Where it lives; or whatever there is of it at that place."""
        from stateshift.clusters.protocol import StopRequest

        here = place or self.place
        self.cluster(here).stop(
            StopRequest("downtime", self.location_at(here), seconds_max=SECONDS_MAX)
        )

    def await_output(self, wanted: Callable[[], bool], what: str) -> None:
        until = time.time() + SECONDS_MAX
        while not wanted():
            if time.time() > until:
                raise SystemExit(
                    f"{self.case.told}: {what} has not come in {SECONDS_MAX:.0f} s; see "
                    f"{self.folder}"
                )
            time.sleep(0.2)
            self.seen.read()

    def settle(self) -> None:
        """Wait until what comes out is as fresh as it was, and some seconds more."""
        first = time.time()
        self.await_output(lambda: self.seen.fresh_since(first), "fresh output")
        time.sleep(STEADY_SECONDS)
        self.seen.read()


def s3a(environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for the one S3 that the environment names. The keys are there, too."""
    from servers import downloads, spark
    from servers.s3 import spark_settings

    path = spark.class_path(spark.installed_home(), downloads.jars("s3a-spark-4.3"))
    classes = {f"spark.{one}.extraClassPath": path for one in ("driver", "executor")}
    return classes | spark_settings(environment)


@contextmanager
def servers(kept: Path | None, places: tuple[str, str] = PLACES) -> Iterator[Mapping[str, str]]:
    """Both places, and what a program has to know to reach them. Where they are up already, they
    stay up. Of an S3 there is one at most.
    """
    from servers import Servers, default_root

    all_of_them = Servers(kept or default_root())
    names = [name for name in places if all_of_them.state(name).word == "down"]
    try:
        for name in places:
            all_of_them.up(name)
        exports = all_of_them.exports()
        more = {
            "HDFSCLI_CONFIG": os.devnull,
            "HADOOP_USER_NAME": getpass.getuser(),
            "PYTHONPATH": str(ROOT),
        }
        for name in places:
            if name.startswith("s3-"):
                variable = f"STATESHIFT_{name.upper().replace('-', '_')}"
                more["AWS_ENDPOINT_URL_S3"] = exports[variable]
        os.environ |= {**exports, **more}  # for the clusters in this process
        yield {**exports, **more}
    finally:
        for name in reversed(names):
            all_of_them.down(name)


@contextmanager
def ground(
    case: Case, environment: Mapping[str, str], keep: bool, places: tuple[str, str] = PLACES
) -> Iterator[Ground]:
    """The job with its state, running, and its records coming."""
    folder = Path(tempfile.mkdtemp(prefix="stateshift-downtime-"))
    feed = Feed(folder / "input", case.query, case.keys)
    seen = Seen(folder / "output", feed, case.keys if case.query == "map" else None)
    name = f"{case.query}-{case.provider}-{case.mb}-{folder.name[-8:]}"
    at_work = Ground(case, folder, environment, feed, seen, name, places=places)
    try:
        feed.fill()
        at_work.start()
        print(f"{case.told}: filling the state", file=sys.stderr, flush=True)
        at_work.await_output(lambda: seen.batches > 0, "the first batch")
        with feed.coming():
            at_work.settle()
            yield at_work
    finally:
        for place in places:
            at_work.stop(place)
        for path in folder.rglob("*.pid"):  # of a job that a failover has started
            with suppress(ProcessLookupError, ValueError, IndexError):
                os.killpg(int(path.read_text().split()[0]), signal.SIGKILL)
        for place in places:
            removed(at_work, place)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def removed(at_work: Ground, place: str) -> None:
    from servers import hadoop

    where = at_work.location_at(place)
    if not where.startswith("hdfs:"):
        from stateshift.storage.opening import open_patiently

        storage = open_patiently(where)
        for file in storage.list():
            storage.remove(file.path)
        return
    hadoop.run(
        Path(at_work.environment["HADOOP_CONF_DIR"]), "dfs", "-rm", "-r", "-f", "-skipTrash", where
    )
