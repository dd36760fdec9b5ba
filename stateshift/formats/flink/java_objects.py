"""Objects that Java's own serialization wrote, read without their classes: names of classes and
values of fields. Nothing is instantiated, and no name is looked up.

    ac ed 00 05, then one object
    object     73 classdesc, of every class from the topmost down its fields [, annotation]
    classdesc  72 utf name, i8 serialVersionUID, u1 flags, i2 n, n * (u1 type, utf name, [string
               class]), annotation, classdesc
    string     74 utf, 7c i8 + utf-8
    array      75 classdesc, i4 n, n values
    class      76 classdesc
    proxy      7d i4 n, n utf, annotation, classdesc: in the place of a classdesc
    enum       7e classdesc string
    null       70
    handle     71 i4
    annotation what a class writes by a method of its own: (77 u1 + bytes, 7a i4 + bytes, an
               object)*, 78

Handles number class descriptions, objects, strings, arrays and enums in the order in which they
appear, from 7e0000: an object may be within itself. 79 forgets them. Exceptions are not read:
nothing that Flink writes has them.

Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stateshift.formats.flink.java_data import DataInput

MAGIC: Final = b"\xac\xed\x00\x05"
FIRST_HANDLE: Final = 0x7E0000
_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE, _BLOCKS = 0x01, 0x02, 0x04, 0x08
_READABLE: Final = (
    _SERIALIZABLE,
    _SERIALIZABLE | _WRITE_METHOD,
    _EXTERNALIZABLE | _BLOCKS,
)
_NULL, _END_OF_BLOCKS = 0x70, 0x78
_DEPTH_MAX: Final = 96


@dataclass(frozen=True, slots=True)
class JavaEnum:
    """An enum constant: its class, and its name as Java writes it."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class JavaClass:
    """A class that is a value itself."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class JavaObject:
    """An object: class, fields with those of superclasses, and its class's serialVersionUID.
    `annotations` is what its classes wrote by methods of their own: bytes and objects.
    """

    type: str
    fields: dict[str, object] = field(default_factory=dict)
    uid: int = 0
    annotations: list[object] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class JavaArray:
    """An array: its class, `[I` of ints, and its items; of a byte array its bytes."""

    type: str
    items: list[object] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Class:
    name: str
    uid: int
    flags: int
    fields: tuple[tuple[str, str], ...]
    above: _Class | None


def read_object(data: DataInput) -> object:
    """Read the object that begins here, with its stream's header."""
    at = data.at
    if data.take(4) != MAGIC:
        raise data.wrong("no serialized Java object begins here", at)
    return _ObjectReader(data).value(0)


def items_of(collection: object) -> list[object] | None:
    """Return the items of one of Java's lists; None for anything else."""
    match collection:
        case JavaArray(items=items):
            return items
        case JavaObject(type="java.util.ArrayList" | "java.util.LinkedList" | "java.util.CollSer"):
            return [item for item in collection.annotations if not isinstance(item, bytes)]
        case JavaObject(type="java.util.Collections$EmptyList"):
            return []
        case JavaObject(type="java.util.Collections$SingletonList", fields=fields):
            return [fields.get("element")]
        case JavaObject(
            type="java.util.Collections$UnmodifiableList"
            | "java.util.Collections$UnmodifiableRandomAccessList",
            fields={"list": JavaObject() as inner},
        ) if inner.type in _PLAIN_LISTS:
            return items_of(inner)
        case JavaObject(type="java.util.Arrays$ArrayList", fields={"a": JavaArray(items=items)}):
            return items
    return None


# One list may wrap another: not those, which might wrap themselves.
_PLAIN_LISTS: Final = (
    "java.util.ArrayList",
    "java.util.LinkedList",
    "java.util.CollSer",
    "java.util.Collections$EmptyList",
    "java.util.Collections$SingletonList",
    "java.util.Arrays$ArrayList",
)


