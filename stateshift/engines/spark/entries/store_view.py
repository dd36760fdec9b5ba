"""One store, and how its bytes are read and shown. Pure.

StoreView  key, value     the columns, None where no schema has them
           encoder, many  how keys, and whether values as lists, are put together
           avro           how rows are decoded that are Avro's (the encoder says whether they are)
           placed         the columns that decide the shard (see `keys`), None where it is not known
note_of    what is said of entries that are shown as bytes, since the checkpoint does not name their
           columns
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.engines.spark.entries.avro_encoders import AvroRows, avro_rows_of
from stateshift.engines.spark.entries.encoders import (
    PLAIN,
    Encoder,
    bare,
    decode_key,
    decode_list,
    rows_of_list,
)
from stateshift.engines.spark.entries.keys import KeyRule, Path
from stateshift.engines.spark.entries.rows import plain_value
from stateshift.errors import FormatError
from stateshift.formats.spark.types import DataType, Row, StructType, Value, decode_struct
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
        """Return a view that knows what a rule does: the store's keys."""
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
        if self.avro is not None:
            return self._decode_avro(content, self.avro)
        if self.many:
            return decode_list(content, self.value, self.delimiter)
        row = content if self.encoder.kind == "plain" else bare(content)
        return decode_row(row, self.value)

    def _decode_avro(self, content: bytes, avro: AvroRows) -> Row | list[Row]:
        if self.many:
            return [avro.value(row) for row in rows_of_list(content, self.delimiter)]
        return avro.value(bare(content))

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
    """Return the reason for which the entries of a store are hexadecimal, and the way to make
    columns of them; None where they are columns already.
    """
    if view.known:
        return None
    operator = f"{image.path}/{view.operator}" if image.path else view.operator
    return (
        f"operator {operator}, store {view.store}: {_unknown(view)} are hexadecimal, "
        f"because the checkpoint has no schema that tells their columns; {_WAY_OUT}"
    )


def _unknown(view: StoreView) -> str:
    columns = {"keys": view.key, "values": view.value}
    return " and ".join(name for name in columns if columns[name] is None)


def _hex(content: bytes) -> dict[str, str]:
    return {"hex": content.hex()}
