"""A place to move things on: a disk in memory, clusters in memory, a clock that does not wait. The
jobs that live there are in living.py, steps that do what a test says in steps.py.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from stateshift import migration
from stateshift.api.runs import measure_run
from stateshift.clusters.protocol import Cluster
from stateshift.engines.spark.plan import move as planner
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import PlanError
from stateshift.formats.marks import FOLDER, LOCK_SUFFIX
from stateshift.migration import Adapters, Proposal
from stateshift.migration.adapters import AskTopics, ask_kafka
from stateshift.plan import Plan
from stateshift.report import Report
from stateshift.specification import JobSpec, Spec, parse_spec
from stateshift.specification.changes import CHANGE_LIST
from stateshift.specification.key import Reader
from stateshift.specification.place import Complaints, Place
from stateshift.specification.transform import Change
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, Finding, Survey
from stateshift.testing.memory_cluster import MemoryCluster
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from stateshift.workdir import Workdir
from stateshift.world import Unwatched, World
from tests.support.checkpoints import Checkpoint, put

SOURCE, TARGET = "file:///here/orders", "file:///there/orders"


class Clock:
    """Stands still unless somebody sleeps; `on_sleep` is what happens meanwhile. With a `tick` it
    goes on by so many seconds whenever it is asked. Remembers every wait; thread-safe.
    """

    def __init__(
        self,
        time: float = 1_000_000.0,
        on_sleep: Callable[[], None] = lambda: None,
        tick: float = 0.0,
    ) -> None:
        self.time, self.on_sleep, self.tick = time, on_sleep, tick
        self.waits: list[float] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        self.time += self.tick
        return self.time

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.time += seconds
            self.waits.append(seconds)
        self.on_sleep()


class _Hearing(Unwatched):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)
        super().say(line)


class Around:
    """A storage, or a cluster, with something between it and whoever uses it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class Ground:
    """One machine: a disk, a clock, clusters, and a workdir for each run in `folder`. `wrap` and
    `wrap_cluster` put something around every storage and cluster that is opened.
    """

    folder: Path = Path(os.devnull)  # steps need none
    clock: Clock = field(default_factory=Clock)
    wrap: Callable[[Storage], Storage] = lambda storage: storage
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    clusters: Mapping[str, Cluster] = field(default_factory=dict)  # instead, by name
    wrap_cluster: Callable[[Any], Any] = lambda cluster: cluster
    stop: threading.Event = field(default_factory=threading.Event)  # of steps
    ask_topics: AskTopics = ask_kafka
    parallel: int = 4

    def __post_init__(self) -> None:
        self.disk.now = self.clock.now
        self.meter = _Hearing()

    @property
    def said(self) -> list[str]:
        return self.meter.said

    @property
    def adapters(self) -> Adapters:
        return Adapters(
            self.open,
            lambda spec, workdir: self.open_cluster(spec.name),
            self.clock,
            self.meter,
            threading.Event(),
            host="here",
            ask_topics=self.ask_topics,
            measure=measure_run,
        )

    @property
    def world(self) -> World:
        """What the steps of a process see; another one sees it anew."""
        return World(
            storage=functools.cache(self.open),
            cluster=self.open_cluster,
            transforms={"double": double},
            entries={},
            clock=self.clock,
            run="the-run",
            stop=self.stop,
            parallel=self.parallel,
        )

    def open(self, location: str) -> Storage:
        return self.wrap(self.disk.open(location))

    def open_cluster(self, name: str) -> Cluster:
        return cast("Cluster", self.wrap_cluster(self.clusters.get(name, self.cluster)))

    @property
    def source(self) -> MemoryStorage:
        return self.disk.open(SOURCE)

    @property
    def target(self) -> MemoryStorage:
        return self.disk.open(TARGET)

    def write(
        self, checkpoint: Checkpoint | None = None, location: str = SOURCE, prefix: str = ""
    ) -> None:
        """A checkpoint, ten minutes old."""
        self.clock.time -= 600
        (checkpoint or Checkpoint()).write(self.disk.open(location), prefix)
        self.clock.time += 600

    def give(self, location: str, **files: bytes) -> None:
        """Files at a location, durable; names with `_` for `/`."""
        storage = self.disk.open(location)
        for name, content in files.items():
            put(storage, name.replace("_", "/"), content)
        storage.sync()

    def put(self, location: str, content: bytes = b"x") -> None:
        put(self.disk.open(locations.parent(location)), locations.name(location), content)

    def remove(self, location: str) -> None:
        self.disk.open(locations.parent(location)).remove(locations.name(location))

    def held(self, location: str) -> dict[str, bytes]:
        """What is there, but for what we leave beside an image."""
        found = self.disk.snapshot(location)
        return {
            path: content for path, content in found.items() if not path.startswith(f"{FOLDER}/")
        }

    def locks(self) -> list[str]:
        return [path for path in self.disk.snapshot() if path.endswith(LOCK_SUFFIX)]

    def workdir(self, name: str = "run") -> Workdir:
        return Workdir(self.folder / name)

    def propose(self, spec: Spec) -> Proposal:
        return migration.propose(spec, self.adapters, self.workdir("planning"))

    def apply(self, spec: Spec | Proposal, workdir: str = "run") -> Report:
        proposal = spec if isinstance(spec, Proposal) else self.propose(spec)
        return migration.apply(proposal, f"run-{workdir}", self.workdir(workdir), self.adapters)

    def resume(self, workdir: str = "run") -> Report:
        return migration.resume(self.workdir(workdir), self.adapters)

    def rollback(self, workdir: str = "run", discard_progress: bool = False) -> Report:
        return migration.rollback(self.workdir(workdir), self.adapters, discard_progress)


