"""RocksDB as Spark stores it: `N.zip` lists the tables of version N, which are in `SSTs/`.

    N.zip       metadata | CURRENT | MANIFEST-* | OPTIONS-* [| 00000x.log ...]
      metadata    v1\\n
                  {"sstFiles":[{"localFileName":"000015.sst","dfsSstFileName":"000015-<uuid>.sst",
                                "sizeBytes":1329}],"numKeys":4[,"columnFamilyMapping":{name: id},
                   "columnFamilyTypeMap":{name: internal},"maxColumnFamilyId":0]}

    000004.log  (crc32c u32LE, masked | size u16LE | type u8, 1 whole | sequence u64LE | count
                u32LE)*

Source: Spark, RocksDBFileManager (saveCheckpointToDfs, RocksDBCheckpointMetadata); RocksDB,
db/log_format.h, WriteBatch. Nothing waits in a write-ahead log: from 3.5 on it is off and its file
empty, 3.3 and 3.4 flush it with every version, and leave batches of no writes, from commits that
changed nothing. A zip whose log holds any other is refused, for its writes would be
missed.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from stateshift.errors import FormatError
from stateshift.formats.crc32c import masked_crc32c
from stateshift.formats.spark.text import (
    JsonObject,
    decode_object,
    decode_text,
    decode_version,
    encode_object,
    half_pairs,
    is_integer,
    number_of,
)

if TYPE_CHECKING:
    from stateshift.formats.spark.zip_stream import Member, ZipFiles

VERSIONS = (1, 2)
METADATA = "metadata"
MEMBER_BYTES_MAX = 64 * 1024 * 1024
MANIFEST_BYTES_MAX = 4 * 1024 * 1024  # some ten thousand flushes since the database was opened

# How often its own size a member may hold: metadata lists names with random parts, which hardly
# compress; deflate itself reaches 1,032.
METADATA_RATIO_MAX, DEFLATE_RATIO_MAX = 200, 1032

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_LOG_BLOCK = 32_768
_BATCH = struct.Struct("<IHBQI")
_WHAT = "a RocksDB snapshot"
_MANIFEST = "MANIFEST-"
_NO_MEMBERS: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ListedTable:
    """One SST of a version: its name inside RocksDB, and in `SSTs/`."""

    local: str
    stored: str
    size: int


@dataclass(frozen=True, slots=True)
class RocksDBSnapshot:
    """The parts of a version."""

    tables: tuple[ListedTable, ...]
    keys: int
    families: Mapping[str, int] = field(default_factory=dict)  # ids by name; empty if not used
    text: str = ""  # the JSON as it was
    # The number in the line before it: 1, but 4.0 writes that of its state checkpoint format, and
    # refuses any other (RocksDBCheckpointMetadata.VERSION). 4.1 refuses 2 for the same content, 4.3
    # goes back to an older snapshot then, if the changelogs reach that far.
    format: int = 1


class ZipVersion(NamedTuple):
    """A version by Spark's metadata and RocksDB's MANIFEST, if there is one of a usual size."""

    snapshot: RocksDBSnapshot
    manifest: bytes | None
    manifest_name: str = ""


def decode_zip(content: bytes) -> RocksDBSnapshot:
    """Return the metadata of a zip, each of whose files was read as Spark reads it."""
    return _snapshot(_files(content, _kept))


def decode_zip_version(content: bytes) -> ZipVersion:
    """Return the metadata as `decode_zip` does, and the MANIFEST in the zip."""

    def kept(name: str) -> int:
        return MANIFEST_BYTES_MAX if name.startswith(_MANIFEST) else _kept(name)

    files = _files(content, kept)
    manifests = [member for member in files.members if member.name.startswith(_MANIFEST)]
    snapshot = _snapshot(files)
    if len(manifests) != 1 or manifests[0].size > MANIFEST_BYTES_MAX:
        return ZipVersion(snapshot, None)
    return ZipVersion(snapshot, manifests[0].content, manifests[0].name)


def decode_zip_members(content: bytes) -> dict[str, bytes]:
    """Return every file of a zip by its name, checked as `decode_zip` checks them."""
    size = sum(member.size for member in _files(content, _kept).members)
    if size > MEMBER_BYTES_MAX:
        raise FormatError(f"{_WHAT} holds {size} bytes beside its tables, which Spark's never do")
    members = _files(content, lambda name: MEMBER_BYTES_MAX).members
    by_name = {member.name: member.content for member in members}
    if len(by_name) < len(members):
        raise FormatError(f"{_WHAT} holds two files of one name", None, 0)
    return by_name


def _snapshot(files: ZipFiles) -> RocksDBSnapshot:
    metadata = _metadata(files)
    try:
        return decode_snapshot_metadata(metadata.content)
    except FormatError as error:  # its bytes are not the zip's: they are compressed there
        at = "" if error.offset is None else f" (at byte {error.offset} of {METADATA})"
        raise type(error)(error.fact + at, None, metadata.offset, hint=error.hint) from error


def check_zip(content: bytes) -> tuple[str, ...]:
    """Read every file to its end, as RocksDB gets all. Return faults of the unread directory."""
    return _files(content, _kept).doubts


def _files(content: bytes, kept: Callable[[str], int]) -> ZipFiles:
    # Imported here: most checkpoints that somebody looks at have no zips.
    from stateshift.formats.spark.zip_stream import read_zip

    files = read_zip(
        content, kept, lambda name: METADATA_RATIO_MAX if name == METADATA else DEFLATE_RATIO_MAX
    )
    for member in files.members:
        absolute = member.name.startswith(("/", "\\")) or ":" in member.name
        if absolute or ".." in member.name.replace("\\", "/").split("/"):
            fact = f"{_WHAT} holds a file with a path that leaves its folder: {member.name[:80]!r}"
            raise FormatError(fact, None, member.offset)
        if member.name.endswith(".log") and not _is_without_writes(member):
            raise FormatError(
                f"{_WHAT} holds a write-ahead log with writes in it", None, member.offset
            )
    return files


def _kept(name: str) -> int:
    """Return the bytes of a file to keep: metadata, and a write-ahead log's first block."""
    if name == METADATA:
        return MEMBER_BYTES_MAX
    return _LOG_BLOCK + 1 if name.endswith(".log") else 0


