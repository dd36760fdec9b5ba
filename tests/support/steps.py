"""Steps that do what a test says, their plans and journals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from stateshift.executor import execute_together
from stateshift.journal import Journal, PlanAdopted, RunStarted
from stateshift.plan import Phase, PhaseName, Plan, phases_of
from stateshift.step import Discrepancy, Evidence, Fleet
from stateshift.step.evidence import OtherEvidence
from stateshift.world import World
from tests.support.ground import SOURCE, TARGET


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


def execute(
    number: int, plan: Plan, world: World, journal: Journal, fleet: Fleet | None = None
) -> None:
    """Carry out plan `number` alone, from wherever the journal says it stands; the product carries
    out the plans of a wave together.
    """
    execute_together([(number, plan)], world, journal, fleet)
