"""A single file of a checkpoint, decoded into something a person can read. Pure: the person at
three in the morning sees the bytes that we see.

The path of a file tells its kind: the names Spark gives are its only type information.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain

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
from stateshift.formats.spark.text import JsonObject, decode_object, decode_text

Reader = Callable[[str, bytes, RowSchema], DecodedFile]


def decode_file(path: str, content: bytes, rows: RowSchema | None = None) -> DecodedFile:
    """Return the file at `path` decoded (any location: its last names say what it is), with `rows`
    to read state by.
    """
    owner = marks.fence_owner(content)
    if owner is not None:
        return DecodedFile(path, "fence", (f"fenced by run {owner}",), {"fenced_by": owner})
    return _reader_of(path, content)(path, content, rows or RowSchema())


def _reader_of(path: str, content: bytes) -> Reader:
    """Return the reader of a file of an area of the checkpoint, or of a state file of a kind."""
    if path.endswith(marks.INDEX):
        return _index
    if f"{SINK_LOG}/" in path and not path.endswith(".crc"):
        return _sink_log
    place = classify(inside(path))
    if place.area == "offsets" and _is_of_source(path, content):
        return _json_source
    kind = place.kind if place.area in ("state", "sidecar") else place.area
    reader = _READERS.get(kind or "")
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
    return reader


def check_file(path: str, chunks: Iterable[bytes]) -> None:
    """Read a file to its end; FormatError where it is wrong. A log of files is read line by
    line: it may be long.
    """
    first, rest = _first(chunks)
    is_of_source = classify(inside(path)).area == "sources"
    if is_of_source and source_log.source_kind(first) in ("file", "file-sink"):
        deque(source_log.decode_source_log(rest), maxlen=0)
    else:
        decode_file(path, bounds.gather(rest, path))


def _first(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first chunk, and all of them."""
    more = iter(chunks)
    first = next(more, b"")
    return first, chain((first,), more)


def schema_path(path: str) -> str | None:
    """Return the path of the schema by which the state file at `path` is read: under shard 0 of its
    operator.
    """
    within = inside(path)
    place = classify(within)
    if place.area != "state" or place.operator is None:
        return None
    store = "" if place.store == "default" else f"{place.store}/"
    return f"{path.removesuffix(within)}state/{place.operator}/0/{store}_metadata/schema"


def inside(path: str) -> str:
    """Return the part of a location that lies inside its checkpoint: the shortest end of it that
    is a name Spark gives.
    """
    parts = path.split("/")
    for start in range(len(parts) - 1, -1, -1):
        tail = "/".join(parts[start:])
        if classify(tail).area not in ("other", "metadata"):
            return tail
    return parts[-1]


def _is_of_source(path: str, content: bytes) -> bool:
    """Whether this is what a source has begun with: Iceberg keeps that as plain JSON in
    sources/<i>/offsets/0. A whole checkpoint may lie in a folder of that name; its offsets begin
    with their version.
    """
    return path.split("/")[-4:-3] == ["sources"] and content[:1] == b"{"


def _decoded(path: str, what: str, value: object) -> DecodedFile:
    lines = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    return DecodedFile(path, what, tuple(lines), value)