def encode_zip(snapshot: RocksDBSnapshot, members: Mapping[str, bytes] = _NO_MEMBERS) -> bytes:
    """Return a zip of metadata and files: the same bytes each time; nothing is compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {METADATA: encode_snapshot_metadata(snapshot), **members}.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def decode_snapshot_metadata(content: bytes) -> RocksDBSnapshot:
    """Read the file `metadata` of an `N.zip`: a line with the version, then JSON."""
    first, newline, rest = content.partition(b"\n")
    version = decode_version(first, VERSIONS, _WHAT)
    start = len(first) + 1
    if not newline or not rest:
        raise FormatError(f"{_WHAT} is truncated after its version line", None, len(content))
    text = decode_text(rest, _WHAT, start)
    plain = decode_object(text, _WHAT, start)
    if plain.get("logFiles"):
        raise FormatError(f"{_WHAT} needs a write-ahead log, which Spark never writes", None, start)
    tables, keys = _tables(plain, start), number_of(plain, "numKeys", _WHAT, start)
    families = plain.get("columnFamilyMapping") or {}
    ids = set()
    if isinstance(families, dict) and not any(map(half_pairs, families)):
        numbers = filter(is_integer, families.values())
        ids = {number for number in numbers if 0 <= number < 1 << 15}
    if not isinstance(families, dict) or len(ids) < len(families):
        raise FormatError(f"{_WHAT} has column families without ids of their own", None, start)
    return RocksDBSnapshot(tables, keys, dict(families), text, version)


def encode_snapshot_metadata(snapshot: RocksDBSnapshot) -> bytes:
    """Return `metadata` of an `N.zip`: a version line, then its JSON as read, or its fields."""
    if snapshot.text:
        return f"v{snapshot.format}\n{snapshot.text}".encode()
    plain: JsonObject = {
        "sstFiles": [listed_table(table) for table in snapshot.tables],
        "numKeys": snapshot.keys,
    }
    if snapshot.families:
        plain |= {
            "numInternalKeys": 0,
            "columnFamilyMapping": dict(snapshot.families),
            "columnFamilyTypeMap": {name: name.startswith("$") for name in snapshot.families},
            "maxColumnFamilyId": max(snapshot.families.values()),
        }
    return f"v{snapshot.format}\n{encode_object(plain)}".encode()


def listed_table(table: ListedTable) -> JsonObject:
    """Return a table as a snapshot's metadata lists it."""
    return {"localFileName": table.local, "dfsSstFileName": table.stored, "sizeBytes": table.size}


def _is_without_writes(member: Member) -> bool:
    """Whether a write-ahead log holds nothing but batches of no writes."""
    log = member.content
    if member.size > _LOG_BLOCK or len(log) % _BATCH.size:
        return False
    starts = range(0, len(log), _BATCH.size)
    for start in starts:
        checksum, size, kind, _, count = _BATCH.unpack_from(log, start)
        is_empty = (size, kind, count) == (12, 1, 0)
        if not is_empty or checksum != masked_crc32c(log[start + 6 : start + _BATCH.size]):
            return False
    return True


def _metadata(files: ZipFiles) -> Member:
    named_so = [member for member in files.members if member.name == METADATA]
    if len(named_so) != 1:
        count = "more than one" if named_so else "no"
        raise FormatError(f"{_WHAT} holds {count} {METADATA}", None, 0)
    (metadata,) = named_so
    if metadata.size > MEMBER_BYTES_MAX:
        fact = f"{_WHAT} has metadata of {metadata.size} bytes, which Spark's never are"
        raise FormatError(fact, None, metadata.offset)
    return metadata


def _tables(plain: JsonObject, start: int) -> tuple[ListedTable, ...]:
    files = plain.get("sstFiles")
    if not isinstance(files, list):
        raise FormatError(f"{_WHAT} does not list its tables", None, start)
    tables = []
    for item in files:
        own = item if isinstance(item, dict) else {}
        local, stored = own.get("localFileName"), own.get("dfsSstFileName")
        if not _is_plain_name(local) or not _is_plain_name(stored):
            raise FormatError(f"{_WHAT} lists a table without a plain name", None, start)
        tables.append(ListedTable(local, stored, number_of(own, "sizeBytes", _WHAT, start)))
    return tuple(tables)


def _is_plain_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
