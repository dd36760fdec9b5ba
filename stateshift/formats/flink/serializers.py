"""Serializers, as far as they can be read without their classes: their snapshots in headers.

    snapshot   utf class, i32 version, what the class adds; an i32 2 in front of one that stands by
               itself
    simple     nothing: String, Long, Int, byte[], Instant, VoidNamespace, TimeWindow, ...
    composite  i32 911108, i32 version, what the outer one adds (`_COMPOSITES`), i32 1333245, i32 1,
               i32 n, n snapshots: Tuple, List, Map, Row, Either, Timer, Ttl (a time, and a value)
    enum       utf class, i32 n, n * utf
    POJO       utf class, 3 maps: fields, registered subclasses, others
    Kryo       utf class, 3 maps: registrations (utf class, i32, utf its serializer if that is 1),
               default serializers: objects, and classes
    map        i64 4f2c69a3d70, i32 n, n * (utf, u1 + [i32 + bytes], u1 + [i32 + snapshot])
    RowData    i32 n, n types of SQL, each an object of Java's; i32 1333245, i32 1, i32 n, snapshots
    ArrayData, MapData    types, and serializers, each an object of Java's
    Avro       class, schema: each utf, since version 3 a string as its serializer writes it

An unknown serializer ends the readable part: snapshots have no length (`Unknown`), but for those in
maps. `values` reads what serializers write; one whose values only the job's classes can read
(`is_opaque`) hides those behind it.

Flink: api/common/typeutils/{SimpleTypeSerializerSnapshot, CompositeTypeSerializerSnapshot, base/*},
api/java/typeutils/runtime/{PojoSerializerSnapshotData, kryo/KryoSerializerSnapshotData},
util/LinkedOptionalMapSerializer, table/runtime/typeutils/*, formats/avro/typeutils/
AvroSerializerSnapshot.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from stateshift.formats.flink import binary_rows, protobuf, values
from stateshift.formats.flink.avro_data import avro_reader
from stateshift.formats.flink.binary_rows import field_names, row_reader, span_reader
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.java_objects import read_object
from stateshift.formats.flink.logical_types import DECIMAL_DIGITS_MAX, LogicalType, logical_type
from stateshift.formats.flink.values import Reader, Unknown

__all__ = ["Serializer", "Unknown", "read_snapshot", "value"]

_OUTER, _NESTED, _NESTED_VERSION = 911108, 1333245, 1
_SIMPLE_WITH_CLASS, _SIMPLE_VERSION = 2, 3
_PROXY_OLD, _PROXY = 1, 2  # of Flink before 1.7, and since
_COMPOSITE_OLD = 2  # up to it a composite has no number in front of what the outer one adds
OPTIONAL_MAP: Final = 0x4F2C69A3D70
DEPTH_MAX: Final = 32


@dataclass(frozen=True)
class Serializer:
    """`name`: the snapshot's class without package and "Snapshot"; `type`: of a tuple, an object.

    `fields` names the parts of `inner`, or an enum's constants; `columns` are SQL's types. A
    number that the outer one adds is its `setting`: whether a Row has a kind, or a list nulls; the
    padding of null. `registered` are subclasses by their tags; `others` those that were met. `span`
    is where its snapshot begins and ends in the bytes that it was read from.
    """

    name: str
    version: int
    inner: tuple[Serializer, ...] = ()
    type: str | None = None
    fields: tuple[str, ...] = ()
    columns: tuple[LogicalType, ...] = ()
    setting: int = 0
    schema: str | None = None
    registered: tuple[tuple[str, Serializer], ...] = ()
    others: tuple[tuple[str, Serializer], ...] = field(default=(), compare=False)
    span: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)

    @cached_property
    def reader(self) -> Reader:
        """The reader of the values."""
        read = _SIMPLE.get(self.name)
        if read is not None:
            return read
        make = _READERS.get(self.name)
        return values.unreadable(self.name) if make is None else make(self)

    @cached_property
    def row_form(self) -> struct.Struct | None:
        """The form of rows of SQL, where all fields are numbers."""
        return binary_rows.row_form(self.columns)

    @cached_property
    def is_opaque(self) -> bool:
        """Whether it, or one within it, has values that only the job's classes can read."""
        return self.first_opaque() is not None

    def first_opaque(self) -> Serializer | None:
        """Return the first one with such values: itself, or one within it."""
        if self.name not in _SIMPLE and self.name not in _READERS:
            return self
        if self.name == "AvroSerializer" and avro_reader(self.schema or "") is None:
            return self
        opaque = (serializer.first_opaque() for serializer in self.within())
        return next((one for one in opaque if one is not None), None)

    @cached_property
    def may_be_unknown(self) -> bool:
        """Whether it is opaque, or has objects that may be of classes it does not describe."""
        if self.is_opaque or self.name == "PojoSerializer":
            return True
        return any(serializer.may_be_unknown for serializer in self.within())

    def within(self) -> tuple[Serializer, ...]:
        subclasses = (*self.registered, *self.others)
        return (*self.inner, *(serializer for _, serializer in subclasses))


