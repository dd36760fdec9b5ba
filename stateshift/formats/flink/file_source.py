"""The state of Flink's FileSource: splits of files, and the enumerator's pending ones; of its
source of numbers; and of the enumerator of Iceberg's source.

    split        v1  utf id, path, i8 start, i8 length, i8 modified, i8 size,
                     i4 n, n * utf host, u1 begun, [i8 offset, i8 records]
    path             u1 1, scheme, user, host, i4 port, path, query, fragment;
                     each string is u1 0, or u1 1 and a string as in `serializers`
    enumerator   v1  little-endian: u4 0xdeadbeef, i4 version of the splits, i4 n, i4 m,
                     n * (i4 length, split), m * (i4 length, path in UTF-8)

    numbers          utf id, i8 next, i8 last                          a split, v1
                     i4 n, n * numbers                                 the enumerator, v1

    iceberg      u1 1, i4 1, i4 length, position,
                 i4 version of the splits, i4 n, n * (i4 length, split, utf status),
                 i4 m, m * i4 splits of the last listings              since version 2
    position         u1 has a snapshot, [i8 snapshot], u1 has a time, [i8 milliseconds]

A reader is at `records` records behind `offset`; -1 stands for no offset: it is the split's start.
The paths of an enumerator are of files that were found already; a bounded source keeps none.

Flink 1.15 to 2.3: connector/file/src/{FileSourceSplitSerializer,
PendingSplitsCheckpointSerializer}, core/fs/Path.serializeToDataOutputView,
util/StringUtils.writeNullableString; api/connector/source/lib/NumberSequenceSource. The splits of
table formats add fields: they are none of these; one of Iceberg's holds tasks that it reads alone.
Iceberg 1.5: flink/source/enumerator/{IcebergEnumeratorStateSerializer,
IcebergEnumeratorPositionSerializer}. A table that was empty has a position without a snapshot.
Without a position nothing was listed, and nobody knows whose bytes these are.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final, Self

from stateshift.errors import UnknownVersion
from stateshift.formats.flink.java_data import DataInput, DataOutput
from stateshift.formats.flink.values import encode_string, read_string

MAGIC: Final = 0xDEADBEEF
SPLIT_VERSION: Final = 1
NO_OFFSET: Final = -1
ICEBERG_VERSIONS: Final = (1, 2)
_STATUSES: Final = frozenset(("UNASSIGNED", "ASSIGNED", "COMPLETED"))
_HEAD = struct.Struct("<IiII")
_LENGTH = struct.Struct("<I")
_URI = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Uri:
    """A path's parts, as java.net.URI has them."""

    scheme: str | None
    user: str | None
    host: str | None
    port: int
    path: str | None
    query: str | None
    fragment: str | None

    def __str__(self) -> str:
        scheme = "" if self.scheme is None else f"{self.scheme}:"
        user = "" if self.user is None else f"{self.user}@"
        port = "" if self.port < 0 else f":{self.port}"
        host = "" if self.host is None else f"//{user}{self.host}{port}"
        return f"{scheme}{host}{self.path or ''}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the parts of a path as Path.toString writes it: nothing in it is escaped."""
        parts = _URI.fullmatch(text)
        assert parts is not None, "an expression that takes everything"
        scheme, authority, path = parts.groups()
        user, _, address = (authority or "").rpartition("@")
        host, _, port = address.partition(":")
        number = int(port) if port.isdecimal() else -1
        return cls(scheme, user or None, host or None, number, path, None, None)


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A part of a file, and how far it was read: `records` behind `offset`; None if not begun."""

    id: str
    path: Uri
    start: int
    length: int
    modified_ms: int
    size: int
    hosts: tuple[str, ...] = ()
    offset: int | None = None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class FileEnumerator:
    """The splits that no reader has yet, and the paths that were found already."""

    splits: tuple[FileSplit, ...]
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A part of a sequence: the next number, and the last one."""

    id: str
    next: int
    last: int


def decode_file_split(version: int, content: bytes) -> FileSplit:
    """Return a split of FileSource."""
    data = DataInput(content, "a split of FileSource")
    _require(version, data.what)
    id_, path = data.utf(), _read_uri(data)
    at = data.at
    start = data.i8()
    length = data.i8()
    modified_ms = data.i8()
    size = data.i8()
    if start < 0 or length < 0:
        raise data.wrong(f"a part of {length} bytes from byte {start} on", at)
    hosts = tuple(data.utf() for _ in range(data.items("hosts")))
    offset = records = None
    if data.boolean():
        offset = data.i8()
        records = data.i8()
        if offset < NO_OFFSET or records < 0:
            raise data.wrong(f"{records} records behind byte {offset}", data.at - 16)
    data.require_end("bytes behind a split's last field")
    return FileSplit(id_, path, start, length, modified_ms, size, hosts, offset, records)


def decode_file_enumerator(version: int, content: bytes) -> FileEnumerator:
    """Return the pending splits of FileSource's enumerator, and its paths."""
    data = DataInput(content, "the enumerator of FileSource")
    _require(version, data.what)
    magic, split_version, splits_count, paths_count = _HEAD.unpack(data.take(_HEAD.size))
    if magic != MAGIC:
        raise data.wrong("another magic number than FileSource's", 0)
    if splits_count + paths_count > (data.end - data.at) // _LENGTH.size:
        raise data.wrong(f"{splits_count} splits and {paths_count} paths", 8)
    splits = [decode_file_split(split_version, _take_sized(data)) for _ in range(splits_count)]
    found = []
    for _ in range(paths_count):
        at, raw = data.at, _take_sized(data)
        try:
            found.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise data.wrong("a path is not UTF-8", at) from error
    data.require_end("bytes behind the last path")
    return FileEnumerator(tuple(splits), tuple(found))


