"""The metadata of an Iceberg table: its snapshots, the batches of a streaming job in it, and its
data files.


    metadata/version-hint.text           <n>            tables of a Hadoop catalog
    metadata/v<n>[.gz].metadata.json                    their metadata
    metadata/<n, 5 digits>-<uuid>[.gz].metadata.json    that of other catalogs, which alone know the
                                                        newest one
      {"format-version":2,"table-uuid":...,"location":...,"current-snapshot-id":...,
       "snapshots":[{"snapshot-id":...,"parent-snapshot-id":...,"timestamp-ms":...,
                     "manifest-list":"<location>",
                     "summary":{"operation":"append","added-data-files":"2","total-data-files":"9",
                                "total-records":"90","total-delete-files":"0",
                     "spark.sql.streaming.queryId":"...","spark.sql.streaming.epochId":"5"}}]}

A summary leaves counts out that are 0, except for totals, which old writers leave out.

Source: Iceberg, TableMetadataParser, HadoopTableOperations; SparkWrite.findLastCommittedEpochId
goes from the current snapshot to its parents, and takes the first one of the query. It does not
find snapshots that were rolled back.

The manifest list and the manifests are files of Avro:

    "Obj" 01 | map of metadata: avro.schema, avro.codec | 16 bytes, the mark
    (long count | long size | so many values, compressed | the mark)*

    manifest list   manifest_path, content (0: of data files, 1: of deletes)
    manifest        status (0: existing, 1: added, 2: deleted),
                    data_file: file_path, record_count, file_size_in_bytes

Numbers are varints of either sign, zigzag; a count of an array's or a map's items that is negative
is followed by their size. Otherwise values lie as Flink writes them (`flink.avro_data`). Source:
Avro 1.12, specification, "Object Container Files"; Iceberg, table specification, "Manifests".
Iceberg compresses with deflate, which it calls gzip.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.flink.avro_data import avro_reader
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.spark.text import JsonObject, decode_object, decode_text, is_integer

FOLDER = "metadata"
VERSION_HINT = "version-hint.text"
METADATA_BYTES_MAX = 256 * 1024 * 1024

QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"

_WHAT = "the metadata of an Iceberg table"
_TIME_MS_MAX = 253_402_300_800_000  # the year 10,000
_NO_SNAPSHOTS = f"{_WHAT}: 'snapshots' is not a list of objects"
_NAME = re.compile(r"(?:v([0-9]{1,18})|([0-9]{5,18})-[^/]+?)(?:\.gz)?\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class StreamedSnapshot:
    """A snapshot that a batch of a streaming query made."""

    snapshot_id: int
    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot, and its summary: a count is None where the writer did not count."""

    id: int
    parent: object
    time_ms: int
    manifest_list: str | None
    summary: Mapping[str, object]

    @property
    def operation(self) -> str:
        return str(self.summary.get("operation") or "unknown")

    @property
    def added_files(self) -> int:
        return self.count("added-data-files") or 0

    @property
    def records(self) -> int | None:
        return self.count("total-records")

    def count(self, name: str) -> int | None:
        text = str(self.summary.get(name))
        return int(text) if re.fullmatch("[0-9]{1,18}", text, re.ASCII) else None

    @property
    def streamed(self) -> StreamedSnapshot | None:
        """The batch that made it, if one did."""
        query, epoch = self.summary.get(QUERY), self.summary.get(EPOCH)
        if not isinstance(query, str):
            return None
        if not isinstance(epoch, str) or not re.fullmatch(r"-?[0-9]{1,18}", epoch, re.ASCII):
            raise FormatError(f"{_WHAT}: a snapshot of query {query} names no batch", None, 0)
        return StreamedSnapshot(self.id, query, int(epoch))


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """`streamed` are the snapshots of batches, and `line` all of those that are left, both from the
    current one back along its parents; `all_ids` are those of other branches, too. `columns` are
    the table's own by their ids.
    """

    table_id: str | None
    current: int | None
    streamed: tuple[StreamedSnapshot, ...]
    line: tuple[Snapshot, ...] = ()
    all_ids: frozenset[int] = frozenset()
    columns: Mapping[str | int, str] = field(default_factory=dict)

    def snapshot(self, number: object) -> Snapshot | None:
        """Return the snapshot of this id, if the current one comes from it."""
        return next((each for each in self.line if each.id == number), None)