def value(serializer: Serializer, data: DataInput) -> object:
    """Read a value as JSON can tell it; Unknown where that takes the job's own classes."""
    return serializer.reader(data)


def read_snapshot(data: DataInput, nested: bool = False, depth: int = 0) -> Serializer:
    """Read a snapshot to its end. Unknown: its class is not known here."""
    if depth > DEPTH_MAX:
        raise data.wrong("serializers are nested too deeply")
    if not nested:
        _read_proxy(data)
    at = data.at
    return replace(_read_named(data, depth), span=(at, data.at))


def _read_named(data: DataInput, depth: int) -> Serializer:
    at, class_name = data.at, data.utf()
    meant = misspelt(class_name)
    if meant is not None:
        raise data.wrong(f"a serializer's class {class_name!r}, which would be {meant}", at)
    version = data.i4()
    name = snapshot_name(class_name)
    snapshot = _Snapshot(data, name, version, class_name, depth)
    if name in _SIMPLE or name in _SIMPLE_OPAQUE:
        # Nothing is behind it since version 3; version 2 had the serializer's class there.
        if version == _SIMPLE_WITH_CLASS:
            data.utf()
        elif version != _SIMPLE_VERSION:
            raise snapshot.refused(f"version {version}, of which Flink reads 2 and 3")
        return Serializer(name, version)
    if name in _COMPOSITES:
        return _read_composite(snapshot)
    body = _BODIES.get(name)
    if body is None:
        raise Unknown("a serializer that is not known here", class_name)
    known, read = body
    if version not in known:
        raise snapshot.refused(f"version {version}, of which Flink reads {known[0]}")
    return read(snapshot)


def _read_proxy(data: DataInput) -> None:
    at, version = data.at, data.i4()
    if version == _PROXY_OLD:
        raise Unknown("a snapshot of another kind")
    if version != _PROXY:
        raise data.wrong(f"a serializer in version {version}, of which Flink reads {_PROXY}", at)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A snapshot whose class and version have been read."""

    data: DataInput
    name: str
    version: int
    class_name: str
    depth: int

    def serializer(self) -> Serializer:
        return Serializer(self.name, self.version)

    def refused(self, has: str) -> Exception:
        """Return the error for a snapshot that Flink would not read; a job's has own rules."""
        if not self.class_name.startswith(_FLINK):
            return Unknown("a serializer that is not known here", self.class_name)
        return self.data.wrong(f"a snapshot of {self.name} has {has}")

    def nested(self) -> tuple[Serializer, ...]:
        """Read the snapshots of the serializers within."""
        data = self.data
        if data.i4() != _NESTED:
            raise self.refused(f"not the number {_NESTED} in front of its serializers")
        version = data.i4()
        if version != _NESTED_VERSION:
            raise self.refused(
                f"serializers in version {version}, of which Flink reads {_NESTED_VERSION}"
            )
        count = data.items("serializers")
        return tuple(read_snapshot(data, True, self.depth + 1) for _ in range(count))


# ---- composites ----------------------------------------------------------------------------------


def _read_composite(snapshot: _Snapshot) -> Serializer:
    data, composite = snapshot.data, _COMPOSITES[snapshot.name]
    outer_version = _read_outer(snapshot)
    at = data.at
    serializer = composite.outer(snapshot, outer_version)
    inner = snapshot.nested()
    if composite.arity is not None and len(inner) != composite.arity:
        fact = f"{snapshot.name} has {len(inner)} serializers, and not {composite.arity}"
        raise data.wrong(fact, at)
    if snapshot.name == "TupleSerializer" and serializer.type is not None:
        _check_tuple(data, serializer.type, len(inner), at)
    return replace(serializer, inner=inner)


