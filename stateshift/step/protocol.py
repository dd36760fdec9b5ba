"""The questions that every step can be asked, and its answers.

A step is a frozen value: it says everything about itself, and holds nothing open. `run` may be
repeated at any time, also after it was killed in the middle, and ends in the same place. `holds`
asks whether the evidence of an earlier run is still true. `undo` takes the effect back, with the
evidence if there is any, and says what it had to leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stateshift.step.evidence import Evidence, FileEvidence
from stateshift.world import World

__all__ = ["Discrepancy", "Evidence", "FileEvidence", "Fleet", "Step", "places_filled"]


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Something that does not hold: where, what was expected, what is there."""

    place: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.place}: expected {self.expected}, found {self.found}"


class Step(Protocol):
    """A worthwhile unit of journaled work."""

    @property
    def kind(self) -> str: ...

    @property
    def decodes(self) -> bool:
        """Whether it decodes what it reads, and so much that it holds piles of it."""
        ...

    @property
    def fills(self) -> str | None:
        """The location that it writes files to, None where it writes none."""
        ...

    @property
    def name(self) -> str:
        """Unique in its plan, and readable: `copy/3`."""
        ...

    @property
    def files(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def describe(self) -> str:
        """One line for a person."""
        ...

    def run(self, world: World) -> Evidence: ...

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]: ...

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        """Take the effect back; return lines on what is left. `evidence`: if it has finished."""
        ...


class Fleet(Protocol):
    """Other processes that run steps of an unordered phase, with the same evidence and errors."""

    def takes(self, step: Step) -> bool:
        """Whether this step can be run there; all others are run here."""
        ...

    def is_worth(self, bytes: int) -> bool:
        """Whether so much is worth being handed over: all that a phase has of steps it takes."""
        ...

    def begin(self, phase: str, steps: Sequence[Step], world: World) -> None:
        """Prepare for these steps of a phase, before the first of them is run."""
        ...

    def slots(self, waiting: int) -> int:
        """Return the number of steps to hand over at once, while so many wait. It may change."""
        ...

    def run(self, step: Step, world: World) -> Evidence: ...

    def holds(self, step: Step, world: World, evidence: Evidence) -> list[Discrepancy]: ...


def places_filled(steps: Iterable[Step]) -> set[str]:
    """Return the locations that these steps write files to."""
    return {step.fills for step in steps if step.fills is not None}
