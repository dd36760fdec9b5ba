"""The logs of files read and written, which hold absolute paths, and what other sources keep beside
them.

    sources/<i>/<n>[.compact]                    the file source: v1, then one JSON object a line
      {"path":"file:///in/f.json","timestamp":1795179852328,"batchId":0}
    <output>/_spark_metadata/<n>[.compact]       the file sink
      {"path":"file:///out/part-0.parquet","size":522,"isDir":false,"modificationTime":...,"action":"add"}
    sources/0/0                                  rate: v1, then the start in ms.  Kafka: 0x00, v1, {"topic":{"0":17}}

Source: Spark, CompactibleFileStreamLog, FileStreamSourceLog, FileStreamSinkLog,
RateStreamMicroBatchStream, KafkaSourceInitialOffsetWriter. A `.compact` holds everything so far and
can be large: logs are read and rewritten line by line. A rewrite replaces the path's text and
nothing else of its line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.text import (
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
NO_BATCH = -1  # what Spark takes an entry's batch for that has none

_WHAT = "a log of files"
# An entry as Spark writes it, in ASCII and with nothing to unescape: its folder, and its name.
_NUMBER = rb"(?:0|[1-9]\d{0,18})"
_PLAIN = re.compile(
    rb'\{"path":"([!#-\[\]-~]+)/[!#-.0-\[\]-~]*","timestamp":%b,"batchId":(%b)\}'
    % (_NUMBER, _NUMBER)
)
# Unescaped quotes end a JSON string, so this can only begin at a real key of a flat object.
_PATH = re.compile(r'"path"\s*:\s*("(?:[^"\\]|\\.)*")')


class LogEntry(NamedTuple):
    """One line: the path, all fields as they were read, and where the line begins."""

    path: str
    fields: Mapping[str, Any]
    offset: int


class Census(NamedTuple):
    """The entries of a log, counted: by folder, as the log spells it, and by the batch that read
    them.
    """

    folders: Mapping[str, int]
    batches: Mapping[int, int]


def decode_source_log(chunks: Iterable[bytes]) -> Iterator[LogEntry]:
    """The entries of a file source's or a file sink's log, as they come."""
    for offset, text in _entry_lines(chunks):
        fields = decode_object(text, _WHAT, offset)
        yield LogEntry(_path_of(fields, offset), fields, offset)


def census_of(chunks: Iterable[bytes]) -> Census:
    """How many entries lie in each folder, and how many are of each batch. A compaction may hold
    millions: what is written as Spark writes it, with nothing to unescape, is not decoded further.
    """
    plain, folders, batches = Counter[bytes](), Counter[str](), Counter[bytes | int]()
    for offset, line in _lines(chunks):
        match = _PLAIN.fullmatch(line)
        if match is not None:
            plain[match[1]] += 1
            batches[match[2]] += 1
        else:
            fields = decode_object(decode_text(line, _WHAT, offset), _WHAT, offset)
            folders[_path_of(fields, offset).rsplit("/", 1)[0]] += 1
            _require_timestamp(fields, offset)
            batches[number_of(fields, "batchId", _WHAT, offset, NO_BATCH)] += 1
    folders += Counter({folder.decode("ascii"): count for folder, count in plain.items()})
    by_number = Counter[int]()
    for batch, count in batches.items():
        by_number[int(batch)] += count
    return Census(dict(folders), dict(by_number))


def rewrite_source_log(
    chunks: Iterable[bytes], relocation: Relocation, unmapped: WhenUnmapped = "refuse"
) -> Iterator[bytes]:
    """The same log with its paths moved. A path under no prefix is refused, or kept where that
    is asked for.
    """
    ends_a_line = False

    def watched() -> Iterator[bytes]:
        nonlocal ends_a_line
        for chunk in chunks:
            ends_a_line = chunk.endswith(b"\n") if chunk else ends_a_line
            yield chunk

    yield b"v1"
    for offset, text in _entry_lines(watched()):
        yield b"\n" + _moved(text, offset, relocation, unmapped).encode("utf-8")
    if ends_a_line:
        yield b"\n"


def source_kind(content: bytes) -> SourceKind:
    """What kind of source (or sink) wrote the log that begins with these bytes."""
    if content[:1] == b"\x00":
        return "kafka" if content[1:4] == b"v1\n" else "unknown"
    version, _, rest = content.partition(b"\n")
    if version != b"v1":
        return "unknown"
    first = rest.split(b"\n", 1)[0].strip()
    if first.isdigit() or (first[:1] == b"-" and first[1:].isdigit()):
        return "rate"
    if b'"path"' not in first:
        return "file" if not first else "unknown"
    return "file-sink" if b'"action"' in first else "file"


def decode_initial_offset(content: bytes) -> str:
    """The initial offset that Kafka (0x00 first) or rate keeps in `sources/<i>/0`, as its text."""
    start = 1 if content[:1] == b"\x00" else 0
    version, newline, rest = content[start:].partition(b"\n")
    decode_version(version, VERSIONS, "an initial offset")
    if not newline or not rest:
        raise FormatError("an initial offset ends after its version line", None, len(content))
    offset = start + len(version) + 1
    text = decode_text(rest, "an initial offset", offset)
    number = text.strip()
    if start == 0 and text != number and number.lstrip("+-").isdecimal():
        # RateStreamMicroBatchStream hands everything behind the version line to Java's
        # Long.parseLong.
        fact = "an initial offset has blanks beside its number, with which Spark does not start"
        raise FormatError(fact, None, offset + len(number))
    return text


def _entry_lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    return ((offset, decode_text(line, _WHAT, offset)) for offset, line in _lines(chunks))


def _lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Every line after the version line."""
    first = True
    for offset, line in _java_lines(chunks):
        if first:
            decode_version(line, VERSIONS, _WHAT)
            first = False
        elif line.strip():
            yield offset, line
        else:
            raise FormatError(
                f"{_WHAT} has an empty line, which Spark cannot read as an entry", None, offset
            )
    if first:
        raise FormatError(f"{_WHAT} is empty", None, 0)


