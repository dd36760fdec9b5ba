"""The logs of files read and written, which hold absolute paths, and the files of other sources;
Delta's schema tracking log.

    sources/<i>/<n>[.compact]                    the file source: v1, then one JSON object a line
      {"path":"file:///in/f.json","timestamp":1795179852328,"batchId":0}
    <output>/_spark_metadata/<n>[.compact]       the file sink
      {"path":"file:///out/part-0.parquet","size":522,"isDir":false,"modificationTime":...,
       "action":"add"}
    sources/0/0                                  rate: v1, then the start in ms.
                                                 Kafka: 0x00, v1, {"topic":{"0":17}}

Source: Spark, CompactibleFileStreamLog, FileStreamSourceLog, FileStreamSinkLog,
RateStreamMicroBatchStream, KafkaSourceInitialOffsetWriter. A `.compact` holds everything so far and
can be large: logs are read and rewritten line by line. A rewrite replaces the path's text and
nothing else of its line.

Delta's log below a checkpoint has the schema of its table that a source reads with.

    <schemaTrackingLocation>/_schema_log_<table id>[_<tracking id>]/<n>     the last one counts
      v1
      {"tableId":…,"deltaCommitVersion":2,"dataSchemaJson":"{…}","partitionSchemaJson":"{…}",
       "sourceMetadataPath":"file:/checkpoint/sources/0","tableConfigurations":{…},"protocolJson":…}

schemaTrackingLocation lies under the checkpoint, or is the checkpoint. sourceMetadataPath is the
absolute path of the source's own folder, as Hadoop's Path prints it (nothing quoted), whether that
folder is there or not. Delta refuses to start where it is another one ("The Delta source metadata
path … is different from the one persisted").

Source: Delta 4.0, DeltaSourceMetadataTrackingLog, PersistedMetadata.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.text import (
    after_version,
    decode_object,
    decode_text,
    decode_version,
    encode_object,
    lines_of,
    number_of,
)
from stateshift.formats.spark.uris import Relocation
from stateshift.formats.stream import lines

VERSIONS = (1,)
SourceKind = Literal["file", "file-sink", "rate", "kafka", "unknown"]
WhenUnmapped = Literal["refuse", "keep"]
NO_BATCH = -1  # Spark's batch of an entry that has none

_WHAT, _INITIAL = "a log of files", "an initial offset"
# An entry as Spark writes it, in ASCII and with nothing to unescape: its folder, and its name.
_NUMBER = rb"(?:0|[1-9]\d{0,18})"
_PLAIN = re.compile(
    rb'\{"path":"([!#-\[\]-~]+)/[!#-.0-\[\]-~]*","timestamp":%b,"batchId":(%b)\}'
    % (_NUMBER, _NUMBER)
)
# Unescaped quotes end a JSON string, so this can only begin at a real key of a flat object.
_PATH = re.compile(r'"path"\s*:\s*("(?:[^"\\]|\\.)*")')

_SCHEMA = "an entry of Delta's schema log"
# Inside of the schemas, which are JSON in a string, the quotes are escaped: this finds the real key
# alone.
_METADATA_PATH = re.compile(r'(?<!\\)"sourceMetadataPath"\s*:\s*("(?:[^"\\]|\\.)*")')


class LogEntry(NamedTuple):
    """One line: the path, all fields as they were read, and where the line begins."""

    path: str
    fields: Mapping[str, object]
    offset: int


class Census(NamedTuple):
    """A log's entries, counted by folder, as the log spells it, and by batch."""

    folders: Mapping[str, int]
    batches: Mapping[int, int]


def decode_source_log(chunks: Iterable[bytes]) -> Iterator[LogEntry]:
    """Yield the entries of a file source's or a file sink's log, as they come."""
    for offset, text in _entry_lines(chunks):
        fields = decode_object(text, _WHAT, offset)
        yield LogEntry(_path_of(fields, offset), fields, offset)


def census_of(chunks: Iterable[bytes]) -> Census:
    """Return the numbers of entries by folder and batch; lines as Spark writes them stay JSON."""
    plain_folders, plain_batches = Counter[bytes](), Counter[bytes]()
    folders, batches = Counter[str](), Counter[int]()
    for offset, line in _lines(chunks):
        match = _PLAIN.fullmatch(line)
        if match is not None:
            plain_folders[match[1]] += 1
            plain_batches[match[2]] += 1
        else:
            fields = decode_object(decode_text(line, _WHAT, offset), _WHAT, offset)
            folders[_path_of(fields, offset).rsplit("/", 1)[0]] += 1
            # Spark refuses an entry without one: FileStreamSource.FileEntry, by json4s.
            if fields.get("timestamp") is None:
                raise FormatError(f"{_WHAT} has an entry without a timestamp", None, offset)
            number_of(fields, "timestamp", _WHAT, offset)
            batches[number_of(fields, "batchId", _WHAT, offset, NO_BATCH)] += 1
    for folder_bytes, count in plain_folders.items():
        folders[folder_bytes.decode("ascii")] += count
    for number, count in plain_batches.items():
        batches[int(number)] += count
    return Census(dict(folders), dict(batches))


