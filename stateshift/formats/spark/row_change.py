"""A row of one schema made a row of another: columns kept, added, dropped, widened, at any depth.
Pure.

    evolve(schema, change) -> Evolved       schema: StructType.json, as plain JSON
      change    add     [{"name": "last", "type": "long", "default": null, "after": "count"}, ...]
                widen   {"total": "long"}
                rename  {"total": "sum"}
                drop    ["spare"]
                nullable ["id"]          may be null from now on: no row changes; "*" is everything,
                                         at any depth
      Evolved   schema  the new StructType.json
                apply   UnsafeRow -> UnsafeRow

    cut(schema, count)      a row -> the row of its first `count` columns, and that of the others
    glued(schema, count)    the inverse

A column inside of a struct is written with dots (`groupState.count`); of several of one name, the
second is `sum#2`, as everywhere. `after` left out means at the end, "" at the beginning. What is
kept is copied slot by slot and never decoded, so its bytes stay what Spark wrote; parts of variable
size follow in the order of the columns, as Spark writes them. Layout of rows: see `unsafe_row`.
Source of what can be widened: Spark, TypeWideningMode and Cast.canUpCast.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

from stateshift.errors import FormatError
from stateshift.formats.spark.column_values import Slot, encode_value, read_default, widening
from stateshift.formats.spark.types import (
    WIDTHS,
    Atomic,
    DataType,
    DecimalType,
    StructType,
    decode_struct,
)

Row = Callable[[bytes], bytes]

_PLACE = struct.Struct("<II")


class Unfit(ValueError):
    """The change does not fit the schema: the message is the fact."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """The new schema, and what makes an old row a new one."""

    schema: dict[str, Any]
    apply: Row


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the new row: the JSON of its field, and where its slot comes from."""

    field: dict[str, Any]
    name: str
    fill: Callable[[bytes, int], Slot]


def evolve(schema: Mapping[str, Any], change: Mapping[str, Any]) -> Evolved:
    """The schema with the change made; `Unfit` where it cannot be."""
    left = {
        "add": {one["name"]: dict(one) for one in change.get("add", ())},
        "widen": dict(change.get("widen", {})),
        "rename": dict(change.get("rename", {})),
        "drop": dict.fromkeys(change.get("drop", ())),
        "nullable": dict.fromkeys(change.get("nullable", ())),
    }
    if len(left["add"]) < len(change.get("add", ())):
        raise Unfit("two of the columns to add have one name")
    everything = "*" in left["nullable"]
    left["nullable"].pop("*", None)
    found = _evolved(schema, left)
    if everything:
        found = Evolved(_loose(found.schema), found.apply)
    unused = list(chain(left["widen"], left["rename"], left["drop"], left["nullable"]))
    unused += [one.get("after") or name for name, one in left["add"].items()]
    if unused:
        raise Unfit(
            f"there is no column {unused[0]}; there are {', '.join(_paths(schema)) or 'none'}"
        )
    return found


def _loose(plain: Any) -> Any:
    """A type, or a part of one, in which everything may be null; the keys of maps never may."""
    if not isinstance(plain, dict):
        return plain
    changed: dict[str, Any] = {
        key: True for key in plain if key in ("nullable", "containsNull", "valueContainsNull")
    }
    changed |= {
        key: _loose(plain[key])
        for key in ("type", "elementType", "keyType", "valueType")
        if key in plain
    }
    if "fields" in plain:
        changed["fields"] = [_loose(field) for field in plain["fields"]]
    return {**plain, **changed}


def type_of(plain: Any) -> DataType:
    """A type by its name in Spark's JSON or in SQL, or as JSON."""
    return decode_struct(
        json.dumps({"type": "struct", "fields": [{"name": "x", "type": spelled(plain)}]})
    ).types[0]


def spelled(plain: Any) -> Any:
    """SQL's names as Spark's JSON has them."""
    name = plain.strip().lower() if isinstance(plain, str) else plain
    return _SQL.get(name, name) if isinstance(name, str) else plain


_SQL = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte", "real": "float"}


def _evolved(schema: Mapping[str, Any], left: dict[str, dict[str, Any]]) -> Evolved:
    """One struct; what of the change belongs to it is taken out of `left`."""
    fields, types = schema["fields"], decode_struct(json.dumps(schema)).types
    names = _unique([field["name"] for field in fields])
    columns = []
    for at, (name, field, kind) in enumerate(zip(names, fields, types, strict=True)):
        if name in left["drop"]:
            del left["drop"][name]
            continue
        columns.append(_kept(at, name, field, kind, left, len(fields)))
    for name, one in list(left["add"].items()):
        _add(columns, name, one, names, left)
    if not columns:
        raise Unfit("no column would be left")
    taken = [column.name for column in columns if column.name]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise Unfit(f"there is a column {twice} already")
    plain = {**schema, "fields": [column.field for column in columns]}
    return Evolved(plain, _row(len(fields), [column.fill for column in columns]))


