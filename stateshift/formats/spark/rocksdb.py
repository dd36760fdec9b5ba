"""RocksDB as Spark stores it: `N.zip` says which tables make up version N, the tables lie beside it
in `SSTs/`.

    N.zip       metadata | CURRENT | MANIFEST-* | OPTIONS-* [| 00000x.log ...]
      metadata    v1\\n{"sstFiles":[{"localFileName":"000015.sst","dfsSstFileName":"000015-<uuid>.sst",
                                    "sizeBytes":1329}],"numKeys":4[,"columnFamilyMapping":{name: id},
                                    "columnFamilyTypeMap":{name: internal},"maxColumnFamilyId":0]}

    000004.log  (crc32c u32LE, masked | size u16LE | type u8, 1 whole | sequence u64LE | count
                u32LE)*

Source: Spark, RocksDBFileManager (saveCheckpointToDfs, RocksDBCheckpointMetadata); RocksDB,
db/log_format.h, WriteBatch. Nothing waits in a write-ahead log: from 3.5 on it is off and its file
empty, 3.3 and 3.4 flush it with every version, and what is left are batches of no writes, from
commits that changed nothing. A zip whose log holds any other is refused, for its writes would be
missed.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from stateshift.errors import FormatError
from stateshift.formats.crc32c import masked_crc32c
from stateshift.formats.spark.text import (
    decode_object,
    decode_text,
    decode_version,
    encode_object,
    half_pairs,
    number_of,
)
from stateshift.formats.spark.zip_stream import Member, ZipFiles, read_zip

VERSIONS = (1, 2)
METADATA = "metadata"
MEMBER_BYTES_MAX = 64 * 1024 * 1024

# How often its own size a member may hold: metadata lists names with random parts, which hardly
# compress; deflate itself reaches 1,032.
METADATA_RATIO_MAX, DEFLATE_RATIO_MAX = 200, 1032

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_LOG_BLOCK = 32_768
_BATCH = struct.Struct("<IHBQI")
_WHAT = "a RocksDB snapshot"
_NO_MEMBERS: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Table:
    """One SST of a version: its name inside RocksDB, and in `SSTs/`."""

    local: str
    stored: str
    size: int


@dataclass(frozen=True, slots=True)
class RocksDBSnapshot:
    """What a version consists of. `families` maps column family names to their ids, empty where
    none are used; `text` is the JSON as it was, `format` the number in the line before it: 1, but
    4.0 writes that of its state checkpoint format, and refuses any other
    (RocksDBCheckpointMetadata.VERSION). 4.1 refuses 2 for the same content, 4.3 goes back to an
    older snapshot then, if the changelogs reach that far.
    """

    tables: tuple[Table, ...]
    keys: int
    families: Mapping[str, int] = field(default_factory=dict)
    text: str = ""
    format: int = 1


def decode_zip(content: bytes) -> RocksDBSnapshot:
    """What the zip's metadata says, once every file in the zip has been read as Spark reads it."""
    files = _files(content)
    metadata = _metadata(files)
    try:
        return decode_snapshot_metadata(metadata.content)
    except FormatError as error:  # its bytes are not the zip's: they are compressed there
        at = "" if error.offset is None else f" (at byte {error.offset} of {METADATA})"
        raise type(error)(error.fact + at, None, metadata.offset, hint=error.hint) from error


def check_zip(content: bytes) -> tuple[str, ...]:
    """Read every file of the zip to its end: RocksDB is handed all of them. Return what its
    directory, which Spark does not read, says wrongly of them.
    """
    return _files(content).doubts


def _files(content: bytes) -> ZipFiles:
    files = read_zip(content, _kept, _ratio_max)
    for member in files.members:
        _check_member(member)
    return files


def _kept(name: str) -> int:
    """Metadata is read, and a write-ahead log: what goes beyond the first block of one we have
    no file of.
    """
    if name == METADATA:
        return MEMBER_BYTES_MAX
    return _LOG_BLOCK + 1 if name.endswith(".log") else 0


def _ratio_max(name: str) -> int:
    return METADATA_RATIO_MAX if name == METADATA else DEFLATE_RATIO_MAX


