"""What is known of a group whose state moves in bins, computed once for all views. Pure.

MoveFacts      a migration that was checked, and how far it has come
PartFacts      one worker's part in one operator
BinsFacts      the group: its workers, their parts, what is on its way
PastMoveFacts  a move of the past, and what became of it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stateshift.live.bins.bin_loads import hot, loads
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.dataflow.move_steps import Move
    from stateshift.live.bins.bin_loads import Load
    from stateshift.live.bins.files import Proposal
    from stateshift.live.bins.move_request import Manner, Steps
    from stateshift.live.bins.moved import Moved
    from stateshift.live.bins.past import PastMove, Went
    from stateshift.live.bins.steering import CarriedBy, Throttle
    from stateshift.live.bins.watch import Bins, Part

Came = Literal["checked", "finished", "applied", "aborted"]


def came_of(moved: Moved | None) -> Came:
    """Return how far something came; "checked" where nobody was told of it."""
    match None if moved is None else moved.state:
        case "finished" | "applied" | "aborted" as state:
            return state
        case _:
            return "checked"


SILENT_SECONDS = 60.0  # a worker that commits nothing for so long, while others do, may be dead

Became = Literal["under-way", "applied", "aborted"]


@dataclass(frozen=True, slots=True)
class CrossingFacts:
    """Bins that go from one worker to another, with what they hold."""

    source: str
    target: str
    bins: tuple[int, ...]
    keys: int
    size: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long rows of a moving bin wait at most by a strategy, and how long the move takes."""

    strategy: str
    waits_seconds: float
    takes_seconds: float


# A key costs its giver and its taker so much, as a pickled object and as a row of a table: measured
# on one core (`scripts/bench/live`).
SECONDS_A_KEY = {"columns": 0.2e-6}
SECONDS_AN_OBJECT = 4.1e-6
BYTES_A_SECOND = 50e6  # of a storage, for what is written once and read once
GAIN = 0.8  # of what rows wait otherwise: less is not worth the longer move


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """A migration that was checked; `moved` says how far it has come, unless it was checked
    only.
    """

    bins: Bins
    steps: Steps
    manner: Manner
    moved: Moved | None = None

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.bins.location)

    @property
    def state(self) -> Came:
        """How far it came."""
        return came_of(self.moved)

    @property
    def count(self) -> int:
        """How many bins move."""
        return sum(len(step.moves) for step in self.steps)

    @property
    def crossings(self) -> tuple[CrossingFacts, ...]:
        """What goes from where to where, as it is at the moment."""
        between: dict[tuple[int, int], list[int]] = {}
        for step in self.steps:
            for move in step.moves:
                between.setdefault((move.source, move.target), []).append(move.bin)
        return tuple(self._crossing(*ends, bins) for ends, bins in sorted(between.items()))

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """What moving these bins in one step costs, and what each in a step of its own; nothing
        where no worker has run two batches.
        """
        batches = [
            part.seconds / (len(part.recent) - 1)
            for part in self.bins.running
            if len(part.recent) > 1
        ]
        batch = max(batches, default=0.0)
        costs = [_cost(self.bins, move) for step in self.steps for move in step.moves]
        if not batch or not costs:
            return ()
        manner = self.manner
        floor = 2 * batch  # the giver's batch, and the taker's next one
        at_once, bin = floor + sum(costs), floor + max(costs)
        between = manner.gap_seconds
        if not manner.prepared:
            between += manner.lead_seconds + floor
        takes = manner.lead_seconds + floor + sum(costs) + between * (len(costs) - 1)
        return (
            Estimate("all-at-once", at_once, manner.lead_seconds + at_once),
            Estimate("fluid", bin, takes),
        )

    @property
    def fluid_gains(self) -> bool:
        """Whether rows wait for less where each bin has a step of its own."""
        waits = [each.waits_seconds for each in self.estimates]
        return bool(waits) and waits[1] < GAIN * waits[0]

    def _crossing(self, source: int, target: int, bins: Sequence[int]) -> CrossingFacts:
        kept = []
        for part in self.bins.parts_of(source):
            here = part.ledger.here
            kept += [here[bin] for bin in bins if bin in here]
        return CrossingFacts(
            source=self.bins.names[source],
            target=self.bins.names[target],
            bins=tuple(sorted(bins)),
            keys=sum(each.keys for each in kept),
            size=sum(each.size for each in kept),
        )


