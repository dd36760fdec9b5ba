"""A single file of a checkpoint, decoded into something a person can read. Pure: the person at
three in the morning sees the bytes that we see.

What a file is, its path tells: the names Spark gives are its only type information.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from stateshift.engines.spark.entries.rows import RowSchema
from stateshift.engines.spark.layout import SINK_LOG
from stateshift.engines.views import DecodedFile
from stateshift.errors import FormatError
from stateshift.formats import bounds, marks
from stateshift.formats.rocksdb import sst
from stateshift.formats.spark import (
    commits,
    crc,
    delta_schema_log,
    metadata,
    offsets,
    operator_metadata,
    rocksdb,
    schema,
    source_log,
    state_files,
)
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.positions import position_of
from stateshift.formats.spark.text import decode_object, decode_text


def decode_file(path: str, content: bytes, rows: RowSchema | None = None) -> DecodedFile:
    """The file at `path` (any location: its last names tell what it is), with `rows` to read
    state by.
    """
    place = classify(inside(path))
    owner = marks.fence_owner(content)
    if owner is not None:
        return DecodedFile(path, "fence", (f"fenced by run {owner}",), {"fenced_by": owner})
    if path.endswith(marks.INDEX):
        return _told(path, "index of operators", marks.decode_index(content))
    if f"{SINK_LOG}/" in path and not path.endswith(".crc"):
        return _log(path, "file sink log", content)
    reader = _READERS.get(place.area if place.area != "state" else place.kind or "")
    if place.area == "offsets" and _is_of_source(path, content):
        reader = _source
    if place.area == "sidecar":
        reader = _hadoop_crc if place.kind == "hadoop-crc" else _spark_crc
    if reader is None:
        raise FormatError(
            "not a file of a checkpoint that stateshift knows",
            path,
            0,
            hint="decoded are metadata, offsets, commits, sources, operator metadata, schemas, "
            "deltas, snapshots, "
            "changelogs, tables, zips, checksums and Delta's schema logs, each under the "
            "name that its writer gives it",
        )
    return reader(path, content, rows or RowSchema())


def check_file(path: str, chunks: Iterable[bytes]) -> None:
    """Read a file to its end; FormatError where it is wrong. A log of files is read line by
    line: it may be long.
    """
    place = classify(inside(path))
    if place.area != "sources":
        decode_file(path, bounds.gathered(chunks, path))
        return
    first, rest = _first(chunks)
    if source_log.source_kind(first) not in ("file", "file-sink"):
        decode_file(path, bounds.gathered(rest, path))
        return
    for _ in source_log.decode_source_log(rest):
        pass


def _first(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first chunk, and all of them."""
    more = iter(chunks)
    first = next(more, b"")
    return first, chain((first,), more)


def schema_path(path: str) -> str | None:
    """Where the schema lies by which the state file at `path` is read: under shard 0 of its
    operator.
    """
    within = inside(path)
    place = classify(within)
    if place.area != "state" or place.operator is None:
        return None
    store = "" if place.store == "default" else f"{place.store}/"
    return path[: len(path) - len(within)] + f"state/{place.operator}/0/{store}_metadata/schema"


