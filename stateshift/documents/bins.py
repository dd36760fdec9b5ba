"""A group whose state moves in bins: the facts that all views share, and its documents. Pure.

MoveFacts    a migration that was checked, and how far it has come
CountFacts   the number of bins, which are hot, and another number on its way
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict

from stateshift.documents.problems import ErrorDocument
from stateshift.documents.shape import At, OrNone
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.dataflow.move_steps import BinMove
    from stateshift.live.bins.files import Proposal
    from stateshift.live.bins.migration import MoveProgress
    from stateshift.live.bins.move_request import Advice, Manner, Steps
    from stateshift.live.bins.watch import Bins, Load


MoveState = Literal["checked", "finished", "applied", "aborted"]
SteeringState = Literal["paused", "running", "throttled"]


def came_of(moved: MoveProgress | None) -> MoveState:
    """Return the state of a request to move bins; "checked" if nobody has sent it."""
    match None if moved is None else moved.state:
        case "finished" | "applied" | "aborted" as state:
            return state
        case _:
            return "checked"


@dataclass(frozen=True, slots=True)
class CrossingFacts:
    """Bins that go from one worker to another."""

    schema_name: ClassVar = "LiveCrossing"
    source: Annotated[str, "the worker that has them"]
    target: Annotated[str, "the worker that gets them"]
    bins: Annotated[tuple[int, ...], "their numbers"]
    keys: Annotated[int, "the keys that they had when it was checked"]
    bytes: Annotated[int, "the bytes that they had"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The costs of a strategy, by how long batches take and what bins hold."""

    schema_name: ClassVar = "LiveEstimate"
    strategy: Annotated[str, "all-at-once or fluid"]
    waits_seconds: Annotated[float, "how long rows of a moving bin wait, at most"]
    takes_seconds: Annotated[float, "how long the whole move takes"]


# A key costs its giver and its taker so much, as a pickled object and as a row of a table: measured
# on one core (`scripts/bench/live`).
SECONDS_A_KEY = {"columns": 0.2e-6}
SECONDS_AN_OBJECT = 4.1e-6
BYTES_A_SECOND = 50e6  # of a storage, for what is written once and read once
GAIN = 0.8  # of what rows wait otherwise: less is not worth the longer move


class _OfGroup:
    __slots__ = ()
    bins: Bins

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.bins.location)