def _read_outer(snapshot: _Snapshot) -> int:
    """Read the numbers before the fields of the outer one. Up to version 2 there were none."""
    if snapshot.data.i4() == _OUTER:
        if snapshot.version <= _COMPOSITE_OLD:
            raise snapshot.refused(f"the layout of version 3, but version {snapshot.version}")
        return snapshot.data.i4()
    if snapshot.version <= _COMPOSITE_OLD:
        raise Unknown("a composite of an older version", snapshot.class_name)
    raise snapshot.refused(f"not the number {_OUTER} in front of its layout")


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


def read_nothing_more(snapshot: _Snapshot, version: int) -> Serializer:
    """Return the serializer: its outer one adds nothing."""
    return snapshot.serializer()


def read_outer_class(snapshot: _Snapshot, version: int) -> Serializer:
    """Read the class that the outer one adds."""
    return replace(snapshot.serializer(), type=snapshot.data.utf())


def read_padding(snapshot: _Snapshot, version: int) -> Serializer:
    """Read the bytes of null that the outer one adds."""
    return replace(snapshot.serializer(), setting=snapshot.data.count("bytes of padding"))


def flag_since(first: int, before: bool = True) -> Callable[[_Snapshot, int], Serializer]:
    """Return the reader of a flag that the version before has not; there it is as `before`."""

    def read(snapshot: _Snapshot, version: int) -> Serializer:
        told = snapshot.data.boolean() if version >= first else before and version == first - 1
        return replace(snapshot.serializer(), setting=int(told))

    return read


def read_data_type(snapshot: _Snapshot, version: int) -> Serializer:
    """Read the type of SQL and the flag that the outer one adds."""
    read_object(snapshot.data)
    snapshot.data.boolean()
    return snapshot.serializer()


@dataclass(frozen=True, slots=True)
class _Composite:
    """The number of serializers a composite is made of (None: any), and what the outer one adds."""

    arity: int | None
    outer: Callable[[_Snapshot, int], Serializer] = read_nothing_more


_COMPOSITES: Final[Mapping[str, _Composite]] = {
    "TupleSerializer": _Composite(None, read_outer_class),
    "ScalaCaseClassSerializer": _Composite(None, read_outer_class),
    "Tuple2CaseClassSerializer": _Composite(None, read_outer_class),
    "ListSerializer": _Composite(1),
    "SetSerializer": _Composite(1),
    "ArrayListSerializer": _Composite(1),
    "GenericArraySerializer": _Composite(1, read_outer_class),
    "MapSerializer": _Composite(2),
    "RowSerializer": _Composite(None, flag_since(4)),
    "JavaEitherSerializer": _Composite(2),
    "EitherSerializer": _Composite(2),
    "ScalaEitherSerializer": _Composite(2),
    "ScalaOptionSerializer": _Composite(1),
    "NullableSerializer": _Composite(1, read_padding),
    "UnionSerializer": _Composite(2),
    "BufferEntrySerializer": _Composite(1),
    "TimerSerializer": _Composite(2),
    "TtlSerializer": _Composite(2),
    "ExternalSerializer": _Composite(1, read_data_type),
    "LinkedListSerializer": _Composite(1, flag_since(3)),
    "RawValueDataSerializer": _Composite(1),
    "WindowKeySerializer": _Composite(1),
    "NodeIdSerializer": _Composite(1),
    "LockableTypeSerializer": _Composite(1),
    "SharedBufferEdgeSerializer": _Composite(2),
    "SharedBufferNodeSerializerSnapshotV2": _Composite(1),
    "NFAStateSerializer": _Composite(3, flag_since(2, before=False)),
}


# ---- others --------------------------------------------------------------------------------------


def read_enum(snapshot: _Snapshot) -> Serializer:
    """Read the class and the constants of an enum."""
    data, type_ = snapshot.data, snapshot.data.utf()
    names = tuple(data.utf() for _ in range(data.items("constants")))
    return replace(snapshot.serializer(), type=type_, fields=names)


class OptionalEntry(NamedTuple):
    """An entry of a map in a snapshot: a name; the field or the class by itself, and the value,
    where they are there.
    """

    name: str
    key: DataInput | None
    value: DataInput | None


def optional_map(data: DataInput, name: str) -> list[OptionalEntry]:
    """Read a map in a snapshot of `name`, whose values have lengths."""
    at = data.at
    if data.i8() != OPTIONAL_MAP:
        raise data.wrong(f"a snapshot of {name} has no map where one begins", at)
    found: list[OptionalEntry] = []
    for _ in range(data.items("entries")):
        entry_name = data.utf()
        key = data.within() if data.boolean() else None
        found.append(OptionalEntry(entry_name, key, data.within() if data.boolean() else None))
    return found


