"""The JSON documents of bins that move: values in, typed dictionaries out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, cast

from stateshift.documents.bin_count_json import LiveLoadDocument, load_of
from stateshift.documents.problems import ErrorDocument, error_document

if TYPE_CHECKING:
    from stateshift.documents.bins import (
        BinsFacts,
        CrossingFacts,
        MoveFacts,
        PartFacts,
        PastMoveFacts,
    )
    from stateshift.errors import StateshiftError
    from stateshift.live.bins.files import Proposal
    from stateshift.live.bins.steering import Throttle

SteeringState = Literal["paused", "running", "throttled"]


class LiveCrossingDocument(TypedDict):
    """Bins that go from one worker to another."""

    source: Annotated[str, "the worker that has them"]
    target: Annotated[str, "the worker that gets them"]
    bins: Annotated[list[int], "their numbers"]
    keys: Annotated[int, "the keys that they had when it was checked"]
    bytes: Annotated[int, "the bytes that they had"]


class LiveEstimateDocument(TypedDict):
    """The costs of a strategy, by how long batches take and what bins hold."""

    strategy: Annotated[str, "all-at-once or fluid"]
    waits_seconds: Annotated[float, "how long rows of a moving bin wait, at most"]
    takes_seconds: Annotated[float, "how long the whole move takes"]


class LiveMoveDocument(TypedDict):
    """Bins that move between workers: what was checked, and how far it has come."""

    state: Annotated[
        Literal["checked", "finished", "applied", "aborted"],
        "finished: all have come. applied: some are decided, and were not seen to be complete "
        "(exit code 9)",
    ]
    group: Annotated[str, "the group's folder"]
    move: Annotated[int | None, "the number of the last proposal; null if there was none"]
    strategy: Annotated[str, "all-at-once, fluid, batched(k), optimised or warm"]
    crossings: Annotated[list[LiveCrossingDocument], "what goes from where to where"]
    bins: Annotated[int, "how many bins move"]
    bins_moved: Annotated[int, "those of steps that are complete"]
    steps: Annotated[int, "in how many steps"]
    steps_complete: Annotated[int, "those that are complete"]
    time: Annotated[int | None, "the logical time of the last step"]
    reason: Annotated[str | None, "why it did not come to its end"]
    seconds: Annotated[float | None, "how long it took"]
    estimates: Annotated[
        list[LiveEstimateDocument], "of both ends; none before workers have run two batches"
    ]


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

    worker: Annotated[str, "the worker"]
    operator: Annotated[str, "the operator"]
    bins: Annotated[int, "the bins that it has"]
    keys: Annotated[int, "the keys in them"]
    bytes: Annotated[int, "the bytes of their state"]
    time: Annotated[int | None, "the logical time that it has come to; null before any row"]
    behind: Annotated[int | None, "how far that is behind the furthest part"]
    time_per_second: Annotated[float, "logical time a second, of late"]
    rows_per_second: Annotated[float | None, "rows a second, of late"]
    rows_held: Annotated[int, "rows that its last commit has put aside"]
    awaited: Annotated[list[int], "bins that have not come yet"]
    committed_seconds_ago: Annotated[float | None, "how long ago its last commit is"]
    silent: Annotated[bool, "whether it has committed nothing for a minute, while others have"]
    evicted: Annotated[bool, "whether its name was taken from it, and nobody has it yet"]


class LiveBinsDocument(TypedDict):
    """The bins of a group."""

    bins: Annotated[int, "how many there are"]
    workers: Annotated[list[str], "the workers, by number"]
    assigned: Annotated[list[int], "the number of each bin's worker, with all that is decided"]
    parts: Annotated[list[LivePartDocument], "the workers' parts in the operators"]
    hot: Annotated[list[LiveLoadDocument], "bins with far more than the mean, hottest first"]
    proposed: Annotated[int | None, "the move that is not decided"]
    paused: Annotated[bool, "whether no step begins"]
    carried_by: Annotated[str | None, "who moves bins at the moment"]
    steps: Annotated[int | None, "in how many steps"]
    steps_begun: Annotated[int | None, "those that have begun"]


class LiveWentDocument(TypedDict):
    """Bins that one proposal takes from one worker to another, at one time."""

    source: Annotated[str, "the worker that had them"]
    target: Annotated[str, "the worker that gets them"]
    time: Annotated[int, "the logical time from which they are there"]
    bins: Annotated[list[int], "their numbers"]


class LivePastMoveDocument(TypedDict):
    """A proposal of the past to move bins. A step that was proposed again has several."""

    move: Annotated[int, "its number"]
    at: Annotated[float, "when it was proposed, in seconds since 1970"]
    by: Annotated[str, "who proposed it: host and process"]
    went: Annotated[list[LiveWentDocument], "what goes from where to where"]
    ahead: Annotated[list[int], "bins that are copied ahead"]
    count: Annotated[int | None, "how many bins there shall be; null where bins move"]
    outcome: Annotated[Literal["under-way", "applied", "aborted"], "what became of it"]
    decided_at: Annotated[float | None, "when it was decided, in seconds since 1970"]
    decided_by: Annotated[str | None, "who decided"]
    reason: Annotated[str | None, "why it was aborted"]
    acknowledged: Annotated[int, "workers' parts that have acknowledged it"]
    refused: Annotated[dict[str, str], "parts that have refused it, and why"]


def past(facts: PastMoveFacts) -> LivePastMoveDocument:
    """Return a move of the past."""
    decided = facts.move.decided
    return {
        "move": facts.number,
        "at": facts.at,
        "by": facts.move.proposal.by,
        "went": [
            {
                "source": each.source,
                "target": each.target,
                "time": each.time,
                "bins": list(each.bins),
            }
            for each in facts.went
        ],
        "ahead": list(facts.ahead),
        "count": facts.count,
        "outcome": facts.became,
        "decided_at": None if decided is None else decided.at,
        "decided_by": None if decided is None else decided.by,
        "reason": facts.reason or None,
        "acknowledged": facts.move.acknowledged,
        "refused": facts.refusals,
    }


def move(facts: MoveFacts) -> LiveMoveDocument:
    """Return a migration, and how far it has come."""
    moved = facts.moved
    return {
        "state": facts.state,
        "group": facts.location,
        "move": None if moved is None else moved.number,
        "strategy": facts.manner.strategy,
        "crossings": [_crossing(each) for each in facts.crossings],
        "bins": facts.count,
        "bins_moved": 0 if moved is None else moved.bins_moved,
        "steps": len(facts.steps) if moved is None else moved.steps,
        "steps_complete": 0 if moved is None else moved.complete,
        "time": None if moved is None else moved.time,
        "reason": None if moved is None else moved.reason or None,
        "seconds": None if moved is None else moved.seconds,
        "estimates": [
            {
                "strategy": each.strategy,
                "waits_seconds": each.waits_seconds,
                "takes_seconds": each.takes_seconds,
            }
            for each in facts.estimates
        ],
    }


def failed_move(facts: MoveFacts, error: StateshiftError) -> AbortedLiveMoveDocument:
    """Return a migration that was aborted, and the error that says so."""
    return cast("AbortedLiveMoveDocument", {**move(facts), **error_document(error)})


def _crossing(facts: CrossingFacts) -> LiveCrossingDocument:
    return {
        "source": facts.source,
        "target": facts.target,
        "bins": list(facts.bins),
        "keys": facts.keys,
        "bytes": facts.size,
    }


def aborted(proposal: Proposal | None) -> LiveMoveAbortDocument:
    """Return what was aborted."""
    updates = () if proposal is None else proposal.updates
    return {
        "state": "aborted",
        "move": None if proposal is None else proposal.number,
        "bins": sorted({update.bin for update in updates}),
    }


def steering(
    state: SteeringState,
    location: str,
    throttle: Throttle,
    carried_by: str | None,
) -> LiveSteeringDocument:
    """Return what was asked of whoever moves bins."""
    return {
        "state": state,
        "group": location,
        "bins": throttle.bins,
        "gap_seconds": throttle.gap_seconds,
        "carried_by": carried_by,
    }


def status(facts: BinsFacts) -> LiveBinsDocument:
    """Return the bins of a group as they are now."""
    carried, open_ = facts.carried, facts.open
    return {
        "bins": facts.count,
        "workers": list(facts.bins.names),
        "assigned": list(facts.bins.assigned),
        "parts": [_part(each) for each in facts.parts],
        "hot": list(map(load_of, facts.hot)),
        "proposed": None if open_ is None else open_.number,
        "paused": facts.is_paused,
        "carried_by": None if carried is None else carried.by,
        "steps": None if carried is None else carried.steps,
        "steps_begun": None if carried is None else carried.begun,
    }


def _part(facts: PartFacts) -> LivePartDocument:
    part = facts.part
    return {
        "worker": part.runs.worker,
        "operator": part.runs.operator,
        "bins": facts.bins,
        "keys": part.keys,
        "bytes": part.size,
        "time": None if part.frontier is None else part.at,
        "behind": facts.lag,
        "time_per_second": part.rate,
        "rows_per_second": part.rows_per_second,
        "rows_held": part.rows_held,
        "awaited": sorted(part.awaited),
        "committed_seconds_ago": facts.seconds_since,
        "silent": facts.is_silent,
        "evicted": part.is_evicted,
    }