class _ObjectReader:
    def __init__(self, data: DataInput) -> None:
        self._data = data
        self._handles: list[object] = []

    def value(self, depth: int) -> object:
        data = self._data
        at, mark = data.at, data.u1()
        if depth > _DEPTH_MAX:
            raise data.wrong("objects are nested too deeply", at)
        read = _VALUES.get(mark)
        if read is None:
            raise data.wrong(f"unknown type code {mark:#04x} in a serialized Java object", at)
        return read(self, depth)

    def null(self, depth: int) -> None:
        return None

    def string(self, depth: int) -> str:
        text = self._data.utf()
        self._handles.append(text)
        return text

    def long_string(self, depth: int) -> str:
        at, raw = self._data.at, self._data.take(self._data.i8())
        try:
            text = raw.decode("utf-8", "surrogatepass")
        except ValueError as error:
            raise self._data.wrong(f"a long string is not UTF-8 ({error})", at) from error
        self._handles.append(text)
        return text

    def class_value(self, depth: int) -> JavaClass:
        made = JavaClass(self._class(depth).name)
        self._handles.append(made)
        return made

    def reset(self, depth: int) -> object:
        self._handles.clear()
        return self.value(depth + 1)

    def instance(self, depth: int) -> JavaObject:
        own = self._class(depth)
        made = JavaObject(own.name, uid=own.uid)
        self._handles.append(made)
        for class_ in reversed(_with_all_above(own)):
            if class_.flags not in _READABLE:
                raise self._data.wrong(
                    f"class {class_.name} has a serialization of its own "
                    f"(flags {class_.flags:#04x})"
                )
            for type_, name in class_.fields:
                made.fields[name] = self._typed(type_, depth)
            if class_.flags != _SERIALIZABLE:
                self._read_annotation(made.annotations, depth)
        return made

    def _typed(self, type_: str, depth: int) -> object:
        read = _PRIMITIVES.get(type_)
        return self.value(depth + 1) if read is None else read(self._data)

    def _read_annotation(self, annotations: list[object], depth: int) -> None:
        data = self._data
        while True:
            mark = data.u1()
            if mark == _END_OF_BLOCKS:
                return
            if mark == 0x77:
                annotations.append(data.take(data.u1()))
            elif mark == 0x7A:
                annotations.append(data.take(data.count("bytes")))
            else:
                data.at -= 1
                annotations.append(self.value(depth + 1))

    def array(self, depth: int) -> JavaArray:
        data = self._data
        at, class_ = data.at, self._class(depth)
        type_ = class_.name[1:2]
        if class_.name[:1] != "[" or not (type_ in _PRIMITIVES or type_ in ("L", "[")):
            raise data.wrong(f"an array has the class {class_.name!r}", at)
        made = JavaArray(class_.name)
        self._handles.append(made)
        count = data.items("items")
        if type_ == "B":
            made.items.append(data.take(count))
            return made
        for _ in range(count):
            made.items.append(self._typed(type_, depth))
        return made

    def enum(self, depth: int) -> JavaEnum:
        at, made = self._data.at, self._class(depth)
        if made.uid != 0:
            raise self._data.wrong(f"enum {made.name} has a serialVersionUID of {made.uid}", at)
        place = len(self._handles)
        self._handles.append(None)
        at, name = self._data.at, self.value(depth + 1)
        if not isinstance(name, str):
            raise self._data.wrong("an enum has no name", at)
        self._handles[place] = JavaEnum(made.name, name)
        return JavaEnum(made.name, name)

    def _class(self, depth: int) -> _Class:
        data = self._data
        at, mark = data.at, data.u1()
        if mark == 0x71:
            known = self.known(depth)
            if isinstance(known, _Class):
                return known
        if mark == 0x7D and depth <= _DEPTH_MAX:
            return self._proxy(depth)
        if mark != 0x72 or depth > _DEPTH_MAX:
            raise data.wrong("a class descriptor is missing", at)
        name, uid = data.utf(), data.i8()
        place = len(self._handles)
        self._handles.append(None)
        flags = data.u1()
        fields = []
        for _ in range(data.i2()):
            type_, field_name = chr(data.u1()), data.utf()
            if type_ in "L[":
                self.value(depth + 1)  # the name of the field's class
            elif type_ not in _PRIMITIVES:
                raise data.wrong(f"unknown type {type_!r} of a field")
            fields.append((type_, field_name))
        self._read_annotation([], depth)
        made = _Class(name, uid, flags, tuple(fields), self._above(depth))
        self._handles[place] = made
        return made

    def _proxy(self, depth: int) -> _Class:
        """Read the class of a proxy, whose only field is its superclass's."""
        data, place = self._data, len(self._handles)
        self._handles.append(None)
        names = [data.utf() for _ in range(data.items("interfaces"))]
        self._read_annotation([], depth)
        made = _Class(f"proxy of {', '.join(names)}", 0, _SERIALIZABLE, (), self._above(depth))
        self._handles[place] = made
        return made

    def _above(self, depth: int) -> _Class | None:
        data = self._data
        if data.at < data.end and data.data[data.at] == _NULL:
            data.u1()
            return None
        return self._class(depth + 1)

    def known(self, depth: int) -> object:
        at, number = self._data.at - 1, self._data.i4() - FIRST_HANDLE
        if not 0 <= number < len(self._handles) or self._handles[number] is None:
            raise self._data.wrong("a back reference to no earlier object", at)
        return self._handles[number]


def _with_all_above(class_: _Class) -> list[_Class]:
    """Return a class and those that it is derived from, the topmost last."""
    classes = []
    step: _Class | None = class_
    while step is not None:
        classes.append(step)
        step = step.above
    return classes


_VALUES: Final[Mapping[int, Callable[[_ObjectReader, int], object]]] = {
    0x70: _ObjectReader.null,
    0x71: _ObjectReader.known,
    0x73: _ObjectReader.instance,
    0x74: _ObjectReader.string,
    0x75: _ObjectReader.array,
    0x76: _ObjectReader.class_value,
    0x79: _ObjectReader.reset,
    0x7C: _ObjectReader.long_string,
    0x7E: _ObjectReader.enum,
}
_PRIMITIVES: Final[Mapping[str, Callable[[DataInput], object]]] = {
    "Z": DataInput.boolean,
    "B": DataInput.u1,
    "S": DataInput.i2,
    "C": DataInput.i2,
    "I": DataInput.i4,
    "J": DataInput.i8,
    "F": lambda data: data.take(4),
    "D": lambda data: data.take(8),
}
