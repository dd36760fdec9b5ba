"""Two clusters with jobs of different load, and the command before them. What Flinks tell over REST
is a stand-in's; what is done to them is done to twins in memory, and both have the same jobs.
Queries of Spark have checkpoints that tell how busy they are: a batch a minute, each with its share
of the minute.

    ground = FlinkClusters(folder)
    with ground.serving(): ground.run("--yes")
    ground.where()      {"orders": ["west"], ...}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateshift.clusters.protocol import Submission
from stateshift.testing.memory_cluster import MemoryCluster
from stateshift.testing.memory_flink import MemoryFlink
from tests.advise.measured_flink import BEGAN, Measured, MeasuredFlink, Part
from tests.cli.support import Said, said
from tests.clusters.faulty_server import serving
from tests.engines.flink import golden
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import Clock, Ground

IMAGE = "flink-2.3.0/count-two"
CLUSTERS = ("west", "east")
# The share of time for which each job is busy. Each has two slots, or cores.
LOADS = {"orders": 0.9, "payments": 0.9, "fraud": 0.7, "audit": 0.7}
SLOTS = 4
CORES = 2
STATE = 1 << 20
MINUTE = 60.0
MINUTES = 15


@dataclass
class TwoClusters(Ground):
    """Jobs of `loads` begin on west."""

    clock: Clock = field(default_factory=lambda: Clock(BEGAN))
    loads: dict[str, float] = field(default_factory=lambda: dict(LOADS))
    section: dict[str, Any] = field(default_factory=dict)
    shares: bool = False  # both clusters reach one storage: images stay where they are

    def spec(self) -> dict[str, Any]:
        raise NotImplementedError

    def write_spec(self, **more: Any) -> str:
        path = self.folder / "clusters.json"
        path.write_text(json.dumps({**self.spec(), **more}))
        return str(path)

    @property
    def state(self) -> Path:
        """The folder of the runs."""
        return self.folder / "state"

    def run(self, *argv: str, minutes: int = MINUTES) -> Said:
        """One run, as cron makes it; then time goes on."""
        words = ("rebalance", self.write_spec(), "--once", *argv, "--workdir", str(self.state))
        done = said(*words, adapters=self.adapters)
        self.pass_time(minutes)
        return done

    def pass_time(self, minutes: int) -> None:
        self.clock.time += MINUTE * minutes

    def document(self, *argv: str, code: int = 0) -> Any:
        done = self.run(*argv, "--json")
        assert done.code == code, done.err
        return done.document

    def on(self, cluster: str) -> list[str]:
        """The jobs that run on a cluster."""
        jobs = self.clusters[cluster].jobs
        return sorted(job.job for job in jobs if job.status.state.alive)


class Served(MeasuredFlink):
    """What a twin's jobs tell over REST."""

    def __init__(self, ground: FlinkClusters, name: str) -> None:
        super().__init__(clock=ground.clock)
        self.ground, self.name = ground, name

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        self.jobs = self.ground.measured(self.name)
        self.slots = (SLOTS, SLOTS - 2 * len(self.jobs))
        if path.endswith("/checkpoints"):
            return 200, {"latest": {"completed": {"state_size": STATE}}}
        return super().answer(method, path, query, body)


