"""Two Flinks with jobs of different load, and the command before them. What they tell over REST is
a stand-in's; what is done to them is done to twins in memory, and both have the same jobs.

    living = Living(folder)
    with living.serving(): living.rebalance("--yes")
    living.where()      {"orders": "west", ...}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateshift.clusters.protocol import Cluster, Submission
from stateshift.migration import Adapters
from stateshift.specification import ClusterSpec
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_flink import MemoryFlink
from stateshift.testing.memory_storage import MemoryDisk
from stateshift.workdir import Workdir
from tests.advise.measured_flink import BEGAN, Clock, Measured, MeasuredFlink, Part
from tests.cli.support import Said, said
from tests.clusters.faulty_server import serving
from tests.engines.flink import golden
from tests.support.checkpoints import put

IMAGE = "flink-2.3.0/count-two"
CLUSTERS = ("west", "east")
# The share of time for which each job is busy; each has two slots.
LOADS = {"orders": 0.9, "payments": 0.9, "fraud": 0.7, "audit": 0.7}
SLOTS = 4
STATE = 1 << 20


class Served(MeasuredFlink):
    """What a twin's jobs tell over REST."""

    def __init__(self, living: Living, name: str) -> None:
        super().__init__(clock=living.clock)
        self.living, self.name = living, name

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        self.jobs = self.living.measured(self.name)
        self.slots = (SLOTS, SLOTS - 2 * len(self.jobs))
        if path.endswith("/checkpoints"):
            return 200, {"latest": {"completed": {"state_size": STATE}}}
        return super().answer(method, path, query, body)


@dataclass
class Living:
    """See the module. `opening` and `asking` stand between us and what is outside."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    loads: dict[str, float] = field(default_factory=lambda: dict(LOADS))
    section: dict[str, Any] = field(default_factory=dict)
    on_failure: str = ""  # of the spec; without it a failed move is taken back
    lag: float = 0  # records that wait for each job
    arguments: list[str] = field(default_factory=list)  # the spec's, for every program
    shares: bool = False  # both clusters reach one storage: images stay where they are
    opening: Callable[[Storage], Storage] = lambda storage: storage
    asking: Callable[[Any], Any] = lambda cluster: cluster

    def __post_init__(self) -> None:
        self.disk = MemoryDisk(self.clock.now)
        self.started: dict[str, float] = {}
        self.twins = {name: MemoryFlink(self._take, self._starts) for name in CLUSTERS}
        self.served = {name: Served(self, name) for name in CLUSTERS}
        for name in self.loads:
            self.twins["west"].run(name, f"{name}-0")
            self.started[f"{name}-0"] = BEGAN - 3600

    def _take(self, location: str) -> None:
        top = golden.FOLDER / IMAGE / golden.told(IMAGE)["image"]
        for file in sorted(top.iterdir()):
            put(self.disk.open(location), file.name, file.read_bytes())

    def _starts(self, submission: Submission) -> None:
        for twin in self.twins.values():
            for job in twin.jobs:
                self.started.setdefault(str(job.status.id), self.clock.now())

    def measured(self, name: str) -> list[Measured]:
        """What the jobs of a cluster that are alive have for a load."""
        return [self._measured(job.id, job.name) for job in self.twins[name].alive()]

    def _measured(self, id: str, name: str) -> Measured:
        load = self.loads[name]
        parts = [
            Part("read", 1000, 0.1, parallelism=2, lag=self.lag),
            Part("count", 1000, load, inputs=("read",), parallelism=2),
        ]
        return Measured(name, parts, BEGAN - self.started[id], id)

    @contextmanager
    def serving(self) -> Iterator[Living]:
        """Answer over REST meanwhile."""
        with ExitStack() as stack:
            for served in self.served.values():
                stack.enter_context(serving(served))
            yield self

    # ---- the command

    @property
    def adapters(self) -> Adapters:
        return Adapters(
            lambda location: self.opening(self.disk.open(location)), self._cluster, self.clock
        )

    def _cluster(self, spec: ClusterSpec, workdir: Workdir) -> Cluster:
        cluster: Cluster = self.asking(self.twins[spec.name])
        return cluster

    def spec(self, **more: Any) -> dict[str, Any]:
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
            **more,
        }

    def write(self, **more: Any) -> str:
        path = self.folder / "clusters.json"
        path.write_text(json.dumps(self.spec(**more)))
        return str(path)

    @property
    def state(self) -> Path:
        """The folder of the runs."""
        return self.folder / "state"

    def run(self, *argv: str, minutes: float = 15) -> Said:
        """One run, as cron makes it; then time goes on."""
        words = ("rebalance", self.write(), "--once", *argv, "--workdir", str(self.state))
        done = said(*words, adapters=self.adapters)
        self.clock.seconds += 60 * minutes
        return done

    def document(self, *argv: str, code: int = 0) -> Any:
        done = self.run(*argv, "--json")
        assert done.code == code, done.err
        return done.document

    # ---- what has become of it

    def where(self) -> dict[str, list[str]]:
        """Where each job runs: one cluster, unless something is wrong."""
        places: dict[str, list[str]] = {name: [] for name in self.loads}
        for name, twin in self.twins.items():
            for job in twin.alive():
                places[job.name].append(name)
        return places

    def on(self, cluster: str) -> list[str]:
        """The jobs that run on a cluster."""
        return sorted(job.name for job in self.twins[cluster].alive())

    def submissions(self) -> Counter[str]:
        """How often each job was started by us."""
        submitted = [one.job for twin in self.twins.values() for one in twin.submissions]
        return Counter(submitted)

    def heavier(self, job: str, load: float) -> None:
        self.loads = {**self.loads, job: load}


def moved(document: Any) -> list[tuple[str, str, str]]:
    """The moves of a document, each with its state."""
    return [(move["job"], move["to"], move["state"]) for move in document["moves"]]
