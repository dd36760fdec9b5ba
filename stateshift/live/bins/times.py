"""Logical time, and what a source promises of it.

    moment    (at,) or (at, offset, …): the columns of an operator's `time`, compared in this order
    cut       (at,): what lies before it has an earlier `at`; bins move at cuts
    frontier  a moment: no row before it comes any more

A frontier is a promise of the source and never a guess from what was seen: a row that comes after
its time was passed would be missing at the worker that its bin has moved to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stateshift.errors import Complaint, SpecError

Moment = tuple[int, ...]
Seen = Mapping[str, Moment]  # by partition, the last moment that has come

BEGIN: Moment = (-1,)
AFTER_ALL = 1 << 64  # behind every number of a column


def cut(time: int) -> Moment:
    """Return the moment that separates what is earlier than a time from what is not."""
    return (time,)


def timer_moment(time: int, columns: int) -> Moment:
    """Return a timer's moment: with its time's rows; after them, where time is several columns."""
    return (time,) if columns == 1 else (time, AFTER_ALL)


@dataclass(frozen=True, slots=True)
class InOrder:
    """Rows come in the order of time, in each partition of the source.

    Args:
        partition: the column that tells partitions apart; None where there is one.
        partitions: how many there are; the frontier stands until each has had rows.
        ties: whether a moment may have several rows, so that its last one cannot be known.
    """

    partition: str | None = None
    partitions: int = 1
    ties: bool = False

    def seen(self, before: Seen, moments: Mapping[str, Moment]) -> Seen:
        """Return the last moments with those of a batch."""
        merged = dict(before)
        for name, moment in moments.items():
            merged[name] = max(moment, merged.get(name, moment))
        return merged

    def frontier(self, seen: Seen) -> Moment | None:
        """Return the frontier by what was seen; None where a partition has had nothing."""
        if len(seen) < self.partitions:
            return None
        earliest = min(seen.values())
        return earliest if self.ties else (*earliest, 0)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Rows come at most so much later than the latest one; later ones are left out, as Spark's
    watermark does.

    Args:
        delay: in the units of the time column; microseconds where it is a timestamp.
    """

    delay: int
    partition: None = field(default=None, init=False)

    def seen(self, before: Seen, moments: Mapping[str, Moment]) -> Seen:
        return {"": max((*before.values(), *moments.values()))}

    def frontier(self, seen: Seen) -> Moment | None:
        return cut(seen[""][0] - self.delay) if seen else None


Promise = InOrder | Watermark


def check_promise(promise: Promise, time: Sequence[str]) -> None:
    """Refuse a promise that no source could keep."""
    wrong = []
    if not time:
        wrong.append(Complaint("time", "no column tells the time"))
    if isinstance(promise, InOrder) and promise.partitions < 1:
        wrong.append(Complaint("promise", "a source has a partition", promise.partitions))
    if isinstance(promise, InOrder) and promise.partitions > 1 and promise.partition is None:
        wrong.append(Complaint("promise", "no column tells partitions apart"))
    if isinstance(promise, Watermark) and promise.delay < 0:
        wrong.append(Complaint("promise", "a delay is not below 0", promise.delay))
    if wrong:
        hint = "time=('at', 'offset'), promise=live.InOrder() or live.Watermark(DELAY)"
        raise SpecError(tuple(wrong), hint=hint)
