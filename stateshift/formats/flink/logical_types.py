"""The types of SQL's columns, as the snapshots of their serializers hold them: objects that Java
serialized, of which only these classes are looked at.

    org.apache.flink.table.types.logical.
      LogicalType   isNullable, typeRoot
      CharType, VarCharType, BinaryType, VarBinaryType     length
      DecimalType                                          precision, scale
      TimeType, TimestampType, LocalZonedTimestampType     precision
      ArrayType, MultisetType                              elementType
      MapType                                              keyType, valueType
      RowType                                              fields: RowType$RowField(name, type)
      StructuredType                                       attributes: name, type; superType
      DistinctType                                         sourceType
      RawType                                              clazz, serializer: their values are bytes

Flink: table/types/logical/*, 1.15 to 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stateshift.formats.flink.java_data import DataOutput, encode_utf
from stateshift.formats.flink.java_objects import (
    MAGIC,
    JavaClass,
    JavaEnum,
    JavaObject,
    items_of,
)

PACKAGE: Final = "org.apache.flink.table.types.logical."
DEPTH_MAX: Final = 16
NODES_MAX: Final = 10_000
DECIMAL_DIGITS_MAX: Final = 38
TEXT_MAX: Final = 0x7FFFFFFF  # the length of STRING and BYTES

_SIMPLE: Final[Mapping[str, str]] = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "INTERVAL_YEAR_MONTH": "INTERVAL YEAR TO MONTH",
    "INTERVAL_DAY_TIME": "INTERVAL DAY TO SECOND",
    "NULL": "NULL",
    "VARIANT": "VARIANT",
}
_OF_LENGTH: Final = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")
_OF_PRECISION: Final[Mapping[str, str]] = {
    "TIME_WITHOUT_TIME_ZONE": "TIME",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "TIMESTAMP_LTZ",
}
_INNER: Final[Mapping[str, tuple[str, ...]]] = {
    "ARRAY": ("elementType",),
    "MULTISET": ("elementType",),
    "MAP": ("keyType", "valueType"),
}
_RAW: Final = ("RawType", "TypeInformationRawType")


@dataclass(frozen=True, slots=True)
class LogicalType:
    """`root` as LogicalTypeRoot has it; `size`: length or precision; `names`: of `inner`."""

    root: str
    nullable: bool = True
    size: int = 0
    scale: int = 0
    inner: tuple[LogicalType, ...] = ()
    names: tuple[str, ...] = ()
    of: str = ""  # the class of a raw value

    def __str__(self) -> str:
        return self._plain() if self.nullable else f"{self._plain()} NOT NULL"

    def _plain(self) -> str:
        if self.root in _SIMPLE:
            return _SIMPLE[self.root]
        if self.root in _OF_PRECISION:
            return f"{_OF_PRECISION[self.root]}({self.size})"
        match self.root:
            case "VARCHAR" if self.size == TEXT_MAX:
                return "STRING"
            case "VARBINARY" if self.size == TEXT_MAX:
                return "BYTES"
            case "CHAR" | "VARCHAR" | "BINARY" | "VARBINARY":
                return f"{self.root}({self.size})"
            case "DECIMAL":
                return f"DECIMAL({self.size}, {self.scale})"
            case "RAW":
                return f"RAW('{self.of}')"
            case "ROW" | "STRUCTURED_TYPE":
                fields = zip(self.names, self.inner, strict=True)
                return f"ROW<{', '.join(f'{name} {inner}' for name, inner in fields)}>"
            case _:
                return f"{self.root}<{', '.join(map(str, self.inner))}>"


class _Unreadable(Exception):
    """A type whose values are not read."""


@dataclass
class _Budget:
    """The types that may still be made: one object may be referred to again and again."""

    left: int = NODES_MAX


def logical_type(value: object) -> LogicalType | None:
    """Return the type that an object stands for; None for one whose values are not read."""
    try:
        return _type_of(value, 0, _Budget())
    except _Unreadable:
        return None


def _type_of(value: object, depth: int, budget: _Budget) -> LogicalType:
    budget.left -= 1
    if budget.left < 0 or depth > DEPTH_MAX:
        raise _Unreadable
    if not isinstance(value, JavaObject) or not value.type.startswith(PACKAGE):
        raise _Unreadable
    fields, name = value.fields, value.type.removeprefix(PACKAGE)
    root, nullable = fields.get("typeRoot"), fields.get("isNullable") is True
    if not isinstance(root, JavaEnum) or name == "LegacyTypeInformationType":
        raise _Unreadable
    if name in _RAW:
        class_ = fields.get("clazz")
        return LogicalType("RAW", nullable, of=class_.name if isinstance(class_, JavaClass) else "")
    match root.name:
        case "DISTINCT_TYPE":
            return _type_of(fields.get("sourceType"), depth + 1, budget)
        case "ROW":
            return _row(root.name, nullable, fields.get("fields"), depth, budget)
        case "STRUCTURED_TYPE" if fields.get("superType") is None:
            return _row(root.name, nullable, fields.get("attributes"), depth, budget)
        case kind if kind in _INNER:
            inner = tuple(_type_of(fields.get(part), depth + 1, budget) for part in _INNER[kind])
            return LogicalType(kind, nullable, inner=inner)
    return _atomic(root.name, nullable, fields)


def _atomic(root: str, nullable: bool, fields: Mapping[str, object]) -> LogicalType:
    if root in _SIMPLE:
        return LogicalType(root, nullable)
    if root in _OF_LENGTH:
        return LogicalType(root, nullable, _number(fields, "length"))
    if root in _OF_PRECISION:
        return LogicalType(root, nullable, _number(fields, "precision"))
    if root == "DECIMAL":
        precision, scale = _number(fields, "precision"), _number(fields, "scale")
        if 0 <= scale <= precision <= DECIMAL_DIGITS_MAX:
            return LogicalType("DECIMAL", nullable, precision, scale)
    raise _Unreadable


_CLASSES: Final[Mapping[str, str]] = {
    "BOOLEAN": "BooleanType",
    "TINYINT": "TinyIntType",
    "SMALLINT": "SmallIntType",
    "INTEGER": "IntType",
    "BIGINT": "BigIntType",
    "FLOAT": "FloatType",
    "DOUBLE": "DoubleType",
    "DATE": "DateType",
    "TIME_WITHOUT_TIME_ZONE": "TimeType",
    "DECIMAL": "DecimalType",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TimestampType",
    "CHAR": "CharType",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "LocalZonedTimestampType",
    "VARCHAR": "VarCharType",
    "BINARY": "BinaryType",
    "VARBINARY": "VarBinaryType",
}
# The root of a type by its name in SQL, and the size where none is told.
NAMES_OF_TYPES: Final[Mapping[str, tuple[str, int]]] = {
    **{name: (root, 0) for root, name in _SIMPLE.items() if root in _CLASSES},
    **{name: (root, 0 if name == "TIME" else 6) for root, name in _OF_PRECISION.items()},
    **{name: (name, 1) for name in _OF_LENGTH},
    "STRING": ("VARCHAR", TEXT_MAX),
    "BYTES": ("VARBINARY", TEXT_MAX),
    "DECIMAL": ("DECIMAL", 10),
}
_NAMED: Final = re.compile(r"(\w+) *(?:\( *(\d{1,10}) *(?:, *(\d{1,10}) *)?\))?( +NOT NULL)?")
_ENUM_HANDLE: Final = 0x7E0006  # of java.lang.Enum, in a type with a kind


def parse_type(text: str) -> LogicalType | None:
    """Return the type of a name that has no others within; None for any other."""
    named = _NAMED.fullmatch(text.strip().upper())
    if named is None or named[1] not in NAMES_OF_TYPES:
        return None
    root, size = NAMES_OF_TYPES[named[1]]
    size, scale = int(named[2] or size), int(named[3] or 0)
    if root == "DECIMAL" and not 0 <= scale <= size <= DECIMAL_DIGITS_MAX:
        return None
    return LogicalType(root, named[4] is None, size, scale) if size <= TEXT_MAX else None


def is_encodable(type_: LogicalType) -> bool:
    """Whether `encode_type` knows the class of a type."""
    return type_.root in _CLASSES


def encode_type(type_: LogicalType) -> bytes:
    """Return a type that has no others within as Java serializes it."""
    numbers: dict[str, int] = {}
    if type_.root in (*_OF_PRECISION, "DECIMAL"):
        numbers["precision"] = type_.size
    if type_.root == "DECIMAL":
        numbers["scale"] = type_.scale
    if type_.root in _OF_LENGTH:
        numbers["length"] = type_.size
    has_kind = type_.root.startswith("TIMESTAMP")
    out, folder = DataOutput(), PACKAGE.replace(".", "/")
    out.put(MAGIC + b"s")
    _put_class(out, PACKAGE + _CLASSES[type_.root], 1, 2, len(numbers) + has_kind)
    for name in numbers:
        out.put(b"I" + encode_utf(name))
    if has_kind:
        out.put(b"L" + encode_utf("kind") + b"t" + encode_utf(f"L{folder}TimestampKind;"))
    out.put(b"x")
    _put_class(out, f"{PACKAGE}LogicalType", 1, 2, 2)
    out.put(b"Z" + encode_utf("isNullable") + b"L" + encode_utf("typeRoot"))
    out.put(b"t" + encode_utf(f"L{folder}LogicalTypeRoot;") + b"xp")
    out.boolean(type_.nullable)
    out.put(b"~")
    _put_class(out, f"{PACKAGE}LogicalTypeRoot", 0, 0x12, 0)
    out.put(b"x")
    _put_class(out, "java.lang.Enum", 0, 0x12, 0)
    out.put(b"xpt" + encode_utf(type_.root))
    for number in numbers.values():
        out.i4(number)
    if has_kind:
        out.put(b"~")
        _put_class(out, f"{PACKAGE}TimestampKind", 0, 0x12, 0)
        out.put(b"xq")
        out.i4(_ENUM_HANDLE)
        out.put(b"t" + encode_utf("REGULAR"))
    return out.content()


def _put_class(out: DataOutput, name: str, uid: int, flags: int, fields: int) -> None:
    out.put(b"r" + encode_utf(name))
    out.i8(uid)
    out.u1(flags)
    out.i2(fields)


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, int):
        return value
    raise _Unreadable


def _row(root: str, nullable: bool, listed: object, depth: int, budget: _Budget) -> LogicalType:
    items = items_of(listed)
    if items is None:
        raise _Unreadable
    names, inner = [], []
    for item in items:
        name = item.fields.get("name") if isinstance(item, JavaObject) else None
        if not isinstance(item, JavaObject) or not isinstance(name, str):
            raise _Unreadable
        names.append(name)
        inner.append(_type_of(item.fields.get("type"), depth + 1, budget))
    return LogicalType(root, nullable, inner=tuple(inner), names=tuple(names))
