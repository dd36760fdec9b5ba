"""Databases made for tests, byte by byte: what RocksDB would have written for these writes.

table(writes, deletions)            an SST; a write is (key, sequence, kind, value)
database({family: [Level(...)]})    its files by their names
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stateshift.formats.crc32c import masked_crc32c
from stateshift.formats.rocksdb.database import FileOf
from tests.fuzz.sst_files import DELTA, FOOTER, MAGIC, _put, entries, put_varint

Write = tuple[bytes, int, int, bytes]
Deletion = tuple[bytes, bytes, int]
RANGE_DELETION = 15
CRC32C, NONE = 1, 0


@dataclass(frozen=True)
class Made:
    """What one table is made of."""

    level: int
    writes: Sequence[Write]
    deletions: Sequence[Deletion] = ()


def internal(key: bytes, sequence: int, kind: int) -> bytes:
    return key + struct.pack("<Q", sequence << 8 | kind)


def table(
    writes: Sequence[Write],
    deletions: Sequence[Deletion] = (),
    partitioned: bool = False,
    each: int = 3,
    count: int | None = None,
    ends: Sequence[bytes] = (),
) -> bytes:
    """An SST of these writes in their order, `each` of them a block; its index says these `ends`
    of blocks.
    """
    out = bytearray()
    places: list[bytes] = []
    for start in range(0, len(writes), each):
        some = [
            (internal(key, sequence, kind), value)
            for key, sequence, kind, value in writes[start : start + each]
        ]
        places.append(_put(out, entries(some), CRC32C, NONE))
    named = {}
    if deletions:
        ranges = [
            (internal(start, sequence, RANGE_DELETION), end) for start, end, sequence in deletions
        ]
        named[b"rocksdb.range_del"] = _put(out, entries(ranges), CRC32C, NONE)
    if partitioned:
        places = [
            _put(out, index(places[start : start + 2]), CRC32C, NONE)
            for start in range(0, len(places), 2)
        ]
    place = _put(out, index(places, ends), CRC32C, NONE)
    properties = {
        b"rocksdb.block.based.table.index.type": (2 if partitioned else 0).to_bytes(4, "little"),
        DELTA: b"\x00",
        b"rocksdb.num.entries": put_varint(
            len(writes) + len(deletions) if count is None else count
        ),
    }
    named[b"rocksdb.properties"] = _put(out, entries(sorted(properties.items())), CRC32C, NONE)
    metaindex = _put(out, entries(sorted(named.items())), CRC32C, NONE)
    footer = (bytes((CRC32C,)) + metaindex + place).ljust(FOOTER - 12, b"\0")
    return bytes(out) + footer + struct.pack("<IQ", 5, MAGIC)


def index(places: Sequence[bytes], ends: Sequence[bytes] = ()) -> bytes:
    keys = [internal(end, 0, 1) for end in ends]
    keys = keys or [number.to_bytes(4, "big") for number in range(len(places))]
    return entries(list(zip(keys, places, strict=True)))


def sized(content: bytes) -> bytes:
    return put_varint(len(content)) + content


def log(*records: bytes) -> bytes:
    """Records that lie in one block of the log."""
    out = b""
    for record in records:
        out += struct.pack("<IHB", masked_crc32c(b"\x01" + record), len(record), 1) + record
    return out


def edit_of(number: int, made: Made, size: int) -> bytes:
    keys = [internal(key, sequence, kind) for key, sequence, kind, _ in made.writes]
    keys += [internal(start, sequence, RANGE_DELETION) for start, _, sequence in made.deletions]
    keys += [internal(end, (1 << 56) - 1, RANGE_DELETION) for _, end, _ in made.deletions]
    smallest = min(keys, key=lambda key: (key[:-8], -int.from_bytes(key[-8:], "little")))
    largest = max(keys, key=lambda key: (key[:-8], -int.from_bytes(key[-8:], "little")))
    sequences = [write[1] for write in made.writes] + [deletion[2] for deletion in made.deletions]
    head = b"\x67" + put_varint(made.level) + put_varint(number) + put_varint(size)
    return (
        head
        + sized(smallest)
        + sized(largest)
        + put_varint(min(sequences))
        + put_varint(max(sequences))
        + b"\x01"
    )


def database(
    families: Mapping[str, Sequence[Made]], last: int = 1 << 40, partitioned: bool = False
) -> dict[str, bytes]:
    """The files of a database, by their names there."""
    files: dict[str, bytes] = {"CURRENT": b"MANIFEST-000001\n"}
    records = [b"\x01" + sized(b"leveldb.BytewiseComparator")]
    number = 10
    for id, (name, tables) in enumerate(families.items(), start=1):
        records.append(b"\xc8\x01" + put_varint(id) + b"\xc9\x01" + sized(name.encode()))
        for made in tables:
            content = table(made.writes, made.deletions, partitioned)
            files[f"{number:06d}.sst"] = content
            records.append(b"\xc8\x01" + put_varint(id) + edit_of(number, made, len(content)))
            number += 1
    records.append(b"\x04" + put_varint(last))
    return {**files, "MANIFEST-000001": log(*records)}


def opened(files: Mapping[str, bytes]) -> dict[str, FileOf]:
    def reading(content: bytes) -> FileOf:
        return FileOf(lambda offset, count: content[offset : offset + count], len(content))

    return {name: reading(content) for name, content in files.items()}
