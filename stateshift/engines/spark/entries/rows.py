"""State rows as a person reads them: columns by name, by the schema that lies beside the state.
Pure.

A row that no schema describes, or that another encoder wrote (prefixes, ranges), is shown as
hexadecimal: bytes are not a matter of opinion, and nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

from stateshift.engines.spark.entries.dedup_rows import ONE_NULL, VALUE, lists_the_input
from stateshift.errors import FormatError
from stateshift.formats.spark import schema as schema_format
from stateshift.formats.spark.types import ArrayType, DataType, MapType, StructType, decode_struct
from stateshift.formats.spark.unsafe_row import decode_row


@dataclass(frozen=True, slots=True)
class RowSchema:
    """Key and value columns of one store; None where they are not known."""

    key: StructType | None = None
    value: StructType | None = None
    encoded: bool = False

    @classmethod
    def of(cls, content: bytes | None, provider: str | None) -> RowSchema:
        """From a schema file; under RocksDB each row stands behind one byte, the version of its
        encoding.
        """
        if content is None:
            return cls()
        try:
            store = schema_format.decode_schema(content).stores[0]
            return cls(decode_struct(store.key), decode_struct(store.value), provider == "rocksdb")
        except FormatError:
            return cls()

    def show_key(self, content: bytes) -> Any:
        return _shown(content, self.key, self.encoded)

    def show_value(self, content: bytes) -> Any:
        return _shown(content, self._value_columns(content), self.encoded)

    def _value_columns(self, content: bytes) -> StructType | None:
        """Those of the schema, but for what dropDuplicates keeps under a schema of its input's
        columns.
        """
        if self.key is None or self.value is None or not content.endswith(ONE_NULL):
            return self.value
        bare = content[1:] if self.encoded else content
        return VALUE if bare == ONE_NULL and lists_the_input(self.key, self.value) else self.value


def _shown(content: bytes, wanted: StructType | None, encoded: bool) -> Any:
    row = content[1:] if encoded and content[:1] == b"\0" else content
    if wanted is None:
        return {"hex": content.hex()}
    try:
        return named(decode_row(row, wanted), wanted)
    except FormatError:
        return {"hex": content.hex()}


def named(values: Any, wanted: DataType) -> Any:
    """Decoded values as plain JSON. Names may repeat in a state schema: the later ones are
    numbered.
    """
    if values is None:
        return None
    match wanted:
        case StructType(names, types):
            return {
                name: named(value, kind)
                for name, value, kind in zip(unique(names), values, types, strict=True)
            }
        case ArrayType(element):
            return [named(value, element) for value in values]
        case MapType(key, value):
            return [[named(k, key), named(v, value)] for k, v in values]
    return _plain(values)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(
        value
    ):  # JSON has no numbers for these: as Spark writes them
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Decimal):
        return str(value)
    return (
        [_plain(part) for part in value] if isinstance(value, tuple) else value
    )  # intervals, variants


def unique(names: tuple[str, ...]) -> list[str]:
    """The names, those that repeat told apart by a number."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique
