"""How far a migration is, and why it ended before all of it was complete: what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stateshift.live.bins.watch import Bins, Part
from stateshift.live.protocol.configuration import Time

State = Literal[
    "waiting", "paused", "ahead", "proposed", "moving", "finished", "applied", "aborted"
]


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far a migration is.

    `state`: waiting for the next step, paused, bins are copied ahead, a step is proposed, a step is
    moving; at its end finished, applied (decided, and not seen to be complete) or aborted.
    """

    state: State
    steps: int
    begun: int = 0
    complete: int = 0
    bins: int = 0  # that the migration moves
    bins_moved: int = 0  # of steps that are complete
    number: int | None = None  # of the last proposal
    time: Time | None = None  # at which it moves something
    parts: int = 0
    acknowledged: int = 0
    prepared: int = 0  # bins that were read ahead
    reason: str = ""
    seconds: float = 0.0
    silent: tuple[str, ...] = ()  # workers that did not answer the last proposal in time

    @property
    def is_over(self) -> bool:
        """Whether nobody carries it any more."""
        return self.state in ("finished", "applied", "aborted")


@dataclass
class MoveEndedError(Exception):
    """The end of a migration before all of it is complete."""

    state: State
    reason: str


def late_parts(bins: Bins, until: Time | None, seconds: float) -> str:
    """Return who has not passed a time in so many seconds, and where each stands, for people."""
    within = f"within {seconds:g} s"
    if until is None:
        return f"no step could begin {within}"
    behind = [part for part in bins.running if bins.passed_by(part) <= until]
    if not behind:
        return f"not all bins came {within}"
    parts = ", ".join(f"{part.name} ({_stands(part, until)})" for part in behind)
    fact = f"{parts} did not pass {until} {within}"
    if any(part.at < until for part in behind):
        fact += ": moves are made as rows come that are later"
    return fact


def _stands(part: Part, until: Time) -> str:
    """Return where a part stands that has not passed a time."""
    if part.frontier is None:
        return "has read no rows"
    if part.at < until:
        return f"stands at {part.at}"
    count = len(part.awaited)
    return "waits for a bin" if count == 1 else f"waits for {count} bins"
