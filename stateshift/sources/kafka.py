"""Offsets and records that Kafka still has of topics. It only reads; a step alone
sets offsets of consumer groups.

    spans(brokers, properties, topics)     {topic: {partition: (first, end)}}
    records(brokers, properties, offsets)  {topic: {partition: the records just before the offset,
                                           and at it}}
    open_topics(brokers, properties)       the same of one connection: spans, offsets by time, the
                                           records of any windows, and the cluster's id
    remember(reader, offsets)              the records around offsets, as JSON: by them a job is
                                           found again in a mirror once these brokers are lost
    with_remembered(open_topics, …)        opens what was kept in place of these brokers

No group is joined, nothing is committed, and no topic is made by asking for it: Kafka makes a topic
that is asked for by its name, unless configured not to. All topics are asked for instead. `first`
is the oldest record that retention has left, `end` the number that the next one will get. Only
digests of keys and values are kept.

A file of client properties is as Java's clients and librdkafka's have them, given in the words of
`kafka-python`:

    security.protocol=SASL_SSL                      security_protocol
    sasl.mechanism=SCRAM-SHA-512                    sasl_mechanism
    sasl.jaas.config=... username="a" password="b"; sasl_plain_username, sasl_plain_password
    sasl.username, sasl.password                    likewise, as librdkafka spells them
    ssl.ca.location, ssl.certificate.location, ssl.key.location, ssl.key.password: PEM files

Properties that have nothing to do with how to connect are passed over. One that has, and is not
known here, is refused by its name: a connection without it would fail for a reason that nobody
could see. Values are never shown.

Brokers take offsets for a group while it has no active members, and refuse them otherwise: no
consumer that has just joined is overruled. One that chooses its partitions itself (`assign`, as the
sources of Flink and Spark do) is no member, and cannot be seen.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from stateshift import plain
from stateshift.errors import FormatError, PlanError, StorageError, TransientStorageError
from stateshift.plain import JsonObject
from stateshift.sources.topic_positions import OpenTopics as Opening
from stateshift.sources.topic_search import Offsets, TopicReader, contexts_at
from stateshift.survey import Committed, TopicRecord

# A partition, and an offset range in it: from the first, to before the end.
Windows: TypeAlias = Mapping[int, tuple[int, int]]
# kafka-python has no types: a client is a KafkaConsumer or a KafkaAdminClient, the others are named
# tuples.
Client: TypeAlias = Any
TopicPartition: TypeAlias = Client
ConsumerRecord: TypeAlias = Client


class FoundOffset(Protocol):
    """The first offset that is as new as a time."""

    offset: int


class Consumer(Protocol):
    """The part of kafka-python's consumer, which has no types, that we use."""

    def assign(self, partitions: list[TopicPartition]) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def assignment(self) -> set[TopicPartition]: ...

    def position(self, partition: TopicPartition) -> int: ...

    def close(self) -> None: ...

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]: ...

    def topics(self) -> set[str]: ...

    def partitions_for_topic(self, topic: str) -> set[int] | None: ...

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]: ...

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]: ...

    def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | None]: ...


_log = logging.getLogger(__name__)

CONNECT_MS, REQUEST_MS, POLL_MS = 10_000, 20_000, 500
POLL_RECORDS = 10_000  # each poll looks at all partitions
READ_SECONDS = 30.0  # without a record
BEFORE = 3  # records before an offset by which a topic is known again
LOG_APPEND_TIME = 1  # a record's timestamp_type (org.apache.kafka.common.record.TimestampType)

_WORDS = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_OF_CONNECTING = ("security.", "sasl.", "ssl.")
_JAAS = re.compile(r"\b(username|password)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))")
_LINE = re.compile(r"\s*([^\s:=]+)\s*[:=]?\s*(.*?)\s*\Z")


def spans(
    brokers: str, properties: str | None, topics: Sequence[str], connect_ms: int = CONNECT_MS
) -> Mapping[str, Mapping[int, tuple[int, int]]]:
    """Return the first and the end offset of each partition. `properties` is the location of a file
    on this machine. A topic that is not there has no partitions.
    """
    with _consumer(brokers, properties, connect_ms) as consumer:
        return {topic: _spans_of(consumer, topic) for topic in topics}