def _named_serializers(snapshot: _Snapshot) -> tuple[tuple[str, Serializer], ...]:
    """Read serializers with names; those that are not known here are opaque."""
    named = []
    for name, _, content in optional_map(snapshot.data, snapshot.name):
        serializer = Serializer("no serializer", 0)
        if content is not None:
            try:
                serializer = read_snapshot(content, True, snapshot.depth + 1)
                content.require_end(f"bytes behind the serializer of {name!r}")
            except Unknown as unknown:
                serializer = Serializer(snapshot_name(unknown.snapshot or "unknown"), 0)
        named.append((name, serializer))
    return tuple(named)


def read_pojo(snapshot: _Snapshot) -> Serializer:
    """Read the class, the fields and the subclasses of a POJO."""
    type_ = snapshot.data.utf()
    fields = _named_serializers(snapshot)
    return replace(
        snapshot.serializer(),
        type=type_,
        fields=tuple(name for name, _ in fields),
        inner=tuple(serializer for _, serializer in fields),
        registered=_named_serializers(snapshot),
        others=_named_serializers(snapshot),
    )


def read_kryo(snapshot: _Snapshot) -> Serializer:
    """Read the class of Kryo's values: messages of protobuf, if chill's serializer is registered
    for it; or for what it extends, and a descriptor has the class.
    """
    data, type_ = snapshot.data, snapshot.data.utf()
    registered, _, defaults = (optional_map(data, snapshot.name) for _ in range(3))
    is_message = False
    for name, _, registration in registered:
        if name == type_ and registration is not None:
            registration.utf()
            is_message = registration.i4() == _BY_CLASS and registration.utf() == protobuf.CHILL
    if not is_message and protobuf.is_described(type_):
        classes = [each.value.utf() for each in defaults if each.value is not None]
        is_message = protobuf.CHILL in classes
    serializer = snapshot.serializer()
    return replace(serializer, name=MESSAGE if is_message else serializer.name, type=type_)


_BY_CLASS: Final = 1  # a registration with a serializer's class
MESSAGE: Final = "ProtobufSerializer"


def read_class(snapshot: _Snapshot) -> Serializer:
    """Read the class of the values."""
    return replace(snapshot.serializer(), type=snapshot.data.utf())


def read_row_data(snapshot: _Snapshot) -> Serializer:
    """Read the columns of a row of SQL."""
    data, at = snapshot.data, snapshot.data.at
    columns = [logical_type(read_object(data)) for _ in range(data.items("columns"))]
    inner = snapshot.nested()
    if len(inner) != len(columns):
        raise data.wrong(f"a row of {len(columns)} columns has {len(inner)} serializers", at)
    readable = tuple(column for column in columns if column is not None)
    if len(readable) != len(columns):
        return Serializer("a row of SQL with a type that is not known here", snapshot.version)
    names = field_names(len(columns))
    # The types tell all that the serializers within do.
    return replace(snapshot.serializer(), columns=readable, fields=names)


def read_array_data(snapshot: _Snapshot) -> Serializer:
    """Read the type of the items of an array of SQL."""
    column = logical_type(read_object(snapshot.data))
    read_object(snapshot.data)
    if column is None:
        return Serializer("an array of a type that is not known here", snapshot.version)
    return replace(snapshot.serializer(), columns=(LogicalType("ARRAY", inner=(column,)),))


def read_map_data(snapshot: _Snapshot) -> Serializer:
    """Read the types of the keys and values of a map of SQL."""
    key, item = (logical_type(read_object(snapshot.data)) for _ in range(2))
    for _ in range(2):
        read_object(snapshot.data)
    if key is None or item is None:
        return Serializer("a map of a type that is not known here", snapshot.version)
    return replace(snapshot.serializer(), columns=(LogicalType("MAP", inner=(key, item)),))


def read_decimal(snapshot: _Snapshot) -> Serializer:
    """Read the digits of a decimal of SQL."""
    data, at = snapshot.data, snapshot.data.at
    precision, scale = data.i4(), data.i4()
    if not 0 <= scale <= precision <= DECIMAL_DIGITS_MAX:
        raise data.wrong(f"a decimal of {precision} digits, {scale} of them behind its point", at)
    return replace(snapshot.serializer(), columns=(LogicalType("DECIMAL", True, precision, scale),))


