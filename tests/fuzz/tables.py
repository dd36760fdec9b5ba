"""What RocksDB leaves behind: zips and SSTs. The first byte chooses how far behind their
checksums we are.
"""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Iterator
from itertools import pairwise

from stateshift.formats.rocksdb import table as sst
from stateshift.formats.rocksdb.sst_blocks import decode_sst_blocks
from stateshift.formats.spark import rocksdb
from tests.fuzz import sst_files
from tests.fuzz.oracles import attempt, records_of, same
from tests.fuzz.seeds import golden
from tests.fuzz.targets import Target, of_rocksdb, spark

COMPRESSIONS = (0, 1, 4, 7)


def run_zip(data: bytes) -> None:
    """0xff: a zip as it is; else members, made into one with whatever names they have."""
    content = data[1:] if data[:1] == b"\xff" else zipped(data)
    found = attempt(lambda: rocksdb.decode_zip(content), len(content))
    if found is None:
        return
    again = rocksdb.decode_zip(rocksdb.encode_zip(found))
    same(again, found, "a snapshot there and back")
    for table in found.tables:
        same(
            "/" in table.stored or table.stored in ("", ".", ".."),
            False,
            f"a table called {table.stored!r}",
        )


def run_zip_metadata(data: bytes) -> None:
    found = attempt(lambda: rocksdb.decode_snapshot_metadata(data), len(data))
    if found is not None:
        same(rocksdb.encode_snapshot_metadata(found), data, "a snapshot's metadata written back")


def run_sst(data: bytes) -> None:
    """0xff: a table as it is. 0xfe: with its checksums made right. Else: its data blocks, in a
    table that is sound.
    """
    mode, rest = (data[0], data[1:]) if data else (255, b"")
    content = rest
    if mode == 0xFE:
        content = sst_files.with_checksums(rest)
    elif mode != 0xFF:
        content = sst_files.made(list(_sized(rest)), mode % 5, COMPRESSIONS[mode // 5 % 4])
    found = attempt(lambda: list(sst.decode_sst(content)), len(content))
    same(_by_blocks(content), _plain(found), "a table by blocks")
    if found is None:
        return
    for one, other in pairwise(found):
        same(
            (one.key, -one.sequence) <= (other.key, -other.sequence),
            True,
            "the order of a table's entries",
        )
    same(
        sum(len(entry.key) + len(entry.value) for entry in found) <= 4096 * len(content) + 4096,
        True,
        "a table's room",
    )


Writes = list[tuple[bytes, int, bool, bytes | None]]


def _plain(entries: list[sst.TableEntry] | None) -> Writes | None:
    if entries is None:
        return None
    return [
        (e.key, e.sequence, e.kind == sst.MERGE, None if e.kind in sst.DELETES else e.value)
        for e in entries
    ]


def _by_blocks(content: bytes) -> Writes | None:
    decoded = attempt(lambda: list(decode_sst_blocks(content)), len(content))
    if decoded is None:
        return None
    return [
        (key, sequence, merge, value)
        for block, sequences in decoded
        for (key, value, merge), sequence in zip(records_of(block), sequences.tolist(), strict=True)
    ]


def zipped(data: bytes) -> bytes:
    """name NUL content, each behind its size."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand twice
        for item in _sized(data):
            name, _, content = item.partition(b"\0")
            kind = zipfile.ZIP_DEFLATED if len(content) > 20 else zipfile.ZIP_STORED
            info = zipfile.ZipInfo(name.decode("utf-8", "replace") or "x")
            info.compress_type = kind
            archive.writestr(info, content)
    return out.getvalue()


def _sized(data: bytes) -> Iterator[bytes]:
    position = 0
    while position + 2 <= len(data):
        (size,) = struct.unpack_from("<H", data, position)
        yield data[position + 2 : position + 2 + size]
        position += 2 + size


def sized(*items: bytes) -> bytes:
    return b"".join(struct.pack("<H", len(item)) + item for item in items)


def _zip_seeds() -> list[bytes]:
    files = golden("state", "zip")
    seeds = [b"\xff" + one for one in files[::3]]
    for one in files[::4]:
        with zipfile.ZipFile(io.BytesIO(one)) as archive:
            kept = [
                member
                for member in archive.infolist()
                if member.filename == "metadata" or member.file_size < 300
            ]
            seeds.append(
                b"\0" + sized(*(m.filename.encode() + b"\0" + archive.read(m) for m in kept))
            )
    seeds.append(b"\0" + sized(b'metadata\0v1\n{"sstFiles":[],"numKeys":0}', b"../../evil\0x"))
    return seeds


def _metadata_seeds() -> list[bytes]:
    found = []
    for one in golden("state", "zip"):
        with zipfile.ZipFile(io.BytesIO(one)) as archive:
            found.append(archive.read("metadata"))
    return list(dict.fromkeys(found))


def _sst_seeds() -> list[bytes]:
    seeds = []
    for number, one in enumerate(golden("state", "sst")):
        blocks = sst_files.data_blocks(one)
        seeds += [b"\xff" + one, b"\xfe" + one, bytes((number % 20,)) + sized(*blocks)]
        if number % 5 == 0:
            seeds.append(b"\xfe" + sst_files.made(blocks, number % 5, 0))
    return seeds


WORDS = (
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"\xff\xff\xff\xff",
    b"metadata\0v1\n{",
    b"../",
    b"000004.log\0",
    b'"sstFiles":[',
    b'"localFileName":"',
    b'"dfsSstFileName":"',
    b'"columnFamilyMapping":{',
    b'"logFiles":[{}]',
    b"\x08\0",
    b"\x0c\0",
)
SST_WORDS = (
    b"rocksdb.properties",
    b"rocksdb.range_del",
    b"rocksdb.compression_dict",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    struct.pack("<Q", sst_files.MAGIC),
    b"\x05\0\0\0",
    b"\x01\x01\0\0\0\0\0\0",
    b"\0\0\0\0\1\0\0\0",
)

TARGETS = (
    Target("zip", run_zip, _zip_seeds, spark("rocksdb"), WORDS),
    Target("zip-metadata", run_zip_metadata, _metadata_seeds, spark("rocksdb", "text"), WORDS),
    Target(
        "sst",
        run_sst,
        _sst_seeds,
        (*of_rocksdb("table", "sst_blocks", "block"), *spark("compression")),
        SST_WORDS,
    ),
)
