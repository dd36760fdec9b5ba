"""The metadata of an Iceberg table, as far as it tells which batches of a streaming job are in the
table.

    metadata/version-hint.text           <n>            tables of a Hadoop catalog
    metadata/v<n>[.gz].metadata.json                    their metadata
    metadata/<n, 5 digits>-<uuid>[.gz].metadata.json    that of other catalogs, which alone know the
                                                        newest one
      {"format-version":2,"table-uuid":...,"current-snapshot-id":...,
       "snapshots":[{"snapshot-id":...,"parent-snapshot-id":...,"summary":{"operation":"append",
                     "spark.sql.streaming.queryId":"...","spark.sql.streaming.epochId":"5"}}]}

Source: Iceberg, TableMetadataParser, HadoopTableOperations; SparkWrite.findLastCommittedEpochId
goes from the current snapshot to its parents, and takes the first one of the query. What was rolled
back is not found there.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stateshift.errors import FormatError
from stateshift.formats.spark.text import decode_object, decode_text

FOLDER = "metadata"
VERSION_HINT = "version-hint.text"
METADATA_BYTES_MAX = 256 * 1024 * 1024

QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"

_WHAT = "the metadata of an Iceberg table"
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


def newest_metadata(names: Iterable[str]) -> str | None:
    """Return the metadata file of the highest number."""
    numbered = [(number, name) for name in names if (number := metadata_number(name)) is not None]
    return max(numbered)[1] if numbered else None


def decode_table(content: bytes) -> IcebergTable:
    """Return the table that a metadata file describes."""
    text = decode_text(_plain(content), _WHAT)
    metadata = decode_object(text, _WHAT)
    snapshots = metadata.get("snapshots") or []
    if not isinstance(snapshots, list) or not all(isinstance(one, dict) for one in snapshots):
        raise FormatError(f"{_WHAT}: 'snapshots' is not a list of objects", None, 0)
    by_id = {one.get("snapshot-id"): one for one in snapshots}
    current = metadata.get("current-snapshot-id")
    table_id = metadata.get("table-uuid")
    return IcebergTable(
        table_id if isinstance(table_id, str) else None,
        current if isinstance(current, int) and current >= 0 else None,
        tuple(_streamed(by_id, current)),
    )


def _streamed(by_id: dict[Any, dict[str, Any]], current: Any) -> list[StreamedSnapshot]:
    found = []
    seen: set[Any] = set()
    while current in by_id and current not in seen:
        seen.add(current)
        snapshot = by_id[current]
        summary = snapshot.get("summary")
        batch = _batch_of(summary if isinstance(summary, dict) else {})
        if batch is not None:
            found.append(StreamedSnapshot(int(current), *batch))
        current = snapshot.get("parent-snapshot-id")
    return found


def _batch_of(summary: dict[str, Any]) -> tuple[str, int] | None:
    query, epoch = summary.get(QUERY), summary.get(EPOCH)
    if not isinstance(query, str):
        return None
    if not isinstance(epoch, str) or not re.fullmatch(r"-?[0-9]{1,18}", epoch, re.ASCII):
        raise FormatError(f"{_WHAT}: a snapshot of query {query} names no batch", None, 0)
    return query, int(epoch)


def _plain(content: bytes) -> bytes:
    """The JSON, whether it is compressed or not."""
    if content[:2] != b"\x1f\x8b":
        return content
    inflating = zlib.decompressobj(wbits=31)
    try:
        plain = inflating.decompress(content, METADATA_BYTES_MAX)
    except zlib.error as error:
        raise FormatError(f"{_WHAT} is not gzip: {error}", None, 0) from error
    if not inflating.eof:
        raise FormatError(
            f"{_WHAT} is truncated, or larger than {METADATA_BYTES_MAX:,} bytes", None, len(content)
        )
    return plain
