"""New offsets as they are written down: in a file, for `reposition --by offsets`, or by MirrorMaker
2 in its offset syncs. Pure.

topic,partition,offset               CSV; the first line may be left out
orders,0,80
orders,1,75

{"orders":{"0":80,"1":75}}           JSON, as Spark writes its offsets

An offset sync is a record: an offset of a topic, and that of its copy.

    key      int16 length, topic (UTF-8), int32 partition      names are those at the source
    value    int64 upstream offset, int64 downstream offset

Neither has a version (org.apache.kafka.connect.mirror.OffsetSync, Kafka 2.4 to 4.3; big endian,
org.apache.kafka.common.protocol.types). They are in mm2-offset-syncs.ALIAS.internal, a compacted
topic of one partition, at the source's brokers unless `offset-syncs.topic.location` says `target`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from stateshift.errors import FormatError

BYTES_MAX = 64 * 1024 * 1024
HEAD = ["topic", "partition", "offset"]
_NUMBER = re.compile("[0-9]{1,19}")
_WHAT = "a file of offsets"
_EXPECTED = 'CSV (topic,partition,offset) or JSON ({"orders":{"0":80}})'

SYNCS_NAME = re.compile(r"mm2-offset-syncs\..+\.internal")
_LENGTH, _PARTITION, _OFFSETS = Struct(">h"), Struct(">i"), Struct(">qq")

Offsets = Mapping[str, Mapping[int, int]]


def decode_offset_file(content: bytes) -> Offsets:
    """Return topic -> partition -> the next offset to read."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{_WHAT} is not UTF-8", None, error.start) from error
    offsets: dict[str, dict[int, int]] = {}
    if text.lstrip().startswith("{"):
        _add_json(offsets, text)
    else:
        for number, row in enumerate(csv.reader(text.splitlines()), 1):
            cells = [cell.strip() for cell in row]
            if not any(cells) or (not offsets and [cell.lower() for cell in cells] == HEAD):
                continue
            if len(cells) != len(HEAD) or not cells[0]:
                raise FormatError(f"{_WHAT}: line {number} is not topic,partition,offset")
            _add(offsets, (cells[0], cells[1], cells[2]), f"line {number}")
    if not offsets:
        raise FormatError(f"{_WHAT} names no partition", hint=_EXPECTED)
    return offsets


def _add_json(offsets: dict[str, dict[int, int]], text: str) -> None:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        named = dict(pairs)
        if len(named) < len(pairs):
            raise FormatError(f"{_WHAT} names a topic or a partition twice")
        return named

    try:
        plain = json.loads(text, object_pairs_hook=once)
    except (json.JSONDecodeError, RecursionError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise FormatError(f"{_WHAT} is not JSON", None, at, hint=_EXPECTED) from error
    for topic, partitions in plain.items():
        if not isinstance(partitions, dict):
            raise FormatError(f"{_WHAT}: {topic} has no partitions", hint=_EXPECTED)
        for partition, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            read = str(offset) if is_number else json.dumps(offset)
            _add(offsets, (topic, partition, read), f"{topic}/{partition}")


def _add(offsets: dict[str, dict[int, int]], row: tuple[str, str, str], place: str) -> None:
    topic, partition, offset = row
    for word, text in (("partition", partition), ("offset", offset)):
        if not _NUMBER.fullmatch(text):
            fact = f"{_WHAT}: {place}: {text[:40]} is no {word}, which is a number from 0 on"
            raise FormatError(fact, hint=_EXPECTED)
    partitions = offsets.setdefault(topic, {})
    if int(partition) in partitions:
        raise FormatError(f"{_WHAT} names {topic}/{int(partition)} twice ({place})")
    partitions[int(partition)] = int(offset)


class OffsetSync(NamedTuple):
    """A record at an offset of a partition, and its copy at another."""

    topic: str
    partition: int
    upstream: int
    downstream: int


def decode_offset_sync(key: bytes, value: bytes) -> OffsetSync:
    """Return the sync of a record.

    Raises:
        FormatError: it is none.
    """
    try:
        (length,) = _LENGTH.unpack_from(key)
        end = _LENGTH.size + length
        topic = key[_LENGTH.size : end].decode()
        (partition,) = _PARTITION.unpack(key[end:])
        upstream, downstream = _OFFSETS.unpack(value)
    except (ValueError, StructError) as error:
        raise FormatError(f"not an offset sync of MirrorMaker 2: {error}") from error
    return OffsetSync(topic, partition, upstream, downstream)