def inside(path: str) -> str:
    """The part of a location that lies inside its checkpoint: the shortest end of it that is a
    name Spark gives.
    """
    parts = path.split("/")
    tails = ("/".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
    return next(
        (tail for tail in tails if classify(tail).area not in ("other", "metadata")), parts[-1]
    )


def _is_of_source(path: str, content: bytes) -> bool:
    """Whether this is what a source has begun with: Iceberg keeps that as plain JSON in
    sources/<i>/offsets/0. A whole checkpoint may lie in a folder of that name; its offsets begin
    with their version.
    """
    return path.split("/")[-4:-3] == ["sources"] and content[:1] == b"{"


def _told(path: str, what: str, value: Any) -> DecodedFile:
    return DecodedFile(
        path, what, tuple(json.dumps(value, indent=2, ensure_ascii=False).splitlines()), value
    )


def _metadata(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _told(path, "query metadata", {"id": metadata.decode_metadata(content).id})


def _offsets(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    entry = offsets.decode_offsets(content)
    sources = {source.source: _json(source.offset) for source in entry.offsets}
    value = {
        "version": entry.version,
        "batch_watermark_ms": entry.watermark_ms,
        "batch_timestamp_ms": entry.timestamp_ms,
        "sources": sources,
        "conf": dict(entry.conf),
    }
    return _told(path, f"offset log v{entry.version}", value)


def _commit(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    entry = commits.decode_commit(content)
    value = {
        "version": entry.version,
        "next_batch_watermark_ms": entry.watermark_ms,
        "state_unique_ids": {
            op: [list(shard) for shard in shards] for op, shards in entry.state_ids.items()
        },
        "sinks": dict(entry.sinks),
    }
    return _told(path, f"commit log v{entry.version}", value)


def _source(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    kind = source_log.source_kind(content)
    if kind in ("file", "file-sink"):
        return _log(path, "file source log", content)
    if kind in ("rate", "kafka"):
        offset = _json(source_log.decode_initial_offset(content))
        named = position_of(offset, True).kind if kind == "kafka" else kind
        return _told(path, f"{named} source, initial offset", offset)
    if content[:1] == b"{":
        plain = decode_object(decode_text(content, "an initial offset"), "an initial offset")
        return _told(path, f"{position_of(plain, True).kind} source, initial offset", plain)
    text = content.decode("utf-8", "replace")
    return DecodedFile(path, "source log of a kind we do not know", tuple(text.splitlines()), text)


def _log(path: str, what: str, content: bytes) -> DecodedFile:
    entries = [dict(entry.fields) for entry in source_log.decode_source_log((content,))]
    return DecodedFile(
        path, what, tuple(json.dumps(e, ensure_ascii=False) for e in entries), entries
    )


def _schema_log(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    entry = delta_schema_log.decode_schema_log(content)
    value = {
        "table_id": entry.table_id,
        "commit_version": entry.commit_version,
        "source_path": entry.source_path,
        "schema": _json(entry.data_schema),
    }
    return _told(path, f"Delta schema log v{entry.version}", value)


def _operator(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    found = operator_metadata.decode_operator_metadata(content)
    stores = [
        {"name": s.name, "partitions": s.partitions, "schema_paths": list(s.schema_paths)}
        for s in found.stores
    ]
    value = {
        "operator": found.operator,
        "name": found.name,
        "stores": stores,
        "properties": dict(found.properties),
    }
    return _told(path, f"operator metadata v{found.version}", value)


def _schema(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    found = schema.decode_schema(content)
    stores = [{"name": s.name, "key": _json(s.key), "value": _json(s.value)} for s in found.stores]
    return _told(path, f"state schema v{found.version}", stores)


def _zip(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    found = rocksdb.decode_zip(content)
    tables = [
        {"name": table.stored, "local_name": table.local, "bytes": table.size}
        for table in found.tables
    ]
    value = {"keys": found.keys, "column_families": dict(found.families), "tables": tables}
    return _told(path, "RocksDB snapshot", value)


def _delta(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _records(path, "changes of one version", state_files.decode_delta((content,)), rows)


def _snapshot(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _records(path, "snapshot", state_files.decode_snapshot((content,)), rows)


def _changelog(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    head, records = state_files.decode_changelog((content,))
    return _records(path, f"RocksDB changelog v{head.version}", records, rows)


def _records(
    path: str, what: str, records: Iterator[state_files.Record], rows: RowSchema
) -> DecodedFile:
    value = []
    shown = bounds.Shown("what the file holds")
    for record in records:
        shown.add(len(record.key) + len(record.value or b""))
        value.append(_record(record, rows))
    return DecodedFile(path, f"{what}, {len(value)} records", tuple(map(_line, value)), value)


def _line(record: dict[str, Any]) -> str:
    key, value = (json.dumps(record[name], ensure_ascii=False) for name in ("key", "value"))
    return f"{record['do']} {key}" + ("" if record["do"] == "delete" else f" = {value}")


def _record(record: state_files.Record, rows: RowSchema) -> dict[str, Any]:
    do = "delete" if record.value is None else "merge" if record.merge else "put"
    value = None if record.value is None else rows.show_value(record.value)
    return {"do": do, "key": rows.show_key(record.key), "value": value}


def _table(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    """Every write that the table holds, of one key the newest first: which of them count, the
    other tables tell.
    """
    value = []
    shown = bounds.Shown("what the table holds")
    for entry in sst.decode_sst(content):
        shown.add(len(entry.key) + len(entry.value))
        value.append(_write(entry, rows))
    return DecodedFile(
        path, f"RocksDB table, {len(value)} entries", tuple(map(_line, value)), value
    )


def _write(entry: sst.TableEntry, rows: RowSchema) -> dict[str, Any]:
    deleted = entry.kind in sst.DELETES
    return {
        "do": "delete" if deleted else "merge" if entry.kind == sst.MERGE else "put",
        "key": rows.show_key(entry.key),
        "sequence": entry.sequence,
        "value": None if deleted else rows.show_value(entry.value),
    }


def _hadoop_crc(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    found = crc.decode_hadoop_crc(content)
    return _told(
        path,
        "Hadoop checksums",
        {"bytes_per_chunk": found.bytes_per_chunk, "crc32c": list(found.values)},
    )


def _spark_crc(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    found = crc.decode_spark_crc(content)
    return _told(path, "Spark checksum", {"crc32c": found.value, "bytes": found.size})


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


_READERS: dict[str, Callable[[str, bytes, RowSchema], DecodedFile]] = {
    "metadata": _metadata,
    "offsets": _offsets,
    "commits": _commit,
    "sources": _source,
    "delta-schema-log": _schema_log,
    "state-metadata": _operator,
    "state-schema": _schema,
    "zip": _zip,
    "delta": _delta,
    "snapshot": _snapshot,
    "changelog": _changelog,
    "sst": _table,
}
