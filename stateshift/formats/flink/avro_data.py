"""Avro's values as Flink writes them: by a schema, in an encoding of Flink's own. Numbers are
big-endian, and have all their bytes.

    null      nothing               boolean  u1
    int       i4                    long     i8             float, double   4, 8 bytes
    bytes, string  i4 + bytes       fixed    its bytes      enum            i4, its place
    union     i4, its place, and the value
    array     (varint n, n values)*, 00
    map       (varint n, n * (string, value))*, 00
    record    its fields

    avro_reader(schema, as JSON) -> a function that reads a value; None for no schema

Flink: formats/avro/typeutils/AvroSerializer, formats/avro/utils/DataOutputEncoder; Avro 1.12,
specification, "Schema Declaration", "Logical Types".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from stateshift.formats.flink.binary_rows import plain_decimal
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.times import date_text, instant_text, local_text, time_text
from stateshift.formats.flink.values import number_of

Reader = Callable[[DataInput], object]

DEPTH_MAX: Final = 64
NODES_MAX: Final = 10_000
_DECIMAL_BYTES_MAX: Final = 1_700  # Python writes numbers of 4,300 digits

Json = Mapping[object, object]

_NAMED: Final = ("record", "error", "enum", "fixed")


class NoSchema(Exception):
    """A schema that no Avro reads."""


@dataclass
class _Depth:
    """The depth of the value that is being read: records may hold themselves."""

    value: int = 0


@dataclass
class SchemaParser:
    """A schema that is read: its named types, and what is left of it that may be."""

    named: dict[str, Reader] = field(default_factory=dict)
    left: int = NODES_MAX
    depth: _Depth = field(default_factory=_Depth)

    def reader(self, schema: object, space: str, level: int = 0) -> Reader:
        self.left -= 1
        if self.left < 0 or level > DEPTH_MAX:
            raise NoSchema
        match schema:
            case str() if schema in _PRIMITIVE:
                return _PRIMITIVE[schema]
            case str():
                return self._reference(schema, space)
            case list():
                return union_reader([self.reader(branch, space, level + 1) for branch in schema])
            case {"type": str() as kind, **rest} if kind in _NAMED:
                return self._named(rest, kind, space, level)
            case {"type": "array", "items": items}:
                return array_reader(self.reader(items, space, level + 1))
            case {"type": "map", "values": values}:
                return map_reader(self.reader(values, space, level + 1))
            case {"type": inner, **rest}:
                return _logical(rest, inner, self.reader(inner, space, level + 1))
        raise NoSchema

    def _reference(self, name: str, space: str) -> Reader:
        full = name if "." in name or not space else f"{space}.{name}"
        if full not in self.named and name not in self.named:
            raise NoSchema
        known = full if full in self.named else name
        return lambda data: self.named[known](data)

    def _named(self, schema: Json, kind: str, space: str, level: int) -> Reader:
        name, own_space = schema.get("name"), schema.get("namespace", space)
        if not isinstance(name, str) or not isinstance(own_space, str):
            raise NoSchema
        if "." in name:
            own_space = name.rpartition(".")[0]
        full = name if "." in name or not own_space else f"{own_space}.{name}"
        self.named[full] = values_without_end
        match kind:
            case "enum":
                self.named[full] = enum_reader(schema.get("symbols"))
            case "fixed":
                self.named[full] = _logical(schema, "fixed", fixed_reader(schema.get("size")))
            case _:
                self.named[full] = self._record(schema.get("fields"), own_space, level)
        return self.named[full]

    def _record(self, listed: object, space: str, level: int) -> Reader:
        if not isinstance(listed, list):
            raise NoSchema
        fields: list[tuple[str, Reader]] = []
        for item in listed:
            match item:
                case {"name": str() as name, "type": schema}:
                    fields.append((name, self.reader(schema, space, level + 1)))
                case _:
                    raise NoSchema
        depth = self.depth

        def read_record(data: DataInput) -> object:
            depth.value += 1
            try:
                if depth.value > DEPTH_MAX:
                    raise data.wrong("records of Avro are nested too deeply")
                return {name: read(data) for name, read in fields}
            finally:
                depth.value -= 1

        return read_record


def avro_reader(schema: str) -> Reader | None:
    """Return the reader of a schema's values; None where it is no schema."""
    try:
        return SchemaParser().reader(json.loads(schema), "")
    except (NoSchema, ValueError, RecursionError):
        return None


def values_without_end(data: DataInput) -> object:
    """Refuse a value of a type that is within itself before it is whole."""
    raise data.wrong("a value of Avro holds itself without end")


def _bytes(data: DataInput) -> bytes:
    return data.take(data.count("bytes"))


def _string(data: DataInput) -> str:
    at, raw = data.at, _bytes(data)
    try:
        return raw.decode("utf-8")
    except ValueError as error:
        raise data.wrong(f"a string of Avro is not UTF-8 ({error})", at) from error


