"""The commit log `commits/<batch>`: the batch is finished.

    v1\\n{"nextBatchWatermarkMs":1767225431000}
    v2 (4.0, state store checkpoint format 2)   + "stateUniqueIds":{"<operator>":[[<uuid per store>]
                                                per partition]}
    v3 (4.3, sink evolution)                    +
                                                "sinkMetadataMap":{<name>:{"sinkName":...,"commitOffset":...}}

Source: Spark, CommitLog and CommitMetadata. The second line may be missing in old logs, which means
`{}`; an empty one stops Spark. Further lines, and blanks around the version, mean nothing to it
(seen with 4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stateshift.errors import FormatError
from stateshift.formats.spark.text import (
    decode_object,
    decode_text,
    decode_version,
    encode_object,
    lines_of,
    number_of,
    object_of,
)

VERSIONS = (1, 2, 3)

_WHAT = "a commit log entry"


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One finished batch. `lines` is the text after the version line, as it was; the other fields
    are read from it.

    `state_ids` says per operator, partition and store which file of a version is the right one.
    """

    version: int
    lines: tuple[str, ...]
    watermark_ms: int = 0
    state_ids: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    sinks: Mapping[str, Any] = field(default_factory=dict)


def decode_commit(content: bytes) -> CommitEntry:
    split = lines_of(content)
    version = decode_version(split[0][1].strip() if split else b"", VERSIONS, _WHAT)
    start = split[1][0] if len(split) > 1 else len(content)
    lines = tuple(decode_text(line, _WHAT, offset) for offset, line in split[1:])
    if lines and not lines[0].strip():
        raise FormatError(f"{_WHAT} has an empty line where its JSON belongs", None, start)
    plain = decode_object(lines[0], _WHAT, start) if lines else {}
    ids = object_of(plain, "stateUniqueIds", _WHAT, start)
    return CommitEntry(
        version,
        lines,
        number_of(plain, "nextBatchWatermarkMs", _WHAT, start),
        {operator: _state_ids(nested, start) for operator, nested in ids.items()},
        object_of(plain, "sinkMetadataMap", _WHAT, start),
    )


def encode_commit(entry: CommitEntry) -> bytes:
    return "\n".join((f"v{entry.version}", *entry.lines)).encode("utf-8")


def with_watermark(entry: CommitEntry, watermark_ms: int) -> CommitEntry:
    """The same batch, after which events count as late from another time on."""
    if watermark_ms == entry.watermark_ms:
        return entry
    plain = decode_object(entry.lines[0], _WHAT) if entry.lines and entry.lines[0].strip() else {}
    line = encode_object({**plain, "nextBatchWatermarkMs": watermark_ms})
    return replace(entry, lines=(line,), watermark_ms=watermark_ms)


def with_state_ids(entry: CommitEntry, ids: Mapping[str, Any] | None) -> CommitEntry:
    """The same batch with other state files; without any ids, as version 1, which every Spark
    reads.
    """
    plain = decode_object(entry.lines[0], _WHAT) if entry.lines and entry.lines[0].strip() else {}
    plain.pop("stateUniqueIds", None)
    if ids is None:
        version = 1 if entry.version == 2 else entry.version
        return CommitEntry(version, (encode_object(plain),), entry.watermark_ms, {}, entry.sinks)
    found = {operator: _state_ids(nested, 0) for operator, nested in ids.items()}
    line = encode_object(
        {**plain, "stateUniqueIds": {o: [list(s) for s in found[o]] for o in found}}
    )
    return CommitEntry(max(entry.version, 2), (line,), entry.watermark_ms, found, entry.sinks)


def _state_ids(nested: Any, start: int) -> tuple[tuple[str, ...], ...]:
    right = isinstance(nested, list) and all(
        isinstance(stores, list) and all(isinstance(uuid, str) for uuid in stores)
        for stores in nested
    )
    if not right:
        raise FormatError(f"{_WHAT}: 'stateUniqueIds' is not lists of lists of ids", None, start)
    return tuple(tuple(stores) for stores in nested)