def metadata_number(name: str) -> int | None:
    """Return the number in a metadata file's name; None where it is none."""
    match = _NAME.fullmatch(name)
    return int(match[1] or match[2]) if match else None


def newest_metadata(names: Iterable[str]) -> tuple[str, ...]:
    """Return the metadata files of the highest number: more than one if a writer lost a race."""
    by_number: dict[int, list[str]] = {}
    for name in names:
        number = metadata_number(name)
        if number is not None:
            by_number.setdefault(number, []).append(name)
    return tuple(sorted(by_number[max(by_number)])) if by_number else ()


def decode_table(content: bytes) -> IcebergTable:
    """Return the table that a metadata file describes."""
    text = decode_text(_plain(content), _WHAT)
    metadata = decode_object(text, _WHAT)
    current, table_id = metadata.get("current-snapshot-id"), metadata.get("table-uuid")
    snapshots = _snapshots(metadata)
    # -1, for example, stands for none.
    current_id = current if isinstance(current, int) and current >= 0 else None
    if current_id is not None and current_id not in snapshots:
        # Older ones expire; the current one is always listed (Iceberg's TableMetadata).
        raise FormatError(f"{_WHAT}: snapshot {current_id}, the current one, is missing", None, 0)
    line: list[Snapshot] = []
    left = dict(snapshots)
    while is_integer(current) and current in left:
        line.append(left.pop(current))  # taken out, so that a cycle of parents ends
        current = line[-1].parent
    columns: dict[str | int, str] = {}
    schemas = metadata.get("schemas")
    for schema in schemas if isinstance(schemas, list) else [metadata.get("schema")]:
        match schema:
            case {"schema-id": int() as number} if number != metadata.get("current-schema-id"):
                continue
            case {"fields": list() as fields}:
                for column in fields:
                    match column:
                        case {"id": int() as field_id, "name": str() as name}:
                            columns[field_id] = name
    return IcebergTable(
        table_id=table_id if isinstance(table_id, str) else None,
        current=current_id,
        streamed=tuple(filter(None, (snapshot.streamed for snapshot in line))),
        line=tuple(line),
        all_ids=frozenset(snapshots),
        columns=columns,
    )


def _snapshots(metadata: JsonObject) -> dict[int, Snapshot]:
    snapshots = metadata.get("snapshots") or []
    if not isinstance(snapshots, list):
        raise FormatError(_NO_SNAPSHOTS, None, 0)
    by_id = {}
    for plain in snapshots:
        if not isinstance(plain, dict):
            raise FormatError(_NO_SNAPSHOTS, None, 0)
        snapshot_id, time_ms = plain.get("snapshot-id"), plain.get("timestamp-ms")
        if not is_integer(snapshot_id):
            raise FormatError(f"{_WHAT}: a snapshot has no id", None, 0)
        summary, manifest_list = plain.get("summary"), plain.get("manifest-list")
        by_id[snapshot_id] = Snapshot(
            id=snapshot_id,
            parent=plain.get("parent-snapshot-id"),
            time_ms=time_ms if is_integer(time_ms) and 0 <= time_ms < _TIME_MS_MAX else 0,
            manifest_list=manifest_list if isinstance(manifest_list, str) else None,
            summary=summary if isinstance(summary, dict) else {},
        )
    return by_id


