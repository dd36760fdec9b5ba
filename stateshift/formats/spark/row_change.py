"""A row of one schema made a row of another: columns kept, added, dropped, widened, at any depth.
Pure.

    evolve(schema, change) -> Evolution       schema: StructType.json, as plain JSON
      change    add     [{"name": "last", "type": "long", "default": null, "after": "count"}, ...]
                widen   {"total": "long"}
                rename  {"total": "sum"}
                drop    ["spare"]
                nullable ["id"]          may be null from now on: no row changes; "*" is everything,
                                         at any depth
      Evolution   schema  the new StructType.json
                apply   UnsafeRow -> UnsafeRow

    cut_row(schema, count)  a row -> the row of its first `count` columns, and that of the others
    glue_rows(schema, count)  the inverse

A column inside of a struct is written with dots (`groupState.count`); of several of one name, the
second is `sum#2`, as everywhere. `after` left out means at the end, "" at the beginning. Kept
columns are copied slot by slot and never decoded, so their bytes stay as Spark wrote them; parts of
variable size follow in the order of the columns, as in Spark. Layout of rows: see `unsafe_row`.
Source of what can be widened: Spark, TypeWideningMode and Cast.canUpCast.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stateshift.errors import FormatError
from stateshift.formats.spark.column_values import (
    NULL,
    NULL_WIDE_DECIMAL,
    Slot,
    encode_value,
    join_slots,
    pad_part,
    read_default,
    widening,
)
from stateshift.formats.spark.types import (
    FORMS,
    LONG_DIGITS,
    Atomic,
    DataType,
    DecimalType,
    StructType,
    Value,
    decode_struct,
    is_in_slot,
    null_bytes,
    unique,
)
from stateshift.formats.spark.unsafe_row import scale_integer
from stateshift.plain import JsonObject

# A type as StructType.json has it, its fields included, or as a change spells it: `decode_struct`
# says what is none.
TypeJson = Any
Schema = Mapping[str, TypeJson]

T = TypeVar("T")

Row = Callable[[bytes], bytes]
# A function that gives a new row's slot, from an old row and its null bits.
Fill = Callable[[bytes, int], Slot]
Convert = Callable[[Value], Slot]

_PLACE = struct.Struct("<II")

# The keys by which a type says that something may be null, and those of other types in it.
_NULLABLE = ("nullable", "containsNull", "valueContainsNull")
_TYPES_INSIDE = ("type", "elementType", "keyType", "valueType")


class Unfit(ValueError):
    """The change does not fit the schema: the message is the fact."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """The new schema, and the function that makes an old row a new one."""

    schema: dict[str, TypeJson]
    apply: Row


@dataclass(frozen=True, slots=True)
class _Column:
    field: dict[str, TypeJson]
    name: str
    fill: Fill


@dataclass(frozen=True, slots=True)
class _OldColumn:
    number: int
    slot: int

    def is_null(self, nulls: int) -> bool:
        return bool(nulls >> self.number & 1)


@dataclass(frozen=True, slots=True)
class _Pending:
    """The part of a change that is still to be made, by column. Whatever makes it takes it out."""

    add: dict[str, TypeJson] = dataclasses.field(default_factory=dict)
    widen: dict[str, TypeJson] = dataclasses.field(default_factory=dict)
    rename: dict[str, str] = dataclasses.field(default_factory=dict)
    drop: dict[str, None] = dataclasses.field(default_factory=dict)
    nullable: dict[str, None] = dataclasses.field(default_factory=dict)

    def is_done(self) -> bool:
        return not any(self._parts())

    def take_inside(self, name: str) -> _Pending:
        """Take out the part that concerns columns inside of this one, by their names there."""
        add = _take_below(self.add, name)
        return _Pending(
            add={path: {**wish, "name": path} for path, wish in add.items()},
            widen=_take_below(self.widen, name),
            rename=_take_below(self.rename, name),
            drop=_take_below(self.drop, name),
            nullable=_take_below(self.nullable, name),
        )

    def put_back(self, name: str, inside: _Pending) -> None:
        for own, inner in zip(self._parts(), inside._parts(), strict=True):
            own |= {f"{name}.{path}": value for path, value in inner.items()}

    def columns_missed(self) -> list[str]:
        """Return the columns that the rest of the change names, which are not there."""
        missed = [*self.widen, *self.rename, *self.drop, *self.nullable]
        for name, wish in self.add.items():
            missed.append(wish.get("after") or name)
        return missed

    def _parts(self) -> tuple[dict[str, Any], ...]:
        return self.add, self.widen, self.rename, self.drop, self.nullable


def _take_below(by_path: dict[str, T], name: str) -> dict[str, T]:
    start = f"{name}."
    below = [path for path in by_path if path.startswith(start)]
    return {path.removeprefix(start): by_path.pop(path) for path in below}


def evolve(schema: Schema, change: JsonObject) -> Evolution:
    """Return the schema with the change made; `Unfit` where it cannot be."""
    pending = _Pending(
        add={wish["name"]: dict(wish) for wish in change.get("add", ())},
        widen=dict(change.get("widen", {})),
        rename=dict(change.get("rename", {})),
        drop=dict.fromkeys(change.get("drop", ())),
        nullable=dict.fromkeys(change.get("nullable", ())),
    )
    if len(pending.add) < len(change.get("add", ())):
        raise Unfit("two of the columns to add have one name")
    everything = "*" in pending.nullable
    pending.nullable.pop("*", None)
    evolved = _evolved(schema, pending)
    if everything:
        evolved = Evolution(_nullable_everywhere(evolved.schema), evolved.apply)
    missed = pending.columns_missed()
    if missed:
        known = ", ".join(_paths(schema)) or "none"
        raise Unfit(f"there is no column {missed[0]}; there are {known}")
    return evolved


def _nullable_everywhere(plain: TypeJson) -> TypeJson:
    """Return a type, or a part, that may be null everywhere but in keys of maps."""
    if not isinstance(plain, dict):
        return plain
    changed = dict(plain)
    for key in changed:
        if key in _NULLABLE:
            changed[key] = True
        if key in _TYPES_INSIDE:
            changed[key] = _nullable_everywhere(changed[key])
    if "fields" in changed:
        changed["fields"] = [_nullable_everywhere(inner) for inner in changed["fields"]]
    return changed


def type_of(plain: TypeJson) -> DataType:
    """Return a type by its name in Spark's JSON or in SQL, or by its JSON."""
    column = {"name": "x", "type": spell_type(plain)}
    return decode_struct(json.dumps({"type": "struct", "fields": [column]})).types[0]


