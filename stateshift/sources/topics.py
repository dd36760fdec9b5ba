"""Sources that read topics: Kafka, Event Hubs, Pulsar. Pure.

    {"orders":{"0":80,"1":80}}                                               Kafka, or old Event
                                                                             Hubs (see below)
    {"endpoint":…,"consumerGroup":…,"partitionToSeqNos":{"hub":{"0":23}}}    Event Hubs, newer
    {"persistent://public/default/orders":[8,33,16,4]}                       Pulsar

Source: Spark, KafkaSourceOffset; azure-event-hubs-spark, EventHubsSourceOffset, JsonUtils;
streamnative/pulsar-spark, JsonUtils. Old Event Hubs offsets, and the file under `sources/`, are
Kafka's in every byte: only several topics, or a name that no event hub may have, tell that it is
Kafka. Flink's state of Kafka: see `formats.flink.kafka`.

    details  offsets      {topic: {partition: the next offset}}; Event Hubs: sequence numbers
             marks        {topic: {partition: where it begins, in a word}}, without an offset so far
             ends         {topic: {partition: the offset before which it ends}}
             unassigned   partitions that no reader has yet: topic/partition ...
             discovering  true: the first look for partitions is not over
             enumerator   why the enumerator's state cannot be read

Negative offsets of Kafka in Spark's log (-2 earliest, -1 latest) stand for no position. A
DynamicKafkaSource's topics are called cluster:topic; no broker is asked for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from stateshift.errors import FormatError
from stateshift.formats.flink import kafka
from stateshift.formats.flink.kafka import CONSUMER_STATE, KafkaSplit
from stateshift.formats.spark.text import is_integer
from stateshift.plain import JsonObject
from stateshift.sources.kind import (
    Details,
    FlinkSource,
    SourceKind,
    SourcePosition,
    SparkReader,
)

PARTITIONS_SHOWN = 8
PULSAR_TOPIC = ("persistent://", "non-persistent://")

# Event Hubs: letters, digits, periods, hyphens and underscores, with a letter or a digit at both
# ends.
_PARTITION = re.compile(r"[0-9]{1,10}")
_HUB_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")
EARLIEST: Final = "earliest"
MARKS = {
    kafka.LATEST: "latest",
    kafka.EARLIEST: EARLIEST,
    kafka.COMMITTED: "committed",
    kafka.NOT_RESOLVED: "not known yet",
}
DYNAMIC: Final = "the enumerator of a DynamicKafkaSource is not read"

Partitions = Mapping[int | str, int | str]  # numbers are texts in plain JSON


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """How far a topic is read: the next offset of each partition."""

    name: str
    offsets: tuple[tuple[int, int], ...]

    @property
    def sum(self) -> int:
        """All offsets added up."""
        return sum(offset for _, offset in self.offsets)


def topics_in(details: Details) -> tuple[TopicOffsets, ...]:
    """Return the offsets of each topic of a source; none if it has no topics."""
    by_topic: Mapping[str, Partitions] = details.get("offsets") or {}
    topics = []
    for name, partitions in by_topic.items():
        offsets = tuple((int(number), int(offset)) for number, offset in partitions.items())
        topics.append(TopicOffsets(name, offsets))
    return tuple(topics)


# ---- Spark


def topics_offset(of_hub: bool) -> SparkReader:
    """Return a reader of topics that may be an event hub, or cannot be one: a source of Event Hubs
    reads one hub.
    """

    def read(offset: object, has_log: bool) -> Details | None:
        if not _is_topics(offset):
            return None
        may_be_hub = len(offset) == 1 and _HUB_NAME.fullmatch(next(iter(offset))) is not None
        return {"offsets": topics_of(offset)} if may_be_hub is of_hub else None

    return read


def hubs_offset(offset: object, has_log: bool) -> Details | None:
    """Return the consumer group and the sequence numbers of an Event Hubs source."""
    if not isinstance(offset, dict) or "partitionToSeqNos" not in offset:
        return None
    hubs = offset["partitionToSeqNos"]
    numbers = {"offsets": topics_of(hubs)} if _is_topics(hubs) else {}
    return {"consumer_group": offset.get("consumerGroup"), **numbers}


def pulsar_offset(offset: object, has_log: bool) -> Details | None:
    """Return the topics of a Pulsar source, whose positions are its own bytes."""
    if not isinstance(offset, dict) or not offset:
        return None
    is_pulsar = all(topic.startswith(PULSAR_TOPIC) for topic in offset)
    return {"topics": ", ".join(sorted(offset))} if is_pulsar else None


def topics_of(offset: JsonObject) -> dict[str, dict[int, int]]:
    """Return topic -> partition -> next offset; -2 and -1 (unread) are first and last."""
    read: dict[str, dict[int, int]] = {}
    for topic, partitions in offset.items():
        known = {}
        for number, at in partitions.items():
            if isinstance(at, int) and at >= 0:
                known[int(number)] = at
        if known:
            read[topic] = known
    return read


def _is_topics(offset: object) -> TypeGuard[JsonObject]:
    if not isinstance(offset, dict):
        return False
    for partitions in offset.values():
        if not isinstance(partitions, dict) or not all(map(_PARTITION.fullmatch, partitions)):
            return False
    return bool(offset)


def _fall_of_topics(older: object, newer: object) -> str | None:
    if not isinstance(older, dict) or not isinstance(newer, dict):
        return None
    for topic, partitions in older.items():
        others = newer.get(topic)
        if not isinstance(partitions, dict) or not isinstance(others, dict):
            continue
        for number, before in partitions.items():
            after = others.get(number)
            if not number.isdecimal() or not is_integer(after) or not is_integer(before):
                continue
            if 0 <= after < before:
                return f"{topic}, partition {number}: {before} to {after}"
    return None


# ---- Flink


@dataclass
class KafkaPositions:
    """The positions of a source of Kafka, as they are found."""

    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    ends: dict[str, dict[str, int | str]] = field(default_factory=dict)
    unassigned: list[str] = field(default_factory=list)
    discovering: bool = False
    enumerator: str | None = None

    def put(self, topic: str, partition: int, offset: int) -> None:
        """Add the next offset of a partition, or the mark that stands in its place."""
        if offset >= 0:
            self.offsets.setdefault(topic, {})[partition] = offset
        else:
            self.marks.setdefault(topic, {})[str(partition)] = MARKS[offset]

    def put_split(self, split: KafkaSplit) -> None:
        """Add the position of a split, and its end if it has one."""
        topic, partition = _place(split)
        self.put(topic, partition, split.offset)
        if split.stop != kafka.NEVER:
            self.ends.setdefault(topic, {})[str(partition)] = MARKS.get(split.stop, split.stop)

    def details(self) -> Details:
        """Return those that there are; the offsets always."""
        others = {name: value for name, value in vars(self).items() if value}
        return {**others, "offsets": self.offsets}


def kafka_in_flink(source: FlinkSource) -> Details | None:
    """Return the positions of a KafkaSource, a DynamicKafkaSource, or a FlinkKafkaConsumer."""
    try:
        if CONSUMER_STATE not in source.states:
            return _of_splits(source, kafka.decode_split)
        positions = KafkaPositions()
        for element in source.states[CONSUMER_STATE]:
            read = kafka.decode_read_offset(element)
            positions.put(read.topic, read.partition, read.next)
        return positions.details()
    except FormatError:
        pass
    try:
        return _of_splits(source, kafka.decode_cluster_split)
    except FormatError:
        return None


def _of_splits(source: FlinkSource, decode: Callable[[int, bytes], KafkaSplit]) -> Details | None:
    """Return the positions of splits, also of those that wait in the enumerator. An enumerator that
    cannot be read is told beside its splits, by which it is known to be Kafka's.
    """
    positions = KafkaPositions()
    splits = [decode(split.version, split.content) for split in source.splits]
    for split in splits:
        positions.put_split(split)
    if any(split.cluster is not None for split in splits):
        positions.enumerator = DYNAMIC
        return positions.details()
    state, waiting = source.enumerator, []
    try:
        if state is not None:
            enumerator = kafka.decode_enumerator(state.version, state.content)
            assigned = set(map(_place, splits))
            waiting = [each for each in enumerator.splits if _place(each) not in assigned]
            positions.discovering = enumerator.discovered is False
    except FormatError as error:
        if not splits:
            raise
        positions.enumerator = error.fact
    for split in waiting:
        positions.put_split(split)
        positions.unassigned.append(f"{split.topic}/{split.partition}")
    return positions.details() if splits or waiting else None


def _place(split: KafkaSplit) -> tuple[str, int]:
    topic = split.topic if split.cluster is None else f"{split.cluster}:{split.topic}"
    return topic, split.partition


# ---- both


def _positions(details: Details) -> Iterator[SourcePosition]:
    ends: Mapping[str, Partitions] = details.get("ends") or {}
    unassigned = frozenset(details.get("unassigned") or ())
    for topic, partitions in sorted(_by_topic(details).items()):
        stops = {int(number): stop for number, stop in ends.get(topic, {}).items()}
        for number, offset in sorted(partitions.items()):
            name = f"{topic}/{number}"
            position = offset
            if number in stops:
                position = f"{position}, ends at {stops[number]}"
            if name in unassigned:
                position = f"{position}, no reader has it yet"
            yield SourcePosition(name, position)
    if details.get("discovering"):
        yield SourcePosition("", "the first look for partitions is not over")
    if details.get("enumerator"):
        yield SourcePosition("", details["enumerator"])


def _by_topic(details: Details) -> dict[str, dict[int, int | str]]:
    """Return the offset of each partition, or the mark in its place."""
    by_topic: dict[str, dict[int, int | str]] = {}
    for table in ("offsets", "marks"):
        topics: Mapping[str, Partitions] = details.get(table) or {}
        for topic, partitions in topics.items():
            own = by_topic.setdefault(topic, {})
            own.update((int(number), offset) for number, offset in partitions.items())
    return by_topic


def _words(details: Details, every: bool) -> str:
    """Return the sum of each topic's offsets, and each offset where they are few."""
    by_topic = sorted(_by_topic(details).items())
    return "; ".join(_topic_words(topic, partitions, every) for topic, partitions in by_topic)