def _plain(content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content
    inflating = zlib.decompressobj(wbits=31)
    try:
        plain = inflating.decompress(content, METADATA_BYTES_MAX)
    except zlib.error as error:
        raise FormatError(f"{_WHAT} is not gzip: {error}", None, 0) from error
    if not inflating.eof:
        fact = f"{_WHAT} is truncated, or larger than {METADATA_BYTES_MAX:,} bytes"
        raise FormatError(fact, None, len(content))
    return plain


# ---- manifests

MANIFEST_BYTES_MAX: Final = 256 * 1024 * 1024
_MAGIC: Final = b"Obj\x01"
_HEAD: Final = '{"type":"map","values":"bytes"}'


class ManifestFile(NamedTuple):
    """A manifest of a snapshot; `of_deletes`: it lists files of deleted rows."""

    path: str
    of_deletes: bool


class DataFile(NamedTuple):
    """A file of rows in a snapshot."""

    path: str
    size: int
    records: int


def decode_manifest_list(content: bytes) -> list[ManifestFile]:
    """Return the manifests of a snapshot."""
    files = []
    for item in _values(content, "a manifest list of Iceberg"):
        match item:
            case {"manifest_path": str() as path, **more}:
                files.append(ManifestFile(path, more.get("content") == 1))
            case _:
                raise FormatError("a manifest list of Iceberg names no manifest", None, 0)
    return files


def decode_manifest(content: bytes) -> Iterator[DataFile]:
    """Yield the files that a manifest lists, without those that it deletes."""
    for entry in _values(content, "a manifest of Iceberg"):
        match entry:
            case {"status": 2}:
                continue
            case {
                "data_file": {
                    "file_path": str() as path,
                    "record_count": int() as records,
                    "file_size_in_bytes": int() as size,
                }
            }:
                yield DataFile(path, size, records)
            case _:
                raise FormatError("a manifest of Iceberg names no file", None, 0)


class _AvroInput(DataInput):
    """Avro's own encoding of numbers."""

    __slots__ = ()

    def i4(self) -> int:
        return self.i8()

    def i8(self) -> int:
        number = DataInput.varint(self)
        return (number >> 1) ^ -(number & 1)

    def varint(self) -> int:
        count = self.i8()
        if count < 0:
            self.i8()  # their size, for those who skip them
        return abs(count)


def _values(content: bytes, what: str) -> Iterator[object]:
    data = _AvroInput(content, what)
    if data.take(len(_MAGIC)) != _MAGIC:
        raise data.wrong("not a file of Avro", 0)
    read = avro_reader(_HEAD)
    assert read is not None, "a schema"
    pairs = read(data)
    assert isinstance(pairs, list), "of a map"
    metadata = {key: bytes.fromhex(value) for key, value in pairs}
    mark = data.take(16)
    codec = metadata.get("avro.codec", b"null").decode("latin-1")
    if codec not in ("null", "deflate"):
        raise data.wrong(f"its codec {codec} is not read here", 0)
    read = avro_reader(metadata.get("avro.schema", b"").decode("utf-8", "replace"))
    if read is None:
        raise data.wrong("its schema is none of Avro", 0)
    while not data.at_end():
        at, count, size = data.at, data.i8(), data.i8()
        block = data.take(size)
        values = _AvroInput(_inflated(block, what, at) if codec == "deflate" else block, what)
        if count > values.end:  # values without bytes would take for ever
            raise data.wrong(f"{count} values in {values.end} bytes", at)
        for _ in range(count):
            yield read(values)
        if data.take(16) != mark:
            raise data.wrong("a block of Avro does not end with its mark", at)


def _inflated(block: bytes, what: str, at: int) -> bytes:
    inflating = zlib.decompressobj(wbits=-15)
    try:
        plain = inflating.decompress(block, MANIFEST_BYTES_MAX)
    except zlib.error as error:
        raise FormatError(f"{what}: a block is not compressed: {error}", None, at) from error
    if not inflating.eof:
        raise FormatError(f"{what}: a block is truncated, or too large", None, at)
    return plain