def read_timestamp(snapshot: _Snapshot) -> Serializer:
    """Read the digits of a timestamp of SQL."""
    precision = snapshot.data.i4()
    column = LogicalType("TIMESTAMP_WITHOUT_TIME_ZONE", True, precision)
    return replace(snapshot.serializer(), columns=(column,))


def read_binary_row(snapshot: _Snapshot) -> Serializer:
    """Read the number of the fields of a row whose types are not told."""
    return replace(snapshot.serializer(), setting=snapshot.data.count("fields"))


def read_sorted_map(snapshot: _Snapshot) -> Serializer:
    """Read the comparator and the serializers of a sorted map."""
    read_object(snapshot.data)  # the comparator
    at, inner = snapshot.data.at, snapshot.nested()
    if len(inner) != 2:
        raise snapshot.data.wrong(f"SortedMapSerializer has {len(inner)} serializers", at)
    return replace(snapshot.serializer(), inner=inner)


def read_avro(snapshot: _Snapshot) -> Serializer:
    """Read the class and the schema of values of Avro."""
    data = snapshot.data
    if snapshot.version == 1:
        return replace(snapshot.serializer(), schema=data.utf())
    if snapshot.version == 2:
        return replace(snapshot.serializer(), type=data.utf(), schema=data.utf())
    type_, schema = values.read_string(data), values.read_string(data)
    return replace(snapshot.serializer(), type=type_, schema=schema)


def read_ttl_aware(snapshot: _Snapshot) -> Serializer:
    """Read the serializer within one that knows of a time to live."""
    flag = snapshot.data.boolean()
    inner = read_snapshot(snapshot.data, True, snapshot.depth + 1)
    return replace(snapshot.serializer(), setting=int(flag), inner=(inner,))


# The versions that Flink reads, and the reader of what the class adds.
_BODIES: Final[Mapping[str, tuple[tuple[int, ...], Callable[[_Snapshot], Serializer]]]] = {
    "PojoSerializer": ((2,), read_pojo),
    "KryoSerializer": ((2,), read_kryo),
    "CopyableValueSerializer": ((2,), read_class),
    "EnumSerializer": ((3,), read_enum),
    "RowDataSerializer": ((3,), read_row_data),
    "ArrayDataSerializer": ((3,), read_array_data),
    "MapDataSerializer": ((3,), read_map_data),
    "DecimalSerializer": ((3,), read_decimal),
    "TimestampDataSerializer": ((1,), read_timestamp),
    "BinaryRowDataSerializer": ((3,), read_binary_row),
    "SortedMapSerializer": ((3,), read_sorted_map),
    "AvroSerializer": ((2, 1, 3), read_avro),
    "TtlAwareSerializer": ((1,), read_ttl_aware),
}


# ---- values --------------------------------------------------------------------------------------


def takes_no_bytes(serializer: Serializer) -> bool:
    """Whether a value of it may take no bytes at all, as a tuple of no fields does."""
    if serializer.name == "NullValueSerializer":
        return True
    return serializer.name in _OF_PARTS and all(map(takes_no_bytes, serializer.inner))


_OF_PARTS: Final = (
    "TupleSerializer",
    "ScalaCaseClassSerializer",
    "Tuple2CaseClassSerializer",
    "ExternalSerializer",
    "TtlAwareSerializer",
)


def _readers(serializer: Serializer) -> list[Reader]:
    return [inner.reader for inner in serializer.inner]


def _list_of(serializer: Serializer) -> Reader:
    """Return the reader of a list; of items without a byte there could be any number."""
    (inner,) = serializer.inner
    if takes_no_bytes(inner):
        return values.unreadable(f"items of no bytes ({inner.name})")
    return values.list_of(inner.reader)


def row_values(serializer: Serializer) -> Reader:
    """Return the reader of a Row."""
    names = field_names(len(serializer.inner))
    return values.row_of(names, _readers(serializer), bool(serializer.setting))


def pojo_values(serializer: Serializer) -> Reader:
    """Return the reader of a POJO."""
    return values.pojo_of(
        tuple(zip(serializer.fields, _readers(serializer), strict=True)),
        [(name, inner.reader) for name, inner in serializer.registered],
        {name: inner.reader for name, inner in serializer.others},
    )


def decimal_values(serializer: Serializer) -> Reader:
    """Return the reader of a decimal of SQL."""
    (column,) = serializer.columns
    if column.size <= binary_rows.COMPACT_DECIMAL:
        return lambda data: binary_rows.plain_decimal(data.i8(), column.scale)
    return values.sized_reader(span_reader(column))


