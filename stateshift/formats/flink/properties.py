"""The properties of a savepoint or checkpoint at the end of `_metadata`, since V4:
CheckpointProperties, serialized by Java. Read for a person and for `inspect`; written as it was
read.

    CheckpointProperties  discardCancelled, ..., forced, unclaimed, checkpointType
      SavepointType       name, formatType CANONICAL | NATIVE, postCheckpointAction NONE | SUSPEND |
                          TERMINATE
      CheckpointType      name, sharingFilesStrategy

TERMINATE is what `drain` leaves: windows and timers have fired as at the end of all input.

Flink 1.16 to 2.3 write the same bytes. runtime/checkpoint/CheckpointProperties, SavepointType,
CheckpointType.

An object that Java's own serialization wrote is read without its class: names of classes and values
of fields.

    ac ed 00 05, then one object
    object     73 classdesc, fields of every class from the topmost down
    classdesc  72 utf name, i8 serialVersionUID, u1 flags, i2 n, n * (u1 type, utf name, [string
               class]), 78, classdesc
    string     74 utf
    enum       7e classdesc string
    null       70
    handle     71 i4

Handles number class descriptions, objects, strings and enums in the order in which they appear,
from 7e0000. Fields that a class writes by a method of its own, arrays and proxies are not read:
nothing that Flink puts in `_metadata` has them.

Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from stateshift.formats.flink.java_data import DataInput

_PACKAGE = "org.apache.flink.runtime.checkpoint."
# Each with its serialVersionUID: Java reads no object whose class has another.
_OBJECTS = {
    f"{_PACKAGE}CheckpointProperties": 2,
    f"{_PACKAGE}SavepointType": -6879297871714708296,
    f"{_PACKAGE}CheckpointType": -2963844630364414662,
}
_ENUMS = {
    "org.apache.flink.core.execution.SavepointFormatType": ("CANONICAL", "NATIVE"),
    f"{_PACKAGE}SavepointType$PostCheckpointAction": ("NONE", "SUSPEND", "TERMINATE"),
    f"{_PACKAGE}SnapshotType$SharingFilesStrategy": ("FORWARD_BACKWARD", "FORWARD", "NO_SHARING"),
}

MAGIC: Final = b"\xac\xed\x00\x05"
_FIRST_HANDLE: Final = 0x7E0000
_SERIALIZABLE: Final = 0x02
_NULL: Final = 0x70
_DEPTH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Properties:
    """`layout` is None where it is not said: a checkpoint's files are those of its backend."""

    kind: Literal["savepoint", "checkpoint"]
    name: str
    layout: Literal["canonical", "native"] | None = None
    drained: bool = False


def decode_properties(content: bytes) -> Properties | None:
    """Return the properties; None before V4, or if they are of an unknown class."""
    if not content:
        return None
    properties = read_object(DataInput(content, "_metadata"))
    kind = _field(properties, "checkpointType")
    if not isinstance(kind, JavaObject):
        return None
    name = _field(kind, "name")
    shown = name if isinstance(name, str) else ""
    match kind.type.removeprefix(_PACKAGE):
        case "SavepointType":
            is_native = _constant(kind, "formatType") == "NATIVE"
            is_drained = _constant(kind, "postCheckpointAction") == "TERMINATE"
            layout: Literal["canonical", "native"] = "native" if is_native else "canonical"
            return Properties("savepoint", shown, layout, is_drained)
        case "CheckpointType":
            return Properties("checkpoint", shown)
    return None


def _field(value: object, name: str) -> object:
    return value.fields.get(name) if isinstance(value, JavaObject) else None


def _constant(value: object, name: str) -> str | None:
    constant = _field(value, name)
    return constant.name if isinstance(constant, JavaEnum) else None


def foreign_part(content: bytes) -> str | None:
    """Return the first class or constant that Flink up to 2.3 does not have."""
    return _foreign(read_object(DataInput(content, "_metadata"))) if content else None


def _foreign(value: object) -> str | None:
    match value:
        case JavaEnum(type=type_, name=name):
            known = name in _ENUMS.get(type_, ())
            return None if known else f"{type_}.{name}"
        case JavaObject(type=type_, fields=fields, uid=uid):
            if _OBJECTS.get(type_) != uid:
                return f"{type_}, serialVersionUID {uid}" if type_ in _OBJECTS else type_
            return next(filter(None, map(_foreign, fields.values())), None)
    return None


@dataclass(frozen=True, slots=True)
class JavaEnum:
    """An enum constant: its class, and its name as Java writes it."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class JavaObject:
    """An object: class, fields with those of superclasses, and its class's serialVersionUID."""

    type: str
    fields: dict[str, object] = field(default_factory=dict)
    uid: int = 0


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


class _ObjectReader:
    def __init__(self, data: DataInput) -> None:
        self._data = data
        self._handles: list[object] = []

    def value(self, depth: int) -> object:
        data = self._data
        at, mark = data.at, data.u1()
        if depth > _DEPTH_MAX:
            raise data.wrong("objects are nested too deeply", at)
        match mark:
            case 0x70:
                return None
            case 0x71:
                return self._known(at)
            case 0x73:
                return self._object(depth)
            case 0x74:
                self._handles.append(data.utf())
                return self._handles[-1]
            case 0x7E:
                return self._enum(depth)
            case _:
                raise data.wrong(f"unknown type code {mark:#04x} in a serialized Java object", at)

    def _object(self, depth: int) -> JavaObject:
        own = self._class(depth)
        made = JavaObject(own.name, uid=own.uid)
        self._handles.append(made)
        for class_ in reversed(_with_all_above(own)):
            if class_.flags != _SERIALIZABLE:
                raise self._data.wrong(
                    f"class {class_.name} has a serialization of its own "
                    f"(flags {class_.flags:#04x})"
                )
            for type_, name in class_.fields:
                read = _PRIMITIVES.get(type_)
                made.fields[name] = self.value(depth + 1) if read is None else read(self._data)
        return made

    def _enum(self, depth: int) -> JavaEnum:
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
            known = self._known(at)
            if isinstance(known, _Class):
                return known
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
        at = data.at
        if data.u1() != 0x78:
            raise data.wrong(f"class {name} is annotated", at)
        above = None
        if data.at < data.end and data.data[data.at] == _NULL:
            data.u1()
        else:
            above = self._class(depth + 1)
        made = _Class(name, uid, flags, tuple(fields), above)
        self._handles[place] = made
        return made

    def _known(self, at: int) -> object:
        number = self._data.i4() - _FIRST_HANDLE
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
