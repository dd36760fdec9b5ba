"""An object that Java's own serialization wrote, read without its class: names of classes and
values of fields.

    ac ed 00 05, then one object
    object     73 classdesc, fields of every class from the topmost down           70 null      71 i4 handle
    classdesc  72 utf name, i8 serialVersionUID, u1 flags, i2 n, n * (u1 type, utf name, [string
               class]), 78, classdesc
    string     74 utf        enum  7e classdesc string

Handles number class descriptions, objects, strings and enums in the order in which they appear,
from 7e0000. What a class writes by a method of its own, arrays and proxies are not read: nothing
that Flink puts in `_metadata` has them.

Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stateshift.formats.flink.java_data import Input

MAGIC: Final = b"\xac\xed\x00\x05"
_FIRST_HANDLE: Final = 0x7E0000
_SERIALIZABLE, _ENUM = 0x02, 0x10
_DEPTH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class JavaEnum:
    type: str
    name: str


@dataclass(frozen=True, slots=True)
class JavaObject:
    type: str
    fields: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Class:
    name: str
    flags: int
    fields: tuple[tuple[str, str], ...]
    above: _Class | None


def read_object(data: Input) -> object:
    """The object that begins here, with its stream's header."""
    at = data.at
    if data.take(4) != MAGIC:
        raise data.wrong("no serialized Java object begins here", at)
    return _Reading(data).value(0)


class _Reading:
    def __init__(self, data: Input) -> None:
        self._data = data
        self._handles: list[object] = []

    def value(self, depth: int) -> object:
        data = self._data
        at, mark = data.at, data.u1()
        if depth > _DEPTH_MAX:
            raise data.wrong("objects inside of objects without an end", at)
        match mark:
            case 0x70:
                return None
            case 0x71:
                return self._known(at)
            case 0x73:
                return self._object(depth)
            case 0x74:
                return self._remember(data.utf())
            case 0x7E:
                return self._enum(depth)
            case _:
                raise data.wrong(
                    f"{mark:#04x} begins nothing in a serialized Java object that can be read", at
                )

    def _object(self, depth: int) -> JavaObject:
        made = self._class(depth)
        found = JavaObject(made.name)
        self._remember(found)
        above: list[_Class] = []
        step: _Class | None = made
        while step is not None:
            above.append(step)
            step = step.above
        for one in reversed(above):
            if one.flags != _SERIALIZABLE:
                raise self._data.wrong(
                    f"class {one.name} writes itself in its own way (flags {one.flags:#04x})"
                )
            for type_, name in one.fields:
                found.fields[name] = self._field(type_, depth)
        return found

    def _field(self, type_: str, depth: int) -> object:
        data = self._data
        match type_:
            case "Z":
                return data.boolean()
            case "B":
                return data.u1()
            case "S" | "C":
                return data.i2()
            case "I":
                return data.i4()
            case "J":
                return data.i8()
            case "F" | "D":
                return data.take(4 if type_ == "F" else 8)
            case _:
                return self.value(depth + 1)

    def _enum(self, depth: int) -> JavaEnum:
        made, place = self._class(depth), len(self._handles)
        self._handles.append(None)
        at, name = self._data.at, self.value(depth + 1)
        if not isinstance(name, str):
            raise self._data.wrong("an enum without a name", at)
        self._handles[place] = JavaEnum(made.name, name)
        return JavaEnum(made.name, name)

    def _class(self, depth: int) -> _Class:
        data = self._data
        at, mark = data.at, data.u1()
        if mark == 0x71:
            known = self._known(at)
            if isinstance(known, _Class):
                return known
        if mark != 0x72 or depth > _DEPTH_MAX:
            raise data.wrong("no class is described where one has to be", at)
        name = data.utf()
        data.i8()
        place = len(self._handles)
        self._handles.append(None)
        flags, fields = data.u1(), []
        for _ in range(data.i2()):
            type_, field_name = chr(data.u1()), data.utf()
            if type_ in "L[":
                self.value(depth + 1)  # the name of the field's class
            elif type_ not in "ZBSCIJFD":
                raise data.wrong(f"{type_!r} is no type of a field")
            fields.append((type_, field_name))
        at = data.at
        if data.u1() != 0x78:
            raise data.wrong(f"class {name} is annotated", at)
        made = _Class(name, flags, tuple(fields), self._above(depth))
        self._handles[place] = made
        return made

    def _above(self, depth: int) -> _Class | None:
        if self._data.at < self._data.end and self._data.data[self._data.at] == 0x70:
            self._data.u1()
            return None
        return self._class(depth + 1)

    def _known(self, at: int) -> object:
        number = self._data.i4() - _FIRST_HANDLE
        if not 0 <= number < len(self._handles) or self._handles[number] is None:
            raise self._data.wrong("a reference to something that was not there yet", at)
        return self._handles[number]

    def _remember(self, value: JavaObject | str) -> JavaObject | str:
        self._handles.append(value)
        return value
