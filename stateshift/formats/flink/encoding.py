"""Keys and values as they are shown, made the bytes that Flink's serializers write: the inverse of
`values`, and of canonical entries (`state_values`). Pure.

    EntryWriter(header, state)
      .key({"key": ..., "window": ..., "map_key": ...}) -> bytes, shown     without its group
      .value(value) -> bytes, shown
    encode(serializer, value) -> bytes

Whatever is written is read again. If that shows anything else than what was given, it is refused
(`UnfitValue`): a text for a number, a number with more digits than its type has, an instant without
its zone. A writer that cannot write a value at all raises an error of `WRONG`.
Digits after the point that are missing are zeros, and a Float is the nearest one, as in Java.

Values that only the job's classes can read are given as they are shown: {"bytes": digits}.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Final

from stateshift.errors import FormatError
from stateshift.formats.flink import values
from stateshift.formats.flink.binary_rows import (
    COMPACT_DECIMAL,
    COMPACT_TIMESTAMP,
    KINDS,
    WRONG,
    Slot,
    as_list,
    as_text,
    decimal_of,
    decimal_parts,
    encode_fields,
    encode_span,
    fact_of,
    field_names,
    fields_of,
    in_fields,
    key_slot_of,
    pairs_of,
    slot_of,
    timestamp_parts,
    wide_bytes,
)
from stateshift.formats.flink.heap_groups import namespace_of
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.logical_types import LogicalType
from stateshift.formats.flink.serializers import (
    PLAIN_FORMS,
    RECORD,
    Serializer,
    Unknown,
    plain_form,
    value,
)
from stateshift.formats.flink.state_values import (
    WINDOW_NAMES,
    is_ambiguous,
    length_of,
    read_key,
    read_value,
    read_value_around,
)
from stateshift.formats.flink.times import calendar_of, day_of, instant_of, local_of, nanos_of
from stateshift.plain import JsonObject

Write = Callable[[Serializer, object], bytes]

BYTES_MAX: Final = (1 << 31) - 16  # of a key or a value: an array of Java's has no more
_SHOWN_MAX: Final = 60
_I4, _I8, _F4 = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">f")
_SIGN: Final = -(1 << 63)
_NULL_INT, _NULL_LONG = _I4.pack(-(1 << 31)), _I8.pack(_SIGN)
_NULL_DATE, _NULL_TIME = _NULL_INT + b"\x80\0", b"\x80\x80\0" + _NULL_INT
_SECOND: Final = 1_000_000_000
_ONE_FORM: Final = tuple(
    f"{name}Serializer"
    for name in ("String", "Int", "Long", "Short", "Byte", "VoidNamespace", "TimeWindow")
)


class UnfitValue(ValueError):
    """A value is not of its type: the message is the fact."""


def encode(serializer: Serializer, given: object) -> bytes:
    """Return a value as a serializer writes it; `UnfitValue` where it is not of that type."""

    def show(raw: bytes) -> object:
        return value(serializer, DataInput(raw, "a value"))

    return _checked("value", given, partial(write, serializer), show)[0]


class EntryWriter:
    """Writes the entries of one state, all of whose serializers are known."""

    def __init__(self, header: Header, state: StateInfo) -> None:
        namespace = namespace_of(state)
        assert header.key is not None and namespace is not None, "asked before: is_known"
        self._header, self._state, self._key, self._namespace = header, state, header.key, namespace
        self._window = WINDOW_NAMES.get(namespace.name, "namespace")
        self._is_timer, value = state.kind == "timers", state.value
        is_map = state.type == "MAP" and value is not None and value.name == "MapSerializer"
        self._map_key = value.inner[0] if is_map and value is not None else None
        self._value = (
            value.inner[-1] if value is not None and state.type in ("MAP", "LIST") else value
        )
        asked = {"timestamp": self._is_timer, "key": True, "map_key": is_map}
        self._names = [name for name, is_asked in asked.items() if is_asked]
        self._names += [self._window] if self._window else []
        parts = (self._key, namespace, *([self._map_key] if self._map_key else []))
        is_void = namespace.name == "VoidNamespaceSerializer"
        self._is_plain = is_void and self._names == ["key"]
        self.has_one_form = all(each.name in _ONE_FORM for each in parts)
        self._write_own = _DIRECT.get(self._key.name, partial(write_key, self._key))
        self._write_plain: Callable[[object], bytes] = self._write_value
        if value is not None and state.type not in ("LIST", "MAP") and not self._is_timer:
            self._write_plain = _DIRECT.get(value.name, self._write_value)

    @property
    def may_be_unknown(self) -> bool:
        """Whether values may have parts that only the job's classes can read."""
        return self._state.value is not None and self._state.value.may_be_unknown

    def key(self, key: object) -> tuple[bytes, object]:
        """Return an entry's key without its group, and as it is shown; `UnfitValue` where it is of
        another type.
        """
        show = partial(read_key, self._header, self._state)
        return _checked("key", key, lambda given: self._write_key(given)[0], show)

    def value(self, value: object) -> tuple[bytes, object]:
        """Return an entry's value, and as it is shown."""
        return _checked("value", value, self._write_value, self.shown)

    def own_key(self, key: object) -> bytes:
        """Return the bytes of the key alone, which decides the key group."""
        return self._write_key(key)[1]

    def unchecked(self, key: object, value: object) -> tuple[bytes, bytes, bytes]:
        """Return an entry's key without its group, its part that decides the group, and the value;
        not read again. One of `WRONG` where they are of other types.
        """
        raw = self._write_plain(value)
        if self._is_plain and isinstance(key, dict) and len(key) == 1:
            own = self._write_own(key["key"])
            return own + b"\0", own, raw
        return *self._write_key(key), raw

    def rewritten(self, raw: bytes) -> tuple[bytes, bytes]:
        """Return a key of Flink's, and its part that decides the key group, as rows have them."""
        form, row = self._key.row_form, raw[_I4.size : -1]
        is_plain_row = self._is_plain and form is not None and len(row) == form.size
        if self.has_one_form or (form and is_plain_row and form.pack(*form.unpack(row)) == row):
            return raw, b""
        try:
            shown = read_key(self._header, self._state, raw)
            return self.key(shown)[0], self.own_key(shown)
        except (UnfitValue, FormatError, Unknown):  # no row can have it
            return raw, b""

    def shown(self, raw: bytes) -> object:
        """Return a value as it is shown."""
        if self._is_timer:
            return None
        try:
            return read_value(self._state, raw)
        except Unknown:
            is_list = self._state.type == "LIST"
            return {"bytes": raw.hex()} if is_list else read_value_around(self._state, raw)

    def _write_key(self, given: object) -> tuple[bytes, bytes]:
        fields = {"window": None, **fields_of(given, self._names)}
        names, types = ["key", self._window or "window"], [self._key, self._namespace]
        if self._map_key is not None:
            names, types = [*names, "map_key"], [*types, self._map_key]
        (own,) = in_fields(names[:1], types[:1], fields, write_key)
        raw_key, (namespace, *of_map) = own, in_fields(names[1:], types[1:], fields, write)
        if not self._is_timer and is_ambiguous(self._key, self._namespace):
            own, namespace = own + length_of(len(own)), namespace + length_of(len(namespace))
        if self._is_timer:
            own = _I8.pack(int(str(fields["timestamp"])) ^ _SIGN) + own
        return b"".join((own, namespace, *of_map)), raw_key

    def _write_value(self, given: object) -> bytes:
        of, type_ = self._value, self._state.type
        if self._is_timer or of is None:
            return b""
        if type_ == "LIST" and not isinstance(given, dict):
            if not as_list(given):
                raise ValueError("an empty list: a key without items has no entry")
            return b",".join([_not_null(of, each) for each in as_list(given)])
        if type_ == "LIST":
            return _opaque(of, given)
        return _optional(of, given) if type_ == "MAP" else _not_null(of, given)


