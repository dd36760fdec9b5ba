"""Rows of other programs as the keys and values of a store: by the names, types and nulls of its
columns. Pure.

Arrow's arrays of the store's own types are encoded column by column, and so are those of types
that become them without a change: wider and narrower numbers, times of other units, dictionaries.
Others, and plain JSON as an export's lines have it, are read value by value: numbers that fit,
text, times (whole numbers as Spark counts them, ISO 8601, or Python's), decimals, bytes. No text
becomes a number. That both ways agree is tested for every pair of types.

Columns go by name, all of them and no others. A null fits where the schema allows one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries.columnar import encoded_keys, encoded_values
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.vectors import arrow_type
from stateshift.errors import FormatError
from stateshift.formats.blocks import Column, RowBlock, binary, lengths
from stateshift.formats.spark.column_values import read_default
from stateshift.formats.spark.text import decode_object
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    DecimalType,
    MapType,
    StructType,
    Value,
    unique,
)

BYTES_MAX = (1 << 31) - 16  # of a key or a value: an array of Java's has no more

Path = str  # of a column: key.window.start
Rows = Column  # an array of Arrow, or a list of plain JSON


class Misfit(ValueError):
    """A row does not fit the columns: the message is the fact."""


@dataclass(frozen=True)
class RowColumns:
    """The columns of a store. `required` are the paths of those that are never null."""

    view: StoreView
    required: frozenset[Path]

    @classmethod
    def of(cls, view: StoreView, key: str, value: str) -> RowColumns:
        row = "value[]" if view.many else "value"
        required = {"key", "value", row}
        for path, schema in (("key", key), (row, value)):
            required.update(_required(decode_object(schema, "a schema"), path))
        return cls(view, frozenset(required))

    def entries(self, keys: Rows, values: Rows, bytes_max: int = BYTES_MAX) -> RowBlock:
        """Return rows as entries, all of them or none.

        Raises:
            Misfit: one of them does not fit.
        """
        kinds = cast(StructType, self.view.key), cast(StructType, self.view.value)
        block = None
        columns = list(map(_in_own_type, (keys, values), kinds))
        if columns[0] is not None and columns[1] is not None:
            encoded = encoded_keys(self.view, columns[0]), encoded_values(self.view, columns[1])
            if None not in encoded:
                self._refuse_nulls(columns[0], "key")
                self._refuse_nulls(columns[1], "value")
                block = RowBlock(*encoded)
        block = block or self._one_by_one(keys, values, kinds)
        for name, column in (("key", block.keys), ("value", block.values)):
            size = int(lengths(column).max(initial=0))
            if size > bytes_max:
                raise Misfit(f"its {name} is of {size} bytes: Spark holds up to {bytes_max}")
        return block

    def _one_by_one(
        self, keys: Rows, values: Rows, kinds: tuple[StructType, StructType]
    ) -> RowBlock:
        key_kind, value_kind = kinds
        many, encoded = self.view.many, list[tuple[bytes, bytes]]()
        wanted: DataType = ArrayType(value_kind) if many else value_kind
        try:
            rows = [each if isinstance(each, list) else each.to_pylist() for each in (keys, values)]
        except (ValueError, OverflowError) as error:  # times beyond those that Python has
            raise Misfit(f"a value that cannot be read: {error}") from error
        for key, value in zip(*rows, strict=True):
            try:
                row = self._read(value, wanted, "value")
                if many and not row:
                    raise Misfit("value is an empty list: a key without rows has no entry")
                own_key = self.view.encode_key(self._read(key, key_kind, "key"))
                encoded.append((own_key, self.view.encode_value(list(row) if many else row)))
            except Misfit:
                raise
            except (FormatError, ValueError, TypeError, OverflowError) as error:
                raise Misfit(f"it cannot be written: {error}") from error
        return RowBlock(binary([key for key, _ in encoded]), binary([row for _, row in encoded]))

    def _refuse_nulls(self, column: Column, path: Path, here: Column = None) -> None:
        present = column if here is None or not column.null_count else column.filter(here)
        if present.null_count and path in self.required:
            raise _null_at(path)
        if pa.types.is_struct(column.type):
            valid = pc.is_valid(column)
            for field, inner in zip(column.type, column.flatten(), strict=True):
                self._refuse_nulls(inner, f"{path}.{field.name}", valid)

    def _read(self, given: object, kind: DataType, path: Path) -> Value:
        """Return one value of a type."""
        if kind == StructType((), ()) and given in (None, {}):
            return ()
        if given is None and path in self.required:
            raise _null_at(path)
        if given is None:
            return None
        match kind:
            case StructType(names, types):
                fields = self._fields(given, unique(names), path)
                kinds = zip(fields.items(), types, strict=True)
                return tuple(self._read(each, of, f"{path}.{name}") for (name, each), of in kinds)
            case ArrayType(element) if isinstance(given, list):
                return tuple(self._read(each, element, f"{path}[]") for each in given)
            case MapType(key, item) if isinstance(given, list):
                pair = StructType(("key", "value"), (key, item))
                named = (dict(zip(pair.names, each, strict=True)) for each in given)
                pairs = tuple(self._read(each, pair, path) for each in named)
                if len({repr(each[0]) for each in pairs}) < len(pairs):
                    raise Misfit(f"{path} has a key twice")
                return pairs
            case Atomic(name) if name in _PARTS:
                parts = [part.name for part in arrow_type(kind)]
                if isinstance(given, list) and len(given) == len(parts):
                    given = dict(zip(parts, given, strict=True))
                contents = self._fields(given, parts, path).values()
                return tuple(map(_atomic, contents, _PARTS[name], (path,) * len(parts)))
        return _atomic(given, kind, path)

    def _fields(self, given: object, names: list[str], path: Path) -> Mapping[str, object]:
        """Return the fields of a struct in the order of the store's."""
        found = cast("Mapping[str, object]", given) if isinstance(given, dict) else {}
        if set(found) != set(names):
            fact = f"{path} has the columns {', '.join(found) or 'none'}"
            raise Misfit(f"{fact}; the state's: {', '.join(names)}")
        return {name: found[name] for name in names}