def timestamp_values(serializer: Serializer) -> Reader:
    """Return the reader of a timestamp of SQL."""
    (column,) = serializer.columns
    if column.size <= binary_rows.COMPACT_TIMESTAMP:
        return lambda data: binary_rows.timestamp_text(column, data.i8(), 0)
    return lambda data: binary_rows.timestamp_text(column, data.i8(), data.i4())


def avro_values(serializer: Serializer) -> Reader:
    """Return the reader of values of Avro."""
    read = avro_reader(serializer.schema or "")
    return values.unreadable(serializer.name) if read is None else read


# ---- made of others ------------------------------------------------------------------------------

RECORD: Final = "fields, one after the other"
_BOOLEAN, _INT, _LONG, _STRING = (
    Serializer(f"{name}Serializer", _SIMPLE_VERSION)
    for name in ("Boolean", "Int", "Long", "String")
)


def plain_form(serializer: Serializer) -> Serializer:
    """Return one that writes the same bytes, made of records, lists and options."""
    return PLAIN_FORMS[serializer.name](serializer)


def _record(**parts: Serializer) -> Serializer:
    return Serializer(RECORD, 0, tuple(parts.values()), fields=tuple(parts))


def _list(item: Serializer) -> Serializer:
    return Serializer("ListSerializer", 0, (item,))


def _option(item: Serializer) -> Serializer:
    return Serializer("ScalaOptionSerializer", 0, (item,))


def _lockable(element: Serializer) -> Serializer:
    return _record(references=_INT, element=element)


def _matches(of: Serializer) -> Serializer:
    """Return the form of the matches of a pattern that CEP has begun, and of those to be told."""
    version, node, event = of.inner
    since = {"previous_timestamp": _LONG} if of.setting else {}
    match = _record(
        state=_STRING,
        previous_node=node,
        version=version,
        start_timestamp=_LONG,
        **since,
        start_event=_option(event),
    )
    return _record(partial_matches=_list(match), completed_matches=_list(match))


PLAIN_FORMS: Final[Mapping[str, Callable[[Serializer], Serializer]]] = {
    "TtlSerializer": lambda of: _record(last_access=of.inner[0], value=of.inner[1]),
    "BufferEntrySerializer": lambda of: _record(joined=_BOOLEAN, element=of.inner[0]),
    "WindowKeySerializer": lambda of: _record(window=_LONG, key=of.inner[0]),
    # CEP's: cep/nfa/NFAStateSerializer, cep/nfa/sharedbuffer/*
    "EventIdSerializer": lambda of: _record(id=_INT, timestamp=_LONG),
    "NodeIdSerializer": lambda of: _option(_record(event=of.inner[0], pattern=_STRING)),
    "LockableTypeSerializer": lambda of: _lockable(of.inner[0]),
    "SharedBufferEdgeSerializer": lambda of: _record(target=of.inner[0], version=of.inner[1]),
    "SharedBufferNodeSerializerSnapshotV2": lambda of: _list(_lockable(of.inner[0])),
    "NFAStateSerializer": _matches,
}
_RAW: Final = LogicalType("RAW")
_READERS: Final[Mapping[str, Callable[[Serializer], Reader]]] = {
    "TupleSerializer": lambda serializer: values.tuple_of(_readers(serializer)),
    "ScalaCaseClassSerializer": lambda serializer: values.tuple_of(_readers(serializer)),
    "Tuple2CaseClassSerializer": lambda serializer: values.tuple_of(_readers(serializer)),
    "ListSerializer": _list_of,
    "SetSerializer": lambda serializer: values.list_of(
        values.nullable_of(serializer.inner[0].reader, 0)
    ),
    "ArrayListSerializer": _list_of,
    "GenericArraySerializer": lambda serializer: values.array_of(*_readers(serializer)),
    "MapSerializer": lambda serializer: values.map_of(*_readers(serializer)),
    "SortedMapSerializer": lambda serializer: values.map_of(*_readers(serializer)),
    "RowSerializer": row_values,
    "JavaEitherSerializer": lambda serializer: values.either_of(*_readers(serializer)),
    "EitherSerializer": lambda serializer: values.either_of(*_readers(serializer)),
    "ScalaEitherSerializer": lambda serializer: values.either_of(*_readers(serializer)),
    "ScalaOptionSerializer": lambda serializer: values.option_of(*_readers(serializer)),
    "NullableSerializer": lambda serializer: values.nullable_of(
        serializer.inner[0].reader, serializer.setting
    ),
    "UnionSerializer": lambda serializer: values.union_of(*_readers(serializer)),
    "TimerSerializer": lambda serializer: values.unreadable(serializer.name),
    "TtlAwareSerializer": lambda serializer: serializer.inner[0].reader,
    "ExternalSerializer": lambda serializer: serializer.inner[0].reader,
    "LinkedListSerializer": lambda serializer: values.linked_list_of(
        serializer.inner[0].reader, bool(serializer.setting)
    ),
    "RawValueDataSerializer": lambda serializer: values.sized_reader(span_reader(_RAW)),
    "BinaryRowDataSerializer": lambda serializer: values.sized_reader(span_reader(_RAW)),
    "PojoSerializer": pojo_values,
    "EnumSerializer": lambda serializer: values.constant_of(serializer.fields),
    "RowDataSerializer": lambda serializer: values.sized_reader(
        row_reader(serializer.columns, serializer.fields)
    ),
    "ArrayDataSerializer": lambda serializer: values.sized_reader(span_reader(*serializer.columns)),
    "MapDataSerializer": lambda serializer: values.sized_reader(span_reader(*serializer.columns)),
    "DecimalSerializer": decimal_values,
    "TimestampDataSerializer": timestamp_values,
    "AvroSerializer": avro_values,
    MESSAGE: lambda serializer: protobuf.message_reader(serializer.type or ""),
    RECORD: lambda serializer: values.fields_of(serializer.fields, _readers(serializer)),
    **dict.fromkeys(PLAIN_FORMS, lambda serializer: plain_form(serializer).reader),
}


