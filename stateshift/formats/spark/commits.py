"""The commit log `commits/<batch>`: the batch is finished.

    v1\\n{"nextBatchWatermarkMs":1767225431000}
    v2 (4.0, state store checkpoint format 2)   + "stateUniqueIds":{"<operator>":[[<uuid per store>]
                                                per partition]}
    v3 (4.3, sink evolution)                    + "sinkMetadataMap":{<name>:
                                                {"sinkName":...,"commitOffset":...}}

Source: Spark, CommitLog and CommitMetadata. The second line may be missing in old logs, which means
`{}`; an empty one stops Spark. Further lines, and blanks around the version, mean nothing to it
(seen with 4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stateshift.errors import FormatError
from stateshift.formats.spark.text import (
    JsonObject,
    after_version,
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
_WATERMARK = "nextBatchWatermarkMs"


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One finished batch. `lines` is the text after the version line; other fields are read."""

    version: int
    lines: tuple[str, ...]
    handed_on_ms: int | None = None  # the next batch's watermark, since 2.4
    # By operator, partition and store, the right one of a version's files.
    state_ids: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    sinks: Mapping[str, object] = field(default_factory=dict)

    @property
    def watermark_ms(self) -> int:
        """The watermark that Spark takes from it: 0 where it names none."""
        return self.handed_on_ms or 0


def decode_commit(content: bytes) -> CommitEntry:
    """Read `commits/<batch>`: a line with the version, then JSON, which old logs may lack."""
    first, _, start = after_version(content)
    version = decode_version(first.strip(), VERSIONS, _WHAT)
    lines = tuple(decode_text(line, _WHAT, offset) for offset, line in lines_of(content)[1:])
    plain = _object_in(lines, start)
    ids = object_of(plain, "stateUniqueIds", _WHAT, start)
    return CommitEntry(
        version=version,
        lines=lines,
        handed_on_ms=number_of(plain, _WATERMARK, _WHAT, start) if _WATERMARK in plain else None,
        state_ids=_all_state_ids(ids, start),
        sinks=object_of(plain, "sinkMetadataMap", _WHAT, start),
    )


def encode_commit(entry: CommitEntry) -> bytes:
    """Return the file's bytes, UTF-8: the version line, then the lines as they were read."""
    return "\n".join((f"v{entry.version}", *entry.lines)).encode("utf-8")


def with_watermark(entry: CommitEntry, watermark_ms: int) -> CommitEntry:
    """Return the same batch, after which events count as late from another time on."""
    if watermark_ms == entry.watermark_ms:
        return entry
    plain = _object_in(entry.lines, 0)
    line = encode_object({**plain, _WATERMARK: watermark_ms})
    return replace(entry, lines=(line,), handed_on_ms=watermark_ms)


def with_state_ids(entry: CommitEntry, ids: Mapping[str, object] | None) -> CommitEntry:
    """Return the batch with other state files; without ids as version 1."""
    plain = _object_in(entry.lines, 0)
    plain.pop("stateUniqueIds", None)
    if ids is None:
        version = 1 if entry.version == 2 else entry.version
        return replace(entry, version=version, lines=(encode_object(plain),), state_ids={})
    state_ids = _all_state_ids(ids, 0)
    line = encode_object({**plain, "stateUniqueIds": state_ids})
    return replace(entry, version=max(entry.version, 2), lines=(line,), state_ids=state_ids)


def _object_in(lines: Sequence[str], start: int) -> JsonObject:
    """Return the object of the first line behind the version, which old logs may lack."""
    if not lines:
        return {}
    if not lines[0].strip():
        raise FormatError(f"{_WHAT} has an empty line where its JSON belongs", None, start)
    return decode_object(lines[0], _WHAT, start)


def _all_state_ids(ids: Mapping[str, object], start: int) -> dict[str, tuple[tuple[str, ...], ...]]:
    by_operator = {}
    for operator, nested in ids.items():
        if not isinstance(nested, list) or not all(map(_is_ids, nested)):
            fact = f"{_WHAT}: 'stateUniqueIds' is not lists of lists of ids"
            raise FormatError(fact, None, start)
        by_operator[operator] = tuple(map(tuple, nested))
    return by_operator


def _is_ids(stores: object) -> bool:
    return isinstance(stores, list) and all(isinstance(uuid, str) for uuid in stores)
