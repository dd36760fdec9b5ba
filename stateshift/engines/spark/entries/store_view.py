"""One store, and how its bytes are read and shown: columns by name. Pure.

StoreView  key, value     the columns, None where no schema has them
           encoder, many  how keys, and whether values as lists, are put together
           avro           how rows are decoded that are Avro's (the encoder says whether they are)
           placed         the columns that decide the shard (see `keys`), None where it is not known
RowSchema  the columns of a single file, by the schema that lies beside it
note_of    what is said of entries that are shown as bytes, since the checkpoint does not name their
           columns

A row that no schema describes is shown as hexadecimal: nothing is guessed.

dropDuplicates keeps one null beside a key, whatever its schema says:

    value   one null, always: 8 bytes of null bits of which the first is set, and an empty slot
    schema  Spark 3.3.1 and later: one void column.   Earlier: every column of the operator's input
                                                      (SPARK-39650)

The schema is written once, with the first batch, and no later Spark holds it against the rows. A
job that began before 3.3.1 therefore keeps the wrong one for good. If it has two columns or more,
no row of it is as short as the one null. A schema of a single column is as good as the right one,
since its row is the same.

Source: Spark, StreamingDeduplicateExec (EMPTY_ROW), StateSchemaCompatibilityChecker.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import inf, isfinite

from stateshift.engines.spark.entries.encoders import (
    PLAIN,
    AvroRows,
    Encoder,
    avro_rows_of,
    bare,
    decode_key,
    decode_list,
    encode_key,
    encode_list,
    encode_value,
    rows_of_list,
)
from stateshift.engines.spark.entries.keys import KeyRule, Path
from stateshift.errors import FormatError
from stateshift.formats.spark import schema as schema_format
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    MapType,
    Row,
    StructType,
    Value,
    decode_struct,
    unique,
)
from stateshift.formats.spark.unsafe_row import decode_row
from stateshift.survey import Image

_WAY_OUT = (
    "a job of Spark 3.1 or later writes the schema when it is started there, and finishes a batch"
)


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store (or column family) of one operator, and how its bytes are read."""

    operator: str
    store: str
    key: StructType | None = None
    value: StructType | None = None
    encoder: Encoder = PLAIN
    many: bool = False
    delimiter: bytes = b""
    placed: tuple[Path, ...] | None = None
    avro: AvroRows | None = None

    @classmethod
    def of_rule(cls, store: str, rule: KeyRule) -> StoreView:
        key = decode_struct(rule.schema)
        avro = avro_rows_of(key, rule.encoder, None, {}) if rule.encoder.avro else None
        return cls("", store, key, encoder=rule.encoder, placed=rule.placed, avro=avro)

    @property
    def known(self) -> bool:
        return self.key is not None and self.value is not None

    def decode_key(self, content: bytes) -> Row:
        assert self.key is not None, "asked before whether the columns are known"
        if self.avro is not None:
            return self.avro.key(content)
        return decode_key(content, self.key, self.encoder)

    def decode_value(self, content: bytes) -> Row | list[Row]:
        """Return the value's columns, a list of such where the store keeps lists."""
        assert self.value is not None, "asked before whether the columns are known"
        if self.avro is not None and self.many:
            return [self.avro.value(row) for row in rows_of_list(content, self.delimiter)]
        if self.avro is not None:
            return self.avro.value(bare(content))
        if self.many:
            return decode_list(content, self.value, self.delimiter)
        row = content if self.encoder.kind == "plain" else bare(content)
        return decode_row(row, self.value)

    def encode_key(self, key: Row) -> bytes:
        """Return the inverse of `decode_key`."""
        assert self.key is not None, "asked before whether the columns are known"
        return encode_key(key, self.key, self.encoder)

    def encode_value(self, value: Row | list[Row]) -> bytes:
        """Return the inverse of `decode_value`."""
        columns, number = self.value, 0 if self.avro is None else self.avro.newest
        assert columns is not None, "asked before whether the columns are known"
        if isinstance(value, list):
            rows = (encode_value(row, columns, self.encoder, number) for row in value)
            return encode_list(rows, self.delimiter)
        return encode_value(value, columns, self.encoder, number)

    def show_key(self, content: bytes) -> object:
        """Return plain JSON by column names; hexadecimal where it is not known how to read it."""
        if self.key is None:
            return _hex(content)
        try:
            return self.named_key(self.decode_key(content))
        except FormatError:
            return _hex(content)

    def show_value(self, content: bytes) -> object:
        if self.value is None:
            return _hex(content)
        try:
            return self.named_value(self.decode_value(content))
        except FormatError:
            return _hex(content)

    def named_key(self, key: Row) -> object:
        """Return a decoded key as plain JSON, by the names of its columns."""
        assert self.key is not None, "asked before whether the columns are known"
        return plain_value(key, self.key)

    def named_value(self, value: Row | list[Row]) -> object:
        assert self.value is not None, "asked before whether the columns are known"
        if isinstance(value, list):
            return [plain_value(row, self.value) for row in value]
        return plain_value(value, self.value)

    def placing(self, key: Row) -> tuple[list[Value], list[DataType]]:
        """Return the values, and their types, that a key's shard is computed from."""
        assert self.key is not None and self.placed is not None, (
            "asked before whether the placement is known"
        )
        values: list[Value] = []
        types: list[DataType] = []
        for path in self.placed:
            value: Value = key
            kind: DataType = self.key
            for at in path:
                assert isinstance(kind, StructType), "a path leads into structs alone"
                value, kind = value[at], kind.types[at]
            values.append(value)
            types.append(kind)
        return values, types


