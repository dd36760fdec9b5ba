"""The JSON document of how many bins there are, and of another number of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict, cast

from stateshift.documents.bin_count import CountState
from stateshift.documents.problems import ErrorDocument, error_document

if TYPE_CHECKING:
    from stateshift.documents.bin_count import CountFacts
    from stateshift.errors import StateshiftError
    from stateshift.live.bins.bin_loads import Load


class LiveLoadDocument(TypedDict):
    """What a bin has, in all operators."""

    bin: Annotated[int, "its number"]
    worker: Annotated[str, "the worker that has it"]
    keys: Annotated[int, "its keys"]
    bytes: Annotated[int, "the bytes of their states"]
    changed_per_second: Annotated[float, "bytes that change a second, of late"]
    rows_per_second: Annotated[float, "rows a second, of late"]
    times: Annotated[float, "times the mean of all bins, by what is most of the four"]


class LiveCountDocument(TypedDict):
    """How many bins a group has, and how far another number of them has come."""

    state: Annotated[
        CountState,
        "shown: nothing was asked for. finished: all workers have redistributed their bins. "
        "applied (exit code 9): it is decided, and not all were seen to have",
    ]
    group: Annotated[str, "the group's folder"]
    bins: Annotated[int, "how many there were when it was asked for"]
    wanted: Annotated[int | None, "how many there shall be"]
    advised: Annotated[int, "how many their loads speak for"]
    why: Annotated[str, "what speaks for it"]
    hottest: Annotated[list[LiveLoadDocument], "the bins with the most"]
    move: Annotated[int | None, "the number of the proposal; null if there was none"]
    parts: Annotated[int, "workers' parts in operators"]
    parts_dealt: Annotated[int | None, "those that have redistributed their bins"]
    reason: Annotated[str | None, "why it did not come to its end"]
    seconds: Annotated[float | None, "how long it took"]


class AbortedLiveCountDocument(LiveCountDocument, ErrorDocument):
    """Another number of bins that was aborted. It holds the error's keys, too."""


def count(facts: CountFacts) -> LiveCountDocument:
    """Return how many bins there are, and how far another number of them has come."""
    moved = facts.moved
    return {
        "state": facts.state,
        "group": facts.location,
        "bins": facts.bins.count,
        "wanted": facts.wanted,
        "advised": facts.advice.count,
        "why": facts.advice.reason,
        "hottest": list(map(load_of, facts.hottest)),
        "move": None if moved is None else moved.number,
        "parts": len(facts.bins.running),
        "parts_dealt": None if moved is None else moved.complete,
        "reason": None if moved is None else moved.reason or None,
        "seconds": None if moved is None else moved.seconds,
    }


def load_of(load: Load) -> LiveLoadDocument:
    """Return what a bin has."""
    return {
        "bin": load.bin,
        "worker": load.worker,
        "keys": load.keys,
        "bytes": load.size,
        "changed_per_second": load.changed_per_second,
        "rows_per_second": load.rows_per_second,
        "times": load.times,
    }


def failed_count(facts: CountFacts, error: StateshiftError) -> AbortedLiveCountDocument:
    """Return a number that was aborted, and the error that says so."""
    return cast("AbortedLiveCountDocument", {**count(facts), **error_document(error)})
