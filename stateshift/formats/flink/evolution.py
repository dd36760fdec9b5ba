"""Changes of serializers, and of the values that they wrote: fields are added, dropped, renamed,
widened and put in another order. Pure.

    evolve_state(content, state, changes) -> StateChange    of a state in a header's bytes
    FieldChanges   changes of the fields of an object, by their names; inside of another with dots
    Part           a snapshot as Flink would write it for the new class, and a function that reads
                   an old value and returns it as the new class is written

Objects are POJOs, Row, rows of SQL (RowData), records of Avro; fields inside of tuples, lists, maps
and values with a time to live are reached as well. Bytes of what stays are copied. A value that is
no object has one field, `value`; a map's own key is reached as `map_key`.

    POJO      fields in the order of their names (PojoTypeInfo); the classes that are derived from
              it change with it. A new one is of a Java type: `long` is never null, `Long` may be
    Row       fields f0, f1, ... of Java types, which may be null
    RowData   columns f0, f1, ... of types of SQL; each is an object of Java's in the snapshot. The
              fields of a ROW within have the names of its type, and of rows in an ARRAY or a MAP
              only those change
    Avro      the schema in the snapshot changes, and Flink's encoding of the values with it

Flink: api/java/typeutils/runtime/{PojoSerializerSnapshot, RowSerializer}, table/runtime/typeutils/
RowDataSerializer, table/data/writer/BinaryRowWriter, formats/avro/typeutils/AvroSerializerSnapshot.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

from stateshift.formats.flink import values
from stateshift.formats.flink.avro_data import NODES_MAX, Reader, SchemaParser, avro_reader
from stateshift.formats.flink.binary_rows import (
    COMPACT_DECIMAL,
    ROW_PLACE,
    SHORT,
    Slot,
    SlotReader,
    Span,
    encode_row,
    field_names,
    null_slot,
    null_slot_at,
    slot_of,
    slot_places,
    slot_reader,
    wide_decimal,
)
from stateshift.formats.flink.encoding import UnfitValue, encode, encode_avro_default
from stateshift.formats.flink.java_data import DataInput, DataOutput, encode_utf
from stateshift.formats.flink.java_objects import read_object
from stateshift.formats.flink.keyed_state import StateInfo
from stateshift.formats.flink.logical_types import (
    NAMES_OF_TYPES,
    LogicalType,
    encode_type,
    is_encodable,
    parse_type,
)
from stateshift.formats.flink.serializers import (
    MESSAGE,
    OPTIONAL_MAP,
    OptionalEntry,
    Serializer,
    optional_map,
    read_snapshot,
)
from stateshift.formats.flink.values import NUMBERS
from stateshift.plain import NOTHING, JsonObject

T = TypeVar("T")
Write = Callable[[DataInput], bytes]

_I4: Final = struct.Struct(">i")
_FLOAT_DIGITS: Final = 15  # that a float tells of any decimal
_BASE: Final = "org.apache.flink.api.common.typeutils.base."
_TABLE: Final = "org.apache.flink.table.runtime.typeutils."
_SIMPLE_VERSION: Final = 3


class Unfit(ValueError):
    """The change does not fit the type: the message is the fact."""


class FieldChange(NamedTuple):
    """A change of one field: its kind (add, widen, rename, drop, nullable); the field's path, blank
    for the object itself; the type or name that it gets; and the new field as the spec has it.
    """

    kind: str
    path: str
    to: str = ""
    field: JsonObject = NOTHING


@dataclass(frozen=True, slots=True)
class FieldChanges:
    """The changes of an object."""

    each: tuple[FieldChange, ...] = ()
    order: tuple[str, ...] = ()

    @classmethod
    def of(cls, plain: JsonObject) -> FieldChanges:
        """Return the changes of an `evolve`."""
        changes = [FieldChange("add", field["name"], "", field) for field in plain.get("add", ())]
        for kind in ("widen", "rename"):
            changes += [
                FieldChange(kind, path, to) for path, to in plain.get(kind, NOTHING).items()
            ]
        for kind in ("drop", "nullable"):
            changes += [FieldChange(kind, path) for path in plain.get(kind, ())]
        return cls(tuple(changes), tuple(plain.get("order", ())))

    def __bool__(self) -> bool:
        return bool(self.each or self.order)

    @property
    def kinds(self) -> set[str]:
        """The kinds of changes."""
        return {change.kind for change in self.each}

    def own(self, kind: str) -> dict[str, FieldChange]:
        """Return the changes of a kind for fields of the object itself, by their paths."""
        found = {}
        for change in self.each:
            if change.kind == kind and "." not in change.path:
                found[change.path] = change
        return found

    def inside(self, name: str) -> FieldChanges:
        """Return the changes for a field, and for the fields within it."""
        within = []
        for change in self.each:
            first, dot, rest = change.path.partition(".")
            is_of_type = change.kind in ("widen", "nullable")
            if change.path == "*" or (first == name and (dot or is_of_type)):
                within.append(change._replace(path=rest))
        return FieldChanges(tuple(within))

    def among(self, names: Collection[str], others: bool = False) -> FieldChanges:
        """Return the changes for some fields, or for all `others`."""
        kept = []
        for change in self.each:
            if (change.path.partition(".")[0] in names) != others:
                kept.append(change)
        return FieldChanges(tuple(kept), self.order)

    def require(self, names: Collection[str]) -> None:
        """Refuse a field that is not there."""
        for change in self.each:
            is_new = change.kind == "add" and "." not in change.path
            if not is_new and change.path.partition(".")[0] not in (*names, "*"):
                raise Unfit(f"there is no field {change.path}; there are {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Part:
    """A serializer's snapshot, and a function that makes an old value a new one; for a new field
    its value instead, None for null.
    """

    snapshot: bytes
    write: Write
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class StateChange:
    """The snapshot of a state's values, and the functions that make new ones; `write_key` is of
    the key in a map, `write` of an item in a list. None: what there is stays.
    """

    snapshot: bytes
    write: Write | None
    write_key: Write | None = None


def evolve_state(content: bytes, state: StateInfo, changes: FieldChanges) -> StateChange:
    """Return a state changed, of a header's bytes; `Unfit` where it cannot be."""
    serializer = state.value
    if serializer is None:
        raise Unfit("its values are written by a serializer that is not known here")
    kinds = [each.name for each in (_core(serializer), *serializer.inner)]
    if "RowDataSerializer" not in kinds and "nullable" in changes.kinds:
        raise Unfit("only the columns of SQL say whether they may be null")
    if state.type == "MAP" and serializer.name == "MapSerializer":
        keys = changes.among(("map_key",)).inside("map_key")
        if "drop" in keys.kinds:
            raise Unfit("two keys of a map might become one: nothing can be dropped there")
        _refuse_new_nulls(serializer.inner[0], keys)
        key = evolve(content, serializer.inner[0], keys)
        others = changes.among(("map_key",), others=True)
        value = _evolve_any(content, serializer.inner[1], others)
        made = _composite(content, serializer, (key, value))
        write = value.write if others else None
        return StateChange(made.snapshot, write, key.write if keys else None)
    if state.type == "LIST" and serializer.name == "ListSerializer":
        item = _evolve_any(content, serializer.inner[0], changes)
        return StateChange(_composite(content, serializer, (item,)).snapshot, item.write)
    made = _evolve_any(content, serializer, changes)
    return StateChange(made.snapshot, made.write)


