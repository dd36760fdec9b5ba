"""State of one version: changes and whole maps, as records.

    HDFS-backed N.delta and N.snapshot, RocksDB N.changelog v1
        (i32BE key length | key | i32BE value length | value)*  i32BE -1
                                                      value length -1: the key is deleted
    RocksDB N.changelog v2 (column families)
        UTF "v2" | (type u8 | i32BE key length | key | i32BE value length | value)* | 00
                                                      type: 01 put, 10 delete (value length -1), 11
                                                      merge
    v3, v4 (checkpoint format 2)
        UTF "v3" | UTF lineage JSON | records as v1
        UTF "v4" | UTF lineage JSON | records as v2

All of it compressed (see `compression`). A UTF is u16BE length and bytes. v1 has no header: only an
exact v2, v3 or v4 is one, since a key's length could look like it. Source: Spark,
HDFSBackedStateStoreProvider (writeUpdateToDeltaFile, readSnapshotFile), StateStoreChangelogWriter /
-Reader V1 to V4, StateStoreRow's checksums (4.3, `rowChecksum`).

Offsets in the errors of records are those of the decompressed bytes. Nothing may follow the end
mark.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.compression import compress, decompress
from stateshift.formats.spark.text import JsonObject
from stateshift.formats.stream import Stream

CHANGELOG_VERSIONS = (1, 2, 3, 4)

PUT, DELETE, MERGE, _END = 0x01, 0x10, 0x11, 0x00
_INT = struct.Struct(">i")
WHAT = "a state file, decompressed,"
_FLUSH = 256 * 1024


class StateRecord(NamedTuple):
    """A change: put a value, delete (`value` None), or merge a value with what the key holds."""

    key: bytes
    value: bytes | None
    merge: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of records: `typed` if each begins with its type, `deletes` if some may be."""

    typed: bool
    deletes: bool = True


DELTA, SNAPSHOT = Layout(typed=False), Layout(typed=False, deletes=False)


@dataclass(frozen=True, slots=True)
class Changelog:
    """The head of a changelog. `lineage` is (version, unique id), newest first, as in Spark."""

    version: int
    lineage: tuple[tuple[int, str], ...] = ()

    @property
    def column_families(self) -> bool:
        return self.version in (2, 4)

    @property
    def layout(self) -> Layout:
        return Layout(typed=self.column_families)


def decode_delta(chunks: Iterable[bytes]) -> Iterator[StateRecord]:
    """Yield the changes of a compressed `N.delta`, in order; the last of a key counts."""
    return records(Stream(decompress(chunks), WHAT), DELTA)


def decode_snapshot(chunks: Iterable[bytes]) -> Iterator[StateRecord]:
    """Yield the entries of a compressed `N.snapshot`: nothing but puts."""
    return records(Stream(decompress(chunks), WHAT), SNAPSHOT)


def encode_delta(records: Iterable[StateRecord], codec: str = "lz4") -> Iterator[bytes]:
    """Yield an `N.delta` or `N.snapshot` that holds exactly these records."""
    return compress(_encode_plain(records), codec)


def decode_changelog(chunks: Iterable[bytes]) -> tuple[Changelog, Iterator[StateRecord]]:
    """Return the head of a compressed `N.changelog`, and its records as they come."""
    stream = Stream(decompress(chunks), WHAT)
    header = decode_header(stream)
    return header, records(stream, header.layout)


def without_row_checksum(record: StateRecord, verify: bool = True) -> StateRecord:
    """Return an HDFS-backed (or changelog v1 delete) record without its row checksum.

    put: value = i32LE crc32c(key, row) | row.   delete: key = i32LE crc32c(key) | key.
    """
    key, value, _ = record
    if value is None:
        return StateRecord(_without_checksum(key, b"", verify), None)
    return StateRecord(key, _without_checksum(value, key, verify))


def _without_checksum(checked: bytes, before: bytes, verify: bool) -> bytes:
    """Return the bytes after a checksum, which covers the bytes `before` it too."""
    if len(checked) < 4:
        raise FormatError("a row is too short for its checksum")
    bare = checked[4:]
    if verify:
        check_row(bare, before, int.from_bytes(checked[:4], "little"))
    return bare