def _topic_words(topic: str, partitions: Mapping[int, int | str], every: bool) -> str:
    total = sum(offset for offset in partitions.values() if isinstance(offset, int))
    head = f"{topic} {total:,}"
    if len(partitions) > PARTITIONS_SHOWN and not every:
        return f"{head} in {len(partitions)} partitions"
    each = ", ".join(f"{number}: {offset}" for number, offset in sorted(partitions.items()))
    return f"{head} ({each})"


def copied_whole(details: Details, every: bool) -> str:
    """Return the details of a source whose position only its connector reads."""
    known = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in details.items())
    return f"{known}: copied whole"


KAFKA: Final = SourceKind(
    "kafka",
    True,
    topics_offset(of_hub=False),
    kafka_in_flink,
    _positions,
    _words,
    _fall_of_topics,
    asked=True,
    comparable=True,
)
EVENT_HUBS: Final = SourceKind("event-hubs", True, hubs_offset, positions=_positions, words=_words)
EITHER: Final = SourceKind(
    "kafka or event-hubs",
    True,
    topics_offset(of_hub=True),
    positions=_positions,
    words=_words,
    step_back=_fall_of_topics,
    asked=True,
)
PULSAR: Final = SourceKind("pulsar", True, pulsar_offset, words=copied_whole)
NAMES_TOPICS: Final = (KAFKA.name, EVENT_HUBS.name, EITHER.name)