def records(
    brokers: str,
    properties: str | None,
    wanted: Mapping[str, Mapping[int, int]],
    connect_ms: int = CONNECT_MS,
) -> Mapping[str, Mapping[int, tuple[TopicRecord, ...]]]:
    """Return the last few records before each offset, and the one at it, if they are there."""
    read = {}
    with _consumer(brokers, properties, connect_ms) as consumer:
        for topic, offsets in wanted.items():
            windows, spans = {}, _spans_of(consumer, topic)
            for number, offset in offsets.items():
                if number in spans:
                    first, end = spans[number]
                    windows[number] = (max(first, offset - BEFORE), min(end, offset + 1))
            read[topic] = _read(consumer, topic, windows)
    return read


@dataclass(frozen=True)
class OpenTopics:
    """The topics of brokers, while one connection lasts."""

    brokers: str
    _consumer: Consumer

    @property
    def cluster(self) -> str | None:
        """The id of the brokers' cluster: part of every answer that lists topics."""
        metadata = getattr(self._consumer, "_cluster", None)  # kafka-python has no other way
        id: str | None = getattr(metadata, "cluster_id", None)
        return id

    def names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self._consumer.topics())

    def spans(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Return the first and the end offset of each partition."""
        return _spans_of(self._consumer, topic)

    def offsets_at(self, topic: str, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """Return the first offset with a record that is as new as the time of its partition.
        Partitions that have none are left out.
        """
        from kafka import TopicPartition

        asked = {TopicPartition(topic, number): time for number, time in times_ms.items()}
        answers = self._consumer.offsets_for_times(asked) if asked else {}
        offsets: dict[int, int] = {}
        for partition, answer in answers.items():
            if answer is not None and answer.offset >= 0:
                offsets[partition.partition] = int(answer.offset)
        return offsets

    def read(self, topic: str, windows: Windows) -> Mapping[int, Sequence[TopicRecord]]:
        """Return the records in these windows, which lie within the spans."""
        return _read(self._consumer, topic, windows)

    def pairs(self, topic: str, window: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a topic's first partition, in order; those without one or the
        other are left out.
        """
        for _, batch in _batches(self._consumer, topic, {0: window}):
            for record in batch:
                if record.key is not None and record.value is not None:
                    yield record.key, record.value


@contextmanager
def open_topics(
    brokers: str, properties: str | None, connect_ms: int = CONNECT_MS
) -> Iterator[OpenTopics]:
    """Connect to brokers for as long as this lasts."""
    with _consumer(brokers, properties, connect_ms) as consumer:
        yield OpenTopics(brokers, consumer)


def _read(consumer: Consumer, topic: str, windows: Windows) -> dict[int, tuple[TopicRecord, ...]]:
    """Return the records in these windows. Not every offset has one: some were compacted away, some
    end a transaction.
    """
    records: dict[int, list[TopicRecord]] = {number: [] for number in windows}
    for number, batch in _batches(consumer, topic, windows):
        for record in batch:
            timed = record.timestamp is not None and record.timestamp >= 0
            time_ms = int(record.timestamp) if timed else None
            is_log_time = record.timestamp_type == LOG_APPEND_TIME
            digests = _digest(record.key), _digest(record.value)
            records[number].append(TopicRecord(record.offset, time_ms, is_log_time, *digests))
    return {number: tuple(read) for number, read in records.items()}


def _batches(
    consumer: Consumer, topic: str, windows: Windows
) -> Iterator[tuple[int, list[ConsumerRecord]]]:
    """Yield the records in these windows as they come, by partition."""
    # Point the consumer at the start of each window that is not empty. Return their partitions.
    from kafka import TopicPartition

    filled = {number: start for number, (start, end) in windows.items() if start < end}
    unread = {number: TopicPartition(topic, number) for number in filled}
    consumer.assign(list(unread.values()))
    for number, partition in unread.items():
        consumer.seek(partition, filled[number])
    until = time.monotonic() + READ_SECONDS
    while unread:
        if time.monotonic() > until:
            names = ", ".join(f"{topic}/{number}" for number in sorted(unread)[:3])
            raise ValueError(f"gave no records of {names} in {READ_SECONDS:.0f} s")
        batches = consumer.poll(timeout_ms=POLL_MS)
        if batches:
            until = time.monotonic() + READ_SECONDS
        for partition, batch in batches.items():
            number = partition.partition
            _, end = windows[number]
            yield number, [record for record in batch if record.offset < end]
            if batch[-1].offset + 1 >= end:
                unread.pop(number, None)
        if not batches:
            # The last offsets of a window need have no record. Only the position tells that, and
            # kafka-python looks at all partitions for each: it is not asked for at every poll.
            positions = {number: consumer.position(each) for number, each in unread.items()}
            unread = {n: each for n, each in unread.items() if positions[n] < windows[n][1]}
        if len(unread) < len(consumer.assignment()):
            # Not paused: kafka-python 3.0 keeps what a paused partition has left, and may give it
            # out only after the next fetch of another one, which then never comes.
            consumer.assign(list(unread.values()))


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _consumer(
    brokers: str, properties: str | None, connect_ms: int
) -> AbstractContextManager[Consumer]:
    """Give a consumer that belongs to no group."""
    own = {
        "group_id": None,
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "max_poll_records": POLL_RECORDS,
    }
    return open_client("KafkaConsumer", brokers, properties, connect_ms, own)


@contextmanager
def open_client(
    kind: str,
    brokers: str,
    properties: str | None,
    connect_ms: int = CONNECT_MS,
    own: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[Client]:
    """Give one of kafka-python's clients, with options of its own; whatever it raises becomes one
    error.
    """
    _log.debug("ask the brokers %s, timeout %d ms", brokers, connect_ms)
    options: dict[str, str | bool] = {}
    if properties:
        path = properties.removeprefix("file://")
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            hint = "correct `properties` under `kafka` in the spec"
            fact = f"{path} cannot be read: {reason}"
            raise StorageError(fact, location=properties, hint=hint) from error
        options = client_options(text, properties)
    client_of, error_of = _client(kind)
    from kafka.errors import UnsupportedCodecError

    try:
        client = client_of(
            bootstrap_servers=brokers.split(","),
            bootstrap_timeout_ms=connect_ms,
            request_timeout_ms=REQUEST_MS,
            **own,
            **options,
        )
        with closing(client):
            yield client
    except UnsupportedCodecError as error:
        fact = f"records at {brokers} cannot be read: {error}"
        raise PlanError(fact, hint="pip install 'stateshift[kafka]'") from error
    except (error_of, OSError, ValueError, LookupError, AssertionError) as error:
        # A LookupError: a partition has no leader yet.
        why = str(error) if str(error).startswith("gave no records") else type(error).__name__
        raise TransientStorageError(
            f"{brokers} does not answer as Kafka does ({why})",
            location=brokers,
            hint="are these hosts and ports right, do the brokers want TLS or a login "
            "(`properties`), and are they up?",
        ) from error


def _spans_of(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    from kafka import TopicPartition

    numbers = sorted(consumer.partitions_for_topic(topic) or ())
    partitions = [TopicPartition(topic, number) for number in numbers]
    first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return {each.partition: (int(first[each]), int(end[each])) for each in partitions}


def _client(kind: str) -> tuple[Callable[..., Client], type[Exception]]:
    try:
        import kafka
        from kafka.errors import KafkaError
    except ImportError as error:
        raise PlanError(
            f"the package kafka-python is not there ({error})",
            hint="pip install 'stateshift[kafka]'",
        ) from error
    # It would print every attempt on stderr.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    return getattr(kafka, kind), KafkaError


def client_options(text: str, path: str) -> dict[str, str | bool]:
    """Return the options of the client.

    Raises:
        PlanError: a property, by its name, is not one that can be used.
    """
    options: dict[str, str | bool] = {}
    for name, value in read_properties(text).items():
        if name == "sasl.jaas.config":
            for word, *quotings in _JAAS.findall(value):  # user name and password
                options[f"sasl_plain_{word}"] = next(filter(None, quotings), "")
        elif name == "ssl.endpoint.identification.algorithm":
            options["ssl_check_hostname"] = value != ""
        elif name in _WORDS:
            options[_WORDS[name]] = value
        elif name.startswith(_OF_CONNECTING):
            known = ", ".join((*_WORDS, "sasl.jaas.config"))
            raise PlanError(
                f"{path}: the property {name} is not one that can be used here",
                hint=f"known are {known}; keys and certificates are PEM files",
            )
    return options


def read_properties(text: str) -> dict[str, str]:
    """Return names and values of Java's format: comments begin with # or !, a backslash at its end
    continues a line.
    """
    joined = re.sub(r"\\\r?\n[ \t]*", "", text)
    lines = map(str.strip, joined.splitlines())
    pairs = [_LINE.match(line) for line in lines if not line.startswith(("#", "!"))]
    return {pair[1]: pair[2] for pair in pairs if pair is not None}


# ---- brokers that are lost


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """The first and the end offset of a partition, and some of its records."""

    first: int
    end: int
    records: tuple[TopicRecord, ...]


Kept = Mapping[str, Mapping[str, KeptPartition]]


def remember(reader: TopicReader, offsets: Mapping[str, Collection[Offsets]]) -> JsonObject:
    """Return the records around several offsets of each partition of these topics."""
    kept: dict[str, dict[str, KeptPartition]] = {}
    for topic, several in offsets.items():
        spans, records = reader.spans(topic), dict[int, set[TopicRecord]]()
        for asked in several:
            there = {number: offset for number, offset in asked.items() if number in spans}
            for number, context in contexts_at(reader, topic, there).items():
                records.setdefault(number, set()).update(context.before, context.after)
        kept[topic] = {}
        for number, own in records.items():
            kept[topic][str(number)] = KeptPartition(*spans[number], tuple(sorted(own)))
    made: JsonObject = plain.to_plain(kept)
    return made


def with_remembered(open_topics: Opening, brokers: str, records: JsonObject) -> Opening:
    """Return a way to open topics that gives the records which were kept of these brokers.

    Raises:
        FormatError: they are damaged.
    """
    try:
        kept: Kept = plain.from_plain(Kept, records)
    except plain.Misfit as error:
        raise FormatError(f"the records that a standby keeps are damaged: {error}") from error

    @contextmanager
    def opened(address: str, properties: str | None) -> Iterator[TopicReader]:
        if address == brokers:
            yield RememberedTopics(brokers, kept)
            return
        with open_topics(address, properties) as reader:
            yield reader

    return opened


@dataclass(frozen=True)
class RememberedTopics:
    """The topics of brokers that nobody asks any more."""

    brokers: str
    _kept: Kept
    cluster: str | None = None

    def names(self) -> frozenset[str]:
        """Return no topic: those of MirrorMaker were not kept."""
        return frozenset()

    def pairs(self, topic: str, window: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
        """Yield nothing, likewise."""
        yield from ()

    def spans(self, topic: str) -> Windows:
        """Return the first and the end offset of each partition, as they were."""
        partitions = self._kept.get(topic, {})
        return {int(number): (each.first, each.end) for number, each in partitions.items()}

    def offsets_at(self, topic: str, times_ms: Mapping[int, int]) -> Offsets:
        """Return nothing: only the new brokers are asked for times."""
        return {}

    def read(self, topic: str, windows: Windows) -> Mapping[int, Sequence[TopicRecord]]:
        """Return the records in these windows that were kept."""
        held: dict[int, Sequence[TopicRecord]] = {}
        for number, (start, end) in windows.items():
            records = self._kept[topic][str(number)].records
            held[number] = tuple(each for each in records if start <= each.offset < end)
        return held


GroupOffsets = Mapping[tuple[str, int], Committed | None]


@dataclass(frozen=True)
class Groups:
    """The consumer groups of brokers, while one connection lasts: a `world.ConsumerGroups`."""

    brokers: str
    _admin: Client

    def state(self, group: str) -> str:
        """Return the state of a group. Only groups of the older protocol can be described."""
        states = {each["group_id"]: each.get("group_state") for each in self._admin.list_groups()}
        return states.get(group) or ""

    def committed(self, group: str) -> Mapping[tuple[str, int], Committed]:
        """Return the committed offsets of a group, by topic and partition."""
        answer, offsets = self._admin.list_group_offsets(group)[group], {}
        for place, each in answer.items():
            if each.offset >= 0:
                offsets[place.topic, place.partition] = Committed(each.offset, each.metadata or "")
        return offsets

    def commit(self, group: str, offsets: GroupOffsets) -> None:
        """Set the offsets of these partitions."""
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        wanted, forgotten = {}, []
        for place, each in offsets.items():
            if each is None:
                forgotten.append(TopicPartition(*place))
            else:
                wanted[TopicPartition(*place)] = OffsetAndMetadata(each.offset, each.metadata, -1)
        results = dict(self._admin.alter_group_offsets(group, wanted))
        results.update(self._admin.delete_group_offsets(group, forgotten))
        for place, result in results.items():
            if result.errno:
                raise StorageError(
                    f"{self.brokers} does not take an offset of {place.topic}/{place.partition} "
                    f"for the group {group}: {result.__name__}",
                    location=self.brokers,
                    hint="stop the consumers of the group; may this user commit for it?",
                )


@contextmanager
def open_groups(brokers: str, properties: str | None) -> Iterator[Groups]:
    """Connect to brokers for as long as this lasts."""
    with open_client("KafkaAdminClient", brokers, properties) as admin:
        yield Groups(brokers, admin)
