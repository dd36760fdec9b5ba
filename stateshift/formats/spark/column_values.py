"""Single columns of a row written: a value as the slot of its type, a default as the spec gives it,
and which types a value may move to without becoming another. Pure.

    Slot    slot      its eight bytes; None where the value is null, empty where `part` holds it
            part      of variable size, behind all slots
            reserved  how many bytes the part takes, padding included

Times are read as ISO 8601 (without a zone: UTC) or as Spark counts them: days, microseconds.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.text import is_integer
from stateshift.formats.spark.types import ArrayType, Atomic, DataType, DecimalType, Value
from stateshift.formats.spark.unsafe_row import twos_complement, unscaled

_CODES = {
    "boolean": "<?",
    "byte": "<b",
    "short": "<h",
    "integer": "<i",
    "long": "<q",
    "float": "<f",
    "double": "<d",
    "date": "<i",
    "timestamp": "<q",
    "timestamp_ntz": "<q",
    "year-month": "<i",
    "day-time": "<q",
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_INTEGERS = ("byte", "short", "integer", "long")
_EXACT = {"double": ("byte", "short", "integer", "float"), "float": ("byte", "short")}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY, _MICROSECOND = datetime.timedelta(days=1), datetime.timedelta(microseconds=1)


class Slot(NamedTuple):
    """A value as a row holds it: the eight bytes of its `slot`, or a `part` behind all slots. A
    null has no slot.
    """

    slot: bytes | None
    part: bytes | None
    reserved: int = 0


NULL = Slot(None, None)
NULL_WIDE_DECIMAL = Slot(None, b"", 16)  # its sixteen bytes are kept free all the same


def encode_value(value: Value, kind: DataType) -> Slot:
    """Return a value of an atomic type, an empty list, or null, as Spark writes it."""
    match kind:
        case DecimalType(precision, scale) if precision > 18:
            return NULL_WIDE_DECIMAL if value is None else _wide(unscaled(value, scale))
        case _ if value is None:
            return NULL
        case DecimalType(_, scale):
            return Slot(struct.pack("<q", unscaled(value, scale)), None)
        case Atomic(name) if name in _CODES:
            return Slot(struct.pack(_CODES[name], value).ljust(8, b"\0"), None)
        case Atomic("string"):
            return padded(value.encode("utf-8"))
        case Atomic("binary"):
            return padded(value)
        case ArrayType():
            return padded(bytes(8))
    raise FormatError("only null is a default of this type")


def read_default(value: object, kind: DataType) -> Value:
    """Return what a spec's JSON says, as a value of the type; ValueError where it is none."""
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
    half = 1 << 8 * struct.calcsize(_CODES[name]) - 1
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
    """Return a time in ISO 8601, or as Spark counts it."""
    if not isinstance(value, str):
        return _read_integer(value, name)
    time = datetime.datetime.fromisoformat(value)
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    unit = _DAY if name == "date" else _MICROSECOND
    return (time - _EPOCH) // unit


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
    """Return what makes a value of one type the same value of a wider one; None where none is."""
    match kind, into:
        case Atomic(name), Atomic(wider):
            return _widening_of_atoms(name, wider)
        case Atomic(name), DecimalType(precision, scale):
            fits = name in _DIGITS and _DIGITS[name] <= precision - scale
            return Decimal if fits else None
        case DecimalType(), DecimalType():
            return _same_value if _is_wider(into, kind) else None
    return None


def _widening_of_atoms(name: str, wider: str) -> Callable[[Value], Value] | None:
    if name in _INTEGERS and wider in _INTEGERS:
        return int if _INTEGERS.index(name) < _INTEGERS.index(wider) else None
    if name in _EXACT.get(wider, ()):
        return float
    if (name, wider) == ("date", "timestamp_ntz"):
        return _midnight
    return None


def _is_wider(wider: DecimalType, kind: DecimalType) -> bool:
    """Whether a decimal has as many digits before the point and behind it, and more in all."""
    before = kind.precision - kind.scale
    if wider == kind or wider.scale < kind.scale:
        return False
    return before <= wider.precision - wider.scale


def _same_value(value: Decimal) -> Decimal:
    return value


def _midnight(days: int) -> int:
    return days * (_DAY // _MICROSECOND)


def padded(content: bytes) -> Slot:
    """Return a part of variable size, which takes whole words."""
    return Slot(b"", content, -(-len(content) // 8) * 8)


def _wide(number: int) -> Slot:
    return Slot(b"", twos_complement(number), 16)


def _decimal(text: str, kind: DecimalType) -> Decimal:
    refusal = _no_default(text, f"decimal({kind.precision},{kind.scale})")
    try:
        value = Decimal(text)
        number = unscaled(value, kind.scale)
    except (InvalidOperation, FormatError):
        raise refusal from None
    if abs(number) >= 10**kind.precision:
        raise refusal
    return value


def _no_default(value: object, name: str) -> ValueError:
    return ValueError(f"{value!r} is no default of {name}")
