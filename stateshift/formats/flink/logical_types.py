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
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from stateshift.formats.flink.java_data import DataOutput, encode_utf
from stateshift.formats.flink.java_objects import (
    FIRST_HANDLE,
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
    # The class of a raw value; what the fields of a row are described as; that it is the source of
    # a DISTINCT type. No such type is written anew.
    of: str = ""

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
            source = _type_of(fields.get("sourceType"), depth + 1, budget)
            return replace(source, of=source.of or "DISTINCT")
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
    "ROW": "RowType",
    "ARRAY": "ArrayType",
    "MULTISET": "MultisetType",
    "MAP": "MapType",
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
    """Whether `encode_type` knows the class of a type, and of those within."""
    return type_.root in _CLASSES and not type_.of and all(map(is_encodable, type_.inner))


def encode_type(type_: LogicalType) -> bytes:
    """Return a type as Java serializes it."""
    writer = _TypeWriter()
    writer.type(type_)
    return MAGIC + writer.out.content()


class _Layout(NamedTuple):
    """A class: its serialVersionUID and flags, its fields (type, name, class), and the one above:
    numbers come first, both by their names.
    """

    uid: int
    flags: int
    fields: tuple[tuple[str, str, str], ...] = ()
    above: str = ""


_SLASHED: Final = PACKAGE.replace(".", "/")
_LIST: Final = "java.util.Collections$UnmodifiableList"
_ROW_FIELD: Final = f"{PACKAGE}RowType$RowField"
_ENUM: Final = _Layout(0, 0x12, (), "java.lang.Enum")
_LAYOUTS: Final[Mapping[str, _Layout]] = {
    "java.lang.Enum": _Layout(0, 0x12),
    f"{PACKAGE}LogicalTypeRoot": _ENUM,
    f"{PACKAGE}TimestampKind": _ENUM,
    f"{PACKAGE}LogicalType": _Layout(
        1, 2, (("Z", "isNullable", ""), ("L", "typeRoot", f"L{_SLASHED}LogicalTypeRoot;"))
    ),
    _ROW_FIELD: _Layout(
        1,
        2,
        (
            ("L", "description", "Ljava/lang/String;"),
            ("L", "name", "Ljava/lang/String;"),
            ("L", "type", f"L{_SLASHED}LogicalType;"),
        ),
    ),
    _LIST: _Layout(
        -283967356065247728,
        2,
        (("L", "list", "Ljava/util/List;"),),
        "java.util.Collections$UnmodifiableCollection",
    ),
    "java.util.Collections$UnmodifiableCollection": _Layout(
        1820017752578914078, 2, (("L", "c", "Ljava/util/Collection;"),)
    ),
    "java.util.ArrayList": _Layout(8683452581122892189, 3, (("I", "size", ""),)),
}


def _layout(root: str) -> _Layout:
    """Return the class of a type."""
    inner: tuple[str, ...] = _INNER.get(root, ())
    fields = [("L", name, f"L{_SLASHED}LogicalType;") for name in inner]
    if root == "ROW":
        fields = [("L", "fields", "Ljava/util/List;")]
    if root.startswith("TIMESTAMP"):
        fields = [("L", "kind", f"L{_SLASHED}TimestampKind;")]
    numbers = [("I", name, "") for name in _number_names(root)]
    return _Layout(1, 2, (*numbers, *fields), f"{PACKAGE}LogicalType")


def _number_names(root: str) -> tuple[str, ...]:
    if root in _OF_LENGTH:
        return ("length",)
    if root == "DECIMAL":
        return ("precision", "scale")
    return ("precision",) if root in _OF_PRECISION else ()


class _TypeWriter:
    """Types as ObjectOutputStream writes them: what came before is a handle."""

    def __init__(self) -> None:
        self.out = DataOutput()
        self._handles: dict[tuple[str, str], int] = {}
        self._next = FIRST_HANDLE

    def type(self, type_: LogicalType) -> None:
        root = type_.root
        self._begin(PACKAGE + _CLASSES[root], _layout(root))
        self.out.boolean(type_.nullable)
        self._enum(f"{PACKAGE}LogicalTypeRoot", root)
        for name in _number_names(root):
            self.out.i4(type_.scale if name == "scale" else type_.size)
        if root.startswith("TIMESTAMP"):
            self._enum(f"{PACKAGE}TimestampKind", "REGULAR")
        if root == "ROW":
            self._fields(type_)
            return
        for inner in type_.inner:
            self.type(inner)

    def _fields(self, row: LogicalType) -> None:
        """Write the list of a row's fields, which two classes of it refer to."""
        self._begin(_LIST, _LAYOUTS[_LIST])
        own = self._begin("java.util.ArrayList", _LAYOUTS["java.util.ArrayList"])
        self.out.i4(len(row.inner))
        self.out.put(b"w\4")
        self.out.i4(len(row.inner))
        for name, inner in zip(row.names, row.inner, strict=True):
            self._begin(_ROW_FIELD, _LAYOUTS[_ROW_FIELD])
            self.out.put(b"pt" + encode_utf(name))  # no description
            self._next += 1
            self.type(inner)
        self.out.put(b"xq")
        self.out.i4(own)

    def _begin(self, name: str, layout: _Layout) -> int:
        """Begin an object, and return its handle."""
        self.out.put(b"s")
        self._class(name, layout)
        self._next += 1
        return self._next - 1

    def _class(self, name: str, layout: _Layout) -> None:
        if self._is_known("class", name):
            return
        self.out.put(b"r" + encode_utf(name))
        self.out.i8(layout.uid)
        self.out.u1(layout.flags)
        self.out.i2(len(layout.fields))
        for kind, field, signature in layout.fields:
            self.out.put(kind.encode() + encode_utf(field))
            if signature:
                self._text(signature)
        self.out.put(b"x")
        if layout.above:
            self._class(layout.above, _LAYOUTS[layout.above])
        else:
            self.out.put(b"p")

    def _enum(self, type_: str, name: str) -> None:
        if (type_, name) not in self._handles:
            self.out.put(b"~")
            self._class(type_, _LAYOUTS[type_])
        if not self._is_known(type_, name):
            self._text(name)

    def _text(self, text: str) -> None:
        if not self._is_known("text", text):
            self.out.put(b"t" + encode_utf(text))

    def _is_known(self, kind: str, name: str) -> bool:
        """Write the handle of what came before; of what comes now, keep it."""
        known = self._handles.setdefault((kind, name), self._next)
        if known == self._next:
            self._next += 1
            return False
        self.out.put(b"q")
        self.out.i4(known)
        return True


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, int):
        return value
    raise _Unreadable


def _row(root: str, nullable: bool, listed: object, depth: int, budget: _Budget) -> LogicalType:
    items = items_of(listed)
    if items is None:
        raise _Unreadable
    names, inner, of = [], [], ""
    for item in items:
        name = item.fields.get("name") if isinstance(item, JavaObject) else None
        if not isinstance(item, JavaObject) or not isinstance(name, str):
            raise _Unreadable
        names.append(name)
        inner.append(_type_of(item.fields.get("type"), depth + 1, budget))
        of += str(item.fields.get("description") or "")
    return LogicalType(root, nullable, inner=tuple(inner), names=tuple(names), of=of)
