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

The offset syncs of MirrorMaker bound each place. They are read from the newest one back, only as
far as they are needed, and the records are looked for between them. If they are gone on one side,
the job reads from the lower bound on, and gets at most the records up to the upper one again.

A mirror that lags has none of the records that were read last: its own last one is found among
those that were read before. It is waited for.

A partition that the job has not read yet begins with its first record, unless a file names it. If
that record is older than what the job has read, the partition may hold copies from others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from stateshift.formats.offset_file import SYNCS_NAME, decode_offset_sync
from stateshift.sources.translate import (
    AROUND,
    Bounds,
    Context,
    Place,
    are_same,
    context_at,
    find_place,
    is_older,
)
from stateshift.specification import grammars
from stateshift.specification.grammars import BY_COMPARING, BY_FILE, BY_MIRROR, milliseconds_of
from stateshift.survey import Finding, PositionChange, TopicRecord

Offsets = Mapping[int, int]
Windows = Mapping[int, tuple[int, int]]

PROBED = 64  # offsets that are read for a record's time
NEAR, FAR = 32, 2_048  # offsets before and after one that are read for its context
WINDOWS = (200, 2_000)  # records of a partition that are searched first
HELD_MAX = 200_000  # records in memory
SHOWN_MAX = 3  # partitions that a message names
BLOCK, BLOCK_MAX = 10_000, 200_000  # offset syncs that are read at once
COUNTED_MAX = 10_000  # records that are counted; of more, the difference of the offsets is told

OTHER = "other-records"
_UNPROVED = f'where you know these offsets to be right, "waive": ["{OTHER}"]'


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


class OpenTopics(Protocol):
    """Opens the topics of brokers, with a file of client properties."""

    def __call__(
        self, brokers: str, properties: str | None, /
    ) -> AbstractContextManager[TopicReader]: ...


# Waits a little for what this line says; False once it has waited for long enough.
Wait = Callable[[str], bool]
# Waiting for so many seconds, from now on.
Patience = Callable[[float], Wait]


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """One topic of a source, as it is to be read on. `planned` are the ends of a batch that is
    kept; None where there is none. `offsets` are those of a file, `syncs` MirrorMaker's topic.
    """

    source: str
    old_topic: str
    new_topic: str
    read: Offsets
    planned: Offsets | None
    way: str
    offsets: Offsets | None = None
    window: int = 20_000
    syncs: str | None = None


