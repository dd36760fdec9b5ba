"""A streaming job behind a real cluster that knows it by more than processes, as that cluster's
member sees it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import Cluster, JobState, StopRequest, Submission
from stateshift.specification.model import ClusterSpec

SECONDS_MAX = 300.0
ROOT = Path(__file__).resolve().parents[2]

# A job that finds its checkpoint by what it was handed over, and goes on until it is stopped.
JOB = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
from stateshift import job

spark = SparkSession.builder.getOrCreate()
events = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
counts = events.groupBy((events.value % 3).alias("key")).count()
query = counts.writeStream.outputMode("complete").format("noop").option("checkpointLocation", job.location())
told = sys.argv[2] + ".told" if os.path.isabs(sys.argv[2]) else os.devnull
print("handed over", job.location() == sys.argv[2], file=open(told, "w"), flush=True)
if "deaf" in sys.argv:
    query.start().awaitTermination()
job.run(query.start())
"""


class Stream:
    def __init__(
        self, kind: str, options: Mapping[str, Any], folder: Path, name: str, *words: str
    ) -> None:
        self.location = str(folder / "checkpoint")
        self.options = {**options, "state_dir": str(folder / "state")}
        self._spec = ClusterSpec("here", kind, self.options)
        script = folder / "stream.py"
        script.write_text(JOB)
        settings = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": False}
        given = {
            "application": str(script),
            "arguments": [str(ROOT), "{checkpoint}", *words],
            "conf": settings,
        }
        self.submission = Submission(f"run-1.{name}", name, self.location, options=given)
        self.tag = self.submission.tag

    @property
    def cluster(self) -> Cluster:
        """As another process opens it."""
        return open_cluster(self._spec, "")

    @property
    def committed(self) -> list[Path]:
        return sorted(Path(self.location, "commits").glob("[0-9]*"))

    def begun(self) -> str:
        """It was submitted and has committed a batch."""
        id = self.cluster.submit(self.submission)
        until = time.monotonic() + SECONDS_MAX
        while not self.committed:
            assert self.cluster.find(self.tag).state.alive, self.cluster.log(self.tag)
            assert time.monotonic() < until, self.cluster.log(self.tag)
            time.sleep(0.5)
        return id

    def request(self, **options: Any) -> StopRequest:
        return StopRequest(self.submission.job, self.location, self.tag, 120.0, options)

    def is_submitted_once(self) -> str:
        """Its id; handed over what it has to know, and found under its tag."""
        assert self.cluster.find(self.tag).state is JobState.ABSENT
        id = self.begun()
        assert self.cluster.submit(self.submission) == id
        assert Path(f"{self.location}.told").read_text("utf-8") == "handed over True\n"
        assert self.cluster.log(self.tag, 200)
        return id

    def stops_between_two_batches(self) -> None:
        assert self.cluster.stop(self.request()).state is JobState.FINISHED
        assert len(self.committed) == len(
            list(Path(self.location, "offsets").glob("[0-9]*"))
        )  # nothing is planned
        self.stays_as_it_is()

    def stays_as_it_is(self) -> None:
        committed = self.committed
        time.sleep(3)
        assert self.committed == committed
        assert self.cluster.stop(self.request()).state is JobState.FINISHED
        self.cluster.submit(self.submission)  # it is not started again
        assert not self.cluster.find(self.tag).state.alive

    def is_ended_without_an_answer(self) -> None:
        """Of a job that does not watch for the marker."""
        assert self.cluster.stop(self.request(graceful_seconds=1)).state is JobState.FINISHED
        time.sleep(1)
        self.stays_as_it_is()