def _evolve_any(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    """Evolve a whole value: one that is no object has the field `value`."""
    if _core(serializer).name in _OBJECTS:
        return evolve(content, serializer, changes)
    changes.require(("value",))
    return evolve(content, serializer, changes.inside("value"))


def _core(serializer: Serializer) -> Serializer:
    """Return the serializer of the objects in lists, maps, and values with a time to live."""
    while serializer.name in _CARRIERS and serializer.inner:
        serializer = serializer.inner[-1]
    return serializer


def evolve(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    """Return a serializer changed; its snapshot is in `content`, where its span says."""
    if not changes:
        return Part(content[slice(*serializer.span)], copying(serializer.reader))
    if serializer.name in _CARRIERS:
        if serializer.name == "SetSerializer" and "drop" in changes.kinds:
            raise Unfit("two items of a set might become one: nothing can be dropped there")
        *before, last = serializer.inner
        parts = [evolve(content, inner, FieldChanges()) for inner in before]
        return _composite(content, serializer, (*parts, evolve(content, last, changes)))
    return _OBJECTS.get(serializer.name, _evolve_number)(content, serializer, changes)


def copying(read: Callable[[DataInput], object]) -> Write:
    """Return the function that copies what a reader reads: it is made for each field of each
    value, so numbers and plain texts are not decoded.
    """
    size = _SIZES.get(read)
    if size is not None:
        return lambda data: data.take(size)
    is_text = read is values.read_string

    def copy(data: DataInput) -> bytes:
        start, raw = data.at, data.data
        if is_text and start < data.end and 0 < raw[start] < 0x80:
            stop = start + raw[start]  # a unit less, behind the byte of the length
            if stop <= data.end and raw[start:stop].isascii():
                data.at = stop
                return raw[start:stop]
        read(data)
        return raw[start : data.at]

    return copy


# ---- fields, of any kind of object ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """A field in its new place; `old` is its number before, None of a new one."""

    name: str
    old: int | None
    part: T


def _arranged(
    names: Sequence[str],
    changes: FieldChanges,
    change: Callable[[int, FieldChanges], T],
    make: Callable[[JsonObject], T],
) -> list[Placed[T]]:
    """Return the fields of a changed object, each in its place."""
    changes.require(names)
    dropped, renamed = changes.own("drop"), changes.own("rename")
    fields: list[Placed[T]] = []
    for number, name in enumerate(names):
        if name in dropped:
            continue
        new_name = renamed[name].to if name in renamed else name
        with _naming(name):
            fields.append(Placed(new_name, number, change(number, changes.inside(name))))
    for name, added in changes.own("add").items():
        after, places = added.field.get("after"), ["", *(placed.name for placed in fields)]
        if after is not None and after not in places:
            raise Unfit(f"{name}: there is no field {after} that it could come after")
        at = len(fields) if after is None else places.index(after)
        with _naming(name):
            fields.insert(at, Placed(name, None, make(added.field)))
    for placed in fields:
        is_other = placed.old is None or placed.name != names[placed.old]
        if is_other and not placed.name.replace("$", "_").isidentifier():
            raise Unfit(
                f"{placed.name!r} is no name of a field: name the field alone, without a path"
            )
    by_name = {placed.name: placed for placed in fields}
    if len(by_name) < len(fields) or not fields:
        (name, count), *_ = Counter(placed.name for placed in fields).most_common(1) or [("", 0)]
        raise Unfit(f"there is a field {name} already" if count else "no field would be left")
    if changes.order and sorted(changes.order) != sorted(by_name):
        raise Unfit(f"`order` has to name each field once: {', '.join(by_name)}")
    return list(map(by_name.__getitem__, changes.order or by_name))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the name of a field in front of what does not fit in it."""
    try:
        yield
    except Unfit as error:
        raise Unfit(f"{name}: {error}") from error


def _in_order(old: Sequence[Write], fields: Sequence[Placed[Part]]) -> Write:
    """Return the writer of fields behind each other."""
    writes = list(old)
    constants: list[bytes] = []
    order = []
    for placed in fields:
        if placed.old is None:
            order.append(len(writes) + len(constants))
            constants.append(placed.part.content or b"")
        else:
            order.append(placed.old)
            writes[placed.old] = placed.part.write

    def write(data: DataInput) -> bytes:
        contents = [write_field(data) for write_field in writes]
        contents += constants
        return b"".join(map(contents.__getitem__, order))

    return write


# ---- composites ----------------------------------------------------------------------------------


def _composite(content: bytes, serializer: Serializer, parts: Sequence[Part]) -> Part:
    """Return a composite of changed parts; what it adds itself stays."""
    start, end = serializer.span
    first, last = serializer.inner[0].span[0], serializer.inner[-1].span[1]
    inner = b"".join(map(attrgetter("snapshot"), parts))
    if serializer.setting and serializer.name == "NullableSerializer":
        raise Unfit("a null of this type has a fixed number of bytes")
    item = serializer.inner[0]
    is_plain_array = item.name not in (*_OBJECTS, *_CARRIERS)
    is_plain_array &= serializer.name == "GenericArraySerializer"
    if is_plain_array and parts[0].snapshot != content[slice(*item.span)]:
        raise Unfit("an array keeps the class of its items, which would be another")
    combine = _CARRIERS.get(serializer.name, _in_turn)
    write = combine([part.write for part in parts])
    return Part(content[start:first] + inner + content[last:end], write)


def _in_turn(writes: Sequence[Write]) -> Write:
    return lambda data: b"".join([write(data) for write in writes])


def _items(writes: Sequence[Write]) -> Write:
    """Return the writer of a list, or of a map: behind a map's key it says whether null follows."""
    item = writes[0]
    if len(writes) == 2:
        item = _in_turn((writes[0], _optional(writes[1], True)))

    def write(data: DataInput) -> bytes:
        count = data.items("items")
        return _I4.pack(count) + b"".join([item(data) for _ in range(count)])

    return write


def _optional(write: Write, null: bool) -> Write:
    """Return the writer of a value behind a byte, which is `null` where there is none."""
    without, with_value = bytes((null,)), bytes((not null,))

    def write_optional(data: DataInput) -> bytes:
        return without if data.boolean() == null else with_value + write(data)

    return write_optional


_CARRIERS: Final[Mapping[str, Callable[[Sequence[Write]], Write]]] = {
    "ListSerializer": _items,
    "ArrayListSerializer": _items,
    "SetSerializer": lambda writes: _items([_optional(writes[0], True)]),
    "MapSerializer": _items,
    "GenericArraySerializer": lambda writes: _items([_optional(writes[0], False)]),
    "NullableSerializer": lambda writes: _optional(writes[0], True),
    "ScalaOptionSerializer": lambda writes: _optional(writes[0], False),
    "TtlSerializer": _in_turn,
    "TtlAwareSerializer": _in_turn,
}


def _evolve_tuple(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    """Change fields of a tuple: their number is its class's."""
    is_other = any(asked.kind != "widen" and "." not in asked.path for asked in changes.each)
    if is_other or changes.order:
        raise Unfit("a tuple has as many fields as its class")
    names, inner = field_names(len(serializer.inner)), serializer.inner
    change = partial(_evolve_numbered, content, inner)
    fields = _arranged(names, changes, change, _added_java)
    return _composite(content, serializer, [placed.part for placed in fields])


def _evolve_numbered(
    content: bytes, serializers: Sequence[Serializer], number: int, changes: FieldChanges
) -> Part:
    return evolve(content, serializers[number], changes)


# ---- values that are no objects ------------------------------------------------------------------

_SIZES: Final[Mapping[Callable[[DataInput], object], int]] = {
    Serializer(f"{name}Serializer", _SIMPLE_VERSION).reader: size
    for name, size in (
        ("Long", 8),
        ("Int", 4),
        ("Short", 2),
        ("Byte", 1),
        ("Double", 8),
        ("Float", 4),
    )
}
# The types of numbers of which each is one of another type as well.
_EXACT: Final[Mapping[str, tuple[str, ...]]] = {
    "Short": ("Byte",),
    "Int": ("Byte", "Short"),
    "Long": ("Byte", "Short", "Int"),
    "Float": ("Byte", "Short"),
    "Double": ("Byte", "Short", "Int", "Float"),
}
_PRIMITIVE: Final = ("byte", "short", "int", "long", "float", "double", "boolean", "char")
# Java's types by the names of their serializers; a primitive one is never null.
_JAVA: Final[Mapping[str, str]] = {
    **{name: name.capitalize() for name in (*_PRIMITIVE, "string")},
    **{name: name for name in (*NUMBERS, "Boolean", "String", "Instant", "Date")},
    "integer": "Int",
    "Integer": "Int",
    "bigint": "Long",
    "Character": "Char",
    "BigInteger": "BigInt",
    "BigDecimal": "BigDec",
}


def _java_type(name: str) -> str:
    if name not in _JAVA:
        raise Unfit(f"{name!r} is none of {', '.join(_JAVA)}")
    return _JAVA[name]


def _simple(name: str, folder: str = "") -> bytes:
    class_name = f"{_BASE}{folder}{name}Serializer${name}SerializerSnapshot"
    return encode_utf(class_name) + _I4.pack(_SIMPLE_VERSION)


def _evolve_number(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    if serializer.name == MESSAGE:
        fact = f"it is a message of protobuf ({serializer.type}), which is read and not written"
        raise Unfit(f"{fact}: protobuf itself lets a job add fields and leave them out")
    change = changes.each[-1]
    if change.path or change.kind != "widen":
        raise Unfit("it is no object, and has no fields")
    old, new = serializer.name.removesuffix("Serializer"), _java_type(change.to)
    write, read = _wider(old, new), serializer.reader
    return Part(_simple(new), lambda data: write(read(data)))


def _wider(old: str, new: str) -> Callable[[object], bytes]:
    """Return the function that writes numbers of a type as those of a wider one."""
    if old not in _EXACT.get(new, ()):
        fact = f"{old} cannot be widened to {new or 'that'}"
        raise Unfit(f"{fact}: a value might not fit, or would be another")
    return struct.Struct(NUMBERS[new]).pack


def _no_value(data: DataInput) -> bytes:
    """Return the value of a new field among the old ones: it has none."""
    return b""


def _added_java(field: JsonObject) -> Part:
    """Return a new field of a Java type."""
    kind, default = _java_type(str(field["type"])), field.get("default")
    serializer = Serializer(f"{kind}Serializer", _SIMPLE_VERSION)
    shown = _digits(default, kind)
    content = None if default is None else _default(serializer, default, kind, shown)
    return Part(_simple(kind), _no_value, content)


def _digits(default: object, kind: str) -> object:
    """Return a default as it is shown: a number for a decimal as text, unless JSON rounded it."""
    if not kind.startswith(("DEC", "BigDec")) or type(default) not in (int, float):
        return default
    number = Decimal(repr(default))
    if isinstance(default, float) and len(number.as_tuple().digits) > _FLOAT_DIGITS:
        raise Unfit(f"the default {default!r} has more digits than a number of JSON: quote it")
    return format(number, "f")


def _default(serializer: Serializer, default: object, named: str, shown: object) -> bytes:
    """Return the bytes of a default value, of which `shown` is what `encode` takes."""
    try:
        return encode(serializer, shown)
    except UnfitValue as error:
        raise Unfit(f"the default {default!r} is no {named}, or does not fit in one") from error


# ---- POJOs and Row -------------------------------------------------------------------------------


def _evolve_pojo(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    """Change a class, and those that are derived from it."""
    names = list(serializer.fields)
    for _, inner in (*serializer.registered, *serializer.others):
        names += inner.fields
    changes.require(dict.fromkeys(names))
    if changes.order or any("after" in change.field for change in changes.own("add").values()):
        raise Unfit("Flink orders the fields of an object by their names")
    return _evolve_class(content, serializer, changes, serializer.type or "")


def _evolve_class(
    content: bytes, serializer: Serializer, changes: FieldChanges, declares: str
) -> Part:
    """Change one class; `declares` is the one that new fields are declared in."""
    data = DataInput(content, "a serializer", serializer.span[0])
    _, _, _ = data.utf(), data.i4(), data.utf()
    out = DataOutput()
    out.put(content[serializer.span[0] : data.at])
    own, registered, others = (optional_map(data, "a POJO") for _ in range(3))
    names = (*serializer.fields, *changes.own("add"))

    def change(number: int, inside: FieldChanges) -> Part:
        part = _of_entry(content, own[number], serializer.inner[number], inside)
        return replace(part, write=_optional(part.write, True))

    fields = _arranged(serializer.fields, changes.among(names), change, _added_to_class)
    fields.sort(key=lambda placed: placed.name.encode("utf-16-be", "surrogatepass"))
    out.i8(OPTIONAL_MAP)
    out.i4(len(fields))
    for placed in fields:
        of, key = declares, None if placed.old is None else own[placed.old].key
        if key is not None:
            of = DataInput(key.data, key.what, key.at, key.end).utf()
        named = encode_utf(of) + encode_utf(placed.name)
        _put_entry(out, placed.name, named, placed.part.snapshot)
    writes: list[dict[str, Write]] = []
    for listed, classes in ((registered, serializer.registered), (others, serializer.others)):
        out.i8(OPTIONAL_MAP)
        out.i4(len(listed))
        writes.append({})
        for entry, (name, inner) in zip(listed, classes, strict=True):
            part = _of_entry(content, entry, inner, FieldChanges())
            if inner.name == "PojoSerializer":
                part = _evolve_class(content, inner, changes, declares)
            _put_entry(out, name, _bytes_of(entry.key), part.snapshot)
            writes[-1][name] = part.write
    old = [_optional(copying(inner.reader), True) for inner in serializer.inner]
    objects = _Objects(_in_order(old, fields), tuple(writes[0].values()), writes[1])
    return Part(out.content(), objects.write)


@dataclass(frozen=True, slots=True)
class _Objects:
    """Objects of a class, and of those derived from it, by their tags or their names."""

    own: Write
    tagged: tuple[Write, ...]
    named: Mapping[str, Write]

    def write(self, data: DataInput) -> bytes:
        start, flags = data.at, data.u1()
        if flags & values.IS_NULL:
            return data.data[start : data.at]
        write_rest = self.own
        if flags & values.SUBCLASS:
            name = data.utf()
            if name not in self.named:
                raise values.Unknown(f"an object of {name}, which the image does not describe")
            write_rest = self.named[name]
        elif flags & values.TAGGED:
            at, tag = data.at, data.u1()
            if tag >= len(self.tagged):
                raise data.wrong(f"subclass {tag}, of {len(self.tagged)}", at)
            write_rest = self.tagged[tag]
        elif flags != values.NO_SUBCLASS:
            raise data.wrong(f"an object with flags {flags:#04x}", start)
        return data.data[start : data.at] + write_rest(data)


def _added_to_class(field: JsonObject) -> Part:
    """Return a new field of a class, behind the byte that says whether it is null."""
    name = field["type"]
    if name in _PRIMITIVE and field.get("default") is None:
        first: object = {"boolean": False, "char": "\0"}.get(str(name), 0)
        field = {**field, "default": first}
    part = _added_java(field)
    return replace(part, content=b"\1" if part.content is None else b"\0" + part.content)


def _of_entry(
    content: bytes, entry: OptionalEntry, serializer: Serializer, changes: FieldChanges
) -> Part:
    """Return an entry of a class, changed; also of a serializer that is not known here."""
    if changes:
        return evolve(content, serializer, changes)
    return Part(_bytes_of(entry.value) or b"", copying(serializer.reader))


def _bytes_of(data: DataInput | None) -> bytes | None:
    return None if data is None else data.data[data.at : data.end]


def _put_entry(out: DataOutput, name: str, key: bytes | None, snapshot: bytes) -> None:
    out.utf(name)
    for content in (key, snapshot or None):
        out.boolean(content is not None)
        if content is not None:
            out.sized(content)


def _evolve_row(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    """Change a Row, whose fields are told by their places."""
    _refuse_names(changes)
    inner = serializer.inner
    change = partial(_evolve_numbered, content, inner)
    fields = _arranged(field_names(len(inner)), changes, change, _added_java)
    start, end = serializer.span
    first = (inner[0].span[0] if inner else end) - _I4.size
    snapshot = b"".join(map(attrgetter("part.snapshot"), fields))
    head = content[start:first] + _I4.pack(len(fields))
    ahead = 2 if serializer.setting else 0
    writes: list[Write] = [copying(each.reader) for each in inner]
    for placed in fields:
        if placed.old is not None:
            writes[placed.old] = placed.part.write

    size, new_size = ((ahead + len(each) + 7) // 8 for each in (writes, fields))
    nulls = [1 << 8 * size - 1 - number for number in range(ahead, ahead + len(writes))]
    order = [(placed.old, placed.part.content) for placed in fields]
    new_nulls = [1 << 8 * new_size - 1 - number for number in range(ahead, ahead + len(fields))]

    def write(data: DataInput) -> bytes:
        mask = int.from_bytes(data.take(size), "big")
        contents: list[bytes | None] = []
        for bit, write_field in zip(nulls, writes, strict=True):
            contents.append(None if mask & bit else write_field(data))
        new_mask, out = mask >> 8 * size - ahead << 8 * new_size - ahead, []
        for bit, (old, content) in zip(new_nulls, order, strict=True):
            part = content if old is None else contents[old]
            if part is None:
                new_mask |= bit
            else:
                out.append(part)
        return new_mask.to_bytes(new_size, "big") + b"".join(out)

    return Part(head + snapshot, write)


def _refuse_names(changes: FieldChanges) -> None:
    if changes.own("rename"):
        raise Unfit("its fields have no names in the image: there is nothing to rename")


# ---- rows of SQL ---------------------------------------------------------------------------------

_SQL_NUMBERS: Final[Mapping[str, str]] = {
    "TINYINT": "Byte",
    "SMALLINT": "Short",
    "INTEGER": "Int",
    "BIGINT": "Long",
    "FLOAT": "Float",
    "DOUBLE": "Double",
}


@dataclass(frozen=True, slots=True)
class _SqlColumn:
    """A column as it will be: its type as Java writes it, its serializer's snapshot, and its slots;
    of a new column, the slot that all rows get.
    """

    type_: LogicalType
    object_: bytes
    snapshot: bytes
    read: SlotReader | None = None
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class _SqlRow:
    """A row changed: its serializer's snapshot, its fields, and what makes a new row of an old."""

    snapshot: bytes
    fields: Sequence[Placed[_SqlColumn]]
    write: Callable[[Span], bytes]


def _evolve_row_data(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    """Change a row of SQL, whose columns are told by their places."""
    _refuse_names(changes)
    row = _evolve_sql_row(content, serializer, serializer.fields, changes)

    def write(data: DataInput) -> bytes:
        size = data.count("bytes")
        span = Span(data.data, data.at, data.at + size)
        data.take(size)
        new = row.write(span)
        return _I4.pack(len(new)) + new

    return Part(row.snapshot, write)


def _evolve_sql_row(
    content: bytes, serializer: Serializer, names: Sequence[str], changes: FieldChanges
) -> _SqlRow:
    data = DataInput(content, "a serializer", serializer.span[0])
    _, _ = data.utf(), data.i4()
    head = content[serializer.span[0] : data.at]
    objects = [copying(read_object)(data) for _ in range(data.i4())]
    ahead = data.take(2 * _I4.size)
    read_nested = partial(read_snapshot, nested=True)
    snapshots = [copying(read_nested)(data) for _ in range(data.i4())]
    known = []
    for type_, object_, snapshot in zip(serializer.columns, objects, snapshots, strict=True):
        known.append(_SqlColumn(type_, object_, snapshot, slot_reader(type_)))
    change = partial(_changed_column, known)
    fields = _arranged(names, changes, change, _added_column)
    count, types = _I4.pack(len(fields)), b"".join(map(attrgetter("part.object_"), fields))
    nested = b"".join(map(attrgetter("part.snapshot"), fields))

    steps: list[tuple[int, SlotReader | None, Slot, LogicalType]] = []
    for placed in fields:
        column = placed.part
        fresh = column.slot or Slot(is_null=True)
        steps.append((placed.old or 0, column.read, fresh, column.type_))

    def write(row: Span) -> bytes:
        places, is_null = slot_places(row, len(known))
        slots = []
        for old, read, fresh, type_ in steps:
            if read is None:
                slots.append(fresh)
            elif is_null(old):
                slots.append(null_slot_at(row, places[old], type_))
            else:
                slots.append(read(row, places[old]))
        return encode_row(row.data[row.start], slots)

    return _SqlRow(head + count + types + ahead + count + nested, fields, write)


def _refuse_new_nulls(key: Serializer, changes: FieldChanges) -> None:
    """Refuse nulls of a map's key that become those of a long type, for which Flink's generated
    code keeps bytes and its serializer none: such keys are found by their bytes.
    """
    for change in changes.each:
        new = parse_type(change.to or str(change.field.get("type")))
        if new is None or null_slot(new).part is None or change.field.get("default") is not None:
            continue
        old = [LogicalType("ROW", inner=key.columns, names=key.fields)]
        for name in change.path.split(".") if change.kind == "widen" else ():
            within = chain.from_iterable(zip(row.names, row.inner, strict=False) for row in old)
            old = [inner for own, inner in within if name in ("*", own)]
        # This is the row itself where a field is added.
        has_nulls = any(type_.nullable and null_slot(type_).part is None for type_ in old)
        if has_nulls and new.nullable:
            way_out = "name a default" if change.kind == "add" else "leave its type as it is"
            raise Unfit(
                f"{change.path}: Flink writes nulls of {new} in two forms, and finds the keys of a "
                f"map by their bytes: {way_out}"
            )


def _sql_snapshot(type_: LogicalType) -> bytes:
    """Return the snapshot of the serializer of a column."""
    match type_.root:
        case "CHAR" | "VARCHAR":
            name = "StringDataSerializer$StringDataSerializerSnapshot"
            return encode_utf(_TABLE + name) + _I4.pack(_SIMPLE_VERSION)
        case "BINARY" | "VARBINARY":
            return _simple("BytePrimitiveArray", "array.")
        case "DECIMAL":
            name = "DecimalDataSerializer$DecimalSerializerSnapshot"
            return encode_utf(_TABLE + name) + struct.pack(">iii", 3, type_.size, type_.scale)
        case "TIMESTAMP_WITHOUT_TIME_ZONE" | "TIMESTAMP_WITH_LOCAL_TIME_ZONE":
            name = "TimestampDataSerializer$TimestampDataSerializerSnapshot"
            return encode_utf(_TABLE + name) + struct.pack(">ii", 1, type_.size)
        case "BOOLEAN":
            return _simple("Boolean")
    return _simple(_SQL_NUMBERS.get(type_.root, "Int"))  # dates and times are whole numbers


def _changed_column(
    columns: Sequence[_SqlColumn], number: int, changes: FieldChanges
) -> _SqlColumn:
    column = columns[number]
    old, new, read, snapshot = column.type_, column.type_, column.read, column.snapshot
    assert read is not None, "an old column"
    for change in changes.each:
        if change.kind == "widen" and not change.path:
            new = _sql_type(change.to)
            read, snapshot = _widened_slot(old, new, read), _sql_snapshot(new)
    inside = FieldChanges(tuple(change for change in changes.each if change.path))
    if inside and old.root in ("ARRAY", "MAP"):
        new, snapshot = _renamed_items(column, inside)
    elif inside:
        row = _row_within(column, inside)
        types = tuple(placed.part.type_ for placed in row.fields)
        new = replace(new, inner=types, names=tuple(placed.name for placed in row.fields))
        snapshot = row.snapshot

        def read(outer: Span, place: int) -> Slot:
            size, offset = ROW_PLACE.unpack_from(outer.data, place)
            made = row.write(outer.part(offset, size))
            return Slot(part=made, low=len(made))

    if any(change.kind == "nullable" and not change.path for change in changes.each):
        new = replace(new, nullable=True)
    if new == old:  # fields within may have changed places, or become others of one type
        return replace(column, snapshot=snapshot, read=read)
    if not is_encodable(new):
        raise Unfit(f"a column of type {old} cannot become another")
    return _SqlColumn(new, encode_type(new), snapshot, read)


def _row_within(column: _SqlColumn, changes: FieldChanges) -> _SqlRow:
    """Return the row that is a column of another one, changed."""
    type_ = column.type_
    if type_.root != "ROW":
        raise Unfit(f"fields within a column of type {type_} are not changed here")
    serializer = read_snapshot(DataInput(column.snapshot, "a serializer"), nested=True)
    if serializer.columns != type_.inner:
        raise Unfit(f"its serializer has other columns than its type, {type_}")
    return _evolve_sql_row(column.snapshot, serializer, type_.names, changes)


def _renamed_items(column: _SqlColumn, changes: FieldChanges) -> tuple[LogicalType, bytes]:
    """Return an array or a map whose rows have fields of other names, and its snapshot. The
    serializer of the rows is an object of Java's there, with lambdas that a compiler named: it
    holds no names of fields, and stays.
    """
    type_ = column.type_
    *before, item = type_.inner
    if item.root != "ROW":
        raise Unfit(f"fields within a column of type {type_} are not changed here")
    if changes.kinds != {"rename"}:
        raise Unfit(
            f"fields of rows within a column of type {type_} are renamed here, and not changed: "
            "their serializer is in the image as an object of Java, which is not written. Keep the "
            "type in the new job, --drop the column, or --drop '*' for the state"
        )
    new = _renamed_row(item, changes)
    data = DataInput(column.snapshot, "a serializer")
    _, _ = data.utf(), data.i4()
    for _ in before:
        read_object(data)
    head = column.snapshot[: data.at]
    read_object(data)
    snapshot = head + encode_type(new) + column.snapshot[data.at :]
    return replace(type_, inner=(*before, new)), snapshot


def _renamed_row(type_: LogicalType, changes: FieldChanges) -> LogicalType:
    """Return the type of rows whose fields have other names."""
    if type_.root != "ROW":
        raise Unfit(f"it is of type {type_}, and has no fields that are renamed here")

    def change(number: int, inside: FieldChanges) -> LogicalType:
        return _renamed_row(type_.inner[number], inside) if inside else type_.inner[number]

    fields = _arranged(type_.names, changes, change, lambda field: _sql_type(str(field["type"])))
    inner = tuple(placed.part for placed in fields)
    return replace(type_, inner=inner, names=tuple(placed.name for placed in fields))


def _sql_type(text: str) -> LogicalType:
    type_ = parse_type(text)
    if type_ is None:
        raise Unfit(f"{text!r} is none of {', '.join(NAMES_OF_TYPES)}")
    return type_


def _widened_slot(old: LogicalType, new: LogicalType, read_slot: SlotReader) -> SlotReader:
    """Return the function that widens a column."""
    if old.nullable and not new.nullable:
        raise Unfit("it may be null already")
    same = replace(old, nullable=True, size=0) == replace(new, nullable=True, size=0)
    if same and old.root == "DECIMAL" and old.size <= COMPACT_DECIMAL < new.size:
        return lambda row, place: wide_decimal(read_slot(row, place).content)
    is_padded = old.root in ("CHAR", "BINARY") and new.size != old.size
    is_wider = new.size >= old.size and old.root in (*SHORT, "DECIMAL")
    if same and not is_padded and (is_wider or old.size == new.size):
        return read_slot
    kind = _SQL_NUMBERS.get(old.root, str(old))
    read = struct.Struct(NUMBERS.get(kind, ">b").replace(">", "<"))
    write = _wider(kind, _SQL_NUMBERS.get(new.root, str(new)))

    def widened(row: Span, place: int) -> Slot:
        (number,) = read.unpack_from(row.data, place)
        return Slot(write(number)[::-1].ljust(8, b"\0"))

    return widened


def _added_column(field: JsonObject) -> _SqlColumn:
    type_, default = _sql_type(str(field["type"])), field.get("default")
    if default is None and not type_.nullable:
        raise Unfit(f"{type_} is never null: name a default")
    slot = None
    if default is not None:
        row = Serializer("RowDataSerializer", 3, columns=(type_,), fields=("it",))
        shown = _digits(default, type_.root)
        _default(row, default, str(type_), {"it": shown})
        slot = slot_of(type_, shown)
    return _SqlColumn(type_, encode_type(type_), _sql_snapshot(type_), None, slot)


# ---- Avro ----------------------------------------------------------------------------------------

_AVRO_NUMBERS: Final = ("int", "long", "float", "double")


def _evolve_avro(content: bytes, serializer: Serializer, changes: FieldChanges) -> Part:
    """Change the schema of Avro."""
    if avro_reader(serializer.schema or "") is None:
        raise Unfit("its schema is not valid Avro")
    schema = json.loads(serializer.schema or "")
    new, write = _AvroChange(schema).made(schema, "", changes)
    text = json.dumps(new, separators=(",", ":"), ensure_ascii=False)
    if avro_reader(text) is None:
        raise Unfit("the schema would name a type that is no longer in it")
    data = DataInput(content, "a serializer", serializer.span[0])
    _, version = data.utf(), data.i4()
    if version == 2:
        data.utf()
    if version > 2:
        values.read_string(data)
    head = content[serializer.span[0] : data.at]
    return Part(head + (values.encode_string(text) if version > 2 else encode_utf(text)), write)


class _AvroChange:
    """A schema that is changed, by one that was read whole: its named types are known."""

    def __init__(self, schema: object) -> None:
        self._whole, self._parser = schema, SchemaParser()
        self._parser.reader(schema, "")

    def _reader(self, schema: object, space: str) -> Reader:
        """Return the reader of a part of the schema, which was read whole before."""
        self._parser.left = NODES_MAX
        return self._parser.reader(schema, space)

    def made(self, schema: object, space: str, changes: FieldChanges) -> tuple[object, Write]:
        """Return a schema changed, and the function that makes an old value a new one."""
        if not changes:
            return schema, copying(self._reader(schema, space))
        match schema:
            case list():
                return self._union(schema, space, changes)
            case {"type": "array", "items": items, **rest}:
                inner, write = self.made(items, space, changes)
                return {"type": "array", "items": inner, **rest}, _blocks(write)
            case {"type": "map", "values": inner_values, **rest}:
                inner, write = self.made(inner_values, space, changes)
                key = copying(self._reader("string", ""))
                return {"type": "map", "values": inner, **rest}, _blocks(_in_turn([key, write]))
            case dict() if schema.get("type") in ("record", "error"):
                return self._record(schema, space, changes)
            case str() if schema in _AVRO_NUMBERS and not changes.each[-1].path:
                new, read = changes.each[-1].to, self._reader(schema, "")
                wider = new.capitalize() if new in _AVRO_NUMBERS else ""
                write_number = _wider(schema.capitalize(), wider)
                return new, lambda data: write_number(read(data))
        raise Unfit("it is no record: it has no fields, and is not widened")

    def _union(
        self, branches: Sequence[object], space: str, changes: FieldChanges
    ) -> tuple[object, Write]:
        if len(branches) - branches.count("null") != 1:
            raise Unfit("it is a union of several types")
        new: list[object] = []
        writes = []
        for branch in branches:
            made, write = self.made(branch, space, FieldChanges() if branch == "null" else changes)
            new.append(made)
            writes.append(write)

        def write_union(data: DataInput) -> bytes:
            at, place = data.at, data.i4()
            if not 0 <= place < len(writes):
                raise data.wrong(f"branch {place} of a union of {len(writes)}", at)
            return _I4.pack(place) + writes[place](data)

        return new, write_union

    def _record(
        self, schema: JsonObject, outer: str, changes: FieldChanges
    ) -> tuple[object, Write]:
        name, listed = str(schema["name"]), schema["fields"]
        space = name.rpartition(".")[0] or str(schema.get("namespace", outer))
        short = name.rpartition(".")[2]
        if _mentions(self._whole, {name, short, f"{space}.{short}"}):
            raise Unfit(f"the schema uses {name} in several places, which would all change")

        def change(number: int, inside: FieldChanges) -> Part:
            new, write = self.made(listed[number]["type"], space, inside)
            if inside.kinds - {"widen"} and listed[number].get("default"):
                raise Unfit("the schema has a default for it, which would not fit")
            return Part(json.dumps({**listed[number], "type": new}).encode(), write)

        names = [str(each["name"]) for each in listed]
        fields = _arranged(names, changes, change, _added_avro)
        described = [{**json.loads(each.part.snapshot), "name": each.name} for each in fields]
        readers = [self._reader(each["type"], space) for each in listed]
        write = _in_order(list(map(copying, readers)), fields)
        return {**schema, "fields": described}, write


def _blocks(write: Write) -> Write:
    """Return the writer of an array or a map."""

    def write_blocks(data: DataInput) -> bytes:
        out = []
        while True:
            start, count = data.at, data.varint()
            if count > data.end - data.at:
                raise data.wrong(f"{count} items, with {data.end - data.at} bytes left", start)
            out.append(data.data[start : data.at])
            if count == 0:
                return b"".join(out)
            out += [write(data) for _ in range(count)]

    return write_blocks


def _mentions(schema: object, names: Collection[str]) -> bool:
    """Whether a schema refers to a type by one of its names."""
    match schema:
        case str():
            return schema in names
        case list():
            return any(_mentions(branch, names) for branch in schema)
        case {"fields": list() as listed}:
            return any(_mentions(each.get("type"), names) for each in listed)
        case {"type": str() as kind, **rest}:
            inner = (rest.get(part) for part in ("items", "values"))
            return kind in names or any(_mentions(part, names) for part in inner)
        case {"type": inner}:
            return _mentions(inner, names)
    return False


def _added_avro(field: JsonObject) -> Part:
    """Return a new field of a record: as JSON, and its value."""
    type_, default = field["type"], field.get("default")
    if isinstance(type_, str) and type_.strip()[:1] in ("[", "{"):
        with suppress(ValueError):
            type_ = json.loads(type_)
    if avro_reader(json.dumps(type_)) is None:
        raise Unfit(f"{json.dumps(type_)} is no type of Avro")
    fitting = []
    branches = type_ if isinstance(type_, list) else [type_]
    for number, branch in enumerate(branches):
        with suppress(Unfit):
            ahead = _I4.pack(number) if isinstance(type_, list) else b""
            fitting.append((number, ahead + _avro_value(branch, default)))
    if not fitting:
        _avro_value(branches[0], default)  # which tells why
    (number, content), told = fitting[0], {}
    if "default" in field and number == 0:  # Avro before 1.12 refuses one of another branch
        told = {"default": default}
    described = json.dumps({"name": field["name"], "type": type_, **told}).encode()
    return Part(described, _no_value, content)


def _avro_value(schema: object, default: object) -> bytes:
    try:
        return encode_avro_default(schema, default)
    except UnfitValue as error:
        named = json.dumps(schema)
        raise Unfit(f"the default is no {named}, or does not fit in one: {error}") from error


_OBJECTS: Final[Mapping[str, Callable[[bytes, Serializer, FieldChanges], Part]]] = {
    "PojoSerializer": _evolve_pojo,
    "RowSerializer": _evolve_row,
    "RowDataSerializer": _evolve_row_data,
    "AvroSerializer": _evolve_avro,
    "TupleSerializer": _evolve_tuple,
    "ScalaCaseClassSerializer": _evolve_tuple,
    "Tuple2CaseClassSerializer": _evolve_tuple,
}
