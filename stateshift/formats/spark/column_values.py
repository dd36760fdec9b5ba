"""Single columns of a row written: a value as the slot of its type, a default as the spec gives it,
and which types a value may move to without becoming another. Pure.

    Slot    slot   its eight bytes; None where the value is null, empty where `part` holds it
            part   of variable size, behind all slots; `room` is what is kept free for it

Times are read as ISO 8601 (without a zone: UTC) or as Spark counts them: days, microseconds.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.types import ArrayType, Atomic, DataType, DecimalType
from stateshift.formats.spark.unsafe_row import unscaled

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
_COUNTED = (*_INTEGERS, "date", "timestamp", "timestamp_ntz", "year-month", "day-time")
_EXACT = {"double": ("byte", "short", "integer", "float"), "float": ("byte", "short")}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Slot(NamedTuple):
    slot: bytes | None
    part: bytes | None
    room: int = 0


def encode_value(value: Any, kind: DataType) -> Slot:
    """A value of an atomic type, an empty list, or null, as Spark writes it."""
    if isinstance(kind, DecimalType) and kind.precision > 18:
        return Slot(None, b"", 16) if value is None else _wide(unscaled(value, kind.scale))
    if value is None:
        return Slot(None, None)
    match kind:
        case DecimalType(_, scale):
            return Slot(struct.pack("<q", unscaled(value, scale)), None)
        case Atomic(name) if name in _CODES:
            return Slot(struct.pack(_CODES[name], value).ljust(8, b"\0"), None)
        case Atomic("string"):
            return _part(value.encode("utf-8"))
        case Atomic("binary"):
            return _part(value)
        case ArrayType():
            return _part(bytes(8))
    raise FormatError("only null is a default of this type")


def read_default(value: Any, kind: DataType) -> Any:
    """What a spec's JSON says, as a value of the type; ValueError where it is none."""
    if value is None:
        return None
    match kind:
        case Atomic("boolean") if isinstance(value, bool):
            return value
        case Atomic(name) if name in _COUNTED and _is_int(value):
            half = 1 << 8 * struct.calcsize(_CODES[name]) - 1
            return value if -half <= value < half else _refuse(value, name)
        case Atomic("float" | "double") if isinstance(value, int | float) and not isinstance(
            value, bool
        ):
            return float(value)
        case Atomic("float" | "double") if value in ("NaN", "Infinity", "-Infinity"):
            return (
                math.nan
                if value == "NaN"
                else math.copysign(math.inf, -1 if value[0] == "-" else 1)
            )
        case Atomic("string") if isinstance(value, str):
            return value
        case Atomic("binary") if isinstance(value, str):
            return bytes.fromhex(value)
        case Atomic("date" | "timestamp" | "timestamp_ntz" as name) if isinstance(value, str):
            return _time(value, name)
        case DecimalType(precision, scale) if isinstance(
            value, str | int | float
        ) and not isinstance(value, bool):
            return _decimal(str(value), precision, scale)
        case ArrayType() if value == []:
            return []
    return _refuse(value, kind.name if isinstance(kind, Atomic) else "this type")


def widening(kind: DataType, into: DataType) -> Callable[[Any], Any] | None:
    """What makes a value of one type the same value of a wider one; None where none is."""
    match kind, into:
        case Atomic(a), Atomic(b) if (
            a in _INTEGERS and b in _INTEGERS and _INTEGERS.index(a) < _INTEGERS.index(b)
        ):
            return int
        case Atomic(a), Atomic(b) if a in _EXACT.get(b, ()):
            return float
        case Atomic("date"), Atomic("timestamp_ntz"):
            return lambda days: days * 86_400_000_000
        case Atomic(a), DecimalType(precision, scale) if (
            a in _DIGITS and precision - scale >= _DIGITS[a]
        ):
            return Decimal
        case DecimalType(p, s), DecimalType(precision, scale) if (
            s <= scale and p - s <= precision - scale
        ):
            return None if (p, s) == (precision, scale) else lambda value: value
    return None


def _part(content: bytes) -> Slot:
    return Slot(b"", content, -(-len(content) // 8) * 8)


def _wide(number: int) -> Slot:
    return Slot(
        b"", number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True), 16
    )


def _time(text: str, name: str) -> int:
    found = datetime.datetime.fromisoformat(text)
    found = found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found
    return (found - _EPOCH) // (
        datetime.timedelta(days=1) if name == "date" else datetime.timedelta(microseconds=1)
    )


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    try:
        value = Decimal(text)
        fits = value.is_finite() and abs(unscaled(value, scale)) < 10**precision
    except (InvalidOperation, FormatError):
        fits = False
    return value if fits else _refuse(text, f"decimal({precision},{scale})")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse(value: Any, name: str) -> Any:
    raise ValueError(f"{value!r} is no default of {name}")
