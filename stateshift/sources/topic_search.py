"""The search for a place in a topic: what brokers are asked for, and in which order. It only reads.

    contexts_at(reader, topic, offsets)      the records around each offset
    bounds_of(reader, syncs, topic, …)       what MirrorMaker 2 has written down of each
    first_since(reader, topic, times, …)     the first record as new as a time, by the records
    TopicSearch.places                       the offsets in a new topic

The search begins at the time of the last record that was read, and takes in more of the partition
until the place is found, up to `window` records. Brokers tell an offset of a time
(offsetsForTimes), but take the end of a transaction for a record: a mirror that writes transactions
has such ends of its own time among records that are older. Then records are asked for their times
(`first_since`).

The offset syncs of MirrorMaker bound each place. They are read from the newest one back, only as
far as they are needed, and the records are looked for between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from stateshift.formats.offset_file import SYNCS_NAME, decode_offset_sync
from stateshift.sources.translate import AROUND, Bounds, Context, context_at, find_place
from stateshift.survey import TopicRecord

Offsets = Mapping[int, int]
Windows = Mapping[int, tuple[int, int]]

PROBED = 64  # offsets that are read for a record's time
NEAR, FAR = 32, 2_048  # offsets before and after one that are read for its context
WINDOWS = (200, 2_000)  # records of a partition that are searched first
HELD_MAX = 200_000  # records in memory
BLOCK, BLOCK_MAX = 10_000, 200_000  # offset syncs that are read at once


class TopicReader(Protocol):
    """The topics of brokers, as far as they are asked. `kafka.open_topics` is one."""

    @property
    def brokers(self) -> str: ...

    @property
    def cluster(self) -> str | None:
        """The id of the brokers' cluster, as far as they tell it."""
        ...

    def names(self) -> frozenset[str]:
        """Return the names of all topics."""
        ...

    def pairs(self, topic: str, window: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a topic's first partition, in order."""
        ...

    def spans(self, topic: str) -> Windows:
        """Return the first and the end offset of each partition; nothing for no topic."""
        ...

    def offsets_at(self, topic: str, times_ms: Mapping[int, int]) -> Offsets:
        """Return the first offset of a record as new as the partition's time, where there is
        one.
        """
        ...

    def read(self, topic: str, windows: Windows) -> Mapping[int, Sequence[TopicRecord]]:
        """Return the records in these windows, in order."""
        ...


def contexts_at(reader: TopicReader, topic: str, offsets: Offsets) -> dict[int, Context]:
    """Return the records around each offset, as far as they are there."""
    spans = reader.spans(topic)
    contexts = {number: Context((), ()) for number in offsets}
    for near in (NEAR, FAR):  # not each offset has a record
        windows = {}
        for number, context in contexts.items():
            if not context.before or not context.after:
                first, end = spans[number]
                high = min(end, offsets[number] + near)
                windows[number] = (min(high, max(first, offsets[number] - near)), high)
        for number, records in reader.read(topic, windows).items():
            contexts[number] = context_at(records, offsets[number])
    return contexts


def syncs_topics(reader: TopicReader, name: str | None) -> list[str]:
    """Return the topics of syncs at these brokers, or the one that is named, if it is there."""
    names = reader.names()
    if name is not None:
        return [name] if name in names else []
    return sorted(filter(SYNCS_NAME.fullmatch, names))


def bounds_of(
    reader: TopicReader, syncs: str, topic: str, offsets: Mapping[int, int]
) -> dict[int, Bounds]:
    """Return the bounds of each offset of a topic, by these syncs.

    Raises:
        FormatError: the topic holds something else.
    """
    bounds = {number: Bounds(offset) for number, offset in offsets.items()}
    first, end = reader.spans(syncs).get(0, (0, 0))
    size = BLOCK
    while end > first and not all(each.is_closed for each in bounds.values()):
        start = max(first, end - size)
        for key, value in reversed(list(reader.pairs(syncs, (start, end)))):
            sync = decode_offset_sync(key, value)
            if sync.topic == topic and sync.partition in bounds:
                bounds[sync.partition].add(sync)
        end, size = start, min(2 * size, BLOCK_MAX)
    return bounds


def first_since(
    reader: TopicReader, topic: str, times_ms: Mapping[int, int], spans: Windows
) -> dict[int, int]:
    """Return the offset of the first record that is as new as its partition's time, where there is
    one. Records are taken to be in the order of their times, more or less.
    """
    found: dict[int, int] = {}
    probes: dict[int, _Probe] = {}
    for number, offset in reader.offsets_at(topic, times_ms).items():
        probes[number] = _Probe(offset, spans[number][1])
    while probes:
        windows = {number: probe.window for number, probe in probes.items()}
        for number, records in reader.read(topic, windows).items():
            after = probes.pop(number).after(records, times_ms[number])
            if isinstance(after, _Probe):
                probes[number] = after
            else:
                found[number] = after
    return found


@dataclass(frozen=True, slots=True)
class _Probe:
    """The search for the first record that is new enough: it is at `low` or later, and before
    `high`. The next records that are read are those from `at` on; `width` offsets, of which not
    each has one.
    """

    low: int
    high: int
    at: int = -1
    width: int = PROBED

    @property
    def window(self) -> tuple[int, int]:
        start = max(self.low, self.at)
        return start, min(self.high, start + self.width)

    def after(self, records: Sequence[TopicRecord], time_ms: int) -> _Probe | int:
        """Return the next probe; or the offset, once it is known."""
        start, end = self.window
        older: list[int] = []
        newer: list[int] = []
        for each in records:
            is_older = (each.timestamp or 0) < time_ms
            (older if is_older else newer).append(each.offset)
        if newer and (older or start == self.low):
            return newer[0]
        if not records and end < self.high:  # a stretch that was compacted
            return replace(self, width=2 * self.width)
        low = older[-1] + 1 if older else self.low
        high = self.high if older else start
        if low >= high:
            return high
        is_near = high - low <= PROBED
        return _Probe(low, high, low if is_near else (low + high) // 2)


@dataclass(frozen=True, slots=True)
class TopicSearch:
    """The search for places in the partitions of a topic, of which `window` records are read at
    most: near the time of the records that are looked for, or between the bounds that are known.
    """

    reader: TopicReader
    topic: str
    spans: Windows
    bounds: Mapping[int, Bounds]
    window: int

    def places(self, contexts: Mapping[int, Context]) -> dict[int, int]:
        """Return the offsets of those that are found."""
        parts = {number: self._part(number) for number in contexts}
        starts = self._starts(contexts, parts)
        places: dict[int, int] = {}
        for size in (*(size for size in WINDOWS if size < self.window), self.window):
            unknown = [number for number in sorted(contexts) if number not in places]
            at_once = max(1, HELD_MAX // size)  # a few partitions
            for place in range(0, len(unknown), at_once):
                windows = {}
                for number in unknown[place : place + at_once]:
                    first, end = parts[number]
                    # A little before that time, too; all of it where little follows.
                    low = max(first, min(starts[number] - max(size // 4, AROUND), end - size))
                    windows[number] = (low, min(end, low + size))
                for number, records in self.reader.read(self.topic, windows).items():
                    found = find_place(contexts[number], records)
                    if found is not None and (found.is_firm or size == self.window):
                        places[number] = found.offset
        return places

    def _part(self, number: int) -> tuple[int, int]:
        """Return the part of a partition between its bounds, and a little around it."""
        first, end = self.spans[number]
        bounds = self.bounds.get(number)
        if bounds is not None and bounds.low is not None:
            first = min(end, max(first, bounds.low.downstream - NEAR))
        if bounds is not None and bounds.high is not None:
            end = max(first, min(end, bounds.high.downstream + NEAR))
        return first, end

    def _starts(self, contexts: Mapping[int, Context], parts: Windows) -> dict[int, int]:
        """Return the offsets around which copies of the nearest records can be expected."""
        starts = {number: end for number, (_, end) in parts.items()}
        asked: dict[int, int] = {}
        for number, context in contexts.items():
            first, end = parts[number]
            bounds = self.bounds.get(number)
            is_near = bounds is not None and end - first <= self.window
            if not is_near and context.time_ms is not None:
                asked[number] = context.time_ms
            elif bounds is not None and bounds.low is not None:
                starts[number] = first
        return {**starts, **first_since(self.reader, self.topic, asked, parts)}
