"""The metadata of an Iceberg table, as far as it tells the batches of a streaming job in the table.

    metadata/version-hint.text           <n>            tables of a Hadoop catalog
    metadata/v<n>[.gz].metadata.json                    their metadata
    metadata/<n, 5 digits>-<uuid>[.gz].metadata.json    that of other catalogs, which alone know the
                                                        newest one
      {"format-version":2,"table-uuid":...,"current-snapshot-id":...,
       "snapshots":[{"snapshot-id":...,"parent-snapshot-id":...,"summary":{"operation":"append",
                     "spark.sql.streaming.queryId":"...","spark.sql.streaming.epochId":"5"}}]}

Source: Iceberg, TableMetadataParser, HadoopTableOperations; SparkWrite.findLastCommittedEpochId
goes from the current snapshot to its parents, and takes the first one of the query. It does not
find snapshots that were rolled back.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.formats.spark.text import JsonObject, decode_object, decode_text, is_integer

FOLDER = "metadata"
VERSION_HINT = "version-hint.text"
METADATA_BYTES_MAX = 256 * 1024 * 1024

QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"

_WHAT = "the metadata of an Iceberg table"
_NO_SNAPSHOTS = f"{_WHAT}: 'snapshots' is not a list of objects"
_NAME = re.compile(r"(?:v([0-9]{1,18})|([0-9]{5,18})-[^/]+?)(?:\.gz)?\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class StreamedSnapshot:
    """A snapshot that a batch of a streaming query made."""

    snapshot_id: int
    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """`streamed` are the snapshots of batches, from the current one back along its parents."""

    table_id: str | None
    current: int | None
    streamed: tuple[StreamedSnapshot, ...]


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
    return IcebergTable(
        table_id=table_id if isinstance(table_id, str) else None,
        current=current_id,
        streamed=tuple(_streamed(snapshots, current)),
    )


def _snapshots(metadata: JsonObject) -> dict[int, JsonObject]:
    snapshots = metadata.get("snapshots") or []
    if not isinstance(snapshots, list):
        raise FormatError(_NO_SNAPSHOTS, None, 0)
    by_id = {}
    for snapshot in snapshots:
        if not isinstance(snapshot, dict):
            raise FormatError(_NO_SNAPSHOTS, None, 0)
        snapshot_id = snapshot.get("snapshot-id")
        if not is_integer(snapshot_id):
            raise FormatError(f"{_WHAT}: a snapshot has no id", None, 0)
        by_id[snapshot_id] = snapshot
    return by_id


def _streamed(by_id: dict[int, JsonObject], current: object) -> Iterator[StreamedSnapshot]:
    while is_integer(current) and current in by_id:
        snapshot = by_id.pop(current)  # taken out, so that a cycle of parents ends
        summary = snapshot.get("summary")
        batch = _batch_of(summary) if isinstance(summary, dict) else None
        if batch is not None:
            yield StreamedSnapshot(current, *batch)
        current = snapshot.get("parent-snapshot-id")


def _batch_of(summary: JsonObject) -> tuple[str, int] | None:
    query, epoch = summary.get(QUERY), summary.get(EPOCH)
    if not isinstance(query, str):
        return None
    if not isinstance(epoch, str) or not re.fullmatch(r"-?[0-9]{1,18}", epoch, re.ASCII):
        raise FormatError(f"{_WHAT}: a snapshot of query {query} names no batch", None, 0)
    return query, int(epoch)


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