@dataclass(frozen=True, slots=True)
class MoveFacts(_OfGroup):
    """A migration that was checked; `moved` says how far it has come, unless it was checked
    only.
    """

    bins: Bins
    steps: Steps
    manner: Manner
    moved: MoveProgress | None = None

    @property
    def state(self) -> MoveState:
        """How far it came."""
        return came_of(self.moved)

    @property
    def count(self) -> int:
        """The number of bins that move."""
        return len(self.moves)

    @property
    def moves(self) -> tuple[BinMove, ...]:
        """The moves of all steps."""
        return tuple(chain.from_iterable(step.moves for step in self.steps))

    @property
    def steps_now(self) -> int:
        """The number of steps: of the move, or of its plan before there is any."""
        return len(self.steps) if self.moved is None else self.moved.steps

    @property
    def crossings(self) -> tuple[CrossingFacts, ...]:
        """The bins that go from one worker to another, as they are at the moment."""
        between: dict[tuple[int, int], list[int]] = {}
        for move in self.moves:
            between.setdefault((move.source, move.target), []).append(move.bin)
        crossings = []
        for (source, target), bins in sorted(between.items()):
            kept = []
            for part in self.bins.parts_of(source):
                here = part.ledger.here
                kept += [here[bin] for bin in bins if bin in here]
            crossing = CrossingFacts(
                source=self.bins.names[source],
                target=self.bins.names[target],
                bins=tuple(sorted(bins)),
                keys=sum(each.keys for each in kept),
                bytes=sum(each.size for each in kept),
            )
            crossings.append(crossing)
        return tuple(crossings)

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The costs of moving these bins in one step, and each in a step of its own; nothing
        where no worker has run two batches.
        """
        batches = [
            part.seconds / (len(part.recent) - 1)
            for part in self.bins.running
            if len(part.recent) > 1
        ]
        batch = max(batches, default=0.0)
        costs = [_cost(self.bins, move) for move in self.moves]
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


def _cost(bins: Bins, move: BinMove) -> float:
    """Return the seconds to give, write, read and take the state of a bin."""
    seconds = 0.0
    for part in bins.parts_of(move.source):
        kept = part.ledger.here.get(move.bin)
        if kept is not None:
            a_key = SECONDS_A_KEY.get(part.runs.form, SECONDS_AN_OBJECT)
            seconds += kept.keys * a_key + 2 * kept.size / BYTES_A_SECOND
    return seconds


# ---- documents -----------------------------------------------------------------------------------


class LiveLoadDocument(TypedDict):
    """What a bin has, in all operators."""

    bin: Annotated[int, "its number"]
    worker: Annotated[str, "the worker that has it"]
    keys: Annotated[int, "its keys"]
    bytes: Annotated[int, "the bytes of their states", At("size")]
    changed_per_second: Annotated[float, "bytes that change a second, of late"]
    rows_per_second: Annotated[float, "rows a second, of late"]
    times: Annotated[float, "times the mean of all bins, by what is most of the four"]


class LiveMoveDocument(TypedDict):
    """Bins that move between workers: what was checked, and how far it has come."""

    state: Annotated[
        Literal["checked", "finished", "applied", "aborted"],
        "finished: all have come. applied: some are decided, and were not seen to be complete "
        "(exit code 9)",
    ]
    group: Annotated[str, "the group's folder", At("location")]
    move: Annotated[
        int | None, "the number of the last proposal; null if there was none", At("moved.number")
    ]
    strategy: Annotated[
        str, "all-at-once, fluid, batched(k), optimised or warm", At("manner.strategy")
    ]
    crossings: Annotated[list[CrossingFacts], "what goes from where to where"]
    bins: Annotated[int, "how many bins move", At("count")]
    bins_moved: Annotated[int, "those of steps that are complete", At("moved.bins_moved", none=0)]
    steps: Annotated[int, "in how many steps", At("steps_now")]
    steps_complete: Annotated[int, "those that are complete", At("moved.complete", none=0)]
    time: Annotated[int | None, "the logical time of the last step", At("moved.time")]
    reason: Annotated[str | None, "why it did not come to its end", OrNone("moved.reason")]
    seconds: Annotated[float | None, "how long it took", At("moved.seconds")]
    estimates: Annotated[list[Estimate], "of both ends; none before workers have run two batches"]


class AbortedLiveMoveDocument(LiveMoveDocument, ErrorDocument):
    """A migration that was aborted. Steps that were decided are carried out. It holds the error's
    keys, too.
    """


class LiveMoveAbortDocument(TypedDict):
    """What `stateshift live abort` has aborted of a move of bins."""

    state: Annotated[Literal["aborted"], "what was not decided stays where it is"]
    move: Annotated[int | None, "the proposal that was aborted; null where none was open"]
    bins: Annotated[list[int], "the bins that it would have moved"]


class LiveSteeringDocument(TypedDict):
    """What was asked of whoever moves bins, from now on."""

    state: Annotated[SteeringState, "what holds now"]
    group: Annotated[str, "the group's folder"]
    bins: Annotated[int | None, "bins a step at most"]
    gap_seconds: Annotated[float | None, "the pause between two steps"]
    carried_by: Annotated[str | None, "who moves bins at the moment"]


class LivePartDocument(TypedDict):
    """One worker's part in one operator."""

    worker: Annotated[str, "the worker", At("part.runs.worker")]
    operator: Annotated[str, "the operator", At("part.runs.operator")]
    bins: Annotated[int, "the bins that it has"]
    keys: Annotated[int, "the keys in them", At("part.keys")]
    bytes: Annotated[int, "the bytes of their state", At("part.size")]
    time: Annotated[int | None, "the logical time that it has come to; null before any row"]
    behind: Annotated[int | None, "how far that is behind the furthest part", At("lag")]
    time_per_second: Annotated[float, "logical time a second, of late", At("part.rate")]
    rows_per_second: Annotated[float | None, "rows a second, of late", At("part.rows_per_second")]
    rows_held: Annotated[int, "rows that its last commit has put aside", At("part.rows_held")]
    awaited: Annotated[list[int], "bins that have not come yet"]
    committed_seconds_ago: Annotated[
        float | None, "how long ago its last commit is", At("seconds_since")
    ]
    silent: Annotated[
        bool,
        "whether it has committed nothing for a minute, while others have",
        At("is_silent"),
    ]
    evicted: Annotated[
        bool, "whether its name was taken from it, and nobody has it yet", At("part.is_evicted")
    ]


class LiveBinsDocument(TypedDict):
    """The bins of a group."""

    bins: Annotated[int, "how many there are", At("bins.count")]
    workers: Annotated[list[str], "the workers, by number", At("bins.names")]
    assigned: Annotated[
        list[int],
        "the number of each bin's worker, with all that is decided",
        At("bins.assigned"),
    ]
    parts: Annotated[list[LivePartDocument], "the workers' parts in the operators"]
    hot: Annotated[list[LiveLoadDocument], "bins with far more than the mean, hottest first"]
    proposed: Annotated[int | None, "the move that is not decided", At("open.number")]
    paused: Annotated[bool, "whether no step begins", At("is_paused")]
    carried_by: Annotated[str | None, "who moves bins at the moment", At("carried.by")]
    steps: Annotated[int | None, "in how many steps", At("carried.steps")]
    steps_begun: Annotated[int | None, "those that have begun", At("carried.begun")]


