"""Serializers, as far as they can be read without their classes: snapshots in headers, and values.

    snapshot   utf class, i32 version, what the class adds; an i32 2 in front of one that stands by
               itself
    simple     nothing: String, Long, Int, Short, Byte, Boolean, Double, Float, byte[],
               VoidNamespace, TimeWindow, ...
    composite  i32 911108, i32 version, what the outer one adds (Tuple and GenericArray: utf class),
               i32 1333245, i32 1, i32 n, n snapshots: Tuple, List, Map, Timer, Ttl (a time, and a
               value)

An unknown serializer ends the readable part: snapshots have no length (`Unknown`).

Strings are written as their length + 1 and then their UTF-16 units, each a varint of seven bits a
byte, lowest first.

Flink: api/common/typeutils/{SimpleTypeSerializerSnapshot, CompositeTypeSerializerSnapshot, base/*},
types/StringValue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from stateshift.formats.flink.java_data import DataInput

_OUTER, _NESTED, _NESTED_VERSION = 911108, 1333245, 1
_SIMPLE_WITH_CLASS, _SIMPLE_VERSION = 2, 3
_PROXY_OLD, _PROXY = 1, 2  # of Flink before 1.7, and since
_COMPOSITE_OLD = 2  # up to it a composite has no number in front of what the outer one adds
DEPTH_MAX: Final = 32


class Unknown(Exception):
    """Nothing more can be read of a serializer. `snapshot`: its snapshot's class, if known."""

    def __init__(self, fact: str, snapshot: str | None = None) -> None:
        super().__init__(fact)
        self.snapshot = snapshot


@dataclass(frozen=True, slots=True)
class Serializer:
    """`name`: the snapshot's class without package and "Snapshot"; `type`: of a tuple."""

    name: str
    version: int
    inner: tuple[Serializer, ...] = ()
    type: str | None = None


def read_snapshot(data: DataInput, nested: bool = False, depth: int = 0) -> Serializer:
    """Read a snapshot to its end. Unknown: its class is not known here."""
    if depth > DEPTH_MAX:
        raise data.wrong("serializers are nested too deeply")
    if not nested:
        _read_proxy(data)
    at, class_name = data.at, data.utf()
    meant = misspelt(class_name)
    if meant is not None:
        raise data.wrong(f"a serializer's class {class_name!r}, which would be {meant}", at)
    version = data.i4()
    name = snapshot_name(class_name)
    if name in _SIMPLE:
        # Nothing is behind it since version 3; version 2 had the serializer's class there.
        if version == _SIMPLE_WITH_CLASS:
            data.utf()
        elif version != _SIMPLE_VERSION:
            raise _refused(data, f"version {version}, of which Flink reads 2 and 3", class_name)
        return Serializer(name, version)
    if name not in _ARITY:
        known = _VERSIONS.get(name, (version,))
        if version not in known:
            raise _refused(data, f"version {version}, of which Flink reads {known[0]}", class_name)
        raise Unknown("a serializer that is not known here", class_name)
    return _read_composite(data, Serializer(name, version), class_name, depth)


def _read_proxy(data: DataInput) -> None:
    at, version = data.at, data.i4()
    if version == _PROXY_OLD:
        raise Unknown("a snapshot of another kind")
    if version != _PROXY:
        raise data.wrong(f"a serializer in version {version}, of which Flink reads {_PROXY}", at)


def _read_composite(data: DataInput, outer: Serializer, class_name: str, depth: int) -> Serializer:
    name = outer.name
    _read_outer(data, outer.version, class_name)
    at = data.at
    of = data.utf() if name in _WITH_CLASS else None
    if data.i4() != _NESTED:
        raise _refused(data, f"not the number {_NESTED} in front of its serializers", class_name)
    version = data.i4()
    if version != _NESTED_VERSION:
        raise _refused(
            data,
            f"serializers in version {version}, of which Flink reads {_NESTED_VERSION}",
            class_name,
        )
    count = data.items("serializers")
    inner = tuple(read_snapshot(data, True, depth + 1) for _ in range(count))
    arity = _ARITY[name]
    if arity is not None and len(inner) != arity:
        raise data.wrong(f"{name} has {len(inner)} serializers, and not {arity}", at)
    if of is not None:
        _check_tuple(data, of, len(inner), at)
    return replace(outer, inner=inner, type=of)


