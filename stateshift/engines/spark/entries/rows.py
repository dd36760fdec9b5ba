"""State rows as a person reads them: columns by name, by the schema that lies beside the state.
Pure.

A row that no schema describes, or that another encoder wrote (prefixes, ranges), is shown as
hexadecimal: bytes are not a matter of opinion, and nothing is guessed.

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
from math import isfinite, isnan

from stateshift.errors import FormatError
from stateshift.formats.spark import schema as schema_format
from stateshift.formats.spark.types import (
    ArrayType,
    Atomic,
    DataType,
    MapType,
    StructType,
    Value,
    decode_struct,
    unique,
)
from stateshift.formats.spark.unsafe_row import decode_row


@dataclass(frozen=True, slots=True)
class RowSchema:
    """Key and value columns of one store; None where they are not known."""

    key: StructType | None = None
    value: StructType | None = None
    encoded: bool = False

    @classmethod
    def of(cls, content: bytes | None, provider: str | None) -> RowSchema:
        """Return the rows of a schema file; under RocksDB each row stands behind one byte, the
        version of its encoding.
        """
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
    """Return a decoded value as plain JSON. Names may repeat in a state schema: the later ones are
    numbered.
    """
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
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, tuple):  # intervals, variants
        return [_plain(part) for part in value]
    return value


def _number(value: float) -> float | str:
    """Return a number; a word, as Spark writes it, where JSON has no number."""
    if isfinite(value):
        return value
    if isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


ONE_NULL = (1).to_bytes(8, "little") + bytes(8)
VALUE = StructType(("__dummy__",), (Atomic("void"),))


def lists_the_input(key: StructType, value: StructType) -> bool:
    """Whether a value of these columns may stand for the input of dropDuplicates: the key's
    columns are among it.
    """
    if len(value.types) < 2:
        return False
    columns = set(zip(value.names, value.types, strict=True))
    return columns.issuperset(zip(key.names, key.types, strict=True))
