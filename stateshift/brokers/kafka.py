"""What Kafka still has of topics: `spans(brokers, properties, topics) -> {topic: {partition: (first, end)}}`. It reads.

No group is joined, nothing is committed, and no topic is made by asking for it: Kafka makes topics for who asks about
one by its name, unless told not to, so all that there are is asked for. `first` is the oldest record that retention
has left, `end` the number that the next one will get.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stateshift.brokers.properties import client_options
from stateshift.errors import PlanError, StorageError, TransientStorageError

CONNECT_MS, REQUEST_MS = 10_000, 20_000


def spans(
    brokers: str, properties: str | None, topics: Sequence[str], connect_ms: int = CONNECT_MS
) -> Mapping[str, Mapping[int, tuple[int, int]]]:
    """`properties` is the location of a file on this machine. A topic that is not there has no partitions."""
    options = client_options(_text(properties), properties) if properties else {}
    consumer_of, error_of = _client()
    try:
        consumer = consumer_of(
            bootstrap_servers=brokers.split(","), group_id=None, enable_auto_commit=False,
            allow_auto_create_topics=False, bootstrap_timeout_ms=connect_ms, request_timeout_ms=REQUEST_MS, **options,
        )  # fmt: skip
        try:
            return {topic: _spans_of(consumer, topic) for topic in topics}
        finally:
            consumer.close()
    except (error_of, OSError, ValueError, AssertionError) as error:
        raise TransientStorageError(
            f"{brokers} does not answer as Kafka does ({type(error).__name__})",
            location=brokers,
            hint="are these hosts and ports right, do the brokers want TLS or a login (`properties`), and are they up?",
        ) from error


def _spans_of(consumer: Any, topic: str) -> dict[int, tuple[int, int]]:
    from kafka import TopicPartition

    partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
    first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return {each.partition: (int(first[each]), int(end[each])) for each in partitions}


def _client() -> tuple[Any, type[Exception]]:
    try:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError
    except ImportError as error:
        raise PlanError(f"the package kafka-python is not there ({error})",
                        hint="pip install 'stateshift[kafka]'") from error  # fmt: skip
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # it would talk on stderr of every attempt
    return KafkaConsumer, KafkaError


def _text(properties: str) -> str:
    path = properties.removeprefix("file://")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        hint = "correct `properties` under `kafka` in the spec"
        raise StorageError(f"{path} cannot be read: {reason}", location=properties, hint=hint) from error
