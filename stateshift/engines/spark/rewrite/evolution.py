"""Rows and keys made others. Pure.

`evolve` of `transform` makes a state's rows those of a changed query:

    {"kind": "evolve", "operator": "0", "store": "default",
     "add": [{"name": "last", "type": "long", "default": null, "after": "count"}],
     "widen": {"total": "long"}, "rename": {"total": "sum"}, "drop": ["spare"],
     "widen_key": {"id": "long"}, "rename_key": {"id": "number"},
     "nullable": ["at"], "nullable_key": ["id"]}

    store       as entries name it: `default`, `left-keyWithIndexToValue`, `default/<column family>`
    Evolution   one such store: its schemas before and after, as StructType JSON, and the change of
                each
    on its way  options["evolve"]: "<operator>/<store>" -> Evolution

Values may change in every way that `row_change` has. A key may be widened, renamed and be null
only: with a column more or less it would be another key. A widened key hashes otherwise, and its
entry then moves to the shard where the job looks for it.

`convert` to another provider makes keys of session windows whole, or cuts them in two:

    HDFS-backed  row of all columns, the session's start last
    RocksDB      i32LE size | 00 row of the columns without it | 00 row of it  (a prefix, for scans)

    on its way   options["sessions"]: "<operator>/<store>" -> StructType JSON of the key

Every other key of one row is the same for both providers but for the byte 00 (see
`shards.frame_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stateshift.engines.spark.entries.encoders import bare, halves, rows_of_list
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import FRAME
from stateshift.engines.spark.rewrite.stores import of_stores
from stateshift.errors import FormatError
from stateshift.formats.spark.row_change import Row, Unfit, cut_row, evolve, glue_rows
from stateshift.plain import JsonObject, from_plain
from stateshift.specification.transform import Evolve
from stateshift.survey import Image

Bytes = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Evolution:
    """`lists`: a value is rows with `delimiter` between; `new_…` is for the schema file."""

    key: str
    value: str
    key_change: JsonObject
    value_change: JsonObject
    new_key: str
    new_value: str
    lists: bool
    delimiter: str

    @property
    def rekeyed(self) -> bool:
        return bool(self.key_change.get("widen"))


def evolution_of(change: Evolve, schema: JsonObject, delimiter: str) -> Evolution:
    """Return one store's, from what is asked for and its schema; `Unfit` where it cannot be."""
    keys = _asked(
        widen=change.widen_key, rename=change.rename_key, nullable=list(change.nullable_key)
    )
    values = _asked(
        add=list(change.add),
        widen=change.widen,
        rename=change.rename,
        drop=list(change.drop),
        nullable=list(change.nullable),
    )
    return Evolution(
        key=schema["key"],
        value=schema["value"],
        key_change=keys,
        value_change=values,
        new_key=_evolved("its key", schema["key"], keys),
        new_value=_evolved("its value", schema["value"], values),
        lists=bool(schema.get("lists")),
        delimiter=delimiter,
    )


def _asked(**parts: object) -> JsonObject:
    return {kind: part for kind, part in parts.items() if part}


def evolutions(changes: Sequence[Evolve], image: Image, delimiter: str) -> dict[str, Evolution]:
    """Return those of all stores, without those that cannot be: the findings report them."""
    by_store = {}
    schemas = spark_image(image).schemas
    for change in changes:
        if change.place in schemas:
            with suppress(Unfit):
                by_store[change.place] = evolution_of(change, schemas[change.place], delimiter)
    return by_store


def evolver(plain: JsonObject, framed: bool) -> tuple[Bytes, Bytes]:
    """Return the functions that make old keys and values new ones, as the provider holds them."""
    evolution = from_plain(Evolution, plain)
    key = evolve(json.loads(evolution.key), evolution.key_change).apply
    value = evolve(json.loads(evolution.value), evolution.value_change).apply
    new_key = _behind_frame(key, framed) if evolution.rekeyed else _same
    if not evolution.lists:
        return new_key, _behind_frame(value, framed)
    delimiter: bytes = evolution.delimiter.encode()

    def new_list(content: bytes) -> bytes:
        rows = [FRAME + value(row) for row in rows_of_list(content, delimiter)]
        return delimiter.join(len(row).to_bytes(4, "little") + row for row in rows)

    return new_key, new_list


def _same(content: bytes) -> bytes:
    return content


def _evolved(what: str, schema: str, change: JsonObject) -> str:
    """Return the schema changed; what is wrong says of which schema."""
    try:
        evolved = evolve(json.loads(schema), change).schema
    except Unfit as error:
        raise Unfit(f"{what}: {error}") from error
    return json.dumps(evolved, separators=(",", ":"), ensure_ascii=False)


def _behind_frame(apply: Row, framed: bool) -> Bytes:
    """Return the same for rows behind a byte, as RocksDB has them."""
    if not framed:
        return apply

    def applied(content: bytes) -> bytes:
        if content[:1] != FRAME:
            first = content[:1].hex() or "nothing"
            raise FormatError(f"a row begins with {first}, not with RocksDB's byte 00")
        return FRAME + apply(content[1:])

    return applied


def key_makers(sessions: Mapping[str, str], operator: str, parting: bool) -> dict[str, Bytes]:
    """Return the converters of keys to the other provider's, by an operator's stores."""
    make: Callable[[str], Bytes] = rocksdb_key_maker if parting else row_maker
    return {store: make(schema) for store, schema in of_stores(sessions, operator).items()}


def rocksdb_key_maker(schema: str) -> Bytes:
    """Return the function that makes RocksDB's key of a row."""
    plain = json.loads(schema)
    cut = cut_row(plain, len(plain["fields"]) - 1)

    def in_two(key: bytes) -> bytes:
        first, rest = cut(key)
        return (len(first) + 1).to_bytes(4, "little") + FRAME + first + FRAME + rest

    return in_two


def row_maker(schema: str) -> Bytes:
    """Return the function that makes a row of RocksDB's key."""
    plain = json.loads(schema)
    glue = glue_rows(plain, len(plain["fields"]) - 1)

    def in_one(key: bytes) -> bytes:
        first, rest = halves(key)
        return glue(first, bare(rest))

    return in_one