@dataclass(frozen=True, slots=True)
class TopicPositions:
    """The new offsets of one topic. They are not whole where a finding refuses for good. `brokers`
    are the ids of their clusters, by address.
    """

    topic: str
    read: Offsets = field(default_factory=dict)
    planned: Offsets | None = None
    changes: tuple[PositionChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    brokers: Mapping[str, str] = field(default_factory=dict)


def new_positions(
    request: TopicRequest,
    old: TopicReader | None,
    new: TopicReader,
    wait: Wait = lambda line: False,
) -> TopicPositions:
    """Return the new offsets of a topic. `old` is None if nobody knows the old brokers."""
    return _Translation(request, old, new, wait).positions()


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


class _Missing(NamedTuple):
    """Records that a mirror has not brought yet, or some of them."""

    records: int
    is_all: bool

    @classmethod
    def of_all(cls, partitions: Collection[_Missing]) -> _Missing:
        """Return the records of several partitions."""
        is_all = all(each.is_all for each in partitions)
        return cls(sum(each.records for each in partitions), is_all)

    @property
    def told(self) -> str:
        counted = "1 record" if self.records == 1 else f"{self.records:,} records"
        return counted if self.is_all else f"at least {counted}"


class _Translation:
    """One topic on both sides, while it is asked about."""

    def __init__(
        self, request: TopicRequest, old: TopicReader | None, new: TopicReader, wait: Wait
    ) -> None:
        self._request, self._old, self._new, self._wait = request, old, new, wait
        self._spans = dict(new.spans(request.new_topic))
        self._findings: list[Finding] = []
        self._bounds: dict[int, Bounds] = {}
        self._missing: dict[int, _Missing] = {}

    def positions(self) -> TopicPositions:
        request = self._request
        self._findings += self._of_partitions()
        if self._findings:
            return self._nothing()
        contexts = self._contexts(request.read)
        if self._old is not None and request.way == BY_MIRROR:
            self._findings += self._of_syncs(self._old)
        if self._findings:
            return self._nothing()
        places, missing = self._places(request.read, contexts, self._bounds)
        self._missing = missing
        self._findings += self._of_bounds(places)
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
            again = skipped = None
            if place is not None:
                again = self._count(number, after, place)
                skipped = self._count(number, place, after)
            elif number in self._bounds and number not in self._missing:
                again, skipped = self._again_max(number), 0
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
        asked: dict[int, int] = {}
        for number in sorted(offsets.keys() & spans.keys()):
            end = spans[number][1]
            if offsets[number] <= end:
                asked[number] = offsets[number]
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
        return contexts_at(self._old, topic, asked)

    def _places(
        self, offsets: Offsets, contexts: Mapping[int, Context], bounds: Mapping[int, Bounds]
    ) -> tuple[dict[int, int], dict[int, _Missing]]:
        """Return the offsets at which the job stands in the new topic, as far as they are found. A
        mirror that lags is waited for: what is still missing then is returned as well.
        """
        topic, brokers = self._request.new_topic, self._new.brokers
        while True:
            places = self._found(offsets, contexts, bounds)
            missing: dict[int, _Missing] = {}
            if self._request.way in BY_COMPARING:
                unknown = {each: contexts[each] for each in contexts if each not in places}
                missing = self._not_there_yet(offsets, unknown)
            told = _Missing.of_all(missing.values()).told
            line = f"{topic} at {brokers} lags: {told} are not there yet"
            if not missing or not self._wait(line):
                return places, missing
            self._spans = dict(self._new.spans(topic))

    def _found(
        self, offsets: Offsets, contexts: Mapping[int, Context], bounds: Mapping[int, Bounds]
    ) -> dict[int, int]:
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
        search = _Search(self._new, self._request, self._spans, bounds)
        return places | search.places(searched)

    def _not_there_yet(
        self, offsets: Offsets, contexts: Mapping[int, Context]
    ) -> dict[int, _Missing]:
        """Return the records before each offset that follow the new topic's last one, where that is
        found among them, or is older than all of them.
        """
        missing: dict[int, _Missing] = {}
        tails, read = {}, {}
        for number, context in contexts.items():
            if number in self._spans and context.before:
                first, end = self._spans[number]
                tails[number] = (max(first, end - FAR), end)
                offset = offsets[number]
                read[number] = (max(0, offset - self._request.window), offset)
        if self._old is None or not tails:
            return missing
        firsts = self._old.spans(self._request.old_topic)
        read = {number: (max(firsts[number][0], low), end) for number, (low, end) in read.items()}
        records = self._old.read(self._request.old_topic, read)
        for number, tail in self._new.read(self._request.new_topic, tails).items():
            ours, first = records[number], read[number][0]
            place = find_place(Context(tuple(tail[-AROUND:]), ()), ours)
            if place is not None:
                count = sum(1 for each in ours if each.offset >= place.offset)
                missing[number] = _Missing(count, is_all=True)
            elif not tail and self._spans[number][0] == 0:
                missing[number] = _Missing(len(ours), is_all=first == firsts[number][0])
            elif tail and ours and is_older(tail[-1], ours[0]):
                missing[number] = _Missing(len(ours), is_all=False)
        return {number: each for number, each in missing.items() if each.records}

    # -- what MirrorMaker has written down

    def _of_syncs(self, old: TopicReader) -> Iterator[Finding]:
        """Read the syncs of the partitions that the job reads; refuse where there are none."""
        request = self._request
        for reader in (old, self._new):
            topics = syncs_topics(reader, request.syncs)
            if len(topics) == 1:
                found = bounds_of(reader, topics[0], request.old_topic, request.read)
                self._bounds = {number: each for number, each in found.items() if each.is_known}
                return
            if topics:
                yield Finding(
                    "refuse",
                    f"{reader.brokers} has the offset syncs of {len(topics)} mirrors: "
                    f"{', '.join(topics)}",
                    hint=f'name one: --syncs {topics[0]} (in a spec, "syncs")',
                )
                return
        wanted = request.syncs or "a topic mm2-offset-syncs.ALIAS.internal"
        yield Finding(
            "refuse",
            f"neither {old.brokers} nor {self._new.brokers} has {wanted}, in which MirrorMaker 2 "
            "writes down its offsets",
            hint="name the brokers and the topic that it writes to (--syncs TOPIC); without one, "
            "--by records",
        )

    def _of_bounds(self, places: Mapping[int, int]) -> Iterator[Finding]:
        """Compare the records of the syncs that stand in for records which are gone."""
        request, syncs = self._request, {}
        for number, each in self._bounds.items():
            sync = each.low or each.high
            is_there = number in self._spans and number not in self._missing
            if sync is not None and is_there and number not in places:
                syncs[number] = sync
        if self._old is None or not syncs:
            return
        ours = _clipped(self._old.spans(request.old_topic), {n: syncs[n].upstream for n in syncs})
        theirs = _clipped(self._spans, {number: syncs[number].downstream for number in syncs})
        before = self._old.read(request.old_topic, ours)
        after = self._new.read(request.new_topic, theirs)
        for number, sync in syncs.items():
            pairs = zip(before.get(number, ()), after.get(number, ()), strict=False)
            if not all(are_same(*pair) for pair in pairs):
                yield Finding(
                    "refuse",
                    f"MirrorMaker 2 says that {request.old_topic}/{number} has at {sync.upstream} "
                    f"the record that {request.new_topic}/{number} has at {sync.downstream}, and "
                    "these are two different ones",
                    hint="its syncs are of another mirror, or of a topic that was there before: "
                    "name the right ones (--syncs TOPIC), or --by records",
                )
                continue
            yield Finding(
                "warn",
                f"{request.old_topic}/{number}: the records around {request.read[number]} are not "
                f"found on both sides. By MirrorMaker 2 the job stands in {request.new_topic} at "
                f"{self._lowest(number)} or later, up to {self._again_max(number):,} records",
            )

    def _lowest(self, number: int) -> int:
        """Return the lower bound of a place: what was read includes the record of the sync."""
        first, end = self._spans[number]
        bounds = self._bounds[number]
        if bounds.low is None:
            return first
        was_read = bounds.low.upstream < bounds.offset
        return min(end, max(first, bounds.low.downstream + was_read))

    def _again_max(self, number: int) -> int:
        """Return the most records that are read again from the lower bound on."""
        bounds, end = self._bounds[number], self._spans[number][1]
        high = end if bounds.high is None else min(end, bounds.high.downstream)
        between = self._count(number, self._lowest(number), high)
        if bounds.span_max is None or bounds.low is None:
            return between
        may_follow = max(0, bounds.span_max - 1)  # the record of the sync itself was read
        return may_follow if bounds.high is None else min(between, may_follow)

    # -- where it reads on

    def _offsets(
        self, contexts: Mapping[int, Context], places: Mapping[int, int]
    ) -> dict[int, int]:
        """Return the next offset of each partition; those that have none are left out."""
        request = self._request
        first = {number: span[0] for number, span in self._spans.items()}
        end = {number: span[1] for number, span in self._spans.items()}
        new = {number: first[number] for number in first.keys() - request.read.keys()}
        late = {number: end[number] for number in self._missing}
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
                return {**late, **places, **new}
            case grammars.BY_TIMESTAMP:
                return {**self._by_time(contexts, places), **new}
            case grammars.BY_MIRROR:
                numbers = self._bounds.keys() & self._spans.keys()
                lowest = {number: self._lowest(number) for number in numbers}
                return {**lowest, **late, **places, **new}
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
            if number in self._missing:
                yield Finding(
                    "refuse",
                    f"{name}: the mirror lags, and {self._missing[number].told} that the job has "
                    f"read in {request.old_topic} are not at {brokers} yet",
                    OTHER,
                    'wait for longer: --timeout 10min (in a spec, "timeout"); or, where they will '
                    f'never come, "waive": ["{OTHER}"]: the job reads on after the last record '
                    "there. Would they still come, it would read them again",
                )
            elif offset is None:
                yield Finding(
                    "refuse",
                    f"{name}: the records that the job has read last in {request.old_topic} are "
                    f"not found at {brokers}, in {request.window:,} records around their time",
                    hint="was the topic compacted? Look at more "
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
        known = places.keys() | self._bounds.keys() | self._missing.keys()
        unproved = [number for number in sorted(request.read) if number not in known]
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
        ends, missing = self._places(moved, self._contexts(moved), {})
        planned = dict(offsets)
        for number in sorted(moved):
            found = ends.get(number)
            if found is not None and number in offsets and offsets[number] <= found:
                planned[number] = found
                continue
            if number in missing and number in offsets:
                planned[number] = max(offsets[number], self._spans[number][1])
                self._findings.append(
                    Finding(
                        "refuse",
                        f"a batch is planned that reads {request.old_topic}/{number} up to "
                        f"{moved[number]}, and {missing[number].told} of it are not in "
                        f"{request.new_topic} yet",
                        OTHER,
                        "wait for longer (--timeout 10min); or, where they will never come, "
                        f'"waive": ["{OTHER}"]: the batch then ends with what is there',
                    )
                )
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


def _clipped(spans: Windows, offsets: Offsets) -> Windows:
    """Return the windows of one record each, as far as they are within the spans."""
    windows = {}
    for number, offset in offsets.items():
        first, end = spans.get(number, (0, 0))
        if first <= offset < end:
            windows[number] = (offset, offset + 1)
    return windows


def _named(topic: str, numbers: Sequence[int]) -> str:
    names = ", ".join(f"{topic}/{number}" for number in numbers[:SHOWN_MAX])
    more = len(numbers) - SHOWN_MAX
    return f"{names} and {more} more" if more > 0 else names


class _Search:
    """The search for places in the partitions of a new topic: near the time of the records that are
    looked for, or between the bounds that are known.
    """

    def __init__(
        self,
        new: TopicReader,
        request: TopicRequest,
        spans: Windows,
        bounds: Mapping[int, Bounds],
    ) -> None:
        self._new, self._topic, self._bounds = new, request.new_topic, bounds
        self._spans = {number: self._between(number, span) for number, span in spans.items()}
        sizes = [size for size in WINDOWS if size < request.window]
        self._sizes = (*sizes, request.window)

    def _between(self, number: int, span: tuple[int, int]) -> tuple[int, int]:
        """Return the part of a partition between its bounds, and a little around it."""
        first, end = span
        bounds = self._bounds.get(number)
        if bounds is not None and bounds.low is not None:
            first = min(end, max(first, bounds.low.downstream - NEAR))
        if bounds is not None and bounds.high is not None:
            end = max(first, min(end, bounds.high.downstream + NEAR))
        return first, end

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
        starts = {number: self._spans[number][1] for number in contexts}
        asked: dict[int, int] = {}
        for number, context in contexts.items():
            first, end = self._spans[number]
            bounds = self._bounds.get(number)
            is_near = bounds is not None and end - first <= self._sizes[-1]
            if not is_near and context.time_ms is not None:
                asked[number] = context.time_ms
            elif bounds is not None and bounds.low is not None:
                starts[number] = first
        return {**starts, **first_since(self._new, self._topic, asked, self._spans)}

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