@dataclass
class FlinkClusters(TwoClusters):
    on_failure: str = ""  # of the spec; without it a failed move is taken back
    lag: float = 0  # records that wait for each job
    arguments: list[str] = field(default_factory=list)  # the spec's, for every program

    def __post_init__(self) -> None:
        super().__post_init__()
        self.started: dict[str, float] = {}
        self.clusters = {name: MemoryFlink(self._take, self._starts) for name in CLUSTERS}
        self.served = {name: Served(self, name) for name in CLUSTERS}
        for name in self.loads:
            self.clusters["west"].run(name, f"{name}-0")
            self.started[f"{name}-0"] = BEGAN - 3600

    def _take(self, location: str) -> None:
        top = golden.FOLDER / IMAGE / golden.told(IMAGE)["image"]
        for file in sorted(top.iterdir()):
            put(self.disk.open(location), file.name, file.read_bytes())

    def _starts(self, submission: Submission) -> None:
        for twin in self.clusters.values():
            for job in twin.jobs:
                self.started.setdefault(str(job.status.id), self.clock.now())

    def measured(self, name: str) -> list[Measured]:
        """What the jobs of a cluster that are alive have for a load."""
        return [self._measured(job.id, job.name) for job in self.clusters[name].alive()]

    def _measured(self, id: str, name: str) -> Measured:
        load = self.loads[name]
        parts = [
            Part("read", 1000, 0.1, parallelism=2, lag=self.lag),
            Part("count", 1000, load, inputs=("read",), parallelism=2),
        ]
        return Measured(name, parts, BEGAN - self.started[id], id)

    @contextmanager
    def serving(self) -> Iterator[FlinkClusters]:
        """Answer over REST meanwhile."""
        with ExitStack() as stack:
            for served in self.served.values():
                stack.enter_context(serving(served))
            yield self

    def spec(self) -> dict[str, Any]:
        images = {name: {"images": f"file:///{name}/{{job}}/{{move}}"} for name in CLUSTERS}
        if self.shares:
            images = {name: {} for name in CLUSTERS}
        clusters = {
            name: {"kind": "flink_rest", "url": served.url} for name, served in self.served.items()
        }
        jobs = [
            {
                "name": name,
                "target_directory": f"file:///taken/{name}",
                "submit": {
                    "jar_id": "jobs",
                    "entry_class": "jobs.Count",
                    "parallelism": 2,
                    "arguments": self.arguments,
                },
            }
            for name in self.loads
        ]
        return {
            "version": 1,
            "engine": "flink",
            "clusters": clusters,
            "source_cluster": "west",
            "rebalance": {"clusters": images, **self.section},
            "jobs": jobs,
            **({"on_failure": self.on_failure} if self.on_failure else {}),
        }

    def where(self) -> dict[str, list[str]]:
        """Where each job runs: one cluster, unless something is wrong."""
        places: dict[str, list[str]] = {name: [] for name in self.loads}
        for name, twin in self.clusters.items():
            for job in twin.alive():
                places[job.name].append(name)
        return places

    def submissions(self) -> Counter[str]:
        """How often each job was started by us."""
        submitted = [one.job for twin in self.clusters.values() for one in twin.submissions]
        return Counter(submitted)

    def heavier(self, job: str, load: float) -> None:
        self.loads = {**self.loads, job: load}


@dataclass
class SparkClusters(TwoClusters):
    capacity: dict[str, Any] = field(default_factory=lambda: {"cores": 4})
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.written = self.clock.now()
        self.disk.now = lambda: self.written
        self.clusters = {
            name: MemoryCluster(name, self.versions.get(name, "4.3.0"), on_start=self._starts)
            for name in CLUSTERS
        }
        for job in self.loads:
            location = f"file:///west/{job}"
            Checkpoint(batches=1).write(self.disk.open(location))
            self.clusters["west"].run(job, location)
        self.pass_time(MINUTES)

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

    def pass_time(self, minutes: int) -> None:
        """Let the queries run for so many minutes."""
        for _ in range(minutes):
            for twin in self.clusters.values():
                for job in twin.jobs:
                    if job.status.state.alive:
                        takes = MINUTE * self.loads[job.job]
                        self._batch(job.job, job.location, self.clock.time, takes)
            self.clock.time += MINUTE
        self.written = self.clock.now()

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


def moved(document: Any) -> list[tuple[str, str, str]]:
    """The moves of a document, each with its state."""
    return [(move["job"], move["to"], move["state"]) for move in document["moves"]]


def uneven(run: Any) -> float:
    """How many times the mean the fullest cluster is."""
    loads = {cluster["name"]: cluster["after"] for cluster in run["clusters"]}
    return max(loads.values()) * len(loads) / sum(loads.values())