# ---- classes -------------------------------------------------------------------------------------


def snapshot_name(class_name: str) -> str:
    """Return a serializer's name: its snapshot's class without package and "Snapshot". A job's own
    class keeps its package if Flink has one of its name.
    """
    name = class_name.rpartition(".")[2].rpartition("$")[2].removesuffix("Snapshot")
    is_known = name in _SIMPLE or name in _COMPOSITES or name in _BODIES
    return name if not is_known or class_name.startswith(_FLINK) else class_name


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


_SIMPLE_OPAQUE: Final = ("JavaSerializer",)
_SIMPLE: Final[Mapping[str, Reader]] = {
    "StringSerializer": values.read_string,
    "LongSerializer": DataInput.i8,
    "IntSerializer": DataInput.i4,
    "ShortSerializer": DataInput.i2,
    "ByteSerializer": values.number_of(">b"),
    "BooleanSerializer": DataInput.boolean,
    "DoubleSerializer": values.number_of(">d"),
    "FloatSerializer": values.number_of(">f"),
    "CharSerializer": values.read_char,
    "BytePrimitiveArraySerializer": values.read_hex,
    "ShortPrimitiveArraySerializer": values.numbers_of("h"),
    "IntPrimitiveArraySerializer": values.numbers_of("i"),
    "LongPrimitiveArraySerializer": values.numbers_of("q"),
    "FloatPrimitiveArraySerializer": values.numbers_of("f"),
    "DoublePrimitiveArraySerializer": values.numbers_of("d"),
    "BooleanPrimitiveArraySerializer": values.read_booleans,
    "CharPrimitiveArraySerializer": values.read_chars,
    "StringArraySerializer": values.read_strings,
    "BigIntSerializer": values.read_big_integer,
    "BigDecSerializer": values.read_big_decimal,
    "InstantSerializer": values.read_instant,
    "LocalDateSerializer": values.read_date,
    "LocalTimeSerializer": values.read_time,
    "LocalDateTimeSerializer": values.read_date_time,
    "DateSerializer": values.read_millis,
    "SqlDateSerializer": values.read_millis,
    "SqlTimeSerializer": values.read_millis,
    "SqlTimestampSerializer": values.read_sql_timestamp,
    "LongValueSerializer": DataInput.i8,
    "IntValueSerializer": DataInput.i4,
    "ShortValueSerializer": DataInput.i2,
    "ByteValueSerializer": values.number_of(">b"),
    "BooleanValueSerializer": DataInput.boolean,
    "DoubleValueSerializer": values.number_of(">d"),
    "FloatValueSerializer": values.number_of(">f"),
    "CharValueSerializer": values.read_char,
    "StringValueSerializer": values.read_string_value,
    "NullValueSerializer": lambda data: None,
    "VoidSerializer": values.read_nothing,
    "Tuple0Serializer": values.read_nothing,
    "VoidNamespaceSerializer": values.read_nothing,
    "GlobalWindowSerializer": values.read_nothing,
    "TimeWindowSerializer": values.read_window,
    "CountWindowSerializer": DataInput.i8,
    "StringDataSerializer": values.read_utf8,
    "NullSerializer": values.read_nothing,
    "EventIdSerializer": values.fields_of(("id", "timestamp"), [DataInput.i4, DataInput.i8]),
    "DeweyNumberSerializer": values.numbers_of("i"),
}
_BASE: Final = "org.apache.flink.api.common.typeutils.base."
_RUNTIME: Final = "org.apache.flink.api.java.typeutils.runtime."
_TABLE: Final = "org.apache.flink.table.runtime.typeutils."
_WINDOWS: Final = "org.apache.flink.streaming.api.windowing.windows."
_TABLE_WINDOWS: Final = "org.apache.flink.table.runtime.operators.window."
_CEP: Final = "org.apache.flink.cep.nfa."
_LETTERS_MAX: Final = 2
_BEGUN_MIN: Final = 16  # letters that no other class begins with and ends after
_FLINK: Final = "org.apache.flink."
_TUPLE: Final = f"{_FLINK}api.java.tuple.Tuple"
_NUMBERS: Final = ("Long", "Int", "Short", "Byte", "Boolean", "Double", "Float", "Char")
_TIMES: Final = ("Instant", "LocalDate", "LocalTime", "LocalDateTime", "Date")
_SQL_TIMES: Final = ("SqlDate", "SqlTime", "SqlTimestamp")
_CLASSES: Final = frozenset(
    (
        *(
            f"{_BASE}{name}Serializer${name}SerializerSnapshot"
            for name in (
                *("String", "BigInt", "BigDec", "Enum", "Void", *_NUMBERS, *_TIMES, *_SQL_TIMES),
                *(f"{name}Value" for name in ("String", "Null", *_NUMBERS)),
            )
        ),
        *(
            f"{_BASE}array.{name}ArraySerializer${name}ArraySerializerSnapshot"
            for name in ("String", *(f"{name}Primitive" for name in _NUMBERS))
        ),
        *(f"{_BASE}{name}SerializerSnapshot" for name in ("List", "Map", "Set", "GenericArray")),
        *(
            f"{_RUNTIME}{name}SerializerSnapshot"
            for name in ("Pojo", "Tuple", "Tuple0", "kryo.Kryo", "JavaEither", "Either")
        ),
        *(
            f"{_RUNTIME}{name}Serializer${name}SerializerSnapshot"
            for name in ("Nullable", "Row", "Value", "CopyableValue")
        ),
        "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot",
        "org.apache.flink.runtime.state.ArrayListSerializerSnapshot",
        "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot",
        "org.apache.flink.runtime.state.ttl.TtlAwareSerializerSnapshot",
        "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot",
        f"{_WINDOWS}TimeWindow$Serializer$TimeWindowSerializerSnapshot",
        f"{_WINDOWS}GlobalWindow$Serializer$GlobalWindowSerializerSnapshot",
        *(
            f"{_TABLE_WINDOWS}{name}Window$Serializer${name}WindowSerializerSnapshot"
            for name in ("Time", "Count", "Global")
        ),
        "org.apache.flink.table.dataview.NullSerializer$NullSerializerSnapshot",
        *(
            f"{_TABLE}{name}Serializer${name}SerializerSnapshot"
            for name in (
                *("RowData", "StringData", "RawValueData", "External", "ArrayData", "MapData"),
                *("BinaryRowData", "TimestampData", "LinkedList", "WindowKey"),
            )
        ),
        f"{_TABLE}DecimalDataSerializer$DecimalSerializerSnapshot",
        f"{_TABLE}SortedMapSerializerSnapshot",
        "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot",
        f"{_CEP}NFAStateSerializerSnapshot",
        f"{_CEP}DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot",
        *(
            f"{_CEP}sharedbuffer.{name}${name}Serializer${name}SerializerSnapshot"
            for name in ("EventId", "NodeId", "SharedBufferEdge")
        ),
        f"{_CEP}sharedbuffer.LockableTypeSerializerSnapshot",
        f"{_CEP}sharedbuffer.SharedBufferNodeSerializerSnapshotV2",
    )
)
