"""Topics of millions of records, in seconds: whole batches are sent, each made from another one.

    fill(brokers, topic, numbers, first_ms)    partition -> numbers: key `k`, the number as value, and
                                               as the millisecond after `first_ms`
    fill_syncs(brokers, topic, source, …)      offset syncs of MirrorMaker 2, of all partitions in turn

A client makes each record by itself, some 20,000 a second. Here a batch is a copy of the one before
in which values, times and checksum are replaced (kafka.record.default_records: the same layout).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
from google_crc32c import value as crc32c
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError, for_code
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder as Builder

RECORDS = 8_192  # of a batch
BYTES = 4 << 20  # of a request
DIGITS = 10
PLACE = b"\xfe\xdc" * 8  # which no key has
TIMES = struct.Struct(">qq")
TIMES_AT = struct.calcsize(">qiibIhi")

Batch = tuple[int, bytes]  # of a partition


class _Template:
    """A batch of records, whose values are replaced."""

    def __init__(self, keys: list[bytes], width: int) -> None:
        builder = Builder(2, 0, False, -1, -1, -1, 1 << 30)
        for number, key in enumerate(keys):
            assert builder.append(number, number, key, PLACE[:width], []) is not None
        self._bytes = numpy.frombuffer(bytes(builder.build()), numpy.uint8)
        held, at, places = self._bytes.tobytes(), 0, []
        while (at := held.find(PLACE[:width], at)) >= 0:
            places.append(at)
            at += width
        assert len(places) == len(keys)
        self._places = numpy.array(places)[:, None] + numpy.arange(width)[None, :]
        self._last = len(keys) - 1

    def with_values(self, values: Any, first_ms: int) -> bytes:
        """The batch with these values, a row each, or with one for all."""
        made = self._bytes.copy()
        made[self._places] = values
        batch = bytearray(made.tobytes())
        TIMES.pack_into(batch, TIMES_AT, first_ms, first_ms + self._last)
        checked = bytes(memoryview(batch)[Builder.ATTRIBUTES_OFFSET :])
        struct.pack_into(">I", batch, Builder.CRC_OFFSET, crc32c(checked))
        return bytes(batch)


def fill(brokers: str, topic: str, numbers: Mapping[int, range], first_ms: int) -> None:
    """Write a record of each number into these partitions."""
    templates: dict[int, _Template] = {}
    powers = 10 ** numpy.arange(DIGITS - 1, -1, -1)

    def batches() -> Iterator[Batch]:
        for partition, wanted in numbers.items():
            for start in range(wanted.start, wanted.stop, RECORDS):
                size = min(RECORDS, wanted.stop - start)
                if size not in templates:
                    templates[size] = _Template([b"k"] * size, DIGITS)
                column = numpy.arange(start, start + size)[:, None]
                digits = (column // powers) % 10 + ord("0")
                yield partition, templates[size].with_values(digits, first_ms + start)

    _send(brokers, topic, batches())


def fill_syncs(
    brokers: str, topic: str, source: str, records: Mapping[int, int], shift: int, rounds: int
) -> None:
    """Write the syncs of partitions in turn, evenly over so many records of each; the copy has
    `shift` more in front.
    """
    name = source.encode()
    head = struct.pack(">h", len(name)) + name
    template = _Template([head + struct.pack(">i", number) for number in records], 16)

    def batches() -> Iterator[Batch]:
        hour_ago = int(time.time() - 3600) * 1000  # a broker throws away what is old
        counts = numpy.array(list(records.values()))
        for turn in range(rounds):
            upstream = turn * counts // rounds
            pairs = numpy.stack([upstream, upstream + shift], axis=1).astype(">i8")
            yield 0, template.with_values(pairs.view(numpy.uint8), hour_ago)

    _send(brokers, topic, batches())


def _send(brokers: str, topic: str, batches: Iterator[Batch]) -> None:
    """Send batches to the one broker, a few of different partitions at once."""
    admin = KafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=120_000)
    try:
        waiting: dict[int, bytes] = {}
        for partition, batch in batches:
            if partition in waiting or sum(map(len, waiting.values())) > BYTES:
                _produce(admin, topic, waiting)
                waiting = {}
            waiting[partition] = batch
        _produce(admin, topic, waiting)
    finally:
        admin.close()


def _produce(admin: Any, topic: str, batches: Mapping[int, bytes], tries: int = 120) -> None:
    """Send a batch to each partition; again to those that have no leader yet."""
    of_topic = ProduceRequest.TopicProduceData
    parts = [
        of_topic.PartitionProduceData(index=partition, records=batch)
        for partition, batch in batches.items()
    ]
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=60_000,
        topic_data=[of_topic(name=topic, partition_data=parts)],
        max_version=9,
    )
    answer = admin._manager.run(admin._manager.send, request)
    answers = answer.responses[0].partition_responses
    errors = {each.index: for_code(each.error_code) for each in answers}
    left = {index: batch for index, batch in batches.items() if errors[index] is not NoError}
    for index in left:
        if not tries or not errors[index].retriable:
            raise errors[index](f"{topic}/{index}")
    if left:
        time.sleep(0.5)
        _produce(admin, topic, left, tries - 1)
