"""Delta's schema tracking log below a checkpoint: the schema of its table that a source reads with.

    <schemaTrackingLocation>/_schema_log_<table id>[_<tracking id>]/<n>     the last one counts
      v1
      {"tableId":…,"deltaCommitVersion":2,"dataSchemaJson":"{…}","partitionSchemaJson":"{…}",
       "sourceMetadataPath":"file:/checkpoint/sources/0","tableConfigurations":{…},"protocolJson":…}

schemaTrackingLocation lies under the checkpoint, or is the checkpoint. sourceMetadataPath is the
absolute path of the source's own folder, as Hadoop's Path prints it (nothing quoted), whether that
folder is there or not. Delta refuses to start where it is another one ("The Delta source metadata
path … is different from the one persisted").

Source: Delta 4.0, DeltaSourceMetadataTrackingLog, PersistedMetadata. A rewrite replaces the path's
text and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.formats.spark.source_log import replace_token
from stateshift.formats.spark.text import (
    after_version,
    decode_object,
    decode_text,
    decode_version,
    number_of,
)
from stateshift.formats.spark.uris import Relocation

VERSIONS = (1,)

_WHAT = "an entry of Delta's schema log"
# Inside of the schemas, which are JSON in a string, the quotes are escaped: this finds the real key
# alone.
_PATH = re.compile(r'(?<!\\)"sourceMetadataPath"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class SchemaLogEntry:
    """One entry. `text` is the JSON; other fields are read. Older ones have no `source_path`."""

    version: int
    text: str
    table_id: str
    commit_version: int
    data_schema: str
    source_path: str | None


def decode_schema_log(content: bytes) -> SchemaLogEntry:
    """Read one entry of Delta's schema log: a line with the version, then JSON."""
    first, rest, start = after_version(content)
    version = decode_version(first, VERSIONS, _WHAT)
    if not rest:
        raise FormatError(f"{_WHAT} is truncated after its version line", None, len(content))
    text = decode_text(rest, _WHAT, start)
    plain = decode_object(text, _WHAT, start)
    table_id, data_schema = plain.get("tableId"), plain.get("dataSchemaJson")
    if not isinstance(table_id, str) or not isinstance(data_schema, str):
        raise FormatError(f"{_WHAT} names no table or no schema", None, start)
    path = plain.get("sourceMetadataPath")
    if path is not None and not isinstance(path, str):
        raise FormatError(f"{_WHAT}: 'sourceMetadataPath' is not a string", None, start)
    return SchemaLogEntry(
        version=version,
        text=text,
        table_id=table_id,
        commit_version=number_of(plain, "deltaCommitVersion", _WHAT, start),
        data_schema=data_schema,
        source_path=path or None,
    )


def encode_schema_log(entry: SchemaLogEntry) -> bytes:
    """Return the entry's bytes, UTF-8: the version line, then the JSON text as it is."""
    return f"v{entry.version}\n{entry.text}".encode()


def relocate_schema_log(entry: SchemaLogEntry, relocation: Relocation) -> SchemaLogEntry:
    """Return the same entry with its source's path moved; every other byte stays."""
    if entry.source_path is None:
        return entry
    new = relocation.new(entry.source_path)
    start = len(f"v{entry.version}") + 1
    if new is None:
        fact = f"{_WHAT} names {entry.source_path}, which lies under no directory that moves"
        hint = "this checkpoint was copied by hand before: move it from where it was made"
        raise FormatError(fact, None, start, hint=hint)
    text = replace_token(entry.text, _PATH, entry.source_path, new, start)
    return decode_schema_log(f"v{entry.version}\n{text}".encode())
