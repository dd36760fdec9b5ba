"""How Spark reads the lines of its text logs, and how we do: an editor's newline, another system's
line ends, blank lines. What Spark does was seen with 4.3.0, log by log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.commits import decode_commit
from stateshift.formats.spark.metadata import decode_metadata
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.operator_metadata import decode_operator_metadata
from stateshift.formats.spark.source_log import (
    census_of,
    decode_initial_offset,
    decode_schema_log,
    decode_source_log,
    rewrite_source_log,
)
from stateshift.formats.spark.uris import Relocation

OFFSETS = b'v1\n{"batchWatermarkMs":7,"conf":{"a":"b"}}\n{"logOffset":3}\n-'
OFFSETS_2 = b'v2\n{"batchWatermarkMs":7}\n0:{"logOffset":3}\n1:-'
COMMIT = b'v1\n{"nextBatchWatermarkMs":5}'
OPERATOR = (
    b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},"stateStoreInfo":'
    b'[{"storeName":"default","numColsPrefixKey":0,"numPartitions":5}]}'
)
SOURCE = b'v1\n{"path":"file:/a/b","timestamp":1,"batchId":0}\n{"path":"file:/a/c","timestamp":1,"batchId":0}'
DELTA = b'v1\n{"tableId":"t","deltaCommitVersion":1,"dataSchemaJson":"{}","sourceMetadataPath":"file:/a"}'
METADATA = b'{"id":"3f9f2b1e-0000-4000-8000-00000000abcd"}'


def _entries(content: bytes) -> list[dict[str, Any]]:
    """Read byte by byte, so that no line end is seen in one piece."""
    chunks = [content[i : i + 1] for i in range(len(content))]
    entries = [dict(entry.fields) for entry in decode_source_log(chunks)]
    assert sum(census_of(chunks).batches.values()) == len(entries)
    return entries


def _without_text(decoded: Any) -> Any:
    """What a log says, without how it is written."""
    plain = {name: getattr(decoded, name) for name in decoded.__slots__}
    return {
        name: value for name, value in plain.items() if name not in ("text", "trailing", "lines")
    }


def _fields(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    return lambda content: _without_text(decode(content))


LOGS = {
    "offsets": (OFFSETS, _fields(decode_offsets)),
    "offsets v2": (OFFSETS_2, _fields(decode_offsets)),
    "commit": (COMMIT, _fields(decode_commit)),
    "operator metadata": (OPERATOR, _fields(decode_operator_metadata)),
    "source": (SOURCE, _entries),
    "Delta's schemas": (DELTA, _fields(decode_schema_log)),
    "metadata": (METADATA, _fields(decode_metadata)),
}

HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "a newline at the end": lambda log: log + b"\n",
    "a carriage return at the end": lambda log: log + b"\r",
    "Windows' line ends": lambda log: log.replace(b"\n", b"\r\n"),
    "Windows' line ends, and one at the end": lambda log: log.replace(b"\n", b"\r\n") + b"\r\n",
    "a Mac's line ends": lambda log: log.replace(b"\n", b"\r"),
    "a version with a zero before it": lambda log: (
        log.replace(b"v", b"v0", 1) if log[:1] == b"v" else log
    ),
}


@pytest.mark.parametrize("edit", HARMLESS)
@pytest.mark.parametrize("log", LOGS)
def test_what_spark_reads_as_before_is_read_as_before(log: str, edit: str) -> None:
    content, decode = LOGS[log]
    assert decode(HARMLESS[edit](content)) == decode(content)


def test_a_newline_ends_the_last_source_s_line_and_is_no_source_of_its_own() -> None:
    entry = decode_offsets(OFFSETS + b"\n")
    assert [source.offset for source in entry.offsets] == ['{"logOffset":3}', None]


REFUSED = {
    "two newlines at the end of offsets": (OFFSETS + b"\n\n", decode_offsets),
    "a blank line at the end of offsets": (OFFSETS + b"\n  ", decode_offsets),
    "a blank line in offsets": (OFFSETS.replace(b"\n-", b"\n\n-"), decode_offsets),
    "a blank line before offsets": (b"\n" + OFFSETS, decode_offsets),
    "blanks behind the version of offsets": (OFFSETS.replace(b"v1", b"v1 "), decode_offsets),
    "offsets of no source": (b"v1\n{}\n", decode_offsets),
    "a blank line in a commit": (COMMIT.replace(b"\n", b"\n\n"), decode_commit),
    "two newlines at the end of a source's log": (SOURCE + b"\n\n", _entries),
    "two Windows' line ends at its end": (SOURCE + b"\r\n\r\n", _entries),
    "a blank line in it": (b"\n\n".join(SOURCE.rsplit(b"\n", 1)), _entries),
    "a line of blanks in it": (b"\n \n".join(SOURCE.rsplit(b"\n", 1)), _entries),
    "a carriage return inside an entry": (
        SOURCE.replace(b',"timestamp"', b',\r"timestamp"', 1),
        _entries,
    ),
}


def test_a_newline_behind_the_start_of_the_rate_source_stops_spark() -> None:
    assert decode_initial_offset(b"v1\n1795621651802") == "1795621651802"
    with pytest.raises(FormatError):
        decode_initial_offset(b"v1\n1795621651802\n")


@pytest.mark.parametrize("case", REFUSED)
def test_what_stops_spark_is_refused(case: str) -> None:
    content, decode = REFUSED[case]
    with pytest.raises(FormatError):
        decode(content)


@pytest.mark.parametrize(
    "content", [COMMIT + b"\n\n", COMMIT + b"\nmore", b"v1 \n{}", b"v1", b"v1\n", b"v1\r\n"]
)
def test_spark_reads_two_lines_of_a_commit_and_no_more(content: bytes) -> None:
    watermark = 5 if b"5" in content else 0
    assert decode_commit(content).watermark_ms == watermark


def test_a_log_of_files_with_windows_line_ends_is_rewritten_line_by_line() -> None:
    windows = SOURCE.replace(b"\n", b"\r\n")
    moved = b"".join(rewrite_source_log([windows], Relocation({"file:/a": "file:/z"})))
    assert moved == SOURCE.replace(b"file:/a", b"file:/z")
