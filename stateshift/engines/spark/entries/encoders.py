"""How a store's rows are put together to keys and values: Spark's encoders, undone. Pure.

    plain    row                                                     HDFS-backed, every key and value
    row      00 | row                                                RocksDB
    prefix   i32LE size | 00 row of the first columns | 00 row of the others      session windows, maps, timers
    range    i32LE size | 00 row of the ordering columns | [00 row of the others] time to live,
             timers by time
               each ordering column as binary: 00 negative, 01 positive, 02 null | value,
               big-endian
    postfix  00 row without the time | i64BE time, its sign bit turned            joins of state format 4
    before   i64BE time, its sign bit turned | 00 row without the time
    list     (i32LE size | 00 row)*, between them the merge operator's delimiter  list state, joins of state format 4

Under `encodingFormat=avro` rows are others and the rest alike: see `avro_encoders`.

Source: Spark, RocksDBStateEncoder (NoPrefixKey-, PrefixKeyScan-, RangeKeyScan-, MultiValuedState-,
TimestampAsPostfix-, TimestampAsPrefixKeyStateEncoder), RocksDBKeyStateEncoderSpec's JSON. Rows are
decoded by `unsafe_row`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.types import Atomic, DataType, StructType
from stateshift.formats.spark.unsafe_row import decode_row

Kind = Literal["plain", "row", "prefix", "range", "postfix", "before"]
Row = tuple[Any, ...]

# More columns than any key has: what a damaged file may not make us count to.
COLUMNS_MAX = 10_000

_SIZE, _LONG = struct.Struct("<i"), struct.Struct(">Q")
_SIGN = 1 << 63
_SPECS: dict[str, Kind] = {
    "NoPrefixKeyStateEncoderSpec": "row",
    "PrefixKeyScanStateEncoderSpec": "prefix",
    "RangeKeyScanStateEncoderSpec": "range",
    "TimestampAsPostfixKeyStateEncoderSpec": "postfix",
    "TimestampAsPrefixKeyStateEncoderSpec": "before",
}


@dataclass(frozen=True, slots=True)
class Encoder:
    """How a key is encoded. `columns` is how many stand in the prefix, or the ordinals of those
    that order; `avro` says that the rows, those of values as well, are Avro's.
    """

    kind: Kind
    columns: tuple[int, ...] = ()
    avro: bool = False


PLAIN, ROW = Encoder("plain"), Encoder("row")


def encoder_of(spec: str) -> Encoder:
    """From the JSON that a schema file of version 3 keeps with each store."""
    try:
        plain = json.loads(spec)
        kind = _SPECS.get(plain["keyStateEncoderType"])
        if kind is None:
            raise UnknownVersion(
                f"keys are encoded by {str(plain['keyStateEncoderType'])[:80]}, which is not known"
            )
        prefix = int(plain["numColsPrefixKey"]) if kind == "prefix" else 0
        columns = tuple(int(column) for column in plain.get("orderingOrdinals", ()))
        if not 0 <= prefix <= COLUMNS_MAX or any(
            not 0 <= column <= COLUMNS_MAX for column in columns
        ):
            raise FormatError(f"a key encoder speaks of columns that no key has: {spec[:80]!r}")
        return Encoder(kind, tuple(range(prefix)) if kind == "prefix" else columns)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise FormatError(f"a key encoder is described by {spec[:80]!r}") from error


def decode_key(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    """The key's columns, in the order of its schema."""
    return _DECODERS[encoder.kind](content, columns, encoder)


def decode_list(content: bytes, columns: StructType, delimiter: bytes) -> list[Row]:
    return [decode_row(row, columns) for row in listed(content, delimiter)]


def listed(content: bytes, delimiter: bytes) -> Iterator[bytes]:
    """The rows of a list, one after the other."""
    position, gap = 0, len(delimiter)
    while True:
        start = position + 4
        (size,) = _SIZE.unpack_from(content, position) if start <= len(content) else (-1,)
        if size < 1 or start + size > len(content):
            raise FormatError("an item of a list lies outside of it", None, position)
        yield bare(content[start : start + size])
        position = start + size
        if position == len(content):
            return
        if content[position : position + gap] != delimiter:
            raise FormatError(
                "the items of a list are not divided as the merge operator does", None, position
            )
        position += gap


