"""New offsets for a source that reads on in other topics, or at other brokers: found there, and
proved by the records around them. It only reads.

    new_positions(request, old, new)   the next offset of each partition of one topic

The records around the old offset are looked for in the new topic (`translate`). If they are found,
the place is known to the record, whatever way the new offset itself comes from: records that would
be read again, or skipped, are counted from there. If they are not found, both numbers are unknown.

The offset syncs of MirrorMaker bound each place. If the records are gone on one side, the job reads
from the lower bound on, and gets at most the records up to the upper one again.

A mirror that lags has none of the records that were read last: its own last one is found among
those that were read before. It is waited for.

A partition that the job has not read yet begins with its first record, unless a file names it. If
that record is older than what the job has read, the partition may hold copies from others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from stateshift.sources.topic_search import (
    FAR,
    NEAR,
    Offsets,
    TopicReader,
    TopicSearch,
    bounds_of,
    contexts_at,
    first_since,
    syncs_topics,
)
from stateshift.sources.translate import AROUND, Bounds, Context, are_same, find_place, is_older
from stateshift.specification import grammars
from stateshift.specification.grammars import BY_COMPARING, BY_FILE, BY_MIRROR, milliseconds_of
from stateshift.survey import Finding, PositionChange, refuse, warn

SHOWN_MAX = 3  # partitions that a message names
COUNTED_MAX = 10_000  # records that are counted; of more, the difference of the offsets is told

OTHER = "other-records"
_UNPROVED = f'where you know these offsets to be right, "waive": ["{OTHER}"]'


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


class _Missing(NamedTuple):
    """Records that a mirror has not brought yet, or some of them."""

    records: int
    is_all: bool

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
            if number not in request.read and after == self._spans[number][0]:
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
            yield refuse(
                f"{brokers} has no topic {topic}",
                hint=f'name it: --topic {request.old_topic}=TOPIC (in a spec, "topics")',
            )
            return
        gone = sorted(request.read.keys() - self._spans.keys())
        if gone and request.way != BY_FILE:
            numbers = ", ".join(map(str, gone))
            yield refuse(
                f"{topic} has no partition {numbers} at {brokers}, and the job has read it in "
                f"{request.old_topic}",
                hint="another number of partitions distributes the records anew: name the offset "
                "of each new partition (--by offsets --offsets FILE)",
            )
        if request.way != BY_FILE:
            return
        offsets = request.offsets
        if offsets is None:
            fact = f"the file of offsets names no partition of {topic}"
            yield refuse(fact, hint=f"a line for each: {topic},0,OFFSET")
            return
        unknown = sorted(offsets.keys() - self._spans.keys())
        if unknown:
            yield refuse(
                f"the file of offsets names {topic}/{unknown[0]}, and {topic} has no such "
                f"partition at {brokers}",
                hint=f"it has {', '.join(map(str, sorted(self._spans)))}",
            )
        for number in sorted(self._spans.keys() - offsets.keys()):
            yield refuse(
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
                refuse(
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
            places: dict[int, int] = {}
            searched: dict[int, Context] = {}
            for number in contexts.keys() & self._spans.keys():
                first, end = self._spans[number]
                if any(contexts[number]):
                    searched[number] = contexts[number]
                elif offsets[number] == 0 or first == end:
                    # It has read nothing, or there is nothing that it could have read.
                    places[number] = first
            window = self._request.window
            search = TopicSearch(self._new, topic, self._spans, bounds, window)
            places |= search.places(searched)
            missing: dict[int, _Missing] = {}
            if self._request.way in BY_COMPARING:
                unknown = {each: contexts[each] for each in contexts if each not in places}
                missing = self._not_there_yet(offsets, unknown)
            records = sum(each.records for each in missing.values())
            told = _Missing(records, all(each.is_all for each in missing.values())).told
            line = f"{topic} at {brokers} lags: {told} are not there yet"
            if not missing or not self._wait(line):
                return places, missing
            self._spans = dict(self._new.spans(topic))

    def _not_there_yet(
        self, offsets: Offsets, contexts: Mapping[int, Context]
    ) -> dict[int, _Missing]:
        """Return the records before each offset that follow the new topic's last one, where that is
        found among them, or is older than all of them.
        """
        missing: dict[int, _Missing] = {}
        if self._old is None or not contexts:
            return missing
        firsts, tails, read = self._old.spans(self._request.old_topic), {}, {}
        for number, context in contexts.items():
            if number in self._spans and context.before:
                first, end = self._spans[number]
                tails[number] = (max(first, end - FAR), end)
                offset = offsets[number]
                low = offset - self._request.window
                read[number] = (max(0, low, firsts[number][0]), offset)
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
                if request.read and not self._bounds:
                    yield refuse(
                        f"{topics[0]} has no offset sync of {request.old_topic} that is of use",
                        hint="--syncs TOPIC names that of another mirror; without syncs, --by "
                        "records",
                    )
                return
            if topics:
                yield refuse(
                    f"{reader.brokers} has the offset syncs of {len(topics)} mirrors: "
                    f"{', '.join(topics)}",
                    hint=f'name one: --syncs {topics[0]} (in a spec, "syncs")',
                )
                return
        wanted = request.syncs or "a topic mm2-offset-syncs.ALIAS.internal"
        yield refuse(
            f"neither {old.brokers} nor {self._new.brokers} has {wanted}, in which MirrorMaker 2 "
            "writes down its offsets",
            hint="name the brokers and the topic that it writes to (--syncs TOPIC); without one, "
            "--by records",
        )

    def _of_bounds(self, places: Mapping[int, int]) -> Iterator[Finding]:
        """Compare the records of the syncs that stand in for records which are gone."""
        request, old = self._request, self._old
        if old is None:
            return
        syncs, ours, theirs = {}, {}, {}
        spans = old.spans(request.old_topic) if self._bounds else {}
        for number, each in self._bounds.items():
            sync = each.low or each.high
            is_there = number in self._spans and number not in self._missing
            if sync is None or not is_there or number in places:
                continue
            syncs[number] = sync
            first, end = spans.get(number, (0, 0))
            if first <= sync.upstream < end:
                ours[number] = (sync.upstream, sync.upstream + 1)
            first, end = self._spans[number]
            if first <= sync.downstream < end:
                theirs[number] = (sync.downstream, sync.downstream + 1)
        if not syncs:
            return
        before = old.read(request.old_topic, ours)
        after = self._new.read(request.new_topic, theirs)
        for number, sync in syncs.items():
            pairs = zip(before.get(number, ()), after.get(number, ()), strict=False)
            if not all(are_same(*pair) for pair in pairs):
                yield refuse(
                    f"MirrorMaker 2 says that {request.old_topic}/{number} has at {sync.upstream} "
                    f"the record that {request.new_topic}/{number} has at {sync.downstream}, and "
                    "these are two different ones",
                    hint="its syncs are of another mirror, or of a topic that was there before: "
                    "name the right ones (--syncs TOPIC), or --by records",
                )
                continue
            yield warn(
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
                yield refuse(
                    f"{name}: the mirror lags, and {self._missing[number].told} that the job has "
                    f"read in {request.old_topic} are not at {brokers} yet",
                    OTHER,
                    'wait for longer: --timeout 10min (in a spec, "timeout"); or, where they will '
                    f'never come, "waive": ["{OTHER}"]: the job reads on after the last record '
                    "there. Would they still come, it would read them again",
                )
            elif offset is None:
                yield refuse(
                    f"{name}: the records that the job has read last in {request.old_topic} are "
                    f"not found at {brokers}, in {request.window:,} records around their time",
                    hint="was the topic compacted? Look at more "
                    "(--window N), or name the offsets (--by offsets --offsets FILE)",
                )
            elif not first <= offset <= end:
                yield refuse(
                    f"{name} would be read from {offset} on, and {brokers} has {first} to {end}",
                    hint="correct the offset, or wait until the mirror has brought it",
                )
        if self._old is None:
            yield refuse(
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
            yield refuse(
                f"{_named(request.old_topic, unproved)}: the records that the job has read last "
                f"are not found in {topic} at {brokers}, so that nothing proves its new offsets",
                OTHER,
                f"look at more records (--window N); {_UNPROVED}",
            )

        begun = [n for n in self._new_partitions if offsets.get(n) != self._spans[n][0]]
        if begun:
            yield refuse(
                f"{_named(topic, begun)}: new to the job, and not read from its first record on: "
                "nothing proves that the records before were read",
                OTHER,
                _UNPROVED,
            )

    @property
    def _new_partitions(self) -> list[int]:
        """The partitions that the job has not read before."""
        return sorted(self._spans.keys() - self._request.read.keys())

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
            planned_up_to = (
                f"a batch is planned that reads {request.old_topic}/{number} up to {moved[number]}"
            )
            found = ends.get(number)
            if found is not None and number in offsets and offsets[number] <= found:
                planned[number] = found
            elif number in missing and number in offsets:
                planned[number] = max(offsets[number], self._spans[number][1])
                refusal = refuse(
                    f"{planned_up_to}, and {missing[number].told} of it are not in "
                    f"{request.new_topic} yet",
                    OTHER,
                    "wait for longer (--timeout 10min); or, where they will never come, "
                    f'"waive": ["{OTHER}"]: the batch then ends with what is there',
                )
                self._findings.append(refusal)
            else:
                refusal = refuse(
                    f"{planned_up_to}, and where that is in {request.new_topic} is not known",
                    hint='plan it anew: --planned-batch drop (in a spec, "planned_batch": '
                    '"drop"), if the sink does not have it; or start the job once where it is',
                )
                self._findings.append(refusal)
        return planned

    def _of_new_partitions(
        self, offsets: Offsets, contexts: Mapping[int, Context]
    ) -> Iterator[Finding]:
        """Tell of partitions that are read from their first record on."""
        topic = self._request.new_topic
        new = [
            number for number in self._new_partitions if offsets[number] == self._spans[number][0]
        ]
        if not new:
            return
        records = sum(self._spans[number][1] - self._spans[number][0] for number in new)
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
                yield refuse(
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