def encode_file_split(split: FileSplit) -> bytes:
    """Return the bytes of a split of FileSource."""
    out = DataOutput()
    out.utf(split.id)
    uri = split.path
    out.boolean(True)
    for text in (uri.scheme, uri.user, uri.host):
        _write_nullable(out, text)
    out.i4(uri.port)
    for text in (uri.path, uri.query, uri.fragment):
        _write_nullable(out, text)
    out.i8(split.start, split.length, split.modified_ms, split.size)
    out.i4(len(split.hosts))
    for host in split.hosts:
        out.utf(host)
    out.boolean(split.offset is not None)
    if split.offset is not None and split.records is not None:
        out.i8(split.offset, split.records)
    return out.content()


def encode_file_enumerator(enumerator: FileEnumerator) -> bytes:
    """Return the bytes of FileSource's enumerator."""
    splits = [encode_file_split(split) for split in enumerator.splits]
    paths = [path.encode("utf-8") for path in enumerator.found]
    pieces = [_HEAD.pack(MAGIC, SPLIT_VERSION, len(splits), len(paths))]
    for content in (*splits, *paths):
        pieces += (_LENGTH.pack(len(content)), content)
    return b"".join(pieces)


def _write_nullable(out: DataOutput, text: str | None) -> None:
    out.boolean(text is not None)
    if text is not None:
        out.put(encode_string(text))


def _take_sized(data: DataInput) -> bytes:
    (length,) = _LENGTH.unpack(data.take(_LENGTH.size))
    return data.take(length)


def _read_uri(data: DataInput) -> Uri:
    at = data.at
    if not data.boolean():
        raise data.wrong("a split without a path", at)
    scheme, user, host = _read_nullable(data), _read_nullable(data), _read_nullable(data)
    port = data.i4()
    path, query, fragment = _read_nullable(data), _read_nullable(data), _read_nullable(data)
    return Uri(scheme, user, host, port, path, query, fragment)


def _read_nullable(data: DataInput) -> str | None:
    if not data.boolean():
        return None
    at, text = data.at, read_string(data)
    if text is None or data.data[at : data.at] != encode_string(text):
        raise data.wrong("a string that Flink would not have written", at)
    return text


def decode_numbers(version: int, content: bytes) -> Numbers:
    """Return a split of a source of numbers."""
    data = DataInput(content, "a split of numbers")
    _require(version, data.what)
    numbers = _read_numbers(data)
    data.require_end("bytes behind a split's last field")
    return numbers


def decode_numbers_enumerator(version: int, content: bytes) -> tuple[Numbers, ...]:
    """Return the splits of numbers that no reader has yet."""
    data = DataInput(content, "the enumerator of numbers")
    _require(version, data.what)
    splits = tuple(_read_numbers(data) for _ in range(data.items("splits")))
    data.require_end("bytes behind the last split")
    return splits


def _read_numbers(data: DataInput) -> Numbers:
    id_, at = data.utf(), data.at
    following, last = data.i8(), data.i8()
    if following > last + 1:
        raise data.wrong(f"the next number is {following}, of a sequence to {last}", at)
    return Numbers(id_, following, last)


def _require(version: int, what: str) -> None:
    if version != SPLIT_VERSION:
        raise UnknownVersion(f"{what} has version {version}, and 1 is known", None, 0)


@dataclass(frozen=True, slots=True)
class IcebergEnumerator:
    """The newest snapshot whose files were listed, None while the table is empty; the splits that
    no reader has yet, each with its status; and the number of those of the last listings.
    """

    snapshot_id: int | None
    time_ms: int | None
    split_version: int
    pending: tuple[tuple[bytes, str], ...] = ()
    listings: tuple[int, ...] = ()


def decode_iceberg_enumerator(version: int, content: bytes) -> IcebergEnumerator:
    """Return the enumerator's position."""
    data = DataInput(content, "the enumerator of IcebergSource")
    if version not in ICEBERG_VERSIONS:
        known = " and ".join(map(str, ICEBERG_VERSIONS))
        raise UnknownVersion(f"{data.what} has version {version}, and {known} are known", None, 0)
    if not data.boolean() or data.i4() != 1:
        raise data.wrong("no position of version 1", 0)
    position = data.within()
    snapshot_id = position.i8() if position.boolean() else None
    time_ms = position.i8() if position.boolean() else None
    position.require_end("bytes behind the position")
    split_version = data.i4()
    pending = []
    for _ in range(data.items("splits")):
        task, at = data.take(data.count("bytes")), data.at
        status = data.utf()
        if status not in _STATUSES:
            raise data.wrong("another status of a split than Iceberg's", at)
        pending.append((task, status))
    listings: tuple[int, ...] = ()
    if version > 1:
        listings = tuple(data.i4() for _ in range(data.items("listings")))
    data.require_end("bytes behind the last field")
    return IcebergEnumerator(snapshot_id, time_ms, split_version, tuple(pending), listings)


def encode_iceberg_enumerator(version: int, enumerator: IcebergEnumerator) -> bytes:
    """Return the bytes of an enumerator in its version."""
    position = DataOutput()
    for number in (enumerator.snapshot_id, enumerator.time_ms):
        position.boolean(number is not None)
        if number is not None:
            position.i8(number)
    out = DataOutput()
    out.boolean(True)
    out.i4(1)
    out.sized(position.content())
    out.i4(enumerator.split_version, len(enumerator.pending))
    for task, status in enumerator.pending:
        out.sized(task)
        out.utf(status)
    if version > 1:
        out.i4(len(enumerator.listings), *enumerator.listings)
    return out.content()
