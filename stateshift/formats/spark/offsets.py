"""The offset log `offsets/<batch>`: the ends of a batch's reading, written before it runs.

    v1                                           UTF-8, \\n between lines, none at the end
    {"batchWatermarkMs":0,"batchTimestampMs":1795179852328,"conf":{...}}
                                                 may be empty (Spark 2.0)
    {"logOffset":3}                              one line a source, in plan order
    -                                            a source without an offset yet

    v2 (4.2 and later, source evolution)  the same, but a source's line is <name>:<offset>, split at
                                          the first colon; with "sourceMetadataInfo":{} behind conf

Source: Spark, OffsetSeqLog and OffsetSeqMetadata; `-` is OffsetSeqLog.SERIALIZED_VOID_OFFSET. Spark
4.3 gives no names to a checkpoint that has none (CANNOT_ENABLE_ON_EXISTING_CHECKPOINT).
`conf` overrides the session's on a restart, `spark.sql.shuffle.partitions` in it is the number of
state partitions. Unchanged lines are written back byte for byte, but for a newline at the end. An
empty line between or behind the others is one source more to Spark, which then does not start
("There are [2] sources in the checkpoint offsets and now there are [1] sources requested by the
query").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.errors import FormatError
from stateshift.formats.spark.offset_conf import fault_of_conf
from stateshift.formats.spark.text import (
    after_version,
    decode_object,
    decode_text,
    decode_version,
    encode_object,
    lines_of,
    number_of,
    object_of,
)

VERSIONS = (1, 2)
VOID = "-"
PARTITIONS = "spark.sql.shuffle.partitions"
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

_WHAT = "an offset log entry"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """`source` is its position as a string, or in v2 its name; `offset` None: none yet."""

    source: str
    offset: str | None


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One planned batch. `header` and `lines` are the text; the other fields are read from it."""

    version: int
    header: str
    lines: tuple[str, ...]
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]

    @property
    def offsets(self) -> tuple[SourceOffset, ...]:
        offsets = []
        for index, line in enumerate(self.lines):
            source, offset = str(index), line
            if self.version >= 2:
                source, offset = line.split(":", 1)
            offsets.append(SourceOffset(source, None if offset == VOID else offset))
        return tuple(offsets)


def decode_offsets(content: bytes) -> OffsetEntry:
    """Read `offsets/<batch>`: the version, the batch's JSON, a source a line."""
    first, _, _ = after_version(content)
    version = decode_version(first, VERSIONS, _WHAT)
    lines = lines_of(content)
    if len(lines) < 2:
        raise FormatError(f"{_WHAT} is truncated after its version line", None, len(content))
    start, line = lines[1]
    header = decode_text(line, _WHAT, start)
    sources = [_decode_source(line, version, offset) for offset, line in lines[2:]]
    if not sources:
        raise FormatError(f"{_WHAT} names no source", None, len(content))
    plain = decode_object(header, _WHAT, start) if header.strip() else {}
    conf: dict[str, str] = {}
    for key, value in object_of(plain, "conf", _WHAT, start).items():
        if not isinstance(value, str):
            raise FormatError(f"{_WHAT}: a value in 'conf' is not a string", None, start)
        conf[key] = value
    fault = fault_of_conf(conf)
    if fault is not None:
        raise FormatError(f"{_WHAT}: {fault}", None, start)
    watermark_ms = number_of(plain, "batchWatermarkMs", _WHAT, start)
    timestamp_ms = number_of(plain, "batchTimestampMs", _WHAT, start)
    return OffsetEntry(version, header, tuple(sources), watermark_ms, timestamp_ms, conf)


def encode_offsets(entry: OffsetEntry) -> bytes:
    """Return the file's bytes, UTF-8: the version, the batch's JSON, a source a line."""
    return "\n".join((f"v{entry.version}", entry.header, *entry.lines)).encode("utf-8")


