"""An old offset in a topic, found again in another topic by the records around it. Pure.

    old topic    … r7 r8 r9 | r10 r11 …       the job has read up to r9
    new topic    … x r8 r9 | r10 …            the same place, at another offset

A record is the same if key, value and time are; times are not compared where a broker has set one.
A place is known by the records that both sides have there: the last ones that were read, and the
next ones. Either may be missing: a mirror lags, a topic was compacted, or nothing follows yet.
A place at which another record follows than the next one is not it.

Two places that fit equally well (a topic that repeats the same few records) are no place.

Offset syncs of MirrorMaker 2 bound a place. It copies a partition in its order:

    old topic    … u ……… offset ……… U …        the job has read up to `offset`
    new topic    … d ………   ?    ……… D …        it stands at d or later, and at D or earlier

A sync is written down now and then (`offset.lag.max`), and compaction leaves few old ones. One
that goes back behind a later one is of a topic that was there before: MirrorMaker forgets those,
too (OffsetSyncStore.handleRecord). A checkpoint of a consumer group (ALIAS.checkpoints.internal) is
made from these syncs, for offsets that the group has committed: it says nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from typing import NamedTuple

from stateshift.formats.offset_file import OffsetSync
from stateshift.survey import TopicRecord

AROUND = 5  # records on each side of an offset by which it is known again


class Context(NamedTuple):
    """The records on both sides of an offset, in the order of their offsets, the nearest few."""

    before: tuple[TopicRecord, ...]
    after: tuple[TopicRecord, ...]

    @property
    def time_ms(self) -> int | None:
        """The time from which on a copy of the nearest record can be expected."""
        nearest = [*self.before[-1:], *self.after[:1]]
        times = [record.timestamp for record in nearest if record.timestamp is not None]
        return times[0] if times else None


class Place(NamedTuple):
    """An offset in the new topic. `is_firm`: the records on both sides say so, as far as the old
    topic has any, and by their times: other records then hardly ever look the same.
    """

    offset: int
    is_firm: bool


@dataclass(slots=True)
class Bounds:
    """The nearest syncs around an offset: at it or before, at it or after."""

    offset: int
    low: OffsetSync | None = None
    high: OffsetSync | None = None
    is_closed: bool = False  # earlier syncs say nothing more

    @property
    def is_known(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def span_max(self) -> int | None:
        """The most records that can be between the lower bound and the offset."""
        return None if self.low is None else self.offset - self.low.upstream

    def add(self, sync: OffsetSync) -> None:
        """Take in the sync before those that were added."""
        newer = self.high
        if self.is_closed:
            return
        if newer is not None:
            goes_back = sync.upstream > newer.upstream or sync.downstream > newer.downstream
            if goes_back:
                self.is_closed = True
                return
        if sync.upstream >= self.offset:
            self.high = sync
        if sync.upstream <= self.offset:
            self.low, self.is_closed = sync, True


class _Fit(NamedTuple):
    """One place between two records, and how many records on each side are the same there."""

    number: int
    before: int
    after: int


def context_at(records: Sequence[TopicRecord], offset: int) -> Context:
    """Return the records around an offset."""
    before = [record for record in records if record.offset < offset]
    after = [record for record in records if record.offset >= offset]
    return Context(tuple(before[-AROUND:]), tuple(after[:AROUND]))


def are_same(ours: TopicRecord, theirs: TopicRecord) -> bool:
    """Whether two records are one. A broker that sets times has another one for a copy."""
    if (ours.key, ours.value) != (theirs.key, theirs.value):
        return False
    return ours.appended or theirs.appended or ours.timestamp == theirs.timestamp


def is_older(theirs: TopicRecord, ours: TopicRecord) -> bool:
    """Whether a record was written before another, by times that no broker has set."""
    times = theirs.timestamp, ours.timestamp
    if None in times or theirs.appended or ours.appended:
        return False
    return (theirs.timestamp or 0) < (ours.timestamp or 0)


def find_place(context: Context, records: Sequence[TopicRecord]) -> Place | None:
    """Return the place of the context among the records of a new topic, in order; None where
    there is none, or more than one.
    """
    fits = list(_fits(context, records))
    best = max((fit.before + fit.after for fit in fits), default=0)
    places = [fit for fit in fits if fit.before + fit.after == best]
    if len(places) != 1:
        return None
    (fit,) = places
    # Offsets without a record may follow the last one that was read: they make no difference.
    offset = records[fit.number - 1].offset + 1 if fit.before else records[fit.number].offset
    has_before = fit.before > 0 or not context.before
    has_after = fit.after > 0 or not context.after
    beside = (*context.before[-1:], *context.after[:1])
    beside += tuple(records[max(0, fit.number - 1) : fit.number + 1])
    are_dated = all(each.timestamp is not None and not each.appended for each in beside)
    return Place(offset, has_before and has_after and are_dated)


def _fits(context: Context, records: Sequence[TopicRecord]) -> Iterator[_Fit]:
    """Yield the places that at least one record speaks for, and none against."""
    last_read_is_gone = not _has(records, context.before[-1:])
    next_is_gone = not _has(records, context.after[:1])
    numbers = _numbers_near(context, records)
    for number in numbers:
        left, right = records[max(0, number - AROUND) : number], records[number : number + AROUND]
        before = _agreeing(tuple(reversed(context.before)), tuple(reversed(left)))
        after = _agreeing(context.after, right)
        if not before and left and context.before:
            is_compacted = last_read_is_gone and _has(context.before, left[-1:])
            if not is_compacted:
                continue
        if not after and right and context.after:
            is_compacted = next_is_gone and _has(context.after, right[:1])
            if not is_compacted:
                continue
        if before or after:
            yield _Fit(number, before, after)


def _numbers_near(context: Context, records: Sequence[TopicRecord]) -> list[int]:
    """Return the places beside a record that may be one of the context's: they are few."""
    wanted = {(record.key, record.value) for record in (*context.before, *context.after)}
    numbers: set[int] = set()
    for number, record in enumerate(records):
        if (record.key, record.value) in wanted:
            numbers.update((number, number + 1))
    return sorted(numbers)


def _has(records: Sequence[TopicRecord], wanted: Sequence[TopicRecord]) -> bool:
    """Whether the one record that is wanted, if any, is among these."""
    return any(are_same(*pair) for pair in product(records, wanted))


def _agreeing(ours: Sequence[TopicRecord], theirs: Sequence[TopicRecord]) -> int:
    """Return the number of records that are the same, one by one, from the first on."""
    pairs = zip(ours, theirs, strict=False)
    return sum(1 for _ in takewhile(lambda pair: are_same(*pair), pairs))