def _cost(bins: Bins, move: Move) -> float:
    """Return how long the state of a bin takes to be given, written, read and taken."""
    seconds = 0.0
    for part in bins.parts_of(move.source):
        kept = part.ledger.here.get(move.bin)
        if kept is not None:
            a_key = SECONDS_A_KEY.get(part.runs.form, SECONDS_AN_OBJECT)
            seconds += kept.keys * a_key + 2 * kept.size / BYTES_A_SECOND
    return seconds


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What is shown of one worker's part in one operator.

    `lag` is how far it is behind the furthest; it `is_silent` where it has committed nothing for
    long, while others have.
    """

    part: Part
    bins: int
    lag: int | None
    seconds_since: float | None
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class BinsFacts:
    """A group's bins: its workers, their parts, what is on its way."""

    bins: Bins
    carried: CarriedBy | None
    is_paused: bool
    throttle: Throttle

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.bins.location)

    @property
    def count(self) -> int:
        """How many bins there are."""
        return self.bins.moves.configuration.bins

    @property
    def open(self) -> Proposal | None:
        """What is proposed and not decided."""
        return self.bins.moves.open

    @property
    def on_their_way(self) -> int:
        """How many bins are awaited somewhere."""
        return sum(len(part.awaited) for part in self.bins.parts)

    @property
    def is_moving(self) -> bool:
        """Whether something is proposed, or bins are on their way."""
        return self.open is not None or self.carried is not None or self.on_their_way > 0

    @property
    def parts(self) -> tuple[PartFacts, ...]:
        """The parts of all workers, by operator and name."""
        furthest = self.bins.furthest
        newest = max((_committed(part) for part in self.bins.parts), default=0.0)
        found = []
        for part in self.bins.parts:
            last = part.ledger.last
            found.append(
                PartFacts(
                    part=part,
                    bins=len(part.ledger.here),
                    lag=None
                    if part.frontier is None or furthest is None
                    else furthest.at - part.at,
                    seconds_since=None if last is None else max(0.0, self.bins.at - last.at),
                    is_silent=last is not None and newest - last.at > SILENT_SECONDS,
                )
            )
        return tuple(found)

    @property
    def hot(self) -> tuple[Load, ...]:
        """The bins that have far more than the others, the hottest first."""
        return hot(loads(self.bins))

    @property
    def without_part(self) -> tuple[str, ...]:
        """The workers that have joined and run nothing."""
        running = {part.number for part in self.bins.parts}
        return tuple(name for number, name in enumerate(self.bins.names) if number not in running)


def _committed(part: Part) -> float:
    """Return when a part has committed last; 0 where it never has."""
    return 0.0 if part.ledger.last is None else part.ledger.last.at


@dataclass(frozen=True, slots=True)
class PastMoveFacts:
    """A move of the past, and what became of it."""

    move: PastMove

    @property
    def number(self) -> int:
        """Its number."""
        return self.move.proposal.number

    @property
    def at(self) -> float:
        """When it was proposed."""
        return self.move.proposal.at

    @property
    def became(self) -> Became:
        """What became of it."""
        decided = self.move.decided
        if decided is None:
            return "under-way"
        return "applied" if decided.outcome == "applied" else "aborted"

    @property
    def went(self) -> tuple[Went, ...]:
        """What it takes from where to where; nothing where bins are copied ahead."""
        return self.move.went

    @property
    def ahead(self) -> tuple[int, ...]:
        """The bins that are copied ahead."""
        return tuple(sorted(bin for bin, _ in self.move.proposal.ahead))

    @property
    def count(self) -> int | None:
        """How many bins there shall be; None where bins move."""
        return self.move.proposal.bins

    @property
    def since(self) -> int:
        """The time from which bins are dealt anew, where they are."""
        return self.move.proposal.since

    @property
    def decided_seconds(self) -> float | None:
        """The seconds from the proposal to the decision."""
        return None if self.move.decided is None else self.move.decided.at - self.at

    @property
    def reason(self) -> str:
        """Why it was aborted; empty where it was not."""
        return "" if self.move.decided is None else self.move.decided.reason

    @property
    def refusals(self) -> dict[str, str]:
        """The parts that have refused it, and why."""
        return {f"{each.operator} at {each.worker}": each.reason for each in self.move.refused}
