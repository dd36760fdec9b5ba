"""New offsets for a source that reads on in other topics, or at other brokers: found there, and
proved by the records around them. It only reads.

    new_positions(request, old, new)   the next offset of each partition of one topic

The records around the old offset are looked for in the new topic (`translate`). If they are found,
the place is known to the record, whatever way the new offset itself comes from: records that would
be read again, or skipped, are counted from there. If they are not found, both numbers are unknown.

The search begins at the time of the last record that was read, and takes in more of the partition
until the place is found, up to `window` records. Brokers tell an offset of a time
(offsetsForTimes), but take the end of a transaction for a record: a mirror that writes transactions
has such ends of its own time among records that are older. Then records are asked for their times
(`first_since`).

A partition that the job has not read yet begins with its first record, unless a file names it. If
that record is older than what the job has read, the partition may hold copies from others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from stateshift.sources.translate import AROUND, Context, Place, context_at, find_place
from stateshift.specification import grammars
from stateshift.specification.grammars import BY_FILE, milliseconds_of
from stateshift.survey import Finding, PositionChange, TopicRecord

Offsets = Mapping[int, int]
Windows = Mapping[int, tuple[int, int]]

PROBED = 64  # offsets that are read for a record's time
NEAR, FAR = 32, 2_048  # offsets before and after one that are read for its context
WINDOWS = (200, 2_000)  # records of a partition that are searched first
HELD_MAX = 200_000  # records in memory
SHOWN_MAX = 3  # partitions that a message names
COUNTED_MAX = 10_000  # records that are counted; of more, the difference of the offsets is told

OTHER = "other-records"
_UNPROVED = f'where you know these offsets to be right, "waive": ["{OTHER}"]'


class TopicReader(Protocol):
    """The topics of brokers, as far as they are asked. `kafka.open_topics` is one."""

    @property
    def brokers(self) -> str: ...

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


class OpenTopics(Protocol):
    """Opens the topics of brokers, with a file of client properties."""

    def __call__(
        self, brokers: str, properties: str | None, /
    ) -> AbstractContextManager[TopicReader]: ...


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """One topic of a source, as it is to be read on. `planned` are the ends of a batch that is
    kept; None where there is none. `offsets` are those of a file.
    """

    source: str
    old_topic: str
    new_topic: str
    read: Offsets
    planned: Offsets | None
    way: str
    offsets: Offsets | None = None
    window: int = 20_000


@dataclass(frozen=True, slots=True)
class TopicPositions:
    """The new offsets of one topic. They are not whole where a finding refuses for good."""

    topic: str
    read: Offsets = field(default_factory=dict)
    planned: Offsets | None = None
    changes: tuple[PositionChange, ...] = ()
    findings: tuple[Finding, ...] = ()


def new_positions(
    request: TopicRequest, old: TopicReader | None, new: TopicReader
) -> TopicPositions:
    """Return the new offsets of a topic. `old` is None if nobody knows the old brokers."""
    return _Translation(request, old, new).positions()


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


class _Translation:
    """One topic on both sides, while it is asked about."""

    def __init__(self, request: TopicRequest, old: TopicReader | None, new: TopicReader) -> None:
        self._request, self._old, self._new = request, old, new
        self._spans = dict(new.spans(request.new_topic))
        self._findings: list[Finding] = []

    def positions(self) -> TopicPositions:
        request = self._request
        self._findings += self._of_partitions()
        if self._findings:
            return self._nothing()
        contexts = self._contexts(request.read)
        if self._findings:
            return self._nothing()
        places = self._places(request.read, contexts)
        offsets = self._offsets(contexts, places)
        self._findings += self._of_offsets(offsets, places)
        if any(finding.waive is None for finding in self._findings if finding.level == "refuse"):
            return self._nothing()
        planned = self._planned(offsets)
        self._findings += self._of_new_partitions(offsets, contexts)
        changes: list[PositionChange] = []
        for number in sorted(offsets):
            after, place = offsets[number], places.get(number)
            if number not in request.read and after == self._first(number):
                place = after
            again = None if place is None else self._count(number, after, place)
            skipped = None if place is None else self._count(number, place, after)
            name = f"{request.new_topic}/{number}"
            before = request.read.get(number)
            changes.append(PositionChange(request.source, name, before, after, again, skipped))
        return TopicPositions(
            request.new_topic, offsets, planned, tuple(changes), tuple(self._findings)
        )

    def _nothing(self) -> TopicPositions:
        return TopicPositions(self._request.new_topic, findings=tuple(self._findings))

    # -- what is there

    def _of_partitions(self) -> Iterator[Finding]:
        """Refuse topics that cannot be read on: not there, or with fewer partitions."""
        request, brokers = self._request, self._new.brokers
        topic = request.new_topic
        if not self._spans:
            yield Finding(
                "refuse",
                f"{brokers} has no topic {topic}",
                hint=f'name it: --topic {request.old_topic}=TOPIC (in a spec, "topics")',
            )
            return
        gone = sorted(request.read.keys() - self._spans.keys())
        if gone and request.way != BY_FILE:
            numbers = ", ".join(map(str, gone))
            yield Finding(
                "refuse",
                f"{topic} has no partition {numbers} at {brokers}, and the job has read it in "
                f"{request.old_topic}",
                hint="another number of partitions distributes the records anew: name the offset "
                "of each new partition (--by offsets --offsets FILE)",
            )
        if request.way == BY_FILE:
            yield from self._of_file(request.offsets)

    def _of_file(self, offsets: Offsets | None) -> Iterator[Finding]:
        topic = self._request.new_topic
        if offsets is None:
            fact = f"the file of offsets names no partition of {topic}"
            yield Finding("refuse", fact, hint=f"a line for each: {topic},0,OFFSET")
            return
        unknown = sorted(offsets.keys() - self._spans.keys())
        if unknown:
            yield Finding(
                "refuse",
                f"the file of offsets names {topic}/{unknown[0]}, and {topic} has no such "
                f"partition at {self._new.brokers}",
                hint=f"it has {', '.join(map(str, sorted(self._spans)))}",
            )
        for number in sorted(self._spans.keys() - offsets.keys()):
            yield Finding(
                "refuse",
                f"the file of offsets does not name {topic}/{number}: the job would read it "
                "from its beginning",
                hint=f"add a line: {topic},{number},OFFSET",
            )

    # -- where the job stands

    def _contexts(self, offsets: Offsets) -> dict[int, Context]:
        """Return the records around offsets in the old topic; none where nobody can be asked."""
        if self._old is None:
            return {}
        topic = self._request.old_topic
        spans = self._old.spans(topic)
        contexts: dict[int, Context] = {}
        for number in sorted(offsets.keys() & spans.keys()):
            end = spans[number][1]
            if offsets[number] <= end:
                contexts[number] = Context((), ())
                continue
            self._findings.append(
                Finding(
                    "refuse",
                    f"{topic}/{number} ends at offset {end} at {self._old.brokers}, and the job "
                    f"has read up to {offsets[number]}: these are other brokers, or another topic",
                    hint="name the brokers that the job has read so far: --from-brokers "
                    '(in a spec, "source_bootstrap_servers" of "kafka")',
                )
            )
        for near in (NEAR, FAR):  # not each offset has a record
            windows = {}
            for number, context in contexts.items():
                if not context.before or not context.after:
                    first, end = spans[number]
                    high = min(end, offsets[number] + near)
                    windows[number] = (min(high, max(first, offsets[number] - near)), high)
            for number, records in self._old.read(topic, windows).items():
                contexts[number] = context_at(records, offsets[number])
        return contexts

    def _places(self, offsets: Offsets, contexts: Mapping[int, Context]) -> dict[int, int]:
        """Return the offsets at which the job stands in the new topic, as far as they are found."""
        places: dict[int, int] = {}
        searched: dict[int, Context] = {}
        for number, context in contexts.items():
            if number not in self._spans:
                continue
            first, end = self._spans[number]
            if any(context):
                searched[number] = context
            elif offsets[number] == 0 or first == end:
                # It has read nothing, or there is nothing that it could have read.
                places[number] = first
        return places | _Search(self._new, self._request, self._spans).places(searched)

    # -- where it reads on

    def _offsets(
        self, contexts: Mapping[int, Context], places: Mapping[int, int]
    ) -> dict[int, int]:
        """Return the next offset of each partition; those that have none are left out."""
        request = self._request
        first = {number: span[0] for number, span in self._spans.items()}
        end = {number: span[1] for number, span in self._spans.items()}
        new = {number: first[number] for number in first.keys() - request.read.keys()}
        time_ms = milliseconds_of(request.way)
        if time_ms is not None:
            return {**end, **self._at(dict.fromkeys(request.read, time_ms)), **new}
        match request.way:
            case grammars.BY_FILE:
                return dict(request.offsets or {})
            case grammars.EARLIEST:
                return first
            case grammars.LATEST:
                return {**end, **new}
            case grammars.BY_RECORDS:
                return {**places, **new}
            case grammars.BY_TIMESTAMP:
                return {**self._by_time(contexts, places), **new}
        raise AssertionError(request.way)

    def _by_time(
        self, contexts: Mapping[int, Context], places: Mapping[int, int]
    ) -> dict[int, int]:
        """Return the offsets of the first records as new as the next one, or newer than the last
        one that was read.
        """
        times: dict[int, int] = {}
        offsets: dict[int, int] = {}
        for number, context in contexts.items():
            if number not in self._spans:
                continue
            offsets[number] = self._spans[number][1]
            newer = [each.timestamp + 1 for each in context.before[-1:] if each.timestamp]
            next_ones = [each.timestamp for each in context.after[:1] if each.timestamp]
            if next_ones or newer:
                times[number] = (next_ones or newer)[0]
            elif number in places:
                offsets[number] = places[number]
        return {**offsets, **self._at(times)}

    def _at(self, times_ms: Mapping[int, int]) -> Offsets:
        there = {number: time for number, time in times_ms.items() if number in self._spans}
        return first_since(self._new, self._request.new_topic, there, self._spans)

    def _of_offsets(self, offsets: Offsets, places: Mapping[int, int]) -> Iterator[Finding]:
        """Refuse offsets that are not there, and those that nothing proves."""
        request, brokers = self._request, self._new.brokers
        topic = request.new_topic
        for number in sorted(self._spans):
            name = f"{topic}/{number}"
            first, end = self._spans[number]
            offset = offsets.get(number)
            if offset is None:
                yield Finding(
                    "refuse",
                    f"{name}: the records that the job has read last in {request.old_topic} are "
                    f"not found at {brokers}, in {request.window:,} records around their time",
                    hint="does the mirror lag, or was the topic compacted? Look at more "
                    "(--window N), or name the offsets (--by offsets --offsets FILE)",
                )
            elif not first <= offset <= end:
                yield Finding(
                    "refuse",
                    f"{name} would be read from {offset} on, and {brokers} has {first} to {end}",
                    hint="correct the offset, or wait until the mirror has brought it",
                )
        if self._old is None:
            yield Finding(
                "refuse",
                f"nobody can say whether the new offsets of {topic} are where the job stands in "
                f"{request.old_topic}: its brokers are not named",
                OTHER,
                'name them: --from-brokers HOST:9092 (in a spec, "source_bootstrap_servers" of '
                f'"kafka"); {_UNPROVED}',
            )
            return
        unproved = [number for number in sorted(request.read) if number not in places]
        if unproved:
            yield Finding(
                "refuse",
                f"{_named(request.old_topic, unproved)}: the records that the job has read last "
                f"are not found in {topic} at {brokers}, so that nothing proves its new offsets",
                OTHER,
                f"look at more records (--window N); {_UNPROVED}",
            )

        begun = [
            number for number in self._new_partitions if offsets.get(number) != self._first(number)
        ]
        if begun:
            yield Finding(
                "refuse",
                f"{_named(topic, begun)}: new to the job, and not read from its first record on: "
                "nothing proves that the records before were read",
                OTHER,
                _UNPROVED,
            )

    @property
    def _new_partitions(self) -> list[int]:
        """The partitions that the job has not read before."""
        return sorted(self._spans.keys() - self._request.read.keys())

    def _first(self, number: int) -> int:
        return self._spans[number][0]

    def _planned(self, offsets: Offsets) -> Offsets | None:
        """Return the ends of the planned batch in the new topic, each found by its records."""
        request = self._request
        if request.planned is None:
            return None
        moved = {}
        for number, end in request.planned.items():
            if end != request.read.get(number):
                moved[number] = end
        ends = self._places(moved, self._contexts(moved))
        planned = dict(offsets)
        for number in sorted(moved):
            found = ends.get(number)
            if found is not None and number in offsets and offsets[number] <= found:
                planned[number] = found
                continue
            self._findings.append(
                Finding(
                    "refuse",
                    f"a batch is planned that reads {request.old_topic}/{number} up to "
                    f"{moved[number]}, and where that is in {request.new_topic} is not known",
                    hint='plan it anew: --planned-batch drop (in a spec, "planned_batch": '
                    '"drop"), if the sink does not have it; or start the job once where it is',
                )
            )
        return planned

    def _of_new_partitions(
        self, offsets: Offsets, contexts: Mapping[int, Context]
    ) -> Iterator[Finding]:
        """Tell of partitions that are read from their first record on."""
        topic = self._request.new_topic
        new = [number for number in self._new_partitions if offsets[number] == self._first(number)]
        if not new:
            return
        records = sum(self._spans[number][1] - self._first(number) for number in new)
        fact = f"{_named(topic, new)}: new to the job, which reads it from its first record on"
        yield Finding("warn" if records else "note", f"{fact} ({records:,} records)")
        read = [
            context.before[-1].timestamp or 0 for context in contexts.values() if context.before
        ]
        windows = {}
        for number in new:
            first, end = self._spans[number]
            windows[number] = (first, min(end, first + NEAR))
        firsts = self._new.read(topic, windows)
        for number in new:
            times = [record.timestamp for record in firsts[number] if record.timestamp is not None]
            if times and read and times[0] <= max(read):
                yield Finding(
                    "refuse",
                    f"{topic}/{number} is new to the job, and begins with a record that is older "
                    "than what the job has read: it may be a copy of one from another partition",
                    OTHER,
                    "name the offset of each partition (--by offsets --offsets FILE); or, where "
                    f'none of these records was read before, "waive": ["{OTHER}"]',
                )
                return

    # -- the records between

    def _count(self, number: int, start: int, end: int) -> int:
        """Return the number of records from one offset to before another: not each has one."""
        if end - start <= 0:
            return 0
        first, last = self._spans[number]
        start, end = max(start, first), min(end, last)
        if end - start > COUNTED_MAX:
            return end - start
        topic = self._request.new_topic
        return len(self._new.read(topic, {number: (start, end)})[number])


def _named(topic: str, numbers: Sequence[int]) -> str:
    names = ", ".join(f"{topic}/{number}" for number in numbers[:SHOWN_MAX])
    more = len(numbers) - SHOWN_MAX
    return f"{names} and {more} more" if more > 0 else names


class _Search:
    """The search for places in the partitions of a new topic."""

    def __init__(self, new: TopicReader, request: TopicRequest, spans: Windows) -> None:
        self._new, self._topic, self._spans = new, request.new_topic, spans
        sizes = [size for size in WINDOWS if size < request.window]
        self._sizes = (*sizes, request.window)

    def places(self, contexts: Mapping[int, Context]) -> dict[int, int]:
        """Return the offsets of those that are found."""
        starts = self._starts(contexts)
        places: dict[int, int] = {}
        unknown = sorted(contexts)
        for size in self._sizes:
            found = self._round({number: contexts[number] for number in unknown}, starts, size)
            is_last = size == self._sizes[-1]
            for number, place in found.items():
                if is_last or place.is_firm:
                    places[number] = place.offset
            unknown = [number for number in unknown if number not in places]
        return places

    def _starts(self, contexts: Mapping[int, Context]) -> dict[int, int]:
        """Return the offsets around which copies of the nearest records can be expected."""
        times = {number: context.time_ms for number, context in contexts.items()}
        asked = {number: time for number, time in times.items() if time is not None}
        ends = {number: self._spans[number][1] for number in contexts}
        return {**ends, **first_since(self._new, self._topic, asked, self._spans)}

    def _round(
        self, contexts: Mapping[int, Context], starts: Offsets, size: int
    ) -> dict[int, Place]:
        """Look for places among so many records of each partition; a few partitions at once."""
        places: dict[int, Place] = {}
        numbers = list(contexts)
        at_once = max(1, HELD_MAX // size)
        for place in range(0, len(numbers), at_once):
            windows = {}
            for number in numbers[place : place + at_once]:
                first, end = self._spans[number]
                # A little before that time, too; all of it where little follows.
                low = min(starts[number] - max(size // 4, AROUND), end - size)
                low = max(first, low)
                windows[number] = (low, min(end, low + size))
            for number, records in self._new.read(self._topic, windows).items():
                found = find_place(contexts[number], records)
                if found is not None:
                    places[number] = found
        return places
