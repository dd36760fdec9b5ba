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

from stateshift.engines.spark.entries.store_view import RowSchema
from stateshift.engines.spark.layout import SINK_LOG
from stateshift.engines.spark.small_files import json_or_text
from stateshift.engines.views import DecodedFile
from stateshift.errors import FormatError
from stateshift.formats import bounds, marks
from stateshift.formats.rocksdb import table as sst
from stateshift.formats.spark import (
    commits,
    crc,
    metadata,
    offsets,
    operator_metadata,
    rocksdb,
    schema,
    source_log,
    state_files,
)
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.text import JsonObject, decode_object, decode_text
from stateshift.sources.kinds import of_spark

# The kind of a file, its lines as a person reads them, and its value in plain JSON.
Shown = tuple[str, tuple[str, ...], object]
Reader = Callable[[bytes, RowSchema], Shown]


def decode_file(path: str, content: bytes, rows: RowSchema | None = None) -> DecodedFile:
    """Return the decoded file at `path`; `rows` tells how state is read."""
    owner = marks.fence_owner(content)
    if owner is not None:
        return DecodedFile(path, "fence", (f"fenced by run {owner}",), {"fenced_by": owner}, False)
    reader = _reader_of(path, content)
    shown = reader(content, rows or RowSchema())
    is_text = isinstance(shown[2], str)  # of a source that nobody knows
    return DecodedFile(path, *shown, holds_data=is_text or reader in _OF_STATE)


def _reader_of(path: str, content: bytes) -> Reader:
    """Return the reader of a file of an area of the checkpoint, or of a state file of a kind."""
    if path.endswith(marks.INDEX):
        return lambda content, _: _document("index of operators", marks.decode_index(content))
    if f"{SINK_LOG}/" in path and not path.endswith(".crc"):
        return lambda content, _: _log("file sink log", content)
    place = classify(inside(path))
    # Iceberg keeps what a source has begun with as plain JSON in sources/<i>/offsets/0. A whole
    # checkpoint may lie in a folder of that name; its offsets begin with their version.
    is_of_source = path.split("/")[-4:-3] == ["sources"] and content[:1] == b"{"
    if place.area == "offsets" and is_of_source:
        return lambda content, _: _json_source(content)
    kind = place.kind if place.area in ("state", "sidecar") else place.area
    reader = _READERS.get(kind or "")
    if reader is None:
        hint = (
            "decoded are metadata, offsets, commits, sources, operator metadata, schemas, "
            "deltas, snapshots, changelogs, tables, zips, checksums and Delta's schema logs, each "
            "under the name that its writer gives it"
        )
        raise FormatError("not a file of a checkpoint that stateshift knows", path, 0, hint=hint)
    return reader


def check_file(path: str, chunks: Iterable[bytes]) -> None:
    """Read a file to its end, a long log line by line; FormatError where it is wrong."""
    more = iter(chunks)
    first = next(more, b"")
    rest = chain((first,), more)
    is_of_source = classify(inside(path)).area == "sources"
    if is_of_source and source_log.source_kind(first) in ("file", "file-sink"):
        deque(source_log.decode_source_log(rest), maxlen=0)
    else:
        decode_file(path, bounds.gather(rest, path))


def schema_path(path: str) -> str | None:
    """Return the path of the schema of the state file at `path`: under shard 0."""
    within = inside(path)
    place = classify(within)
    if place.area != "state" or place.operator is None:
        return None
    store = "" if place.store == "default" else f"{place.store}/"
    return f"{path.removesuffix(within)}state/{place.operator}/0/{store}_metadata/schema"


def inside(path: str) -> str:
    """Return a location's part inside its checkpoint: the shortest end with a name of Spark's."""
    parts = path.split("/")
    for start in range(len(parts) - 1, -1, -1):
        tail = "/".join(parts[start:])
        if classify(tail).area not in ("other", "metadata"):
            return tail
    return parts[-1]


def _document(what: str, value: object) -> Shown:
    lines = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    return what, tuple(lines), value


def _log(what: str, content: bytes) -> Shown:
    entries = [dict(entry.fields) for entry in source_log.decode_source_log((content,))]
    return what, tuple(json.dumps(entry, ensure_ascii=False) for entry in entries), entries


def _offsets(content: bytes, rows: RowSchema) -> Shown:
    entry = offsets.decode_offsets(content)
    value = {
        "version": entry.version,
        "batch_watermark_ms": entry.watermark_ms,
        "batch_timestamp_ms": entry.timestamp_ms,
        "sources": {source.source: json_or_text(source.offset) for source in entry.offsets},
        "conf": dict(entry.conf),
    }
    return _document(f"offset log v{entry.version}", value)


def _commit(content: bytes, rows: RowSchema) -> Shown:
    entry = commits.decode_commit(content)
    value = {
        "version": entry.version,
        "next_batch_watermark_ms": entry.watermark_ms,
        "state_unique_ids": {op: list(map(list, ids)) for op, ids in entry.state_ids.items()},
        "sinks": dict(entry.sinks),
    }
    return _document(f"commit log v{entry.version}", value)