def spell_type(plain: TypeJson) -> TypeJson:
    """Return a type's name as Spark's JSON has it, where it has one."""
    if not isinstance(plain, str):
        return plain
    name = plain.strip().lower()
    return _SQL.get(name, name)


_SQL = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte", "real": "float"}


def _evolved(schema: Schema, pending: _Pending) -> Evolution:
    """Return one struct changed; its part of the change is taken out of `pending`."""
    fields = schema["fields"]
    names = unique([field["name"] for field in fields])
    columns = _kept_columns(schema, names, pending)
    for name in list(pending.add):
        _add(columns, name, names, pending)
    if not columns:
        raise Unfit("no column would be left")
    for name, count in Counter(column.name for column in columns).items():
        if name and count > 1:
            raise Unfit(f"there is a column {name} already")
    plain = {**schema, "fields": [column.field for column in columns]}
    return Evolution(plain, _row(len(fields), [column.fill for column in columns]))


def _kept_columns(schema: Schema, names: Sequence[str], pending: _Pending) -> list[_Column]:
    fields, types = schema["fields"], decode_struct(json.dumps(schema)).types
    first_slot = null_bytes(len(fields))
    columns = []
    for number, (name, field, kind) in enumerate(zip(names, fields, types, strict=True)):
        if name in pending.drop:
            del pending.drop[name]
            continue
        place = _OldColumn(number, first_slot + 8 * number)
        columns.append(_kept(name, field, kind, place, pending))
    return columns


def _kept(
    name: str, field: Schema, kind: DataType, place: _OldColumn, pending: _Pending
) -> _Column:
    """Return a column that stays: as it is, widened, or with changes inside of it."""
    new = dict(field)
    new["name"] = pending.rename.pop(name, field["name"])
    shown = new["name"] if new["name"] != field["name"] else name
    if name in pending.nullable:
        del pending.nullable[name]
        new["nullable"] = True
    if name in pending.widen:
        new["type"] = spell_type(pending.widen.pop(name))
        return _Column(new, shown, _fill_widened(place, kind, _widening(name, kind, new["type"])))
    inside = pending.take_inside(name)
    if inside.is_done():
        if is_in_slot(kind):
            return _Column(new, shown, _fill_slot(place))
        is_decimal = isinstance(kind, DecimalType)
        return _Column(new, shown, _fill_wide_decimal(place) if is_decimal else _fill_part(place))
    if not isinstance(kind, StructType):
        raise Unfit(f"{name} is no struct: it has no columns of its own")
    part = _evolved(field["type"], inside)
    pending.put_back(name, inside)
    new["type"] = part.schema
    return _Column(new, shown, _fill_changed(place, part.apply))


def _add(columns: list[_Column], name: str, names: Sequence[str], pending: _Pending) -> None:
    outer, dot, _ = name.partition(".")
    if dot:
        if outer not in names:
            known = ", ".join(names) or "no columns"
            raise Unfit(f"{name}: there is no struct {outer}; there are {known}")
        return  # of a struct that has been looked into: what is left of it is reported as missing
    wish = pending.add[name]
    wanted = spell_type(wish["type"])
    try:
        kind = type_of(wanted)
        value = read_default(wish.get("default"), kind)
    except FormatError as error:
        raise Unfit(f"{name}: {error.fact}") from error
    except ValueError as error:
        raise Unfit(f"{name}: {error}") from error
    # Nullable whatever the query says: Spark takes a stored column that may be null for one that
    # may not, and refuses the other way round (StateSchemaCompatibilityChecker,
    # equalsIgnoreNameAndCompatibleNullability).
    field = {"name": name, "type": wanted, "nullable": True, "metadata": {}}
    slot = encode_value(value, kind)
    column = _Column(field, name, lambda row, nulls: slot)
    after = wish.get("after")
    places = ["", *(column.name for column in columns)]
    if after is None or after in places:
        del pending.add[name]
        columns.insert(len(columns) if after is None else places.index(after), column)


