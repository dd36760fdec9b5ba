"""A world in memory for steps and plans, and steps that do what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stateshift.journal import Journal, PlanAdopted, RunStarted
from stateshift.plan import Phase, PhaseName, Plan, phases_of
from stateshift.step import Discrepancy, Evidence
from stateshift.step.evidence import OtherEvidence
from stateshift.testing.memory_cluster import MemoryCluster
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from stateshift.world import World

SOURCE, TARGET = "memory://m/source", "memory://m/target"


class KeptLines:
    """The twin of a journal's file."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content

    def read(self) -> bytes:
        return self.content

    def append(self, line: bytes) -> None:
        self.content += line

    def cut(self, size: int) -> None:
        self.content = self.content[:size]

    def replace(self, content: bytes) -> None:
        self.content = content


class StepClock:
    """Time passes when somebody waits; `on_sleep` is what happens meanwhile."""

    def __init__(self, on_sleep: Callable[[], None] = lambda: None) -> None:
        self.time, self.on_sleep = 1000.0, on_sleep

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.on_sleep()


@dataclass
class Stage:
    """A disk, a cluster, a clock; `world` is what a process sees of them, and a new one sees it
    anew.
    """

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    clock: StepClock = field(default_factory=StepClock)
    stop: threading.Event = field(default_factory=threading.Event)
    parallel: int = 4

    @property
    def world(self) -> World:
        opened: dict[str, MemoryStorage] = {}

        def storage(location: str) -> MemoryStorage:
            return opened.setdefault(location, self.disk.open(location))

        return World(
            storage=storage,
            cluster=lambda name: self.cluster,
            transforms={"double": double},
            entries={},
            clock=self.clock,
            run="the-run",
            stop=self.stop,
            parallel=self.parallel,
        )

    @property
    def source(self) -> MemoryStorage:
        return self.disk.open(SOURCE)

    @property
    def target(self) -> MemoryStorage:
        return self.disk.open(TARGET)

    def give(self, location: str, **files: bytes) -> None:
        """Files at a location, durable; names with `_` for `/`."""
        storage = self.disk.open(location)
        for name, content in files.items():
            storage.write(name.replace("_", "/"), lambda content=content: iter((content,)))
        storage.sync()


def double(options: Mapping[str, Any], inputs: Any) -> Any:
    return tuple(
        (lambda content=content: (chunk + chunk for chunk in content())) for content in inputs
    )


@dataclass(frozen=True, slots=True)
class Told:
    """A step that tells `said` what is asked of it, and does what `does` says. Not one of the
    kinds that are saved.
    """

    kind: ClassVar[str] = "Told"
    decodes: ClassVar[bool] = False
    fills: ClassVar[str | None] = None
    name: str
    said: list[str]
    does: Callable[[World], Evidence] = lambda world: OtherEvidence()
    broken: str | None = None
    left: tuple[str, ...] = ()
    undoes: Callable[[World], None] = lambda world: None

    @property
    def files(self) -> int:
        return 1

    @property
    def bytes(self) -> int:
        return 10

    def describe(self) -> str:
        return self.name

    def run(self, world: World) -> Evidence:
        self.said.append(f"run {self.name}")
        evidence = self.does(world)
        self.said.append(f"ran {self.name}")
        return evidence

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return [Discrepancy(self.name, "as it was", self.broken)] if self.broken else []

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        self.undoes(world)
        self.said.append(f"undo {self.name}" + ("" if evidence is not None else " (unfinished)"))
        return list(self.left)


def phase(name: PhaseName, *steps: Any, ordered: bool = False) -> Phase:
    return Phase(name, steps, ordered)


def plan_of(*phases: Phase) -> Plan:
    return Plan("orders", "spark", "move", SOURCE, TARGET, 1, phases_of(*phases), (), "facts")


def journal_of(plan: Plan, lines: KeptLines | None = None) -> Journal:
    """A journal that has adopted the plan as number 0, or goes on where these lines end."""
    journal = Journal(lines or KeptLines())
    if journal.progress.state == "new":
        journal.append(RunStarted(1.0, "the-run", "0", "spec", ("orders",)))
        journal.append(
            PlanAdopted(
                2.0, 0, "orders", "move", "fingerprint", sum(len(p.steps) for p in plan.phases)
            )
        )
    return journal