def note_of(view: StoreView, image: Image) -> str | None:
    """Return the reason and remedy for hexadecimal entries; None where they are columns."""
    if view.known:
        return None
    operator = f"{image.path}/{view.operator}" if image.path else view.operator
    columns = {"keys": view.key, "values": view.value}
    unknown = " and ".join(name for name in columns if columns[name] is None)
    return (
        f"operator {operator}, store {view.store}: {unknown} are hexadecimal, "
        f"because the checkpoint has no schema that tells their columns; {_WAY_OUT}"
    )


def _hex(content: bytes) -> dict[str, str]:
    return {"hex": content.hex()}


@dataclass(frozen=True, slots=True)
class RowSchema:
    """Key and value columns of one store; None where they are not known."""

    key: StructType | None = None
    value: StructType | None = None
    encoded: bool = False

    @classmethod
    def of(cls, content: bytes | None, provider: str | None) -> RowSchema:
        """Return the rows of a schema file; RocksDB puts one byte before each row."""
        if content is None:
            return cls()
        try:
            store = schema_format.decode_schema(content).stores[0]
            return cls(decode_struct(store.key), decode_struct(store.value), provider == "rocksdb")
        except FormatError:
            return cls()

    def show_key(self, content: bytes) -> object:
        return _shown(content, self.key, self.encoded)

    def show_value(self, content: bytes) -> object:
        bare = content[1:] if self.encoded else content
        if self.key is None or self.value is None or bare != ONE_NULL:
            value_columns = self.value
        else:
            value_columns = VALUE if lists_the_input(self.key, self.value) else self.value
        return _shown(content, value_columns, self.encoded)


def _shown(content: bytes, wanted: StructType | None, encoded: bool) -> object:
    row = content[1:] if encoded and content[:1] == b"\0" else content
    if wanted is None:
        return {"hex": content.hex()}
    try:
        return plain_value(decode_row(row, wanted), wanted)
    except FormatError:
        return {"hex": content.hex()}


def plain_value(value: Value, wanted: DataType) -> object:
    """Return a decoded value as plain JSON; repeated names are numbered."""
    if value is None:
        return None
    match wanted:
        case StructType(names, types):
            return dict(zip(unique(names), map(plain_value, value, types), strict=True))
        case ArrayType(element):
            return [plain_value(item, element) for item in value]
        case MapType(key_type, item_type):
            return [
                [plain_value(key, key_type), plain_value(item, item_type)] for key, item in value
            ]
    return _plain(value)


def _plain(value: Value) -> object:
    if isinstance(value, float) and not isfinite(value):
        return _INFINITIES.get(value, "NaN")
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, tuple):  # intervals, variants
        return [_plain(part) for part in value]
    return value


# JSON has no such numbers: these are the words that Spark writes.
_INFINITIES = {inf: "Infinity", -inf: "-Infinity"}


ONE_NULL = (1).to_bytes(8, "little") + bytes(8)
VALUE = StructType(("__dummy__",), (Atomic("void"),))


def lists_the_input(key: StructType, value: StructType) -> bool:
    """Whether such a value may stand for dropDuplicates' input: it has the key's columns."""
    if len(value.types) < 2:
        return False
    columns = set(zip(value.names, value.types, strict=True))
    return columns.issuperset(zip(key.names, key.types, strict=True))