def with_conf(entry: OffsetEntry, changes: Mapping[str, str]) -> OffsetEntry:
    """Return the same batch under another configuration, new keys last."""
    if all(entry.conf.get(key) == value for key, value in changes.items()):
        return entry
    plain = decode_object(entry.header, _WHAT) if entry.header.strip() else {}
    conf = {**entry.conf, **changes}
    header = encode_object({"batchWatermarkMs": 0, "batchTimestampMs": 0, **plain, "conf": conf})
    return replace(entry, header=header, conf=conf)


def with_sources(
    entry: OffsetEntry, names: Mapping[str, str], dropped: Collection[str]
) -> OffsetEntry:
    """Return the batch with sources renamed (v1: moved; a free position is None) or left out. A
    batch whose sources get names becomes one of v2.
    """
    if not names and not dropped:
        return entry
    if entry.version == 1 and not all(map(str.isdecimal, names.values())):
        numbered = (f"{number}:{line}" for number, line in enumerate(entry.lines))
        entry = replace(entry, version=2, lines=tuple(numbered))
    kept: dict[str, str] = {}
    for source, line in zip(entry.offsets, entry.lines, strict=True):
        if source.source not in dropped:
            new_name = names.get(source.source, source.source)
            kept[new_name] = line
    if entry.version == 1:  # a line for each position up to the last one that a source has
        count = max(map(int, kept), default=-1) + 1
        lines = [kept.get(str(number), VOID) for number in range(count)]
        return replace(entry, lines=tuple(lines))
    lines = [f"{name}:{line.partition(':')[2]}" for name, line in kept.items()]
    entry = replace(entry, lines=tuple(lines))
    if all(map(str.isdecimal, kept)):
        return entry
    named = with_conf(entry, {NAMED_SOURCES: "true"})
    plain = decode_object(named.header, _WHAT)
    return replace(named, header=encode_object({**plain, "sourceMetadataInfo": {}} | plain))


def with_positions(entry: OffsetEntry, positions: Mapping[str, str]) -> OffsetEntry:
    """Return the batch with other offsets of these sources, each as its connector writes it."""
    lines = []
    for source, line in zip(entry.offsets, entry.lines, strict=True):
        old = source.offset or VOID
        name = line.removesuffix(old)  # of version 2, with its colon
        lines.append(name + positions.get(source.source, old))
    return replace(entry, lines=tuple(lines))


def unite_offsets(entries: Sequence[OffsetEntry]) -> OffsetEntry:
    """Return one batch of all sources, in order, under the smallest watermark."""
    first = entries[0]
    if {entry.version for entry in entries} != {first.version}:
        raise FormatError(f"{_WHAT}s of different versions cannot be one")
    lines = list(chain.from_iterable(entry.lines for entry in entries))
    if first.version >= 2:
        for position, line in enumerate(lines):
            name, _, offset = line.partition(":")
            if name.isdecimal():  # it has no other name
                lines[position] = f"{position}:{offset}"
    header, watermark = first.header, min(entry.watermark_ms for entry in entries)
    if watermark != first.watermark_ms:
        plain = decode_object(header, _WHAT)
        header = encode_object({**plain, "batchWatermarkMs": watermark})
    return replace(first, header=header, lines=tuple(lines), watermark_ms=watermark)


def _decode_source(line: bytes, version: int, offset: int) -> str:
    text = decode_text(line, _WHAT, offset)
    if not text.strip():
        fact = f"{_WHAT} has an empty line where a source's offset belongs"
        raise FormatError(fact, None, offset)
    value = text
    if version > 1:
        source, colon, value = text.partition(":")
        # A line of version 1 has its first colon inside of the offset: `{"logOffset":4}`.
        if not colon or not source or source.startswith("{"):
            raise FormatError(f"{_WHAT} of version 2 has a source without an id", None, offset)
    start = offset + len(line) - len(value.encode("utf-8"))
    if not value:
        raise FormatError(f"{_WHAT} has a source without an offset", None, start)
    if value.startswith("{"):  # other sources may write what they like: rate writes a bare number
        decode_object(value, f"{_WHAT}, a source's offset", start)
    return text
