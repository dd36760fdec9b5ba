"""One store, and how its bytes are read and shown. Pure.

StoreView  key, value     the columns, None where no schema tells them
           encoder, many  how keys, and whether values as lists, are put together
           avro           how rows are decoded that are Avro's (the encoder says whether they are)
           placed         the columns that decide the shard (see `keys`), None where it is not known
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stateshift.engines.spark.entries.avro_encoders import AvroRows, avro_rows_of
from stateshift.engines.spark.entries.encoders import (
    PLAIN,
    Encoder,
    Row,
    bare,
    decode_key,
    decode_list,
    listed,
)
from stateshift.engines.spark.entries.keys import KeyRule, Path
from stateshift.engines.spark.entries.rows import named
from stateshift.errors import FormatError
from stateshift.formats.spark.types import DataType, StructType, decode_struct
from stateshift.formats.spark.unsafe_row import decode_row


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
        """As far as a rule tells: its keys."""
        key = decode_struct(rule.schema)
        avro = avro_rows_of(key, rule.encoder, None, {}) if rule.encoder.avro else None
        return cls("", store, key, encoder=rule.encoder, placed=rule.placed, avro=avro)

    @property
    def known(self) -> bool:
        return self.key is not None and self.value is not None

    def decode_key(self, content: bytes) -> Row:
        assert self.key is not None, "asked before whether the columns are known"
        return (
            decode_key(content, self.key, self.encoder)
            if self.avro is None
            else self.avro.key(content)
        )

    def decode_value(self, content: bytes) -> Row | list[Row]:
        """The value's columns, a list of such where the store keeps lists."""
        assert self.value is not None, "asked before whether the columns are known"
        if self.avro is not None:
            read = self.avro.value
            return (
                [read(row) for row in listed(content, self.delimiter)]
                if self.many
                else read(bare(content))
            )
        if self.many:
            return decode_list(content, self.value, self.delimiter)
        return decode_row(content if self.encoder.kind == "plain" else bare(content), self.value)

    def show_key(self, content: bytes) -> Any:
        """Plain JSON by column names; hexadecimal where nothing tells how to read it."""
        try:
            return (
                self.named_key(self.decode_key(content)) if self.key is not None else _hex(content)
            )
        except FormatError:
            return _hex(content)

    def show_value(self, content: bytes) -> Any:
        try:
            return (
                self.named_value(self.decode_value(content))
                if self.value is not None
                else _hex(content)
            )
        except FormatError:
            return _hex(content)

    def named_key(self, key: Row) -> Any:
        """A decoded key as plain JSON, by the names of its columns."""
        assert self.key is not None, "asked before whether the columns are known"
        return named(key, self.key)

    def named_value(self, value: Row | list[Row]) -> Any:
        assert self.value is not None, "asked before whether the columns are known"
        if isinstance(value, list):
            return [named(row, self.value) for row in value]
        return named(value, self.value)

    def placing(self, key: Row) -> tuple[list[Any], list[DataType]]:
        """The values, and their types, that a key's shard is computed from."""
        assert self.key is not None and self.placed is not None, (
            "asked before whether the placement is known"
        )
        values, types = [], []
        for path in self.placed:
            value, kind = key, self.key
            for at in path:
                value, kind = value[at], kind.types[at]  # type: ignore[assignment]
            values.append(value)
            types.append(kind)
        return values, types  # type: ignore[return-value]


def _hex(content: bytes) -> dict[str, str]:
    return {"hex": content.hex()}
