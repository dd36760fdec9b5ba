"""Columns of a row written: a value as the slot of its type, rows and lists of such slots, a
default as the spec gives it, and which types a value may move to without becoming another. Pure.

    Slot    slot      its eight bytes; None where the value is null, empty where `part` holds it
            part      of variable size, behind all slots
            reserved  how many bytes the part takes, padding included

Times are read as ISO 8601 (without a zone: UTC) or as Spark counts them: days, microseconds.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.text import is_integer
from stateshift.formats.spark.types import (
    FORMS,
    WIDTHS,
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
    Value,
    null_bytes,
)
from stateshift.formats.spark.unsafe_row import twos_complement, unscale_decimal

_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_INTEGERS = ("byte", "short", "integer", "long")
_EXACT = {"double": ("byte", "short", "integer", "float"), "float": ("byte", "short")}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PLACE, _CALENDAR = struct.Struct("<II"), struct.Struct("<iiq")
_DAY, _MICROSECOND = datetime.timedelta(days=1), datetime.timedelta(microseconds=1)


class Slot(NamedTuple):
    """A value as a row holds it: its `slot`'s bytes, or a `part` after all slots; null has none."""

    slot: bytes | None
    part: bytes | None
    reserved: int = 0


NULL = Slot(None, None)
NULL_WIDE_DECIMAL = Slot(None, b"", 16)  # its sixteen bytes are kept free all the same
NULL_CALENDAR = Slot(None, bytes(16), 16)  # the same, and its size is told


def encode_value(value: Value, kind: DataType) -> Slot:  # noqa: C901 (flat, over types)
    """Return a value, or null, as Spark writes it into a row (UnsafeRowWriter)."""
    match kind:
        case DecimalType(precision, scale) if precision > 18:
            if value is None:
                return NULL_WIDE_DECIMAL
            return Slot(b"", twos_complement(unscale_decimal(value, scale)), 16)
        case _ if value is None:
            return NULL_CALENDAR if kind == Atomic("calendar") else NULL
        case DecimalType(_, scale):
            return Slot(FORMS["long"].pack(unscale_decimal(value, scale)), None)
        case Atomic(name) if name in FORMS:
            return Slot(FORMS[name].pack(value).ljust(8, b"\0"), None)
        case Atomic("string"):
            return pad_part(value.encode("utf-8", "surrogateescape"))
        case Atomic("binary"):
            return pad_part(value)
        case Atomic("calendar"):
            return pad_part(_CALENDAR.pack(*value))
        case Atomic("variant"):
            return pad_part(len(value[0]).to_bytes(4, "little") + value[0] + value[1])
        case ArrayType(element):
            return pad_part(_encode_array(value, element))
        case MapType(key, item):
            keys = _encode_array([pair[0] for pair in value], key)
            items = _encode_array([pair[1] for pair in value], item)
            return pad_part(FORMS["long"].pack(len(keys)) + keys + items)
        case StructType():
            return pad_part(encode_row(value, kind))
    raise FormatError("only null is a value of this type")


def encode_row(values: Sequence[Value], columns: StructType) -> bytes:
    """Return one row: the inverse of `unsafe_row.decode_row`."""
    return join_slots(list(map(encode_value, values, columns.types)))


def join_slots(row: Sequence[Slot]) -> bytes:
    """Return a row: null bits, slots, and the parts of variable size behind them."""
    return _joined(row, b"", 8)


def _encode_array(values: Sequence[Value], element: DataType) -> bytes:
    width = 8
    if isinstance(element, Atomic):
        width = 0 if element.name == "void" else WIDTHS.get(element.name, 8)
    slots = []
    for value in values:
        slot = encode_value(value, element)
        if slot.part is not None:  # unlike a row, a list keeps nothing free
            slot = NULL if value is None else pad_part(slot.part)
        slots.append(slot)
    return _joined(slots, FORMS["long"].pack(len(slots)), width)