def check_row(row: bytes, key: bytes, expected: int) -> None:
    """Refuse a row whose checksum, which covers its key too, is another."""
    if crc32c(row, crc32c(key)) != expected:
        raise FormatError("a row's checksum does not fit its content")


def with_row_checksum(record: StateRecord) -> StateRecord:
    """Return the inverse of `without_row_checksum`."""
    key, value, _ = record
    if value is None:
        return StateRecord(crc32c(key).to_bytes(4, "little") + key, None)
    return StateRecord(key, crc32c(value, crc32c(key)).to_bytes(4, "little") + value)


def records(stream: Stream, layout: Layout) -> Iterator[StateRecord]:
    """Yield the records from the stream's place to its end."""
    return _typed_records(stream) if layout.typed else _plain_records(stream, layout.deletes)


def _plain_records(stream: Stream, deletes: bool) -> Iterator[StateRecord]:
    take, unpack = stream.take, _INT.unpack
    while True:
        start = stream.offset
        (length,) = unpack(take(4))
        if length < 0:
            break
        key = take(length)
        value_start = stream.offset
        (value_length,) = unpack(take(4))
        if value_length >= 0:
            yield StateRecord(key, take(value_length))
        elif value_length == -1 and deletes:
            yield StateRecord(key, None)
        else:
            raise FormatError(f"{WHAT} claims a value of {value_length} bytes", None, value_start)
    if length != -1:
        raise FormatError(f"{WHAT} has a wrong end mark", None, start)
    _check_end(stream)


def _typed_records(stream: Stream) -> Iterator[StateRecord]:
    take, unpack = stream.take, _INT.unpack
    while True:
        start = stream.offset
        kind = take(1)[0]
        if kind == _END:
            break
        if kind not in (PUT, DELETE, MERGE):
            raise FormatError(f"{WHAT} holds a record of unknown type {kind:#04x}", None, start)
        start = stream.offset
        (length,) = unpack(take(4))
        if length < 0:
            raise FormatError(f"{WHAT} claims a key of {length} bytes", None, start)
        key = take(length)
        start = stream.offset
        (length,) = unpack(take(4))
        is_delete = kind == DELETE
        if length < -1 or (length == -1) != is_delete:
            raise FormatError(f"{WHAT} claims a value of {length} bytes", None, start)
        value = None if is_delete else take(length)
        yield StateRecord(key, value, kind == MERGE)
    _check_end(stream)


def _check_end(stream: Stream) -> None:
    if not stream.at_end():
        raise FormatError(f"{WHAT} goes on after its end mark", None, stream.offset)


def decode_header(stream: Stream) -> Changelog:
    """Return the head of a changelog."""
    beginning = stream.peek(4)
    # 00 02 'v' digit: a v1 key of 0x000276xx bytes, some 160 KB, would look the same only with
    # these digits.
    mark, digit = beginning[:3], beginning[3:]
    if mark != b"\x00\x02v" or not digit.isdigit():
        return Changelog(1)
    version = int(digit)
    if version not in CHANGELOG_VERSIONS[1:]:
        raise UnknownVersion(f"a changelog of version v{version}; known are v1 to v4", None, 0)
    stream.take(4)
    if version < 3:
        return Changelog(version)
    start = stream.offset
    text = stream.take(int.from_bytes(stream.take(2), "big"))
    try:
        return Changelog(version, tuple(map(_ancestor, json.loads(text))))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError("a changelog's lineage is not versions and ids", None, start) from error


def _ancestor(item: JsonObject) -> tuple[int, str]:
    version, uuid = item["version"], item["checkpointUniqueId"]
    if not isinstance(version, int) or not isinstance(uuid, str):
        raise TypeError(f"{item} is no version and id")
    return version, uuid


def _encode_plain(records: Iterable[StateRecord]) -> Iterator[bytes]:
    """Yield many records at once, so that compressors are not called for each."""
    pack = _INT.pack
    held = bytearray()
    for key, value, merge in records:
        if merge:
            raise FormatError("a format without column families has no merge")
        held += pack(len(key)) + key
        held += pack(-1) if value is None else pack(len(value)) + value
        if len(held) >= _FLUSH:
            yield bytes(held)
            held.clear()
    yield bytes(held) + pack(-1)