def _source(content: bytes, rows: RowSchema) -> Shown:
    match source_log.source_kind(content):
        case "file" | "file-sink":
            return _log("file source log", content)
        case "rate":
            offset = json_or_text(source_log.decode_initial_offset(content))
            return _document("rate source, initial offset", offset)
        case "kafka":
            return _initial_offset(json_or_text(source_log.decode_initial_offset(content)))
    # Nothing says that it has to be JSON: a source that we do not know may write whatever it likes.
    if content[:1] == b"{":
        with suppress(FormatError):
            return _json_source(content)
    text = content.decode("utf-8", "replace")
    return "source log of a kind we do not know", tuple(text.splitlines()), text


def _json_source(content: bytes) -> Shown:
    text = decode_text(content, "an initial offset")
    return _initial_offset(decode_object(text, "an initial offset"))


def _initial_offset(offset: object) -> Shown:
    return _document(f"{of_spark(offset, True).kind.name} source, initial offset", offset)


def _schema_log(content: bytes, rows: RowSchema) -> Shown:
    entry = source_log.decode_schema_log(content)
    value = {
        "table_id": entry.table_id,
        "commit_version": entry.commit_version,
        "source_path": entry.source_path,
        "schema": json_or_text(entry.data_schema),
    }
    return _document(f"Delta schema log v{entry.version}", value)


def _operator(content: bytes, rows: RowSchema) -> Shown:
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
    return _document(f"operator metadata v{operator.version}", value)


def _schema(content: bytes, rows: RowSchema) -> Shown:
    file = schema.decode_schema(content)
    stores = []
    for store in file.stores:
        stores.append(
            {"name": store.name, "key": json_or_text(store.key), "value": json_or_text(store.value)}
        )
    return _document(f"state schema v{file.version}", stores)


def _zip(content: bytes, rows: RowSchema) -> Shown:
    snapshot = rocksdb.decode_zip(content)
    tables = [
        {"name": table.stored, "local_name": table.local, "bytes": table.size}
        for table in snapshot.tables
    ]
    families = dict(snapshot.families)
    value = {"keys": snapshot.keys, "column_families": families, "tables": tables}
    return _document("RocksDB snapshot", value)


def _changelog(content: bytes, rows: RowSchema) -> Shown:
    head, records = state_files.decode_changelog((content,))
    return _records(f"RocksDB changelog v{head.version}", records, rows)


def _records(what: str, records: Iterator[state_files.StateRecord], rows: RowSchema) -> Shown:
    value = []
    shown = bounds.Shown("what the file holds")
    for key, content, merge in records:
        shown.add(len(key) + len(content or b""))
        record: JsonObject = {"do": "delete", "key": rows.show_key(key), "value": None}
        if content is not None:
            record["do"] = "merge" if merge else "put"
            record["value"] = rows.show_value(content)
        value.append(record)
    return f"{what}, {len(value)} records", tuple(map(_line, value)), value


def _table(content: bytes, rows: RowSchema) -> Shown:
    """Return every write in the table, of one key the newest first."""
    value = []
    shown = bounds.Shown("what the table holds")
    for entry in sst.decode_sst(content):
        shown.add(len(entry.key) + len(entry.value))
        key, sequence = rows.show_key(entry.key), entry.sequence
        write: JsonObject = {"do": "delete", "key": key, "sequence": sequence, "value": None}
        if entry.kind not in sst.DELETES:
            write["do"] = "merge" if entry.kind == sst.MERGE else "put"
            write["value"] = rows.show_value(entry.value)
        value.append(write)
    return f"RocksDB table, {len(value)} entries", tuple(map(_line, value)), value


def _line(record: JsonObject) -> str:
    key = json.dumps(record["key"], ensure_ascii=False)
    if record["do"] == "delete":
        return f"delete {key}"
    value = json.dumps(record["value"], ensure_ascii=False)
    return f"{record['do']} {key} = {value}"


def _hadoop_crc(content: bytes, rows: RowSchema) -> Shown:
    checksums = crc.decode_hadoop_crc(content)
    value = {"bytes_per_chunk": checksums.bytes_per_chunk, "crc32c": list(checksums.values)}
    return _document("Hadoop checksums", value)


def _spark_crc(content: bytes, rows: RowSchema) -> Shown:
    checksum = crc.decode_spark_crc(content)
    return _document("Spark checksum", {"crc32c": checksum.value, "bytes": checksum.size})


_READERS: dict[str, Reader] = {
    "metadata": lambda content, _: _document(
        "query metadata", {"id": metadata.decode_metadata(content).id}
    ),
    "offsets": _offsets,
    "commits": _commit,
    "sources": _source,
    "delta-schema-log": _schema_log,
    "state-metadata": _operator,
    "state-schema": _schema,
    "zip": _zip,
    "delta": lambda content, rows: _records(
        "changes of one version", state_files.decode_delta((content,)), rows
    ),
    "snapshot": lambda content, rows: _records(
        "snapshot", state_files.decode_snapshot((content,)), rows
    ),
    "changelog": _changelog,
    "sst": _table,
    "hadoop-crc": _hadoop_crc,
    "checksum": _spark_crc,
}
_OF_STATE = tuple(_READERS[kind] for kind in ("delta", "snapshot", "changelog", "sst"))