def _kept(
    at: int,
    name: str,
    field: dict[str, Any],
    kind: DataType,
    left: dict[str, dict[str, Any]],
    count: int,
) -> _Column:
    """A column that stays: as it is, widened, or with changes inside of it."""
    slots = _bits(count)
    new = dict(field)
    if name in left["rename"]:
        new["name"] = left["rename"].pop(name)
    if name in left["nullable"]:
        del left["nullable"][name]
        new["nullable"] = True
    shown = new["name"] if new["name"] != field["name"] else name
    if name in left["widen"]:
        wanted = spelled(left["widen"].pop(name))
        convert = _widening(name, kind, wanted)
        new["type"] = wanted
        return _Column(
            new, shown, lambda row, nulls: _widened(row, nulls, at, slots, kind, convert)
        )
    inside = _inside(name, left)
    if any(inside.values()):
        if not isinstance(kind, StructType):
            raise Unfit(f"{name} is no struct: it has no columns of its own")
        part = _evolved(field["type"], inside)
        _give_back(name, inside, left)
        new["type"] = part.schema
        return _Column(new, shown, lambda row, nulls: _changed(row, nulls, at, slots, part.apply))
    if _is_inline(kind):
        return _Column(new, shown, lambda row, nulls: _copied(row, nulls, at, slots))
    wide = isinstance(kind, DecimalType)
    return _Column(new, shown, lambda row, nulls: _copied_part(row, nulls, at, slots, wide))


def _add(
    columns: list[_Column], name: str, one: dict[str, Any], names: list[str], left: dict[str, Any]
) -> None:
    outer, dot, _ = name.partition(".")
    if dot and outer in names:
        return  # of a struct that has been looked into: what is left of it is told as not there
    if dot:
        raise Unfit(
            f"{name}: there is no struct {outer}; there are {', '.join(names) or 'no columns'}"
        )
    wanted = spelled(one["type"])
    try:
        kind = type_of(wanted)
        value = read_default(one.get("default"), kind)
    except (FormatError, ValueError) as error:
        raise Unfit(f"{name}: {error.fact if isinstance(error, FormatError) else error}") from error
    places = ["", *(column.name for column in columns)]
    after = one.get("after")
    if after is not None and after not in places:
        return
    del left["add"][name]
    # Nullable whatever the query says: Spark takes a stored column that may be null for one that
    # may not, and refuses the other way round (StateSchemaCompatibilityChecker,
    # equalsIgnoreNameAndCompatibleNullability).
    field = {"name": name, "type": wanted, "nullable": True, "metadata": {}}
    slot = encode_value(value, kind)
    column = _Column(field, name, lambda row, nulls: slot)
    columns.insert(len(columns) if after is None else places.index(after), column)