def cut_row(schema: Schema, count: int) -> Callable[[bytes], tuple[bytes, bytes]]:
    """Return a function that cuts a row in two, by the first columns."""
    fills = _fills(schema["fields"])
    first, rest = _row(len(fills), fills[:count]), _row(len(fills), fills[count:])
    return lambda row: (first(row), rest(row))


def glue_rows(schema: Schema, count: int) -> Callable[[bytes, bytes], bytes]:
    """Return a function that joins two rows."""
    first, rest = _fills(schema["fields"][:count]), _fills(schema["fields"][count:])
    first_slots, rest_slots = _slots(len(first), first), _slots(len(rest), rest)
    return lambda row, other: join_slots([*first_slots(row), *rest_slots(other)])


def _fills(fields: Sequence[Schema]) -> list[Fill]:
    schema = {"type": "struct", "fields": list(fields)}
    names = [field["name"] for field in fields]
    return [column.fill for column in _kept_columns(schema, names, _Pending())]


def _row(count: int, fills: Sequence[Fill]) -> Row:
    slots_of = _slots(count, fills)
    return lambda row: join_slots(slots_of(row))


def _slots(count: int, fills: Sequence[Fill]) -> Callable[[bytes], list[Slot]]:
    bits = null_bytes(count)
    least = bits + 8 * count

    def slots_of(row: bytes) -> list[Slot]:
        if len(row) < least:
            raise FormatError(f"a row of {count} fields needs {least} bytes", None, len(row))
        nulls = int.from_bytes(row[:bits], "little")
        return [fill(row, nulls) for fill in fills]

    return slots_of


def _fill_slot(place: _OldColumn) -> Fill:
    number, start, end = place.number, place.slot, place.slot + 8

    def fill(row: bytes, nulls: int) -> Slot:
        if nulls >> number & 1:
            return NULL
        return Slot(row[start:end], None)

    return fill


def _fill_part(place: _OldColumn) -> Fill:
    number, slot = place.number, place.slot

    def fill(row: bytes, nulls: int) -> Slot:
        if nulls >> number & 1:
            return NULL
        return pad_part(_part(row, slot))

    return fill


def _fill_wide_decimal(place: _OldColumn) -> Fill:
    number, slot = place.number, place.slot

    def fill(row: bytes, nulls: int) -> Slot:
        if nulls >> number & 1:
            return NULL_WIDE_DECIMAL
        return Slot(b"", _part(row, slot), NULL_WIDE_DECIMAL.reserved)

    return fill


def _fill_changed(place: _OldColumn, apply: Row) -> Fill:
    def fill(row: bytes, nulls: int) -> Slot:
        if place.is_null(nulls):
            return NULL
        part = apply(_part(row, place.slot))
        return Slot(b"", part, len(part))

    return fill


def _fill_widened(place: _OldColumn, kind: DataType, convert: Convert) -> Fill:
    def fill(row: bytes, nulls: int) -> Slot:
        if place.is_null(nulls):
            return convert(None)
        return convert(_number(row, place.slot, kind))

    return fill


def _number(row: bytes, slot: int, kind: DataType) -> Value:
    if isinstance(kind, DecimalType):
        if kind.precision > LONG_DIGITS:
            number = int.from_bytes(_part(row, slot), "big", signed=True)
        else:
            (number,) = FORMS["long"].unpack_from(row, slot)
        return scale_integer(number, kind.scale)
    assert isinstance(kind, Atomic), "only atomic types are widened"
    return FORMS[kind.name].unpack_from(row, slot)[0]


def _widening(name: str, kind: DataType, wanted: TypeJson) -> Convert:
    try:
        into = type_of(wanted)
    except FormatError as error:
        raise Unfit(f"{name}: {error.fact}") from error
    widened = widening(kind, into)
    if widened is None:
        shown = wanted if isinstance(wanted, str) else "that type"
        fact = f"{name} cannot be widened to {shown}: a value might not fit, or would be another"
        raise Unfit(fact)
    return lambda value: encode_value(None if value is None else widened(value), into)


def _part(row: bytes, slot: int) -> bytes:
    size, offset = _PLACE.unpack_from(row, slot)
    if offset + size > len(row):
        raise FormatError("a value lies outside its row", None, slot)
    return row[offset : offset + size]


def _paths(schema: Schema) -> list[str]:
    fields = schema["fields"]
    paths = []
    for name, field in zip(unique([field["name"] for field in fields]), fields, strict=True):
        paths.append(name)
        kind = field["type"]
        if isinstance(kind, dict) and kind.get("type") == "struct":
            paths += [f"{name}.{path}" for path in _paths(kind)]
    return paths