def _joined(row: Sequence[Slot], head: bytes, width: int) -> bytes:
    bits = null_bytes(len(row))
    nulls, slots, parts = 0, [], []
    offset = len(head) + bits + -(-width * len(row) // 8) * 8
    padding = bytes(-width * len(row) % 8)
    for number, (slot, part, reserved) in enumerate(row):
        nulls |= (slot is None) << number
        if part is None:
            slots.append((slot or bytes(8))[:width])
            continue
        slots.append(_PLACE.pack(len(part), offset))
        parts.append(part.ljust(reserved, b"\0"))
        offset += reserved
    return b"".join((head, nulls.to_bytes(bits, "little"), *slots, padding, *parts))


def read_default(value: object, kind: DataType) -> Value:
    """Return a spec's JSON as a value of the type; ValueError if it is none."""
    if value is None:
        return None
    match kind:
        case Atomic(name) if name in _DEFAULTS:
            return _DEFAULTS[name](value, name)
        case Atomic(name):
            raise _no_default(value, name)
        case DecimalType() if is_integer(value) or isinstance(value, str | float):
            return _decimal(str(value), kind)
        case ArrayType() if value == []:
            return []
    raise _no_default(value, "this type")


def _read_boolean(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise _no_default(value, name)
    return value


def _read_integer(value: object, name: str) -> int:
    half = 1 << 8 * WIDTHS[name] - 1
    if not is_integer(value) or not -half <= value < half:
        raise _no_default(value, name)
    return value


def _read_float(value: object, name: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if not is_integer(value) and not isinstance(value, float):
        raise _no_default(value, name)
    return float(value)


def _read_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _no_default(value, name)
    return value


def _read_bytes(value: object, name: str) -> bytes:
    return bytes.fromhex(_read_text(value, name))


def _read_time(value: object, name: str) -> int:
    """Return a time in ISO 8601, or as Spark counts it. A zone is of an instant alone: the day, or
    the hour, would be another one in it.
    """
    if not isinstance(value, str):
        return _read_integer(value, name)
    time = datetime.datetime.fromisoformat(value)
    if time.tzinfo is not None and name != "timestamp":
        raise _no_default(value, f"{name}, which has no zone")
    unit = _DAY if name == "date" else _MICROSECOND
    count, rest = divmod(time.replace(tzinfo=time.tzinfo or datetime.UTC) - _EPOCH, unit)
    if rest:
        raise _no_default(value, f"{name}, which has no time of a day")
    return count


_DEFAULTS: dict[str, Callable[[object, str], Value]] = {
    "boolean": _read_boolean,
    "float": _read_float,
    "double": _read_float,
    "string": _read_text,
    "binary": _read_bytes,
    "year-month": _read_integer,
    "day-time": _read_integer,
    **dict.fromkeys(_INTEGERS, _read_integer),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), _read_time),
}


def widening(kind: DataType, into: DataType) -> Callable[[Value], Value] | None:
    """Return the conversion from one type to a wider one; None if there is none."""
    match kind, into:
        case Atomic(name), Atomic(wider):
            if name in _INTEGERS and wider in _INTEGERS:
                return int if _INTEGERS.index(name) < _INTEGERS.index(wider) else None
            if name in _EXACT.get(wider, ()):
                return float
            if (name, wider) == ("date", "timestamp_ntz"):
                return lambda days: days * (_DAY // _MICROSECOND)
        case Atomic(name), DecimalType(precision, scale):
            fits = name in _DIGITS and _DIGITS[name] <= precision - scale
            return Decimal if fits else None
        case DecimalType(), DecimalType() if kind != into and kind.scale <= into.scale:
            fits = kind.precision - kind.scale <= into.precision - into.scale
            return (lambda value: value) if fits else None
    return None


def pad_part(content: bytes) -> Slot:
    """Return a part of variable size, which takes whole words."""
    return Slot(b"", content, -(-len(content) // 8) * 8)


def _decimal(text: str, kind: DecimalType) -> Decimal:
    refusal = _no_default(text, f"decimal({kind.precision},{kind.scale})")
    try:
        value = Decimal(text)
        number = unscale_decimal(value, kind.scale)
    except (InvalidOperation, FormatError):
        raise refusal from None
    if abs(number) >= 10**kind.precision:
        raise refusal
    return value


def _no_default(value: object, name: str) -> ValueError:
    return ValueError(f"{value!r} is no default of {name}")