def _inside(name: str, left: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What of the change concerns columns inside of this one, by their names there."""
    start = f"{name}."
    found: dict[str, dict[str, Any]] = {}
    for kind, wanted in left.items():
        own = [path for path in wanted if path.startswith(start)]
        found[kind] = {path[len(start) :]: wanted.pop(path) for path in own}
    for path, one in found["add"].items():
        found["add"][path] = {**one, "name": path}
    return found


def _give_back(
    name: str, inside: dict[str, dict[str, Any]], left: dict[str, dict[str, Any]]
) -> None:
    for kind, wanted in inside.items():
        left[kind] |= {f"{name}.{path}": value for path, value in wanted.items()}


def cut(schema: Mapping[str, Any], count: int) -> Callable[[bytes], tuple[bytes, bytes]]:
    """A row in two, behind its first columns."""
    every = _as_they_are(schema["fields"])
    first, rest = (
        _row(len(every), [column.fill for column in part])
        for part in (every[:count], every[count:])
    )
    return lambda row: (first(row), rest(row))


def glued(schema: Mapping[str, Any], count: int) -> Callable[[bytes, bytes], bytes]:
    """Two rows as one."""
    fields = schema["fields"]
    first, rest = (
        _slots(len(part), [column.fill for column in _as_they_are(part)])
        for part in (fields[:count], fields[count:])
    )
    return lambda row, other: _written([*first(row), *rest(other)])


def _as_they_are(fields: Sequence[dict[str, Any]]) -> list[_Column]:
    types = decode_struct(json.dumps({"type": "struct", "fields": list(fields)})).types
    nothing: dict[str, dict[str, Any]] = {
        kind: {} for kind in ("add", "widen", "rename", "drop", "nullable")
    }
    return [
        _kept(at, field["name"], field, kind, nothing, len(fields))
        for at, (field, kind) in enumerate(zip(fields, types, strict=True))
    ]


def _row(count: int, fills: Sequence[Callable[[bytes, int], Slot]]) -> Row:
    found = _slots(count, fills)
    return lambda row: _written(found(row))


def _slots(
    count: int, fills: Sequence[Callable[[bytes, int], Slot]]
) -> Callable[[bytes], list[Slot]]:
    """What is in a row of `count` fields, as `fills` take it."""
    bits = _bits(count)
    least = bits + 8 * count

    def found(row: bytes) -> list[Slot]:
        if len(row) < least:
            raise FormatError(f"a row of {count} fields needs {least} bytes", None, len(row))
        nulls = int.from_bytes(row[:bits], "little")
        return [fill(row, nulls) for fill in fills]

    return found


def _written(found: Sequence[Slot]) -> bytes:
    """A new row: null bits, slots, and the parts of variable size behind them."""
    bits = _bits(len(found))
    nulls, slots, parts, offset = 0, [], [], bits + 8 * len(found)
    for number, (slot, part, room) in enumerate(found):
        if slot is None:
            nulls |= 1 << number
        if part is not None:
            slots.append(_PLACE.pack(len(part), offset))
            parts.append(part.ljust(room, b"\0"))
            offset += room
        else:
            slots.append(slot or bytes(8))
    return b"".join((nulls.to_bytes(bits, "little"), *slots, *parts))


def _copied(row: bytes, nulls: int, at: int, slots: int) -> Slot:
    place = slots + 8 * at
    return Slot(None, None) if nulls >> at & 1 else Slot(row[place : place + 8], None)


def _copied_part(row: bytes, nulls: int, at: int, slots: int, wide: bool) -> Slot:
    """Sixteen bytes are kept free for a wide decimal, even for one that is null."""
    if nulls >> at & 1:
        return Slot(None, b"", 16) if wide else Slot(None, None)
    part = _part(row, slots + 8 * at)
    return Slot(b"", part, 16 if wide else -(-len(part) // 8) * 8)


def _changed(row: bytes, nulls: int, at: int, slots: int, apply: Row) -> Slot:
    if nulls >> at & 1:
        return Slot(None, None)
    part = apply(_part(row, slots + 8 * at))
    return Slot(b"", part, len(part))


def _widened(
    row: bytes, nulls: int, at: int, slots: int, kind: DataType, convert: Callable[[Any], Slot]
) -> Slot:
    if nulls >> at & 1:
        return convert(None)
    place = slots + 8 * at
    if isinstance(kind, DecimalType) and kind.precision > 18:
        number = int.from_bytes(_part(row, place), "big", signed=True)
        return convert(_decimal(number, kind.scale))
    return convert(_number(row, place, kind))


def _number(row: bytes, place: int, kind: DataType) -> Any:
    if isinstance(kind, DecimalType):
        return _decimal(struct.unpack_from("<q", row, place)[0], kind.scale)
    assert isinstance(kind, Atomic), "only atomic types are widened"
    return struct.unpack_from(_CODES[kind.name], row, place)[0]


def _decimal(number: int, scale: int) -> Decimal:
    """Exact, whatever the decimal context says."""
    return Decimal((int(number < 0), tuple(int(digit) for digit in str(abs(number))), -scale))


_CODES = {
    "byte": "<b",
    "short": "<h",
    "integer": "<i",
    "long": "<q",
    "float": "<f",
    "double": "<d",
    "date": "<i",
}


def _widening(name: str, kind: DataType, wanted: Any) -> Callable[[Any], Slot]:
    try:
        into = type_of(wanted)
    except FormatError as error:
        raise Unfit(f"{name}: {error.fact}") from error
    convert = widening(kind, into)
    if convert is None:
        raise Unfit(
            f"{name} cannot be widened to {wanted if isinstance(wanted, str) else 'that type'}: "
            "a value might not fit, or would be another"
        )
    return lambda value: encode_value(None if value is None else convert(value), into)


def _part(row: bytes, place: int) -> bytes:
    size, offset = _PLACE.unpack_from(row, place)
    if offset + size > len(row):
        raise FormatError("a value lies outside its row", None, place)
    return row[offset : offset + size]


def _is_inline(kind: DataType) -> bool:
    if isinstance(kind, Atomic):
        return kind.name in WIDTHS or kind.name == "void"
    return isinstance(kind, DecimalType) and kind.precision <= 18


def _bits(count: int) -> int:
    return (count + 63) // 64 * 8


def _paths(schema: Mapping[str, Any]) -> list[str]:
    found = []
    for name, field in zip(
        _unique([f["name"] for f in schema["fields"]]), schema["fields"], strict=True
    ):
        kind = field["type"]
        inner = _paths(kind) if isinstance(kind, dict) and kind.get("type") == "struct" else []
        found += [name, *(f"{name}.{path}" for path in inner)]
    return found


def _unique(names: Sequence[str]) -> list[str]:
    return [
        name if names[:at].count(name) == 0 else f"{name}#{names[:at].count(name) + 1}"
        for at, name in enumerate(names)
    ]
