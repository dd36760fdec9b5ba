"""Two clusters in memory with queries of Spark, whose checkpoints tell how busy they are: a batch a
minute, each with its share of the minute.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateshift.clusters.protocol import Cluster, Submission
from stateshift.migration import Adapters
from stateshift.specification import ClusterSpec
from stateshift.testing.memory_cluster import MemoryCluster
from stateshift.testing.memory_storage import MemoryDisk
from stateshift.workdir import Workdir
from tests.advise.measured_flink import Clock
from tests.cli.support import Said, said
from tests.support.checkpoints import Checkpoint, put

CLUSTERS = ("west", "east")
LOADS = {"orders": 0.9, "payments": 0.9, "fraud": 0.7, "audit": 0.7}
MINUTE = 60.0
MINUTES = 15
CORES = 2


@dataclass
class LivingSpark:
    """See the module. Queries of `loads` begin on west."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    loads: dict[str, float] = field(default_factory=lambda: dict(LOADS))
    section: dict[str, Any] = field(default_factory=dict)
    capacity: dict[str, Any] = field(default_factory=lambda: {"cores": 4})
    versions: dict[str, str] = field(default_factory=dict)
    shares: bool = False  # both clusters reach one storage: images stay where they are

    def __post_init__(self) -> None:
        self.written = self.clock.now()
        self.disk = MemoryDisk(lambda: self.written)
        self.twins = {name: self._twin(name) for name in CLUSTERS}
        for job in self.loads:
            location = f"file:///west/{job}"
            Checkpoint(batches=1).write(self.disk.open(location))
            self.twins["west"].run(job, location)
        self.beat(MINUTES)

    def _twin(self, name: str) -> MemoryCluster:
        version = self.versions.get(name, "4.3.0")
        return MemoryCluster(name, version, on_start=self._starts)

    def _starts(self, submission: Submission) -> None:
        """A query that is started commits its next batch at once."""
        self._batch(submission.job, submission.location, self.clock.now(), 0.1)

    def _batch(self, job: str, location: str, begins: float, takes: float) -> None:
        storage = self.disk.open(location)
        last = max(int(file.path.split("/")[1]) for file in storage.list("commits"))
        number = last + 1
        files = Checkpoint(batches=number + 1).files()
        planned = files[f"offsets/{number}"]
        was = f'"batchTimestampMs":{1000 + number}'.encode()
        stamped = planned.replace(was, f'"batchTimestampMs":{int(1000 * begins)}'.encode())
        assert stamped != planned
        self.written = begins
        put(storage, f"offsets/{number}", stamped)
        self.written = begins + takes
        for path, content in files.items():
            if path.startswith("state/") and path.endswith(f"/{number + 1}.delta"):
                put(storage, path, content)
        put(storage, f"commits/{number}", files[f"commits/{number}"])

    def beat(self, minutes: int) -> None:
        """Let the queries run for so many minutes."""
        for _ in range(minutes):
            for twin in self.twins.values():
                for job in twin.jobs:
                    if job.status.state.alive:
                        takes = MINUTE * self.loads[job.job]
                        self._batch(job.job, job.location, self.clock.seconds, takes)
            self.clock.seconds += MINUTE
        self.written = self.clock.now()

    @property
    def adapters(self) -> Adapters:
        return Adapters(self.disk.open, self._cluster, self.clock)

    def _cluster(self, spec: ClusterSpec, workdir: Workdir) -> Cluster:
        return self.twins[spec.name]

    def spec(self) -> dict[str, Any]:
        clusters: dict[str, dict[str, Any]] = {
            name: {
                "capacity": self.capacity,
                "other_load": 0,
                "images": f"file:///{name}/moved/{{job}}/{{move}}",
            }
            for name in CLUSTERS
        }
        if self.shares:
            for cluster in clusters.values():
                del cluster["images"]
        kind = {"kind": "command", "find": "f", "submit": "s", "stop": "t"}
        conf = {"spark.cores.max": CORES, "spark.executor.cores": 1, "spark.executor.memory": "2g"}
        jobs = [
            {
                "name": name,
                "checkpoint_location": f"file:///west/{name}",
                "submit": {"command": "start", "conf": conf},
            }
            for name in self.loads
        ]
        return {
            "version": 1,
            "engine": "spark",
            "clusters": dict.fromkeys(CLUSTERS, kind),
            "source_cluster": "west",
            "rebalance": {"clusters": clusters, **self.section},
            "jobs": jobs,
        }

    def run(self, *argv: str) -> Said:
        """One run, and then a quarter of an hour."""
        path = self.folder / "clusters.json"
        path.write_text(json.dumps(self.spec()))
        words = ("rebalance", str(path), "--once", *argv, "--workdir", str(self.folder / "state"))
        done = said(*words, adapters=self.adapters)
        self.written = self.clock.now()
        self.beat(MINUTES)
        return done

    def document(self, *argv: str, code: int = 0) -> Any:
        done = self.run(*argv, "--json")
        assert done.code == code, done.err
        return done.document

    def on(self, cluster: str) -> list[str]:
        """The queries that run on a cluster."""
        return sorted(job.job for job in self.twins[cluster].jobs if job.status.state.alive)