class LiveWentDocument(TypedDict):
    """Bins that one proposal takes from one worker to another, at one time."""

    source: Annotated[str, "the worker that had them"]
    target: Annotated[str, "the worker that gets them"]
    time: Annotated[int, "the logical time from which they are there"]
    bins: Annotated[list[int], "their numbers"]


class LivePastMoveDocument(TypedDict):
    """A proposal of the past to move bins. A step that was proposed again has several."""

    move: Annotated[int, "its number", At("proposal.number")]
    at: Annotated[float, "when it was proposed, in seconds since 1970", At("proposal.at")]
    by: Annotated[str, "who proposed it: host and process", At("proposal.by")]
    went: Annotated[list[LiveWentDocument], "what goes from where to where"]
    ahead: Annotated[list[int], "bins that are copied ahead"]
    count: Annotated[
        int | None, "how many bins there shall be; null where bins move", At("proposal.bins")
    ]
    outcome: Annotated[Literal["under-way", "applied", "aborted"], "what became of it"]
    decided_at: Annotated[
        float | None, "when it was decided, in seconds since 1970", At("decided.at")
    ]
    decided_by: Annotated[str | None, "who decided", At("decided.by")]
    reason: Annotated[str | None, "why it was aborted", OrNone("reason")]
    acknowledged: Annotated[int, "workers' parts that have acknowledged it"]
    refused: Annotated[dict[str, str], "parts that have refused it, and why", At("refusals")]


def aborted_move(proposal: Proposal | None) -> LiveMoveAbortDocument:
    """Return the document of a proposal that was aborted."""
    updates = () if proposal is None else proposal.updates
    return {
        "state": "aborted",
        "move": None if proposal is None else proposal.number,
        "bins": sorted({update.bin for update in updates}),
    }


CountState = Literal["shown", "checked", "finished", "applied", "aborted"]
HOTTEST_MAX = 10


@dataclass(frozen=True, slots=True)
class CountFacts(_OfGroup):
    """A group's bins; `wanted` is another number of them, where one was asked for, and `moved` says
    how far that is, unless it was checked only.
    """

    bins: Bins
    loads: tuple[Load, ...]
    advice: Advice
    wanted: int | None = None
    moved: MoveProgress | None = None

    @property
    def running_parts(self) -> int:
        """The number of workers' parts in operators."""
        return len(self.bins.running)

    @property
    def state(self) -> CountState:
        """The state of the other number of bins."""
        return "shown" if self.wanted is None else came_of(self.moved)

    @property
    def hottest(self) -> tuple[Load, ...]:
        """The bins that have the most, of those that have something."""
        filled = [load for load in self.loads if load.times > 0]
        return tuple(sorted(filled, key=lambda load: (-load.times, load.bin))[:HOTTEST_MAX])

    @property
    def keys(self) -> int:
        """How many keys are dealt anew, in all operators."""
        return sum(load.keys for load in self.loads)

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return sum(load.size for load in self.loads)


# ---- documents -----------------------------------------------------------------------------------


class LiveCountDocument(TypedDict):
    """How many bins a group has, and how far another number of them has come."""

    state: Annotated[
        CountState,
        "shown: nothing was asked for. finished: all workers have redistributed their bins. "
        "applied (exit code 9): it is decided, and not all were seen to have",
    ]
    group: Annotated[str, "the group's folder", At("location")]
    bins: Annotated[int, "how many there were when it was asked for", At("bins.count")]
    wanted: Annotated[int | None, "how many there shall be"]
    advised: Annotated[int, "how many their loads speak for", At("advice.count")]
    why: Annotated[str, "what speaks for it", At("advice.reason")]
    hottest: Annotated[list[LiveLoadDocument], "the bins with the most"]
    move: Annotated[
        int | None, "the number of the proposal; null if there was none", At("moved.number")
    ]
    parts: Annotated[int, "workers' parts in operators", At("running_parts")]
    parts_dealt: Annotated[
        int | None, "those that have redistributed their bins", At("moved.complete")
    ]
    reason: Annotated[str | None, "why it did not come to its end", OrNone("moved.reason")]
    seconds: Annotated[float | None, "how long it took", At("moved.seconds")]


class AbortedLiveCountDocument(LiveCountDocument, ErrorDocument):
    """Another number of bins that was aborted. It holds the error's keys, too."""
