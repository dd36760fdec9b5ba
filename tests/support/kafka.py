"""Topics in memory: what brokers have, and what a reader is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from struct import pack

from stateshift.errors import StorageError, TransientStorageError
from stateshift.survey import Committed, TopicRecord

Partition = list[TopicRecord]


def record(offset: int, value: str, time_ms: int | None = None, key: str = "k") -> TopicRecord:
    """Return a record of an offset; its time is its value's number unless it is said."""
    digests = [sha256(text.encode()).hexdigest() for text in (key, value)]
    return TopicRecord(offset, time_ms, False, *digests)


def offset_sync(topic: str, partition: int, upstream: int, downstream: int) -> tuple[bytes, bytes]:
    """Return the key and the value that MirrorMaker 2 writes for a sync."""
    name = topic.encode()
    key = pack(">h", len(name)) + name + pack(">i", partition)
    return key, pack(">qq", upstream, downstream)


@dataclass
class MemoryTopics:
    """The topics of one cluster's brokers: topic -> partition -> records, by offset. `firsts` and
    `ends` are the spans that records do not tell; `markers` the end of a transaction, by its offset
    and time; `reads` counts the records that were handed out; `syncs` are keys and values of topics
    that hold nothing else.
    """

    brokers: str
    topics: dict[str, dict[int, Partition]] = field(default_factory=dict)
    firsts: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    markers: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    reads: int = 0
    cluster: str | None = None
    syncs: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)

    def names(self) -> frozenset[str]:
        return frozenset((*self.topics, *self.syncs))

    def pairs(self, topic: str, window: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
        start, end = window
        self.reads += end - start
        yield from self.syncs[topic][start:end]

    def spans(self, topic: str) -> Mapping[int, tuple[int, int]]:
        if topic in self.syncs:
            return {0: (0, len(self.syncs[topic]))}
        spans = {}
        for number, records in self.topics.get(topic, {}).items():
            first = self.firsts.get((topic, number), records[0].offset if records else 0)
            last = records[-1].offset + 1 if records else first
            spans[number] = (first, self.ends.get((topic, number), last))
        return spans

    def offsets_at(self, topic: str, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        offsets = {}
        for number, time in times_ms.items():
            times = [(each.offset, each.timestamp or 0) for each in self.topics[topic][number]]
            marker = self.markers.get((topic, number))
            for offset, at in sorted([*times, *([marker] if marker else [])]):
                if at >= time:
                    offsets[number] = offset
                    break
        return offsets

    def read(
        self, topic: str, windows: Mapping[int, tuple[int, int]]
    ) -> Mapping[int, Sequence[TopicRecord]]:
        read = {}
        for number, (start, end) in windows.items():
            held = self.topics[topic][number]
            read[number] = tuple(each for each in held if start <= each.offset < end)
            self.reads += len(read[number])
        return read


@dataclass
class MemoryGroups:
    """What consumer groups of one cluster have committed. One with members takes nothing."""

    offsets: dict[str, dict[tuple[str, int], Committed]] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    on_commit: Callable[[], None] = lambda: None

    def state(self, group: str) -> str:
        return "Stable" if group in self.active else "Empty" if group in self.offsets else ""

    def committed(self, group: str) -> dict[tuple[str, int], Committed]:
        return dict(self.offsets.get(group, {}))

    def commit(self, group: str, offsets: Mapping[tuple[str, int], Committed | None]) -> None:
        if group in self.active and offsets:
            raise StorageError("UnknownMemberIdError")
        for place, each in offsets.items():  # one by one: who is killed has set some of them
            self.on_commit()
            self.offsets.setdefault(group, {}).pop(place, None)
            if each is not None:
                self.offsets[group][place] = each


@dataclass
class MemoryKafka:
    """Clusters of brokers, by the address that a spec has for them. Others do not answer."""

    clusters: dict[str, MemoryTopics] = field(default_factory=dict)
    groups: MemoryGroups = field(default_factory=MemoryGroups)

    def add(self, brokers: str) -> MemoryTopics:
        return self.clusters.setdefault(brokers, MemoryTopics(brokers))

    @contextmanager
    def open_topics(self, brokers: str, properties: str | None) -> Iterator[MemoryTopics]:
        self._require(brokers)
        yield self.clusters[brokers]

    @contextmanager
    def open_groups(self, brokers: str, properties: str | None) -> Iterator[MemoryGroups]:
        self._require(brokers)
        yield self.groups

    def _require(self, brokers: str) -> None:
        if brokers not in self.clusters:
            raise TransientStorageError(
                f"{brokers} does not answer as Kafka does", location=brokers, hint="are they up?"
            )