def _read_outer(data: DataInput, version: int, class_name: str) -> None:
    """Read the numbers before the fields of the outer one. Up to version 2 there were none."""
    if data.i4() == _OUTER:
        if version <= _COMPOSITE_OLD:
            raise _refused(data, f"the layout of version 3, but version {version}", class_name)
        data.i4()
        return
    if version <= _COMPOSITE_OLD:
        raise Unknown("a composite of an older version", class_name)
    raise _refused(data, f"not the number {_OUTER} in front of its layout", class_name)


def _refused(data: DataInput, has: str, class_name: str) -> Exception:
    """Return the error for a snapshot that Flink would not read; a job's class has own rules."""
    if not class_name.startswith(_FLINK):
        return Unknown("a serializer that is not known here", class_name)
    return data.wrong(f"a snapshot of {snapshot_name(class_name)} has {has}")


def _check_tuple(data: DataInput, class_name: str, arity: int, at: int) -> None:
    """Refuse a Flink tuple's class that does not exist, or has other fields; not a job's own."""
    wanted = f"{_TUPLE}{arity}"
    if class_name == wanted:
        return
    is_begun = wanted.startswith(class_name)
    if is_begun or class_name.startswith(_TUPLE) or _is_nearly(class_name, wanted):
        raise data.wrong(
            f"a tuple of {arity} fields has the class {class_name!r}, which would be {wanted}", at
        )


def value(serializer: Serializer, data: DataInput) -> object:
    """Read a value as JSON can tell it; Unknown where that takes the job's own classes."""
    read = _SIMPLE.get(serializer.name)
    if read is not None:
        return read(data)
    match serializer.name:
        case "TupleSerializer":
            return [value(inner, data) for inner in serializer.inner]
        case "ListSerializer":
            (inner,) = serializer.inner
            if takes_no_bytes(inner):  # there could be any number
                raise Unknown(f"items of no bytes ({inner.name})")
            return [value(inner, data) for _ in range(data.items("items"))]
        case "MapSerializer":
            of_key, of_value = serializer.inner
            items: list[object] = []
            for _ in range(data.items("items")):
                key, is_null = value(of_key, data), data.boolean()
                items.append([key, None if is_null else value(of_value, data)])
            return items
        case "TtlSerializer":
            of_time, of_value = serializer.inner
            last_access = value(of_time, data)
            return {"last_access": last_access, "value": value(of_value, data)}
    raise Unknown(serializer.name)


def takes_no_bytes(serializer: Serializer) -> bool:
    """Whether a value of it may take no bytes at all, as a tuple of no fields does."""
    return serializer.name == "TupleSerializer" and all(map(takes_no_bytes, serializer.inner))


def snapshot_name(class_name: str) -> str:
    """Return a serializer's name: its snapshot's class without package and "Snapshot"."""
    return class_name.rpartition(".")[2].rpartition("$")[2].removesuffix("Snapshot")


def misspelt(class_name: str) -> str | None:
    """Return the Flink class that this one misses by a letter or two: Flink would find none."""
    if class_name in _CLASSES:
        return None
    is_long_enough = len(class_name) >= _BEGUN_MIN
    begun = [known for known in _CLASSES if known.startswith(class_name)]
    if begun and is_long_enough:
        return begun[0]
    return next((known for known in _CLASSES if _is_nearly(class_name, known)), None)


def _is_nearly(class_name: str, known: str) -> bool:
    if len(class_name) != len(known):
        return False
    letters = zip(class_name, known, strict=True)
    return sum(letter != instead for letter, instead in letters) <= _LETTERS_MAX