def _index(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _decoded(path, "index of operators", marks.decode_index(content))


def _sink_log(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _log(path, "file sink log", content)


def _metadata(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _decoded(path, "query metadata", {"id": metadata.decode_metadata(content).id})


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
    return _decoded(path, f"offset log v{entry.version}", value)


def _commit(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    entry = commits.decode_commit(content)
    value = {
        "version": entry.version,
        "next_batch_watermark_ms": entry.watermark_ms,
        "state_unique_ids": {op: list(map(list, ids)) for op, ids in entry.state_ids.items()},
        "sinks": dict(entry.sinks),
    }
    return _decoded(path, f"commit log v{entry.version}", value)


def _source(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    read = _SOURCES.get(source_log.source_kind(content), _other_source)
    return read(path, content, rows)


def _file_source(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _log(path, "file source log", content)


def _rate_source(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    offset = _json(source_log.decode_initial_offset(content))
    return _decoded(path, "rate source, initial offset", offset)


def _broker_source(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    return _initial_offset(path, _json(source_log.decode_initial_offset(content)))


def _json_source(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    text = decode_text(content, "an initial offset")
    return _initial_offset(path, decode_object(text, "an initial offset"))


def _other_source(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    """Return an initial offset where this is a JSON object. Nothing says that it has to be one: a
    source that we do not know may write whatever it likes.
    """
    if content[:1] == b"{":
        with suppress(FormatError):
            return _json_source(path, content, rows)
    text = content.decode("utf-8", "replace")
    return DecodedFile(path, "source log of a kind we do not know", tuple(text.splitlines()), text)


_SOURCES: dict[str, Reader] = {
    "file": _file_source,
    "file-sink": _file_source,
    "rate": _rate_source,
    "kafka": _broker_source,
}


def _initial_offset(path: str, offset: object) -> DecodedFile:
    return _decoded(path, f"{position_of(offset, True).kind} source, initial offset", offset)


def _log(path: str, what: str, content: bytes) -> DecodedFile:
    entries = [dict(entry.fields) for entry in source_log.decode_source_log((content,))]
    lines = tuple(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return DecodedFile(path, what, lines, entries)


def _schema_log(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    entry = delta_schema_log.decode_schema_log(content)
    value = {
        "table_id": entry.table_id,
        "commit_version": entry.commit_version,
        "source_path": entry.source_path,
        "schema": _json(entry.data_schema),
    }
    return _decoded(path, f"Delta schema log v{entry.version}", value)


def _operator(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    operator = operator_metadata.decode_operator_metadata(content)
    stores = []
    for store in operator.stores:
        paths = list(store.schema_paths)
        stores.append({"name": store.name, "partitions": store.partitions, "schema_paths": paths})
    value = {
        "operator": operator.operator,
        "name": operator.name,
        "stores": stores,
        "properties": dict(operator.properties),
    }
    return _decoded(path, f"operator metadata v{operator.version}", value)


def _schema(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    file = schema.decode_schema(content)
    stores = []
    for store in file.stores:
        stores.append({"name": store.name, "key": _json(store.key), "value": _json(store.value)})
    return _decoded(path, f"state schema v{file.version}", stores)


def _zip(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    snapshot = rocksdb.decode_zip(content)
    tables = [
        {"name": table.stored, "local_name": table.local, "bytes": table.size}
        for table in snapshot.tables
    ]
    families = dict(snapshot.families)
    value = {"keys": snapshot.keys, "column_families": families, "tables": tables}
    return _decoded(path, "RocksDB snapshot", value)


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


def _line(record: JsonObject) -> str:
    key = json.dumps(record["key"], ensure_ascii=False)
    if record["do"] == "delete":
        return f"delete {key}"
    value = json.dumps(record["value"], ensure_ascii=False)
    return f"{record['do']} {key} = {value}"


def _record(record: state_files.Record, rows: RowSchema) -> JsonObject:
    key = rows.show_key(record.key)
    if record.value is None:
        return {"do": "delete", "key": key, "value": None}
    do = "merge" if record.merge else "put"
    return {"do": do, "key": key, "value": rows.show_value(record.value)}


def _table(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    """Return every write that the table holds, of one key the newest first: which of them count,
    the other tables say.
    """
    value = []
    shown = bounds.Shown("what the table holds")
    for entry in sst.decode_sst(content):
        shown.add(len(entry.key) + len(entry.value))
        value.append(_write(entry, rows))
    lines = tuple(map(_line, value))
    return DecodedFile(path, f"RocksDB table, {len(value)} entries", lines, value)


def _write(entry: sst.TableEntry, rows: RowSchema) -> JsonObject:
    key, sequence = rows.show_key(entry.key), entry.sequence
    if entry.kind in sst.DELETES:
        return {"do": "delete", "key": key, "sequence": sequence, "value": None}
    do = "merge" if entry.kind == sst.MERGE else "put"
    return {"do": do, "key": key, "sequence": sequence, "value": rows.show_value(entry.value)}


def _hadoop_crc(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    checksums = crc.decode_hadoop_crc(content)
    value = {"bytes_per_chunk": checksums.bytes_per_chunk, "crc32c": list(checksums.values)}
    return _decoded(path, "Hadoop checksums", value)


def _spark_crc(path: str, content: bytes, rows: RowSchema) -> DecodedFile:
    checksum = crc.decode_spark_crc(content)
    return _decoded(path, "Spark checksum", {"crc32c": checksum.value, "bytes": checksum.size})


def _json(text: str | None) -> object:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_READERS: dict[str, Reader] = {
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
    "hadoop-crc": _hadoop_crc,
    "checksum": _spark_crc,
}