def rewrite_source_log(
    chunks: Iterable[bytes], relocation: Relocation, unmapped: WhenUnmapped = "refuse"
) -> Iterator[bytes]:
    """Yield the log with moved paths. Others are refused, or kept if asked for."""
    ends_a_line = False

    def watched() -> Iterator[bytes]:
        nonlocal ends_a_line
        for chunk in chunks:
            if chunk:
                ends_a_line = chunk.endswith(b"\n")
            yield chunk

    yield b"v1"
    for offset, text in _entry_lines(watched()):
        yield b"\n" + _moved(text, offset, relocation, unmapped).encode("utf-8")
    if ends_a_line:
        yield b"\n"


def source_kind(content: bytes) -> SourceKind:
    """Return the kind of source (or sink) of the log that begins with these bytes."""
    if content.startswith(b"\x00"):
        return "kafka" if content[1:4] == b"v1\n" else "unknown"
    version, _, rest = content.partition(b"\n")
    if version != b"v1":
        return "unknown"
    first = rest.split(b"\n", 1)[0].strip()
    if not first:
        return "file"
    if first.removeprefix(b"-").isdigit():
        return "rate"
    if b'"path"' not in first:
        return "unknown"
    return "file-sink" if b'"action"' in first else "file"


def decode_initial_offset(content: bytes) -> str:
    """Return the initial offset of Kafka (0x00 first) or rate in `sources/<i>/0`, as text."""
    if content.startswith(b"\x00"):
        text, _ = _after_version_line(content, 1)
        return text
    text, offset = _after_version_line(content, 0)
    number = text.strip()
    # It goes to Long.parseLong as it is (RateStreamMicroBatchStream).
    if text != number and number.lstrip("+-").isdecimal():
        fact = f"{_INITIAL} has blanks beside its number, with which Spark does not start"
        raise FormatError(fact, None, offset + len(number))
    return text


def encode_kafka_initial_offset(offset: str) -> bytes:
    """Return the bytes of Kafka's initial offset: 0x00, the version line, then the JSON text."""
    return b"\x00v1\n" + offset.encode("utf-8")


def _after_version_line(content: bytes, start: int) -> tuple[str, int]:
    """Return the text after the version line at `start`, and its place."""
    version, newline, rest = content[start:].partition(b"\n")
    decode_version(version, VERSIONS, _INITIAL)
    if not newline or not rest:
        raise FormatError(f"{_INITIAL} is truncated after its version line", None, len(content))
    offset = start + len(version) + 1
    return decode_text(rest, _INITIAL, offset), offset


def _entry_lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    return ((offset, decode_text(line, _WHAT, offset)) for offset, line in _lines(chunks))


def _lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    every = _java_lines(chunks)
    _, first = next(every, (0, None))
    if first is None:
        raise FormatError(f"{_WHAT} is empty", None, 0)
    decode_version(first, VERSIONS, _WHAT)
    for offset, line in every:
        if not line.strip():
            fact = f"{_WHAT} has an empty line, which Spark cannot read as an entry"
            raise FormatError(fact, None, offset)
        yield offset, line


def _java_lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines as Java reads them (see `text`), of a log that may be long."""
    for offset, line in lines(chunks):
        if b"\r" not in line:
            yield offset, line
            continue
        for start, part in lines_of(line):
            yield offset + start, part


def _moved(text: str, offset: int, relocation: Relocation, unmapped: WhenUnmapped) -> str:
    path = _path_of(decode_object(text, _WHAT, offset), offset)
    new = relocation.new(path)
    if new is not None:
        return replace_token(text, _PATH, path, new, offset)
    if unmapped == "keep":
        return text
    fact = f"the log names {path}, which lies under no directory that moves"
    hint = "name the directory and its new place in the job's `data`"
    raise FormatError(fact, None, offset, hint=hint)


def replace_token(text: str, pattern: re.Pattern[str], old: str, new: str, offset: int) -> str:
    """Return `text` with the one JSON string that `pattern` finds changed from `old` to `new`."""
    match = pattern.search(text)
    if match is None or json.loads(match[1], strict=False) != old:
        raise FormatError("the place of the path in its line is not plain", None, offset)
    return text[: match.start(1)] + encode_object(new) + text[match.end(1) :]


def _path_of(fields: Mapping[str, object], offset: int) -> str:
    path = fields.get("path")
    if not isinstance(path, str) or not path:
        raise FormatError(f"{_WHAT} has an entry without a path", None, offset)
    return path


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
    version = decode_version(first, VERSIONS, _SCHEMA)
    if not rest:
        raise FormatError(f"{_SCHEMA} is truncated after its version line", None, len(content))
    text = decode_text(rest, _SCHEMA, start)
    plain = decode_object(text, _SCHEMA, start)
    table_id, data_schema = plain.get("tableId"), plain.get("dataSchemaJson")
    if not isinstance(table_id, str) or not isinstance(data_schema, str):
        raise FormatError(f"{_SCHEMA} names no table or no schema", None, start)
    path = plain.get("sourceMetadataPath")
    if path is not None and not isinstance(path, str):
        raise FormatError(f"{_SCHEMA}: 'sourceMetadataPath' is not a string", None, start)
    commit_version = number_of(plain, "deltaCommitVersion", _SCHEMA, start)
    return SchemaLogEntry(version, text, table_id, commit_version, data_schema, path or None)


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
        fact = f"{_SCHEMA} names {entry.source_path}, which lies under no directory that moves"
        hint = "this checkpoint was copied by hand before: move it from where it was made"
        raise FormatError(fact, None, start, hint=hint)
    text = replace_token(entry.text, _METADATA_PATH, entry.source_path, new, start)
    return decode_schema_log(f"v{entry.version}\n{text}".encode())