def read_string(data: DataInput) -> str | None:
    """Read a string: length + 1, then UTF-16 units, each a varint; a length of 0 is None."""
    length = _varint(data)
    if length == 0:
        return None
    units = []
    for _ in range(length - 1):
        at, unit = data.at, _varint(data)
        if unit > 0xFFFF:
            raise data.wrong("a string holds an invalid UTF-16 unit", at)
        units.append(unit)
    return struct.pack(f">{len(units)}H", *units).decode("utf-16-be", "surrogatepass")


def _varint(data: DataInput) -> int:
    number = shift = 0
    while True:
        at, byte = data.at, data.u1()
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7
        if shift > 28:
            raise data.wrong("unterminated varint", at)


def _of(form: str) -> Callable[[DataInput], object]:
    size = struct.calcsize(form)
    return lambda data: struct.unpack(form, data.take(size))[0]


def _read_void(data: DataInput) -> None:
    data.take(1)


_SIMPLE: Final[Mapping[str, Callable[[DataInput], object]]] = {
    "StringSerializer": read_string,
    "LongSerializer": DataInput.i8,
    "IntSerializer": DataInput.i4,
    "ShortSerializer": DataInput.i2,
    "ByteSerializer": _of(">b"),
    "BooleanSerializer": DataInput.boolean,
    "DoubleSerializer": _of(">d"),
    "FloatSerializer": _of(">f"),
    "BytePrimitiveArraySerializer": lambda data: data.take(data.count("bytes")).hex(),
    "VoidNamespaceSerializer": _read_void,
    "TimeWindowSerializer": lambda data: [data.i8(), data.i8()],
}
# How many serializers each composite is made of; None: any number.
_ARITY: Final[Mapping[str, int | None]] = {
    "TupleSerializer": None,
    "ListSerializer": 1,
    "MapSerializer": 2,
    "TimerSerializer": 2,
    "TtlSerializer": 2,
}
_WITH_CLASS: Final = ("TupleSerializer",)
_BASE: Final = "org.apache.flink.api.common.typeutils.base."
_RUNTIME: Final = "org.apache.flink.api.java.typeutils.runtime."
_TABLE: Final = "org.apache.flink.table.runtime.typeutils."
_WINDOWS: Final = "org.apache.flink.streaming.api.windowing.windows."
_LETTERS_MAX: Final = 2
_BEGUN_MIN: Final = 16  # letters that no other class begins with and ends after
_FLINK: Final = "org.apache.flink."
_TUPLE: Final = f"{_FLINK}api.java.tuple.Tuple"
# The versions that Flink reads of serializers that are not decoded here, where it refuses others.
_VERSIONS: Final[Mapping[str, tuple[int, ...]]] = {"PojoSerializer": (2,)}
_CLASSES: Final = frozenset(
    (
        *(
            f"{_BASE}{name}Serializer${name}SerializerSnapshot"
            for name in ("String", "Long", "Int", "Short", "Byte", "Boolean", "Double", "Float")
        ),
        f"{_BASE}array.BytePrimitiveArraySerializer$BytePrimitiveArraySerializerSnapshot",
        *(f"{_BASE}{name}SerializerSnapshot" for name in ("List", "Map")),
        *(f"{_RUNTIME}{name}SerializerSnapshot" for name in ("Pojo", "Tuple", "kryo.Kryo")),
        f"{_RUNTIME}NullableSerializer$NullableSerializerSnapshot",
        "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot",
        "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot",
        "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot",
        f"{_WINDOWS}TimeWindow$Serializer$TimeWindowSerializerSnapshot",
        "org.apache.flink.table.dataview.NullSerializer$NullSerializerSnapshot",
        *(
            f"{_TABLE}{name}Serializer${name}SerializerSnapshot"
            for name in ("RowData", "StringData", "RawValueData", "External")
        ),
    )
)