def _java_lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines as Java reads them (see `text`), of a log that may be long."""
    for offset, line in lines(chunks):
        if b"\r" not in line:
            yield offset, line
            continue
        for start, part in lines_of(line):
            yield offset + start, part


def _moved(text: str, offset: int, relocation: Relocation, unmapped: WhenUnmapped) -> str:
    path = _path_of(decode_object(text, _WHAT, offset), offset)
    new = relocation.new(path)
    if new is None:
        if unmapped == "keep":
            return text
        raise FormatError(
            f"the log names {path}, which lies under no directory that moves",
            None,
            offset,
            hint="name the directory and its new place in the job's `data`",
        )
    return replace_token(text, _PATH, path, new, offset)


def replace_token(text: str, pattern: re.Pattern[str], old: str, new: str, offset: int) -> str:
    """`text` with the one JSON string that `pattern` finds, which must say `old`, saying `new`."""
    found = pattern.search(text)
    if found is None or json.loads(found[1], strict=False) != old:
        raise FormatError("the place of the path in its line is not plain", None, offset)
    return text[: found.start(1)] + encode_object(new) + text[found.end(1) :]


def _require_timestamp(fields: dict[str, Any], offset: int) -> None:
    """Spark reads no entry without one: FileStreamSource.FileEntry, by json4s."""
    if fields.get("timestamp") is None:
        raise FormatError(f"{_WHAT} has an entry without a timestamp", None, offset)
    number_of(fields, "timestamp", _WHAT, offset)


def _path_of(fields: Mapping[str, Any], offset: int) -> str:
    path = fields.get("path")
    if not isinstance(path, str) or not path:
        raise FormatError(f"{_WHAT} has an entry without a path", None, offset)
    return path
