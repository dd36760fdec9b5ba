"""A state's rows made those of a changed query: `evolve` of `transform`. Pure.

    {"kind": "evolve", "operator": "0", "store": "default",
     "add": [{"name": "last", "type": "long", "default": null, "after": "count"}],
     "widen": {"total": "long"}, "rename": {"total": "sum"}, "drop": ["spare"],
     "widen_key": {"id": "long"}, "rename_key": {"id": "number"}, "nullable": ["at"], "nullable_key": ["id"]}

    store       as entries name it: `default`, `left-keyWithIndexToValue`, `default/<column family>`
    Evolution   one such store: its schemas before and after, as StructType JSON, and the change of
                each
    on its way  options["evolve"]: "<operator>/<store>" -> Evolution

Values may change in every way that `row_change` has. A key may be widened, renamed and be null
only: with a column more or less it would be another key. A widened key hashes otherwise, and its
entry then moves to the shard where the job looks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from stateshift.engines.spark.entries.encoders import listed
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.wishes import Wishes
from stateshift.errors import FormatError
from stateshift.formats.spark.row_change import Row, Unfit, evolve
from stateshift.plain import from_plain
from stateshift.survey import Image

FRAME = b"\0"

Bytes = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Evolution:
    """`lists` where a value is a list of rows, with `delimiter` between them; `new_key` and
    `new_value` are what stands in the schema file afterwards.
    """

    key: str
    value: str
    key_change: Mapping[str, Any]
    value_change: Mapping[str, Any]
    new_key: str
    new_value: str
    lists: bool
    delimiter: str

    @property
    def rekeyed(self) -> bool:
        """Whether keys have other bytes afterwards."""
        return bool(self.key_change.get("widen"))


def evolution_of(change: Mapping[str, Any], schema: Mapping[str, Any], delimiter: str) -> Evolution:
    """One store's, from what is asked for and its schema; `Unfit` where it cannot be."""
    keys = {
        kind: change[f"{kind}_key"]
        for kind in ("widen", "rename", "nullable")
        if change.get(f"{kind}_key")
    }
    values = {
        kind: change[kind]
        for kind in ("add", "widen", "rename", "drop", "nullable")
        if change.get(kind)
    }
    new_key = _told("its key", schema["key"], keys)
    new_value = _told("its value", schema["value"], values)
    return Evolution(
        schema["key"],
        schema["value"],
        keys,
        values,
        new_key,
        new_value,
        bool(schema.get("lists")),
        delimiter,
    )


def wanted(
    wishes: Wishes, image: Image
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]]:
    """Per store that is to change: its name, what is asked for, and its schema, if there is one."""
    schemas = spark_image(image).schemas
    for change in wishes.evolve:
        name = f"{change['operator']}/{change.get('store', 'default')}"
        yield name, change, schemas.get(name)


def evolutions(wishes: Wishes, image: Image, delimiter: str) -> dict[str, Evolution]:
    """Of all stores; those that cannot be are left out: the findings tell of them."""
    found = {}
    for name, change, schema in wanted(wishes, image):
        try:
            if schema is not None:
                found[name] = evolution_of(change, schema, delimiter)
        except Unfit:
            continue
    return found


def evolver(plain: Mapping[str, Any], framed: bool) -> tuple[Bytes, Bytes]:
    """What makes old keys and values new ones, as the provider holds them."""
    one = from_plain(Evolution, plain)
    key = evolve(json.loads(one.key), one.key_change).apply
    value = evolve(json.loads(one.value), one.value_change).apply
    in_value = (
        partial(_in_list, value, one.delimiter.encode())
        if one.lists
        else _behind_frame(value, framed)
    )
    return (_behind_frame(key, framed) if one.rekeyed else lambda key: key), in_value


def _told(what: str, schema: str, change: Mapping[str, Any]) -> str:
    try:
        return json.dumps(
            evolve(json.loads(schema), change).schema, separators=(",", ":"), ensure_ascii=False
        )
    except Unfit as error:
        raise Unfit(f"{what}: {error}") from error


def _behind_frame(apply: Row, framed: bool) -> Bytes:
    """RocksDB has a byte before every row."""
    if not framed:
        return apply

    def applied(content: bytes) -> bytes:
        if content[:1] != FRAME:
            raise FormatError(
                f"a row begins with {content[:1].hex() or 'nothing'}, not with RocksDB's byte 00"
            )
        return FRAME + apply(content[1:])

    return applied


def _in_list(apply: Row, delimiter: bytes, content: bytes) -> bytes:
    rows = [FRAME + apply(row) for row in listed(content, delimiter)]
    return delimiter.join(len(row).to_bytes(4, "little") + row for row in rows)