# A number of more digits is not the one that a double was read from.
FLOAT_DIGITS = 15
# More digits than Spark holds, in the times of pandas: Arrow returns them where that is installed.
_FINER = ("nanosecond", "nanoseconds")
_EXACT = {Atomic("float"): 1 << 24, Atomic("double"): 1 << 53}
_WHOLE, _LONG, _BINARY = Atomic("integer"), Atomic("long"), Atomic("binary")
_PARTS = {"calendar": (_WHOLE, _WHOLE, _LONG), "variant": (_BINARY, _BINARY)}
_TIMES = {
    "date": pa.int32(),
    **dict.fromkeys(("timestamp", "timestamp_ntz", "day-time"), pa.int64()),
}
# A day within the years that Python has, in microseconds: no time zone leads out of them.
_TIME_MIN, _TIME_MAX = -62_135_510_400_000_000, 253_402_214_400_000_000
# By name, as not every release of Arrow has all of them. No float becomes a shorter one.
_CASTS = {
    "double": ("float",),
    "day-time": ("duration",),
    "string": ("large_string", "string_view"),
    "binary": ("large_binary", "binary_view", "fixed_size_binary"),
}


def _in_own_type(given: Rows, kind: DataType) -> pa.Array | None:
    """Return a column in the store's type, each value what `_read` makes of it; None where a value
    would be another one, or a loop has to look at it.
    """
    if isinstance(given, list):
        return None
    if given.type == arrow_type(kind):
        return given
    try:
        column = _cast(given, kind)
        if column is not None:
            column.validate(full=True)  # text is UTF-8, decimals fit their precision
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return column


