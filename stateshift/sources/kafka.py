"""What Kafka still has of topics. It reads.

    spans(brokers, properties, topics)     {topic: {partition: (first, end)}}
    records(brokers, properties, offsets)  {topic: {partition: the records just before the offset,
                                           and at it}}

No group is joined, nothing is committed, and no topic is made by asking for it: Kafka makes topics
for who asks about one by its name, unless told not to, so all that there are is asked for. `first`
is the oldest record that retention has left, `end` the number that the next one will get. Of keys
and values, digests are kept and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stateshift.errors import PlanError, StorageError, TransientStorageError
from stateshift.sources.properties import client_options
from stateshift.survey import Record

_log = logging.getLogger(__name__)

CONNECT_MS, REQUEST_MS, POLL_MS = 10_000, 20_000, 500
READ_SECONDS = 30.0  # for the windows of one topic
BEFORE = 3  # records before an offset by which a topic is known again
LOG_APPEND_TIME = 1  # a record's timestamp_type (org.apache.kafka.common.record.TimestampType)


def spans(
    brokers: str, properties: str | None, topics: Sequence[str], connect_ms: int = CONNECT_MS
) -> Mapping[str, Mapping[int, tuple[int, int]]]:
    """`properties` is the location of a file on this machine. A topic that is not there has no
    partitions.
    """
    with _consumer(brokers, properties, connect_ms) as consumer:
        return {topic: _spans_of(consumer, topic) for topic in topics}


def records(
    brokers: str,
    properties: str | None,
    wanted: Mapping[str, Mapping[int, int]],
    connect_ms: int = CONNECT_MS,
) -> Mapping[str, Mapping[int, tuple[Record, ...]]]:
    """The last few records before each offset, and the one at it, as far as they are there."""
    with _consumer(brokers, properties, connect_ms) as consumer:
        found: dict[str, dict[int, tuple[Record, ...]]] = {}
        for topic, partitions in wanted.items():
            spans = _spans_of(consumer, topic)
            windows = {
                number: (max(spans[number][0], offset - BEFORE), min(spans[number][1], offset + 1))
                for number, offset in partitions.items()
                if number in spans
            }
            found[topic] = _read(consumer, topic, windows)
        return found


def _read(
    consumer: Any, topic: str, windows: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[Record, ...]]:
    """The records in these windows. Not every offset has one: some were compacted away, some end
    a transaction.
    """
    from kafka import TopicPartition

    found: dict[int, list[Record]] = {number: [] for number in windows}
    left = {
        TopicPartition(topic, number): end
        for number, (start, end) in windows.items()
        if start < end
    }
    consumer.assign(list(left))
    for partition in left:
        consumer.seek(partition, windows[partition.partition][0])
    until = time.monotonic() + READ_SECONDS
    while left:
        if time.monotonic() > until:
            names = ", ".join(
                f"{partition.topic}/{partition.partition}" for partition in sorted(left)[:3]
            )
            raise ValueError(f"gave no records of {names} in {READ_SECONDS:.0f} s")
        for partition, batch in consumer.poll(timeout_ms=POLL_MS).items():
            end = windows[partition.partition][1]
            found[partition.partition] += [_record(one) for one in batch if one.offset < end]
        for partition in [one for one, end in left.items() if consumer.position(one) >= end]:
            consumer.pause(partition)
            del left[partition]
    return {number: tuple(records) for number, records in found.items()}


def _record(told: Any) -> Record:
    timed = told.timestamp is not None and told.timestamp >= 0
    return Record(
        told.offset,
        int(told.timestamp) if timed else None,
        told.timestamp_type == LOG_APPEND_TIME,
        None if told.key is None else hashlib.sha256(told.key).hexdigest(),
        None if told.value is None else hashlib.sha256(told.value).hexdigest(),
    )


@contextmanager
def _consumer(brokers: str, properties: str | None, connect_ms: int) -> Iterator[Any]:
    """One that belongs to no group; whatever it raises is told in one way."""
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
            hint=(
                "are these hosts and ports right, do the brokers want TLS or a login "
                "(`properties`), and are they up?"
            ),
        ) from error


def _spans_of(consumer: Any, topic: str) -> dict[int, tuple[int, int]]:
    from kafka import TopicPartition

    partitions = [
        TopicPartition(topic, number)
        for number in sorted(consumer.partitions_for_topic(topic) or ())
    ]
    first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return {each.partition: (int(first[each]), int(end[each])) for each in partitions}


def _client() -> tuple[Any, type[Exception]]:
    try:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError
    except ImportError as error:
        raise PlanError(
            f"the package kafka-python is not there ({error})",
            hint="pip install 'stateshift[kafka]'",
        ) from error
    logging.getLogger("kafka").addHandler(
        logging.NullHandler()
    )  # it would talk on stderr of every attempt
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
