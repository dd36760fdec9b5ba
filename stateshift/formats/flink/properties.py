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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.java_objects import JavaEnum, JavaObject, read_object

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
