"""Offsets and records that Kafka still has of topics. It only reads.

    spans(brokers, properties, topics)     {topic: {partition: (first, end)}}
    records(brokers, properties, offsets)  {topic: {partition: the records just before the offset,
                                           and at it}}

No group is joined, nothing is committed, and no topic is made by asking for it: Kafka makes topics
for who asks about one by its name, unless configured not to, so all topics are asked for. `first`
is the oldest record that retention has left, `end` the number that the next one will get. Of keys
and values, digests are kept and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from stateshift.errors import PlanError, StorageError, TransientStorageError
from stateshift.sources.properties import client_options
from stateshift.survey import Record

# A partition, and an offset range in it: from the first, to before the end.
Windows: TypeAlias = Mapping[int, tuple[int, int]]
# kafka-python's TopicPartition and ConsumerRecord: named tuples without types.
TopicPartition: TypeAlias = Any
ConsumerRecord: TypeAlias = Any


class Consumer(Protocol):
    """What we use of kafka-python's consumer, which has no types."""

    def assign(self, partitions: list[TopicPartition]) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def pause(self, partition: TopicPartition) -> None: ...

    def position(self, partition: TopicPartition) -> int: ...

    def close(self) -> None: ...

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]: ...

    def partitions_for_topic(self, topic: str) -> set[int] | None: ...

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]: ...

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]: ...


_log = logging.getLogger(__name__)

CONNECT_MS, REQUEST_MS, POLL_MS = 10_000, 20_000, 500
READ_SECONDS = 30.0  # for the windows of one topic
BEFORE = 3  # records before an offset by which a topic is known again
LOG_APPEND_TIME = 1  # a record's timestamp_type (org.apache.kafka.common.record.TimestampType)


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
) -> Mapping[str, Mapping[int, tuple[Record, ...]]]:
    """Return the last few records before each offset, and the one at it, as far as they are
    there.
    """
    with _consumer(brokers, properties, connect_ms) as consumer:
        return {
            topic: _read(consumer, topic, _windows(_spans_of(consumer, topic), offsets))
            for topic, offsets in wanted.items()
        }


def _windows(spans: Windows, offsets: Mapping[int, int]) -> Windows:
    """Return what to read around each offset, of the partitions that are there."""
    windows = {}
    for number, offset in offsets.items():
        if number in spans:
            first, end = spans[number]
            windows[number] = (max(first, offset - BEFORE), min(end, offset + 1))
    return windows


def _read(consumer: Consumer, topic: str, windows: Windows) -> dict[int, tuple[Record, ...]]:
    """Return the records in these windows. Not every offset has one: some were compacted away, some
    end a transaction.
    """
    records: dict[int, list[Record]] = {number: [] for number in windows}
    unread = _assigned(consumer, topic, windows)
    until = time.monotonic() + READ_SECONDS
    while unread:
        if time.monotonic() > until:
            names = ", ".join(f"{topic}/{number}" for number in sorted(unread)[:3])
            raise ValueError(f"gave no records of {names} in {READ_SECONDS:.0f} s")
        for partition, batch in consumer.poll(timeout_ms=POLL_MS).items():
            _, end = windows[partition.partition]
            in_window = [_record(record) for record in batch if record.offset < end]
            records[partition.partition] += in_window
        for number, partition in list(unread.items()):
            _, end = windows[number]
            if consumer.position(partition) >= end:
                consumer.pause(partition)
                del unread[number]
    return {number: tuple(read) for number, read in records.items()}


def _assigned(consumer: Consumer, topic: str, windows: Windows) -> dict[int, TopicPartition]:
    """Point the consumer at the start of each window that is not empty. Return their partitions."""
    from kafka import TopicPartition

    filled = {number: start for number, (start, end) in windows.items() if start < end}
    partitions = {number: TopicPartition(topic, number) for number in filled}
    consumer.assign(list(partitions.values()))
    for number, partition in partitions.items():
        consumer.seek(partition, filled[number])
    return partitions


def _record(record: ConsumerRecord) -> Record:
    timed = record.timestamp is not None and record.timestamp >= 0
    return Record(
        record.offset,
        int(record.timestamp) if timed else None,
        record.timestamp_type == LOG_APPEND_TIME,
        _digest(record.key),
        _digest(record.value),
    )


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


@contextmanager
def _consumer(brokers: str, properties: str | None, connect_ms: int) -> Iterator[Consumer]:
    """Give a consumer that belongs to no group; whatever it raises becomes one error."""
    _log.debug("ask the brokers %s, timeout %d ms", brokers, connect_ms)
    options = client_options(_text(properties), properties) if properties else {}
    consumer_of, error_of = _client()
    try:
        consumer = consumer_of(
            bootstrap_servers=brokers.split(","),
            group_id=None,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            bootstrap_timeout_ms=connect_ms,
            request_timeout_ms=REQUEST_MS,
            **options,
        )
        try:
            yield consumer
        finally:
            consumer.close()
    except (error_of, OSError, ValueError, AssertionError) as error:
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


def _client() -> tuple[Callable[..., Consumer], type[Exception]]:
    try:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError
    except ImportError as error:
        raise PlanError(
            f"the package kafka-python is not there ({error})",
            hint="pip install 'stateshift[kafka]'",
        ) from error
    # It would print every attempt on stderr.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    return KafkaConsumer, KafkaError


def _text(properties: str) -> str:
    path = properties.removeprefix("file://")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        hint = "correct `properties` under `kafka` in the spec"
        raise StorageError(
            f"{path} cannot be read: {reason}", location=properties, hint=hint
        ) from error
