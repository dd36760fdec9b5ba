"""Checkpoints that ask for more memory than the bound, and some that are large and right.

spark(folder, name)  what is wrong with it is the name; everything else of it is as Spark would have
                     it
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stateshift.formats.blocks import block_of
from stateshift.formats.rocksdb.sst_encoding import encode_sst
from stateshift.formats.spark import rocksdb
from stateshift.formats.spark.compression import compress
from stateshift.formats.spark.schema import SchemaFile, StoreSchema, encode_schema
from tests.support.checkpoints import Checkpoint

MIB = 1 << 20
HUGE = 512 * MIB
_ZEROS = bytes(MIB)

PROVIDERS = ("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider")
DELTA, ZIP, CHANGELOG = "state/0/0/3.delta", "state/0/0/3.zip", "state/0/0/3.changelog"


def columns(**types: str) -> str:
    fields = [
        {"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in types.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


SCHEMA = encode_schema(SchemaFile(2, (StoreSchema(columns(k="long"), columns(v="binary")),)))


def put(folder: Path, path: str, pieces: Iterable[bytes]) -> None:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        for piece in pieces:
            file.write(piece)


def checkpoint(folder: Path, rocks: bool = False) -> None:
    """One shard, three batches, nothing in them."""
    for path, content in Checkpoint(shards=1, keys=0).files().items():
        if rocks:
            content = content.replace(PROVIDERS[0].encode(), PROVIDERS[1].encode())
        if not (rocks and path.endswith(".delta")):
            put(folder, path, [content])
    put(folder, "state/0/0/_metadata/schema", [SCHEMA])


def key(number: int) -> bytes:
    return bytes(8) + number.to_bytes(8, "little")


def zeros(size: int) -> Iterator[bytes]:
    yield from (_ZEROS for _ in range(size // MIB))
    yield bytes(size % MIB)


def value(size: int) -> Iterator[bytes]:
    """A row of one binary column, of so many bytes in all."""
    yield bytes(8) + struct.pack("<II", size - 16, 16)
    yield from zeros(size - 16)


def record(size: int, number: int = 1) -> Iterator[bytes]:
    yield struct.pack(">i", 16) + key(number) + struct.pack(">i", size)
    yield from value(size)


def delta(folder: Path, codec: str, *sizes: int) -> None:
    def raw() -> Iterator[bytes]:
        for number, size in enumerate(sizes):
            yield from record(size, number)
        yield struct.pack(">i", -1)

    for batch in range(3):
        place = folder / "offsets" / str(batch)
        place.write_bytes(place.read_bytes().replace(b'codec":"lz4"', f'codec":"{codec}"'.encode()))
        put(folder, f"state/0/0/{batch + 1}.delta", compress([struct.pack(">i", -1)], codec))
    put(folder, DELTA, compress(raw(), codec))


def changelog(folder: Path) -> None:
    def raw() -> Iterator[bytes]:
        yield struct.pack(">i", 17) + b"\0" + key(1) + struct.pack(">i", HUGE + 1) + b"\0"
        yield from value(HUGE)
        yield struct.pack(">i", -1)

    put(folder, "state/0/0/2.zip", [rocksdb.encode_zip(rocksdb.RocksDBSnapshot((), 0))])
    put(folder, CHANGELOG, compress(raw(), "lz4"))


def table(folder: Path, content: bytes) -> None:
    """A version of one table."""
    stored = rocksdb.ListedTable("000004.sst", "000004-u.sst", len(content))
    put(folder, ZIP, [rocksdb.encode_zip(rocksdb.RocksDBSnapshot((stored,), 1))])
    put(folder, "state/0/0/SSTs/000004-u.sst", [content])


def large_table(folder: Path) -> None:
    """A file of 300 MiB, which nobody can hold at once."""
    table(folder, b"".join(encode_sst([block_of([(b"\0" + key(1), b"\0" + bytes(8))])])))
    place = folder / "state/0/0/SSTs/000004-u.sst"
    with place.open("r+b") as file:
        file.truncate(300 * MIB)
    stored = rocksdb.ListedTable("000004.sst", "000004-u.sst", 300 * MIB)
    put(folder, ZIP, [rocksdb.encode_zip(rocksdb.RocksDBSnapshot((stored,), 1))])


def offsets_of_brackets(folder: Path) -> None:
    place = folder / "offsets/2"
    head, _, _ = place.read_bytes().rpartition(b"\n")
    put(folder, "offsets/2", [head, b'\n{"a":[', *(b"[]," * 350_000 for _ in range(58)), b"1]}"])


def source_log_of_one_line(folder: Path) -> None:
    for batch in range(3):
        place = folder / "offsets" / str(batch)
        head, _, _ = place.read_bytes().rpartition(b"\n")
        place.write_bytes(head + b'\n{"logOffset":%d}' % batch)
        put(
            folder,
            f"sources/0/{batch}",
            [b"v1\n" + b'{"path":"file:///in/f","timestamp":1,"batchId":0}'],
        )
    put(folder, "sources/0/2", [b'v1\n{"path":"file:///', *zeros_as_text(HUGE), b'"}'])


def zeros_as_text(size: int) -> Iterator[bytes]:
    yield from (b"a" * MIB for _ in range(size // MIB))


TOO_LARGE: dict[str, tuple[bool, Callable[[Path], None]]] = {
    "a record of 512 MiB in lz4": (False, lambda f: delta(f, "lz4", HUGE)),
    "a record of 512 MiB in snappy": (False, lambda f: delta(f, "snappy", HUGE)),
    "a record of 512 MiB in a changelog": (True, changelog),
    "offsets of 60 MiB of brackets": (False, offsets_of_brackets),
    "a line of 512 MiB in a source's log": (False, source_log_of_one_line),
}

# Too large to be held at once, and read by blocks.
CUT_OFF: dict[str, tuple[bool, Callable[[Path], None]]] = {
    "a table of 300 MiB": (True, large_table),
}

LEGAL: dict[str, tuple[bool, Callable[[Path], None]]] = {
    "a record of 60 MiB": (False, lambda f: delta(f, "lz4", 60 * MIB)),
    "a record of 60 MiB in snappy": (False, lambda f: delta(f, "snappy", 60 * MIB)),
    "500 MiB in records of 1 MiB": (False, lambda f: delta(f, "lz4", *[MIB] * 500)),
}


def spark(folder: Path, kinds: dict[str, tuple[bool, Callable[[Path], None]]], name: str) -> Path:
    rocks, make = kinds[name]
    checkpoint(folder, rocks)
    make(folder)
    return folder
