"""The SQL types of state, from the JSON that schema files hold (StructType.json).

    "long"   "decimal(10,2)"   "interval day to second"   {"type":"struct","fields":[...]}
    {"type":"array","elementType":...}   {"type":"map","keyType":...,"valueType":...}
    {"type":"udt","sqlType":...}

Source: Spark, DataType.fromJson. Field names may repeat: a struct's fields are told apart by
position.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stateshift.errors import FormatError
from stateshift.formats.spark.text import JsonObject, decode_object


@dataclass(frozen=True, slots=True)
class Atomic:
    """A type without parts. `name` is one of `WIDTHS` or `VARIABLE`, or "void"."""

    name: str


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal of at most `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array's type; whether its elements may be null is not kept."""

    element: DataType


@dataclass(frozen=True, slots=True)
class MapType:
    """A map's type; whether its values may be null is not kept."""

    key: DataType
    value: DataType


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct's fields, or a row's columns, told apart by position: names may repeat."""

    names: tuple[str, ...]
    types: tuple[DataType, ...]

    def sliced(self, which: slice) -> StructType:
        return StructType(self.names[which], self.types[which])

    def picked(self, positions: Sequence[int]) -> StructType:
        names = tuple(self.names[at] for at in positions)
        return StructType(names, tuple(self.types[at] for at in positions))


DataType = Atomic | DecimalType | ArrayType | MapType | StructType

# A decoded value, of the Python type that `unsafe_row` names for its SQL type; a row of them.
Value = Any
Row = tuple[Value, ...]
# The types of one width, as `struct` reads them.
FORMS = {
    "boolean": struct.Struct("<?"),
    "byte": struct.Struct("<b"),
    "short": struct.Struct("<h"),
    "integer": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
    "date": struct.Struct("<i"),
    "timestamp": struct.Struct("<q"),
    "timestamp_ntz": struct.Struct("<q"),
    "year-month": struct.Struct("<i"),
    "day-time": struct.Struct("<q"),
}
# Bytes that a value of the type takes in an array; in a row each has a slot of eight.
WIDTHS = {name: form.size for name, form in FORMS.items()}
VARIABLE = ("string", "binary", "calendar", "variant")
LONG_DIGITS = 18  # of the longest decimal that is kept in its slot

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*\)")
_STRING = re.compile(r"(?:varchar|char)\(\d+\)|string(?: collate \S+)?")
_WHAT = "a schema"


def decode_struct(text: str) -> StructType:
    """Return a StructType from its JSON."""
    try:
        kind = _type(decode_object(text, _WHAT))
    except RecursionError as error:
        raise FormatError(f"{_WHAT} is nested too deeply", None, 0) from error
    if not isinstance(kind, StructType):
        raise FormatError(f"{_WHAT} is not a struct", None, 0)
    return kind


def _type(plain: object) -> DataType:
    if isinstance(plain, str):
        known = _NAMED.get(plain)
        if known is not None:
            return known
        if _STRING.fullmatch(plain):
            return Atomic("string")
        if plain.startswith("interval "):
            return Atomic("day-time")
        decimal = _DECIMAL.fullmatch(plain)
        if decimal is None or not 0 < int(decimal[1]) <= 38:
            raise FormatError(f"{_WHAT} holds the unknown type {plain[:80]!r}", None, 0)
        return DecimalType(int(decimal[1]), int(decimal[2]))
    kind = plain.get("type") if isinstance(plain, dict) else None
    read = _NESTED.get(kind) if isinstance(kind, str) else None
    if read is None or not isinstance(plain, dict):
        raise FormatError(f"{_WHAT} holds the unknown type {str(plain)[:80]}", None, 0)
    try:
        return read(plain)
    except KeyError as error:
        raise FormatError(f"{_WHAT}: a {kind} without {error}", None, 0) from error


def is_in_slot(kind: DataType) -> bool:
    """Whether a row keeps a value of this type in its slot, which points at any other."""
    match kind:
        case Atomic(name):
            return name in WIDTHS or name == "void"
        case DecimalType(precision, _):
            return precision <= LONG_DIGITS
    return False


def null_bytes(count: int) -> int:
    """Return the bytes of the null bits of so many values: whole words."""
    return (count + 63) // 64 * 8


_NAMED: dict[str, DataType] = {
    **{name: Atomic(name) for name in (*WIDTHS, "binary", "variant", "void")},
    "null": Atomic("void"),
    "interval": Atomic("calendar"),
    "calendarinterval": Atomic("calendar"),
    "interval year": Atomic("year-month"),
    "interval month": Atomic("year-month"),
    "interval year to month": Atomic("year-month"),
    "decimal": DecimalType(10, 0),
}


def _struct(plain: JsonObject) -> StructType:
    fields = plain["fields"]
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        raise FormatError(f"{_WHAT} holds a struct whose fields are no list", None, 0)
    names = tuple(str(field["name"]) for field in fields)
    types = tuple(_type(field["type"]) for field in fields)
    return StructType(names, types)


_NESTED: dict[str, Callable[[JsonObject], DataType]] = {
    "struct": _struct,
    "array": lambda plain: ArrayType(_type(plain["elementType"])),
    "map": lambda plain: MapType(_type(plain["keyType"]), _type(plain["valueType"])),
    "udt": lambda plain: _type(plain["sqlType"]),
}


def unique(names: Sequence[str]) -> list[str]:
    """Return the names, with a number behind each that has been there before."""
    counts = Counter[str]()
    different = []
    for name in names:
        counts[name] += 1
        different.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return different