_PRIMITIVE: Final[Mapping[str, Reader]] = {
    "null": lambda data: None,
    "boolean": DataInput.boolean,
    "int": lambda data: data.i4(),  # files of Avro encode numbers otherwise
    "long": lambda data: data.i8(),
    "float": number_of(">f"),
    "double": number_of(">d"),
    "bytes": lambda data: _bytes(data).hex(),
    "string": _string,
}


def union_reader(branches: list[Reader]) -> Reader:
    """Return the reader of a union: its branch, and the value."""

    def read_union(data: DataInput) -> object:
        at, place = data.at, data.i4()
        if not 0 <= place < len(branches):
            raise data.wrong(f"branch {place} of a union of {len(branches)}", at)
        return branches[place](data)

    return read_union


def enum_reader(symbols: object) -> Reader:
    """Return the reader of an enum: its symbols by their places."""
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise NoSchema

    def read_enum(data: DataInput) -> object:
        at, place = data.at, data.i4()
        if not 0 <= place < len(symbols):
            raise data.wrong(f"symbol {place} of an enum of {len(symbols)}", at)
        return symbols[place]

    return read_enum


def fixed_reader(size: object) -> Reader:
    """Return the reader of a number of bytes."""
    if not isinstance(size, int) or size < 0:
        raise NoSchema
    return lambda data: data.take(size).hex()


def avro_fields(schema: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a record with their types, of a schema that is one."""
    try:
        record = json.loads(schema)
    except (ValueError, RecursionError):
        return
    listed = record.get("fields") if isinstance(record, dict) else None
    for item in listed if isinstance(listed, list) else ():
        match item:
            case {"name": str() as name, "type": type_}:
                yield name, type_ if isinstance(type_, str) else json.dumps(type_)


def _count(data: DataInput) -> int:
    at, number = data.at, data.varint()
    if number > data.end - data.at:
        raise data.wrong(f"{number} items, with {data.end - data.at} bytes left", at)
    return number


def array_reader(read: Reader) -> Reader:
    """Return the reader of an array."""

    def read_array(data: DataInput) -> object:
        items: list[object] = []
        while count := _count(data):
            for _ in range(count):
                at = data.at
                items.append(read(data))
                if data.at == at:  # nothing would bound their number
                    raise data.wrong("an array of Avro has items of no bytes", at)
        return items

    return read_array


def map_reader(read: Reader) -> Reader:
    """Return the reader of a map: pairs of key and value."""

    def read_map(data: DataInput) -> object:
        items: list[object] = []
        while count := _count(data):
            for _ in range(count):
                key = _string(data)
                items.append([key, read(data)])
        return items

    return read_map


def _logical(schema: Json, inner: object, read: Reader) -> Reader:
    """Return the reader of a logical type; of an unknown one that of its own values."""
    match schema.get("logicalType"), inner:
        case "decimal", "bytes" | "fixed":
            scale = schema.get("scale", 0)
            return decimal_reader(read, scale) if isinstance(scale, int) else read
        case "date", "int":
            return _told(read, date_text)
        case "time-millis", "int":
            return _told(read, lambda millis: time_text(millis % 86_400_000 * 1_000_000))
        case "time-micros", "long":
            return _told(read, lambda micros: time_text(micros % 86_400_000_000 * 1_000))
        case ("timestamp-millis" | "timestamp-micros" | "timestamp-nanos") as name, "long":
            return _timestamp(read, _PARTS[name.rpartition("-")[2]], instant_text)
        case (
            "local-timestamp-millis" | "local-timestamp-micros" | "local-timestamp-nanos"
        ) as name, "long":
            return _timestamp(read, _PARTS[name.rpartition("-")[2]], local_text)
    return read


_PARTS: Final[Mapping[str, int]] = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


def _told(read: Reader, text: Callable[[int], str]) -> Reader:
    def read_told(data: DataInput) -> object:
        number = read(data)
        assert isinstance(number, int), "of a whole number"
        return text(number)

    return read_told


def _timestamp(read: Reader, parts: int, text: Callable[[int, int], str]) -> Reader:
    def told(number: int) -> str:
        seconds, rest = divmod(number, parts)
        return text(seconds, rest * (1_000_000_000 // parts))

    return _told(read, told)


def decimal_reader(read: Reader, scale: int) -> Reader:
    """Return the reader of a decimal, behind bytes as hexadecimal digits."""

    def read_decimal(data: DataInput) -> object:
        raw = bytes.fromhex(str(read(data)))
        if len(raw) > _DECIMAL_BYTES_MAX:
            return {"raw": raw.hex()}
        return plain_decimal(int.from_bytes(raw, "big", signed=True), scale)

    return read_decimal