def encode_zip(snapshot: RocksDBSnapshot, members: Mapping[str, bytes] = _NO_MEMBERS) -> bytes:
    """A zip of the metadata and RocksDB's own files. The same content gives the same bytes: nothing
    is compressed, and no time stands in it.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {METADATA: encode_snapshot_metadata(snapshot), **members}.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def decode_snapshot_metadata(content: bytes) -> RocksDBSnapshot:
    first, newline, rest = content.partition(b"\n")
    version = decode_version(first, VERSIONS, _WHAT)
    start = len(first) + 1
    if not newline or not rest:
        raise FormatError(f"{_WHAT} ends after its version line", None, len(content))
    text = decode_text(rest, _WHAT, start)
    plain = decode_object(text, _WHAT, start)
    if plain.get("logFiles"):
        raise FormatError(f"{_WHAT} needs a write-ahead log, which Spark never writes", None, start)
    return RocksDBSnapshot(
        _tables(plain, start),
        number_of(plain, "numKeys", _WHAT, start),
        _families(plain, start),
        text,
        version,
    )


def encode_snapshot_metadata(snapshot: RocksDBSnapshot) -> bytes:
    return f"v{snapshot.format}\n{snapshot.text or _text(snapshot)}".encode()


def _text(snapshot: RocksDBSnapshot) -> str:
    tables = [
        {"localFileName": table.local, "dfsSstFileName": table.stored, "sizeBytes": table.size}
        for table in snapshot.tables
    ]
    plain: dict[str, Any] = {"sstFiles": tables, "numKeys": snapshot.keys}
    if snapshot.families:
        plain |= {
            "numInternalKeys": 0,
            "columnFamilyMapping": dict(snapshot.families),
            "columnFamilyTypeMap": {name: name.startswith("$") for name in snapshot.families},
            "maxColumnFamilyId": max(snapshot.families.values()),
        }
    return encode_object(plain)


def _check_member(member: Member) -> None:
    name = member.name
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name:
        fact = f"{_WHAT} holds a file with a name that climbs out: {name[:80]!r}"
        raise FormatError(fact, None, member.offset)
    if name.endswith(".log") and not _is_without_writes(member):
        raise FormatError(f"{_WHAT} holds a write-ahead log with writes in it", None, member.offset)


def _is_without_writes(member: Member) -> bool:
    """Whether a write-ahead log holds nothing but batches of no writes."""
    log = member.content
    if member.size > _LOG_BLOCK:
        return False
    for start in range(0, len(log), _BATCH.size):
        if start + _BATCH.size > len(log):
            return False
        checksum, size, kind, _, count = _BATCH.unpack_from(log, start)
        body = log[start + 6 : start + _BATCH.size]
        if (size, kind, count) != (12, 1, 0) or checksum != masked_crc32c(body):
            return False
    return True


def _metadata(files: ZipFiles) -> Member:
    found = [member for member in files.members if member.name == METADATA]
    if len(found) != 1:
        raise FormatError(f"{_WHAT} holds {'more than one' if found else 'no'} {METADATA}", None, 0)
    if found[0].size > MEMBER_BYTES_MAX:
        fact = f"{_WHAT} has metadata of {found[0].size} bytes, which Spark's never are"
        raise FormatError(fact, None, found[0].offset)
    return found[0]


def _tables(plain: dict[str, Any], start: int) -> tuple[Table, ...]:
    files = plain.get("sstFiles")
    if not isinstance(files, list):
        raise FormatError(f"{_WHAT} does not list its tables", None, start)
    return tuple(_table(item, start) for item in files)


def _table(item: Any, start: int) -> Table:
    names = (
        (item.get("localFileName"), item.get("dfsSstFileName"))
        if isinstance(item, dict)
        else (None, None)
    )
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise FormatError(f"{_WHAT} lists a table without a plain name", None, start)
    return Table(str(names[0]), str(names[1]), number_of(item, "sizeBytes", _WHAT, start))


def _families(plain: dict[str, Any], start: int) -> dict[str, int]:
    families = plain.get("columnFamilyMapping") or {}
    right = isinstance(families, dict) and all(
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value < 1 << 15
        and not half_pairs(name)
        for name, value in families.items()
    )
    if not right or len(set(families.values())) != len(families):
        raise FormatError(f"{_WHAT} has column families without ids of their own", None, start)
    return dict(families)