def bare(content: bytes) -> bytes:
    """A row without the byte that RocksDB's encoding puts before it."""
    if content[:1] != b"\0":
        raise FormatError("a row does not begin with the encoding that is known", None, 0)
    return content[1:]


def _plain(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    return decode_row(content, columns)


def _row(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    return decode_row(bare(content), columns)


def _prefix(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    first, rest = halves(content)
    count = len(encoder.columns)
    others = some(columns, slice(count, None))
    return (*decode_row(first, some(columns, slice(count))), *decode_row(bare(rest), others))


def _range(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    first, rest = halves(content)
    ordering = encoder.columns
    others = [at for at in range(len(columns.types)) if at not in ordering]
    if not all(at < len(columns.types) for at in ordering) or bool(others) != bool(rest):
        raise FormatError("a key is not of the columns that order it", None, 0)
    row: list[Any] = [None] * len(columns.types)
    binary = StructType(
        tuple(columns.names[at] for at in ordering), tuple(Atomic("binary") for _ in ordering)
    )
    for at, value in zip(ordering, decode_row(first, binary), strict=True):
        row[at] = ordered(value, columns.types[at])
    if others:
        kinds = StructType(
            tuple(columns.names[at] for at in others), tuple(columns.types[at] for at in others)
        )
        for at, value in zip(others, decode_row(bare(rest), kinds), strict=True):
            row[at] = value
    return tuple(row)


def _postfix(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    _check_time(content, columns)
    row = decode_row(bare(content[:-8]), some(columns, slice(-1)))
    return (*row, _LONG.unpack(content[-8:])[0] - _SIGN)


def _before(content: bytes, columns: StructType, encoder: Encoder) -> Row:
    _check_time(content, columns)
    row = decode_row(bare(content[8:]), some(columns, slice(-1)))
    return (*row, _LONG.unpack(content[:8])[0] - _SIGN)


def _check_time(content: bytes, columns: StructType) -> None:
    if len(content) < 8:
        raise FormatError("a key is too short for its time", None, len(content))
    if not columns.types or columns.types[-1] not in _TIMES:
        raise FormatError("a key is encoded with a time, which its last column is not", None, 0)


_TIMES = tuple(map(Atomic, ("long", "timestamp", "timestamp_ntz")))

_DECODERS: Mapping[Kind, Callable[[bytes, StructType, Encoder], Row]] = {
    "plain": _plain,
    "row": _row,
    "prefix": _prefix,
    "range": _range,
    "postfix": _postfix,
    "before": _before,
}


def some(columns: StructType, which: slice) -> StructType:
    """Some columns that stand behind each other."""
    return StructType(columns.names[which], columns.types[which])


def halves(content: bytes) -> tuple[bytes, bytes]:
    """The bare row of the size that is said first, and what follows it."""
    (size,) = _SIZE.unpack_from(content) if len(content) >= 4 else (-1,)
    if size < 1 or 4 + size > len(content):
        raise FormatError("the first columns of a key lie outside of it", None, 0)
    return bare(content[4 : 4 + size]), content[4 + size :]


_ORDERED = {
    "boolean": "?",
    "byte": "b",
    "short": "h",
    "integer": "i",
    "long": "q",
    "float": "f",
    "double": "d",
    "date": "i",
    "timestamp": "q",
    "timestamp_ntz": "q",
    "year-month": "i",
    "day-time": "q",
}


def ordered(value: bytes | None, wanted: DataType) -> Any:
    """A column that sorts as bytes do: a sign, then the value, big-endian; of negative fractions
    all bits turned.
    """
    if value is None or value[:1] == b"\2":
        return None
    code = _ORDERED.get(wanted.name) if isinstance(wanted, Atomic) else None
    if code is None or len(value) != 1 + struct.calcsize(f">{code}") or value[0] > 1:
        raise FormatError("a column that orders keys is not encoded as it should be")
    body = value[1:]
    if code in "fd" and value[0] == 0:
        body = bytes(byte ^ 0xFF for byte in body)
    return struct.unpack(f">{code}", body)[0]