def _cast(given: pa.Array, kind: DataType) -> pa.Array | None:  # noqa: C901 (flat, over types)
    own, wanted = given.type, arrow_type(kind)
    if own == wanted:
        return given
    if pa.types.is_dictionary(own):
        return _cast(given.dictionary_decode(), kind)
    is_number = pa.types.is_integer(own) or pa.types.is_decimal(own)
    match kind:
        case StructType(names) if names and pa.types.is_struct(own):
            named = dict(zip([part.name for part in own], given.flatten(), strict=True))
            if own.num_fields != len(names) or set(named) != set(unique(names)):
                return None
            parts = list(map(_cast, [named[name] for name in unique(names)], kind.types))
            if any(part is None for part in parts):
                return None
            mask = given.is_null()
            return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=mask)
        case DecimalType() if is_number:
            # Arrow asks for room for the largest number of a type, not of the column.
            digits = given.cast(pa.decimal128(20)) if pa.types.is_integer(own) else given
            return digits.cast(wanted)
        case Atomic("timestamp" | "timestamp_ntz" as name) if pa.types.is_timestamp(own):
            if own.tz is not None and name == "timestamp_ntz":
                return None
            times = given.cast(pa.timestamp("us", own.tz)).view(pa.int64())
            bounds = pc.min_max(times).as_py()
            is_known = bounds["min"] is None or (
                bounds["min"] >= _TIME_MIN and bounds["max"] <= _TIME_MAX
            )
            return times.view(wanted) if is_known else None
        case Atomic(name) if is_number and (name in _TIMES or pa.types.is_integer(wanted)):
            return given.cast(_TIMES.get(name, wanted)).view(wanted)
        case Atomic("float" | "double") if pa.types.is_integer(own):
            return given.cast(wanted)
        case Atomic(name) if str(own).partition("[")[0] in _CASTS.get(name, ()):
            return given.cast(wanted)
    return None


def _required(plain: object, above: Path) -> Iterator[Path]:
    """Yield the columns of a struct, items and values that are never null, at any depth."""
    if not isinstance(plain, dict):
        return
    for field in plain.get("fields", ()):
        path = f"{above}.{field['name']}"
        if not field.get("nullable", True):
            yield path
        yield from _required(field["type"], path)
    if plain.get("type") == "array":
        if not plain.get("containsNull", True):
            yield f"{above}[]"
        yield from _required(plain["elementType"], f"{above}[]")
    if plain.get("type") == "map":
        yield f"{above}.key"
        yield from _required(plain["keyType"], f"{above}.key")
        if not plain.get("valueContainsNull", True):
            yield f"{above}.value"
        yield from _required(plain["valueType"], f"{above}.value")


def _atomic(given: object, kind: DataType, path: Path) -> Value:  # noqa: C901 (flat, over types)
    plain = given
    match given:
        case dict() if kind == _BINARY:
            plain = given.get("hex")
        case bytes():
            plain = given.hex() if kind == _BINARY else None
        case str() if kind == _BINARY:
            plain = None  # bytes are no text
        case datetime() | timedelta() if any(getattr(given, name, 0) for name in _FINER):
            plain = None
        case datetime() if given.tzinfo is not None:
            plain = given.astimezone(UTC).isoformat()
        case date():
            plain = given.isoformat()
        case timedelta():
            plain = given // timedelta(microseconds=1)
        case Decimal():
            is_whole = isinstance(kind, Atomic) and given == given.to_integral_value()
            text = format(given, "f")
            plain = int(given) if is_whole else text
            if isinstance(kind, DecimalType) and "." in text:
                plain = text.rstrip("0")  # a longer scale is no other number
    try:
        if plain is None or _is_rounded(plain, kind):
            raise ValueError
        return read_default(plain, kind)
    except (ValueError, OverflowError) as error:
        text = repr(given)
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        named = kind.name if isinstance(kind, Atomic) else str(arrow_type(kind)).partition("<")[0]
        raise Misfit(f"{path} is {shown}, which is not of type {named}") from error


def _is_rounded(number: object, kind: DataType) -> bool:
    """Whether a number may have lost digits on its way here, or would lose them in this type."""
    if isinstance(kind, DecimalType):
        if not isinstance(number, float):
            return False
        digits = Decimal(repr(number)).as_tuple().digits
        return len(digits) > FLOAT_DIGITS
    return isinstance(number, int) and kind in _EXACT and abs(number) > _EXACT[kind]


def _null_at(path: Path) -> Misfit:
    return Misfit(f"{path} is null; the schema allows no null there")