def _checked(
    name: str, given: object, write: Callable[[object], bytes], show: Callable[[bytes], object]
) -> tuple[bytes, object]:
    """Return a value's bytes, which show it as it was given, and what they show."""
    try:
        raw = write(given)
        shown = show(raw)
    except (*WRONG, RecursionError, AttributeError) as error:
        raise UnfitValue(f"{name} {_text_of(given)}: {fact_of(error)}") from error
    except (FormatError, Unknown) as error:
        raise UnfitValue(f"{name} {_text_of(given)} cannot be read again: {error}") from error
    if not _is_same(given, shown):
        raise UnfitValue(f"{name} {_text_of(given)} would be read as {_text_of(shown)}")
    if len(raw) > BYTES_MAX:
        raise UnfitValue(f"its {name} is of {len(raw)} bytes: Flink holds up to {BYTES_MAX}")
    return raw, shown


def _text_of(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _is_same(given: object, shown: object) -> bool:
    match given, shown:
        case dict(), dict():
            has_names = given.keys() == shown.keys()
            return has_names and all(_is_same(given[name], shown[name]) for name in given)
        case list(), list():
            return len(given) == len(shown) and all(map(_is_same, given, shown))
        case float(), float():
            with suppress(OverflowError):
                (nearest,) = _F4.unpack(_F4.pack(given))
                return shown in (given, nearest) or (math.isnan(given) and math.isnan(shown))
        case (int(), float()) if not isinstance(given, bool):
            return given == shown
        case str(), str() if given != shown:
            with suppress(InvalidOperation):
                return Decimal(given) == Decimal(shown)
    return type(given) is type(shown) and given == shown


def write(of: Serializer, given: object) -> bytes:
    """Return a value as a serializer writes it, not read again."""
    return _WRITERS.get(of.name, _opaque)(of, given)


def _not_null(of: Serializer, given: object) -> bytes:
    """Return a value that Flink has as a key, in a state or in a list: null is in none of them."""
    inner = of.inner[0] if of.name in ("TtlAwareSerializer", "ExternalSerializer") else of
    if given is None and inner.name not in _SHOWN_AS_NULL:
        raise ValueError("Flink holds no null there: leave the row out")
    return write(of, given)


def write_key(of: Serializer, given: object) -> bytes:
    """Return an operator's key."""
    if of.name == "RowDataSerializer" and given is not None:
        return _row_of_sql(of, given, key_slot_of)
    return _not_null(of, given)


# They write what is never null, without a look at anything else.
_DIRECT: Final[Mapping[str, Callable[[object], bytes]]] = {
    "StringSerializer": lambda given: values.encode_string(as_text(given)),
    "LongSerializer": _I8.pack,
    "IntSerializer": _I4.pack,
    "DoubleSerializer": struct.Struct(">d").pack,
}


def _opaque(of: Serializer, given: object) -> bytes:
    """Return the bytes of what only the job's classes can read."""
    return bytes.fromhex(as_text(fields_of(given, ("bytes",))["bytes"]))


def refuse_message(of: Serializer, given: object) -> bytes:
    """Refuse a message: the number that Kryo has for its class is not in the snapshot."""
    if given is not None:
        fact = f"messages of protobuf ({of.type}) are read, and not written"
        raise ValueError(f"{fact}: change them in the job, by its own code")
    return b"\0"


# ---- values that are no composites ---------------------------------------------------------------


def _sized(raw: bytes) -> bytes:
    return _I4.pack(len(raw)) + raw


def _number(form: str) -> Write:
    return lambda of, given: struct.pack(form, given)


def array_writer(form: str) -> Write:
    """Return the writer of an array of such numbers."""

    def write_all(of: Serializer, given: object) -> bytes:
        items = as_list(given)
        return _I4.pack(len(items)) + struct.pack(f">{len(items)}{form}", *items)

    return write_all


def _text(write_text: Callable[[str], bytes], null: bytes | None = None) -> Write:
    """Return the writer of values that are shown as texts; of null, if it has one."""

    def write_or_null(of: Serializer, given: object) -> bytes:
        return null if given is None and null is not None else write_text(as_text(given))

    return write_or_null


def _big_integer(of: object, given: object) -> bytes:
    """Write a BigInteger; one of thousands of digits is given by its bytes."""
    if given is None or (type(given) is int and given in values.SMALL):
        return _I4.pack(values.SMALL.index(given))
    raw = encode_span(LogicalType("RAW"), given) if isinstance(given, dict) else None
    if isinstance(given, int):
        raw = wide_bytes(given)
    if raw is None:
        raise TypeError(given)
    return _I4.pack(len(raw) + len(values.SMALL)) + raw


def write_big_decimal(text: str) -> bytes:
    """Write a BigDecimal."""
    unscaled, scale = decimal_parts(text)
    return _big_integer(None, unscaled) + _I4.pack(scale)


def _date(text: str) -> bytes:
    year, month, day = calendar_of(text)
    return _I4.pack(year) + bytes((month, day))


def _time(text: str) -> bytes:
    seconds, nanos = divmod(nanos_of(text), _SECOND)
    return bytes((seconds // 3600, seconds // 60 % 60, seconds % 60)) + _I4.pack(nanos)


def _millis(text: str) -> bytes:
    seconds, nanos = instant_of(text)
    return _I8.pack(seconds * 1000 + nanos // 1_000_000)


def _nanos(text: str) -> bytes:
    return _I4.pack(instant_of(text)[1])


# ---- composites ----------------------------------------------------------------------------------


def write_item(of: Serializer, given: object) -> bytes:
    """Write what is within, and nothing else."""
    return write(of.inner[0], given)


def write_items(of: Serializer, given: object) -> bytes:
    """Write a list, or a set."""
    write_item = _optional if of.name == "SetSerializer" else write
    items = [write_item(of.inner[0], each) for each in as_list(given)]
    if of.name == "SetSerializer" and len(set(items)) < len(items):
        raise ValueError("a set with an item twice")
    return _I4.pack(len(items)) + b"".join(items)


def _optional(of: Serializer, given: object, null: bool = True) -> bytes:
    """Return a value behind a byte, which is `null` where there is none."""
    return bytes((null,)) if given is None else bytes((not null,)) + write(of, given)


def write_objects(of: Serializer, given: object) -> bytes:
    """Write an array of objects."""
    items = [_optional(of.inner[0], each, False) for each in as_list(given)]
    return _I4.pack(len(items)) + b"".join(items)


def _map(of: Serializer, given: object) -> bytes:
    pairs = [(write(of.inner[0], key), item) for key, item in pairs_of(given)]
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a map with a key twice")
    items = [key + _optional(of.inner[1], item) for key, item in pairs]
    return _I4.pack(len(items)) + b"".join(items)


def write_tuple(of: Serializer, given: object) -> bytes:
    """Write a tuple, or an object of a case class."""
    names = field_names(len(of.inner))
    return _fields(of, dict(zip(names, as_list(given), strict=True)), names)


def _fields(of: Serializer, given: object, names: Sequence[str]) -> bytes:
    """Return the fields of an object behind each other."""
    return b"".join(in_fields(names, of.inner, fields_of(given, names), write))


def _mask(flags: Sequence[bool]) -> bytes:
    """Return a bit for each, the highest first."""
    text = "".join("01"[flag] for flag in flags)
    size = (len(text) + 7) // 8
    return int(text.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big")


def _row(of: Serializer, given: object) -> bytes:
    names = field_names(len(of.inner))
    fields = fields_of(given, names)
    kind = KINDS.index(str(fields.get("@kind", KINDS[0]))) if of.setting else 0
    flags = [kind & 1 == 1, kind & 2 == 2] if of.setting else []
    mask = _mask([*flags, *(fields[name] is None for name in names)])
    return mask + b"".join(in_fields(names, of.inner, fields, _if_there))


def _if_there(of: Serializer, given: object) -> bytes:
    return b"" if given is None else write(of, given)


def write_linked_list(of: Serializer, given: object) -> bytes:
    """Write SQL's linked list."""
    items, write_item = as_list(given), _if_there if of.setting else write
    mask = _mask([item is None for item in items]) if of.setting else b""
    return _I4.pack(len(items)) + mask + b"".join(write_item(of.inner[0], item) for item in items)


def _one_of(**tags: bytes) -> Write:
    """Return the writer of one of two, which is shown by its name."""

    def write_one(of: Serializer, given: object) -> bytes:
        ((name, own),) = (
            fields_of(given, given).items() if isinstance(given, dict) else [("", None)]
        )
        return tags[name] + write(of.inner[list(tags).index(name)], own)

    return write_one


def _pojo(of: Serializer, given: object) -> bytes:
    if given is None:
        return bytes((values.IS_NULL,))
    if not isinstance(given, dict) or "@class" not in given:
        fields = in_fields(of.fields, of.inner, fields_of(given, of.fields), _optional)
        return bytes((values.NO_SUBCLASS,)) + b"".join(fields)
    name = as_text(given["@class"])
    rest = {key: own for key, own in given.items() if key != "@class"}
    for tag, (known, inner) in enumerate(of.registered):
        if known == name:
            return bytes((values.TAGGED, tag)) + write(inner, rest)
    inner = dict(of.others).get(name, Serializer(name, 0))
    return bytes((values.SUBCLASS,)) + encode_utf(name) + write(inner, rest)


def write_enum(of: Serializer, given: object) -> bytes:
    """Write a constant."""
    if given not in of.fields:
        raise ValueError(f"it is none of {', '.join(of.fields)}")
    return _I4.pack(of.fields.index(as_text(given)))


def _row_of_sql(
    of: Serializer, given: object, slot: Callable[[LogicalType, object], Slot]
) -> bytes:
    form, fields = of.row_form, given if isinstance(given, dict) else {}
    if form is not None and tuple(fields) == of.fields and None not in fields.values():
        with suppress(struct.error, OverflowError):  # whose words name no field
            return _sized(form.pack(*fields.values()))
    return _sized(encode_fields(of.columns, of.fields, given, slot))


def _column(of: Serializer, given: object) -> bytes:
    """Return a value of SQL's that has a serializer of its own."""
    (column,) = of.columns
    if of.name == "TimestampDataSerializer":
        millis, nanos = timestamp_parts(column, given)
        return _I8.pack(millis) + (_I4.pack(nanos) if column.size > COMPACT_TIMESTAMP else b"")
    raw = encode_span(column, given)
    is_number = of.name == "DecimalSerializer" and column.size <= COMPACT_DECIMAL
    return _I8.pack(int.from_bytes(raw, "big", signed=True)) if is_number else _sized(raw)


# ---- Avro ----------------------------------------------------------------------------------------

_AVRO: Final[Mapping[object, tuple[str, tuple[type, ...]]]] = {
    "boolean": (">?", (bool,)),
    "int": (">i", (int,)),
    "long": (">q", (int,)),
    "float": (">f", (int, float)),
    "double": (">d", (int, float)),
    "null": ("", (type(None),)),
}
_UNITS: Final = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}


class _Avro:
    """The writer of a schema that is valid, of values as they are shown, or of Avro's JSON, as in
    defaults. The branch of a union is the one that a value fits; of JSON it is the first.
    """

    def __init__(self, schema: object, of_json: bool = False) -> None:
        self._schema, self._of_json = schema, of_json
        self._named: dict[str, tuple[object, str]] = {}
        self._find(schema, "")

    def _find(self, schema: object, space: str) -> None:
        """Find the types with names: they are referred to by them."""
        if isinstance(schema, list):
            for branch in schema:
                self._find(branch, space)
        if not isinstance(schema, dict):
            return
        if "name" in schema:
            space = _space_of(schema, space)
            name = schema["name"]
            self._named[name if "." in name or not space else f"{space}.{name}"] = schema, space
        for inner in (schema.get("items"), schema.get("values"), schema.get("type")):
            self._find(inner, space)
        for each in schema.get("fields", ()):
            self._find(each["type"], space)

    def write(self, given: object) -> bytes:
        """Return a value of the schema."""
        return self._write((self._schema, ""), given)

    def _write(self, typed: tuple[object, str], given: object) -> bytes:
        schema, space = typed
        match schema:
            case str():
                return self._simple(schema, space, given)
            case list():
                return self._union(schema, space, given)
        assert isinstance(schema, dict), "asked before: avro_reader"
        return self._described(schema, space, given)

    def _described(self, schema: JsonObject, space: str, given: object) -> bytes:
        kind = schema["type"]
        if schema.get("logicalType"):
            given = given if self._of_json else _as_number(schema, given)
            return self._described({**schema, "logicalType": None}, space, given)
        match kind:
            case "enum":
                return _I4.pack(schema["symbols"].index(given))
            case "fixed":
                raw = self._raw(given)
                if len(raw) != schema["size"]:
                    raise ValueError(f"{len(raw)} bytes, where {schema['size']} are expected")
                return raw
            case "record" | "error":
                names = [each["name"] for each in schema["fields"]]
                own = _space_of(schema, space)
                types = [(each["type"], own) for each in schema["fields"]]
                if self._of_json and isinstance(given, dict):  # it may leave out what has a default
                    defaults = (each for each in schema["fields"] if "default" in each)
                    given = {**{each["name"]: each["default"] for each in defaults}, **given}
                fields = fields_of(given, names)
                return b"".join(in_fields(names, types, fields, self._write))
            case "array":
                inner = schema["items"], space
                return _blocks([self._write(inner, each) for each in as_list(given)])
            case "map":
                return self._map((schema["values"], space), given)
        return self._write((kind, space), given)

    def _simple(self, name: str, space: str, given: object) -> bytes:
        if name in _AVRO:
            form, kinds = _AVRO[name]
            if type(given) not in kinds:
                raise TypeError(given)
            return struct.pack(form, given) if form else b""
        if name in ("bytes", "string"):
            return _sized(self._raw(given) if name == "bytes" else as_text(given).encode())
        full = f"{space}.{name}" if space and "." not in name else name
        return self._write(self._named.get(full) or self._named[name], given)

    def _raw(self, given: object) -> bytes:
        text = as_text(given)
        return text.encode("iso-8859-1") if self._of_json else bytes.fromhex(text)

    def _map(self, inner: tuple[object, str], given: object) -> bytes:
        if self._of_json and not isinstance(given, dict):
            raise TypeError(given)
        pairs = given.items() if isinstance(given, dict) and self._of_json else pairs_of(given)
        items = {as_text(key): self._write(inner, item) for key, item in pairs}
        if len(items) < len(pairs):
            raise ValueError("a map with a key twice")
        return _blocks([_sized(key.encode()) + item for key, item in items.items()])

    def _union(self, branches: Sequence[object], space: str, given: object) -> bytes:
        if self._of_json:
            return _I4.pack(0) + self._write((branches[0], space), given)
        fitting = []
        for number, branch in enumerate(branches):
            with suppress(*WRONG):
                fitting.append(_I4.pack(number) + self._write((branch, space), given))
        if len(fitting) != 1:
            raise ValueError(f"it fits {len(fitting)} branches of a union, where one is expected")
        return fitting[0]


def _blocks(items: Sequence[bytes]) -> bytes:
    """Return an array or a map: one block, and the end."""
    return values.varint_bytes(len(items)) + b"".join(items) + b"\0" if items else b"\0"


def _space_of(schema: JsonObject, outer: str) -> str:
    """Return the name space of a type with a name."""
    return str(schema["name"].rpartition(".")[0] or schema.get("namespace", outer))


def _as_number(schema: JsonObject, given: object) -> object:
    """Return the number, or the bytes, that stand for a value of a logical type."""
    logical, kind = schema["logicalType"], schema["type"]
    name, _, part = logical.rpartition("-")
    text = given if isinstance(given, str) else ""
    if (logical, kind) == ("date", "int"):
        return day_of(text)
    if (logical, kind) in (("time-millis", "int"), ("time-micros", "long")):
        return nanos_of(text) // _UNITS[part]
    if name in ("timestamp", "local-timestamp") and kind == "long":
        seconds, nanos = (instant_of if name == "timestamp" else local_of)(text)
        return (seconds * _SECOND + nanos) // _UNITS[part]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        number, size = decimal_of(text, None, schema.get("scale", 0)), schema.get("size")
        return (number.to_bytes(size, "big", signed=True) if size else wide_bytes(number)).hex()
    return given


def encode_avro_default(schema: object, given: object) -> bytes:
    """Return a default of a schema, which is as Avro's JSON has it: a map is an object, a time a
    number, bytes are a text of ISO-8859-1; `UnfitValue` where it is none.
    """
    try:
        return _Avro(schema, True).write(given)
    except (*WRONG, RecursionError) as error:
        raise UnfitValue(f"value {_text_of(given)}: {fact_of(error)}") from error


@lru_cache(maxsize=64)
def avro_writer(schema: str) -> _Avro:
    """Return the writer of a schema's values."""
    return _Avro(json.loads(schema))


# ---- all of them ---------------------------------------------------------------------------------

_FORMS: Final[Mapping[str, str]] = {**values.NUMBERS, "Boolean": ">?"}
_SHOWN_AS_NULL: Final = {
    f"{name}Serializer"
    for name in ("Null", "NullValue", "Void", "VoidNamespace", "Tuple0", "ScalaOption")
}
_CHAR: Final = _text(lambda text: text.encode("utf-16-be", "surrogatepass"))
_STRING: Final = _text(values.encode_string, b"\0")
_EITHER: Final = _one_of(left=b"\1", right=b"\0")
_WRITERS: Final[Mapping[str, Write]] = {
    **{f"{name}Serializer": _number(form) for name, form in _FORMS.items()},
    **{f"{name}ValueSerializer": _number(form) for name, form in _FORMS.items()},
    **{f"{name}PrimitiveArraySerializer": array_writer(form[1]) for name, form in _FORMS.items()},
    "BytePrimitiveArraySerializer": _text(lambda text: _sized(bytes.fromhex(text))),
    "CharPrimitiveArraySerializer": _text(
        lambda text: _I4.pack(len(raw := text.encode("utf-16-be", "surrogatepass")) // 2) + raw
    ),
    **dict.fromkeys(("CharSerializer", "CharValueSerializer"), _CHAR),
    "StringSerializer": _STRING,
    "StringValueSerializer": _text(partial(values.encode_string, more=0)),
    "StringArraySerializer": lambda of, given: (
        _I4.pack(len(as_list(given))) + b"".join(_STRING(of, each) for each in as_list(given))
    ),
    **{
        f"{name}Serializer": lambda of, given: b"\0"
        for name in ("Null", "Void", "VoidNamespace", "GlobalWindow")
    },
    "Tuple0Serializer": lambda of, given: b"\x2a",
    "NullValueSerializer": lambda of, given: b"",
    "BigIntSerializer": _big_integer,
    "BigDecSerializer": _text(write_big_decimal, bytes(4)),
    "InstantSerializer": _text(
        lambda text: _I8.pack(instant_of(text)[0]) + _nanos(text), _NULL_LONG + _NULL_INT
    ),
    "LocalDateSerializer": _text(_date, _NULL_DATE),
    "LocalTimeSerializer": _text(_time, _NULL_TIME),
    "LocalDateTimeSerializer": _text(
        lambda text: _date(text.partition("T")[0]) + _time(text.partition("T")[2]),
        _NULL_DATE + _NULL_TIME,
    ),
    **dict.fromkeys(
        ("DateSerializer", "SqlDateSerializer", "SqlTimeSerializer"), _text(_millis, _NULL_LONG)
    ),
    "SqlTimestampSerializer": _text(
        lambda text: _millis(text) + _nanos(text), _NULL_LONG + bytes(4)
    ),
    "TimeWindowSerializer": lambda of, given: struct.pack(">qq", *as_list(given)),
    "CountWindowSerializer": _number(">q"),
    "StringDataSerializer": _text(lambda text: _sized(text.encode("utf-8", "surrogatepass"))),
    **dict.fromkeys(
        ("TupleSerializer", "ScalaCaseClassSerializer", "Tuple2CaseClassSerializer"), write_tuple
    ),
    **dict.fromkeys(("ListSerializer", "ArrayListSerializer", "SetSerializer"), write_items),
    "GenericArraySerializer": write_objects,
    **dict.fromkeys(("MapSerializer", "SortedMapSerializer"), _map),
    "RowSerializer": _row,
    **dict.fromkeys(("JavaEitherSerializer", "EitherSerializer", "ScalaEitherSerializer"), _EITHER),
    "UnionSerializer": _one_of(one=b"\1", two=b"\2"),
    "ScalaOptionSerializer": lambda of, given: _optional(of.inner[0], given, False),
    "NullableSerializer": lambda of, given: (
        _optional(of.inner[0], given) + bytes(of.setting if given is None else 0)
    ),
    RECORD: lambda of, given: _fields(of, given, of.fields),
    **dict.fromkeys(PLAIN_FORMS, lambda of, given: write(plain_form(of), given)),
    "DeweyNumberSerializer": array_writer("i"),
    **dict.fromkeys(("TtlAwareSerializer", "ExternalSerializer"), write_item),
    "LinkedListSerializer": write_linked_list,
    **dict.fromkeys(
        ("RawValueDataSerializer", "BinaryRowDataSerializer"),
        lambda of, given: _sized(encode_span(LogicalType("RAW"), given)),
    ),
    "PojoSerializer": _pojo,
    "EnumSerializer": write_enum,
    "RowDataSerializer": lambda of, given: _row_of_sql(of, given, slot_of),
    **dict.fromkeys(
        (f"{name}Serializer" for name in ("ArrayData", "MapData", "Decimal", "TimestampData")),
        _column,
    ),
    "ProtobufSerializer": refuse_message,
    "AvroSerializer": lambda of, given: avro_writer(of.schema or "").write(given),
}