def double(options: Mapping[str, Any], inputs: Any) -> Any:
    return tuple(
        (lambda content=content: (chunk + chunk for chunk in content())) for content in inputs
    )


def spec_of(source: str = SOURCE, target: str | None = TARGET, **keys: Any) -> Spec:
    """A spec of one job, in our dialect. What begins with `spec_` stands beside the jobs."""
    beside = {
        key.removeprefix("spec_"): keys.pop(key)
        for key in [k for k in keys if k.startswith("spec_")]
    }
    ends = {"checkpoint_location": source, **({"remote_location": target} if target else {})}
    plain = {
        "version": 1,
        "engine": "spark",
        "jobs": [{"name": "orders", **ends, **keys}],
        **beside,
    }
    return parse_spec(json.dumps(plain))


def changes_of(*plain: dict[str, Any]) -> tuple[Change, ...]:
    """The changes that a `transform` of these objects asks for."""
    complaints = Complaints()
    changes = CHANGE_LIST.read(Reader(complaints), CHANGE_LIST("changes"), Place(list(plain), ""))
    assert not complaints.made, complaints.made
    return cast("tuple[Change, ...]", changes)


def running_spec(**keys: Any) -> Spec:
    """The same job, where it is known how to stop and to start it."""
    return spec_of(
        spec_clusters={"ours": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}},
        source_cluster="ours",
        target_cluster="ours",
        submit={"command": "go"},
        **{"source_submit": {"command": "back"}, **keys},
    )


def surveyed(
    checkpoint: Checkpoint, location: str = SOURCE, prefix: str = "", **more: bytes
) -> Survey:
    """The survey of a checkpoint that lies there alone."""
    storage = MemoryDisk().open(location)
    checkpoint.write(storage, prefix)
    for path, content in more.items():
        put(storage, path, content)
    return survey.survey(storage)


def empty(location: str = TARGET) -> Survey:
    return Survey(location, None, "empty", ())


def facts_of(source: Survey, target: Survey | None = None, **more: Any) -> Facts:
    """As if everything had been found long after it was written."""
    return Facts(
        replace(source, traits={"renames": True, "keeps_times": True}),
        target or empty(),
        at=1_000_000.0,
        **more,
    )


def plans_of(spec: Spec, facts: Facts) -> tuple[Plan, ...]:
    return planner.plan(spec, spec.jobs[0], facts)


def plan_of(spec: Spec, facts: Facts) -> Plan:
    """The move plan, where it is the only one."""
    (plan,) = plans_of(spec, facts)
    return plan


def job_of(spec: Spec) -> JobSpec:
    return spec.jobs[0]


def refusals(ground: Ground, spec: Spec) -> list[Finding]:
    """The refusals of a plan, which left everything as it was."""
    before = ground.disk.snapshot()
    proposal = ground.propose(spec)
    with pytest.raises(PlanError):
        ground.apply(proposal)
    assert ground.disk.snapshot() == before
    return list(proposal.refusals)


def notes(ground: Ground, spec: Spec) -> list[str]:
    """What a plan says of the last part of a move."""
    return [finding.message for finding in ground.propose(spec).plans[-1].findings]
