"""Two schemas of a state store: may Spark take one for the other, and what would make it so. Pure.

Spark compares types by their position. Names do not count, nor does their metadata, and a column
that may be null now may have been null before:

    (StateSchemaCompatibilityChecker, DataType.equalsIgnoreNameAndCompatibleNullability)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeGuard

from stateshift.plain import JsonObject

SqlType = str | JsonObject  # as the JSON of StructType has it


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct. `type` is that of StructType's JSON."""

    name: str
    type: SqlType
    nullable: bool
    metadata: JsonObject


def fields_of(schema: str | JsonObject) -> tuple[Field, ...]:
    """Return the fields of a struct, from its JSON."""
    plain = json.loads(schema) if isinstance(schema, str) else schema
    fields = []
    for field in plain["fields"]:
        metadata = field.get("metadata", {})
        fields.append(Field(field["name"], field["type"], field.get("nullable", True), metadata))
    return tuple(fields)


def _is_struct(kind: SqlType) -> TypeGuard[JsonObject]:
    return not isinstance(kind, str) and kind["type"] == "struct"


def takes(new: Sequence[Field], old: Sequence[Field], nullability: bool = True) -> bool:
    """Whether Spark takes rows of the old fields for rows of the new ones."""
    if len(new) != len(old):
        return False
    for mine, theirs in zip(new, old, strict=True):
        if nullability and mine.nullable and not theirs.nullable:
            return False
        if not takes_type(mine.type, theirs.type, nullability):
            return False
    return True


def takes_type(new: SqlType, old: SqlType, nullability: bool = True) -> bool:
    """Whether Spark takes values of the old type for values of the new one."""
    if isinstance(new, str) or isinstance(old, str):
        return bool(new == old)
    kind = new["type"]
    if kind != old["type"]:
        return False
    if kind == "struct":
        return takes(fields_of(new), fields_of(old), nullability)
    if kind == "array":
        may = not nullability or old["containsNull"] or not new["containsNull"]
        return may and takes_type(new["elementType"], old["elementType"], nullability)
    if kind == "map":
        may = not nullability or old["valueContainsNull"] or not new["valueContainsNull"]
        same_keys = takes_type(new["keyType"], old["keyType"], nullability)
        return may and same_keys and takes_type(new["valueType"], old["valueType"], nullability)
    return bool(new == old)


def type_text(kind: SqlType) -> str:
    """Return a type as people write it: `struct<start:timestamp,end:timestamp>`."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            inner = [f"{field.name}:{type_text(field.type)}" for field in fields_of(kind)]
            return f"struct<{','.join(inner)}>"
        case "array":
            return f"array<{type_text(kind['elementType'])}>"
        case "map":
            return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"
        case _:
            return str(kind["type"])


def columns_text(fields: Sequence[Field]) -> str:
    """Return columns as people write them: `word string, count long`."""
    return ", ".join(f"{field.name} {type_text(field.type)}" for field in fields) or "nothing"


def paths_of(fields: Sequence[Field], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield all fields with their paths, those of structs after the struct."""
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path, field
        if _is_struct(field.type):
            yield from paths_of(fields_of(field.type), f"{path}.")


@dataclass(slots=True)
class ColumnChange:
    """A change of old columns into new ones: paths of columns, and types as JSON has them.

    `reordered` are columns that only changed places; `replaced` are pairs of columns of which one
    takes the other's place: no change of rows makes one of the other.
    """

    add: list[JsonObject]
    drop: list[str]
    widen: dict[str, str]
    nullable: list[str]
    reordered: list[str]
    replaced: list[tuple[str, str]]


def column_change(old: Sequence[Field], new: Sequence[Field]) -> ColumnChange:
    """Return the change of one row's columns into another's; a name stands for one column."""
    change = ColumnChange([], [], {}, [], [], [])
    _compare(old, new, "", change)
    return change


def _compare(old: Sequence[Field], new: Sequence[Field], prefix: str, change: ColumnChange) -> None:
    if takes(new, old, nullability=False):
        for mine, theirs in zip(new, old, strict=True):
            _compare_one(theirs, mine, f"{prefix}{theirs.name}", change)
        return
    old_names, new_names = [field.name for field in old], [field.name for field in new]
    matcher = SequenceMatcher(None, old_names, new_names, autojunk=False)
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind == "equal":
            for theirs, mine in zip(old[first:last], new[new_first:new_last], strict=True):
                _compare_one(theirs, mine, f"{prefix}{theirs.name}", change)
            continue
        gone, come = old_names[first:last], new_names[new_first:new_last]
        change.reordered += [f"{prefix}{name}" for name in gone if name in new_names]
        if gone and come:
            change.replaced.append((", ".join(gone), ", ".join(come)))
        change.drop += [f"{prefix}{name}" for name in gone]
        for place in range(new_first, new_last):
            added: dict[str, object] = {
                "name": f"{prefix}{new[place].name}",
                "type": new[place].type,
            }
            if place:
                added["after"] = f"{prefix}{new_names[place - 1]}"
            change.add.append(added)


def _compare_one(old: Field, new: Field, path: str, change: ColumnChange) -> None:
    if new.nullable and not old.nullable:
        change.nullable.append(path)
    if takes_type(new.type, old.type):
        return
    if _is_struct(old.type) and _is_struct(new.type):
        _compare(fields_of(old.type), fields_of(new.type), f"{path}.", change)
    elif isinstance(new.type, str):
        change.widen[path] = new.type
    else:
        change.replaced.append((f"{path} {type_text(old.type)}", f"{path} {type_text(new.type)}"))
