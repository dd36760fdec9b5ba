"""Rows, keys and types: bytes that mean something only by a schema. The first byte chooses the
schema.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa

from stateshift.engines.spark.entries.columnar import hashes_of, keys_of, values_of
from stateshift.engines.spark.entries.encoders import Encoder, decode_key, decode_list, encoder_of
from stateshift.engines.spark.entries.keys import key_rule
from stateshift.engines.spark.entries.store_view import StoreView, plain_value
from stateshift.engines.spark.entries.vectors import array, arrow_type, fits, structs
from stateshift.errors import FormatError
from stateshift.formats.blocks import binary
from stateshift.formats.spark import schema
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.state_files import decode_delta
from stateshift.formats.spark.types import StructType, decode_struct
from stateshift.formats.spark.unsafe_row import decode_row
from tests.formats.golden import CASES
from tests.fuzz.oracles import attempt, same
from tests.fuzz.seeds import golden
from tests.fuzz.targets import Target, entries, spark
from tests.support.encoders import partition_of

EVERY = [
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
    "binary",
    "decimal(9,2)",
    "decimal(38,10)",
    "interval day to second",
    "interval year to month",
    "interval",
    "void",
    "variant",
    {"type": "array", "elementType": "short"},
    {"type": "array", "elementType": "string"},
    {"type": "array", "elementType": "void"},
    {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "array", "elementType": "decimal(20,3)"},
    },
    {"type": "struct", "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}]},
    {
        "type": "array",
        "elementType": {"type": "struct", "fields": [{"name": "z", "type": "binary"}]},
    },
]


def struct_json(*types: Any) -> str:
    fields = [
        {"name": f"c{n}", "type": kind, "nullable": True, "metadata": {}}
        for n, kind in enumerate(types)
    ]
    return json.dumps({"type": "struct", "fields": fields})


@cache
def schemas() -> tuple[StructType, ...]:
    """Each type alone, all together, none, more than fit one word of null bits, and what Spark's
    own stores have.
    """
    made = [struct_json(kind) for kind in EVERY]
    made += [
        struct_json(*EVERY),
        struct_json(),
        struct_json(*["string"] * 70),
        struct_json("long", "string", "long"),
    ]
    made += [
        struct_json("string", "long", "timestamp"),
        struct_json("double", "float", "short", "string"),
    ]
    found = [
        text
        for one in golden("state-schema")
        for s in schema.decode_schema(one).stores
        for text in (s.key, s.value)
    ]
    return tuple(decode_struct(text) for text in (*made, *dict.fromkeys(found)))[:250]


ENCODERS = (
    Encoder("plain"),
    Encoder("row"),
    Encoder("prefix", (0,)),
    Encoder("prefix", (0, 1)),
    Encoder("range", (0,)),
    Encoder("range", (1, 0)),
    Encoder("range", (0, 1, 2)),
    Encoder("postfix"),
    Encoder("before"),
)


def run_row(data: bytes) -> None:
    """Row by row and column by column say the same; what decodes can be shown, placed and put
    into Arrow.
    """
    kind, content = schemas()[(data[0] if data else 0) % len(schemas())], data[1:]
    row = attempt(lambda: decode_row(content, kind), len(content))
    if kind.types and all(map(fits, kind.types)):
        _agree(content, kind, row)
    if row is not None:
        usable(row, kind)


def _agree(content: bytes, kind: StructType, row: Any) -> None:
    count = len(kind.types)
    nulls = ((1 << count) - 1).to_bytes((count + 63) // 64 * 8, "little") + bytes(8 * count)
    as_columns(structs(binary([content]), kind), [row], kind)
    as_columns(
        structs(binary([nulls, content, nulls]), kind),
        [(None,) * count, row, (None,) * count],
        kind,
    )


def as_columns(together: Any, alone: list[Any], kind: StructType) -> None:
    """What was decoded as columns, the rest of the rows being sound."""
    if None in alone:
        same(together, None, "columns of a row that is refused")
    elif together is not None:
        rows = array(alone, arrow_type(kind))
        same(
            together.equals(rows) or _with_nan(rows, together),
            True,
            "a row by columns and by itself",
        )


def _with_nan(one: pa.Array, other: pa.Array) -> bool:
    """Arrow holds that no NaN equals another; the text tells them apart from everything else. Of a
    struct its parts are compared, null where it is: what lies below a null is nobody's.
    """
    if pa.types.is_struct(one.type):
        parts = zip(one.flatten(), other.flatten(), strict=True)
        return one.is_valid().equals(other.is_valid()) and all(_with_nan(a, b) for a, b in parts)
    return one.equals(other) or str(one) == str(other)


def usable(row: Any, kind: StructType) -> None:
    json.dumps(plain_value(row, kind), allow_nan=False, default=_not_plain)
    with suppress(FormatError):
        partition_of(row, kind.types, 200)
    with suppress(FormatError):
        array([row], arrow_type(kind))


def _not_plain(value: Any) -> Any:
    raise AssertionError(f"{value!r} is shown as it is")


def run_key(data: bytes) -> None:
    """Keys behind each encoder, and lists."""
    head, content = data[:2].ljust(2, b"\0"), data[2:]
    kind, encoder = schemas()[head[0] % len(schemas())], ENCODERS[head[1] % len(ENCODERS)]
    if len(kind.types) > len(encoder.columns):
        key = attempt(lambda: decode_key(content, kind, encoder), must_tell=False)
        _by_columns(content, key, kind, encoder)
        if key is not None:
            same(len(key), len(kind.types), "columns of a key")
            usable(key, kind)
    for between in (b"", b","):
        items = attempt(
            lambda between=between: decode_list(content, kind, between), must_tell=False
        )
        lists = values_of(
            StoreView("0", "s", kind, kind, Encoder("row"), True, between), binary([content])
        )
        if items is None or lists is not None:
            as_lists(lists, items, kind)
        for item in items or ():
            usable(item, kind)


def _by_columns(content: bytes, key: Any, kind: StructType, encoder: Encoder) -> None:
    view = StoreView(
        "0", "s", kind, kind, encoder, placed=tuple((at,) for at in range(len(kind.types)))
    )
    as_columns(keys_of(view, binary([content])), [key], kind)
    hashed = (
        attempt(lambda: hashes_of(view, binary([content])), must_tell=False) if kind.types else None
    )
    alone = None if key is None else attempt(lambda: signed_hash(key, kind.types), must_tell=False)
    same(
        None if hashed is None else int(hashed[0]),
        alone if kind.types else None,
        "the hash of a key by columns",
    )


def as_lists(lists: Any, items: Any, kind: StructType) -> None:
    if items is None:
        same(lists, None, "columns of a list that is refused")
    else:
        as_columns(lists[0].values, items, kind)


def run_types(data: bytes) -> None:
    """A schema's JSON, and behind a zero byte the JSON of a key's encoder."""
    text = data[1:].decode("utf-8", "replace")
    if data[:1] == b"\0":
        attempt(lambda: encoder_of(text), must_tell=False)
        return
    kind = attempt(lambda: decode_struct(text), must_tell=False)
    if kind is None:
        return
    arrow = arrow_type(kind)
    same(arrow.num_fields, len(kind.names), "fields in Arrow")
    attempt(lambda: decode_row(bytes(16 + 9 * len(kind.types)), kind), must_tell=False)
    for encoder in (
        None,
        '{"keyStateEncoderType":"RangeKeyScanStateEncoderSpec","orderingOrdinals":[0]}',
    ):
        told = {"key": text, "value": text, "encoder": encoder, "prefix": 0}
        rule = attempt(lambda told=told: key_rule(None, "default", told, True), must_tell=False)
        if rule is not None:
            view = StoreView.of_rule("default", rule)
            attempt(lambda view=view: hashes_of(view, binary([bytes(64)])), must_tell=False)


def _row_seeds() -> list[bytes]:
    """Rows of the case that has all types, with every schema, and of each shape some zeros."""
    seeds = [
        bytes((n,)) + bytes(8 * (1 + len(kind.types))) for n, kind in enumerate(schemas()[:60])
    ]
    for case in (
        case
        for case in CASES
        if case.name in ("types", "exotic") and case.parent.name == "spark-4.3.0"
    ):
        root = case / "checkpoint/state/0"
        file = schema.decode_schema((root / "0/_metadata/schema").read_bytes()).stores[0]
        numbers = {kind: n for n, kind in enumerate(schemas())}
        for path in sorted(root.glob("*/*.delta")):
            for key, value, _ in decode_delta([path.read_bytes()]):
                for text, row in ((file.key, key), (file.value, value)):
                    number = numbers.get(decode_struct(text))
                    if number is not None and row is not None:
                        seeds.append(bytes((number,)) + row)
    return seeds


def _key_seeds() -> list[bytes]:
    row = b"\0" + bytes(8) + (5).to_bytes(8, "little")
    sized = len(row).to_bytes(4, "little") + row
    shapes = (
        row[1:],
        row,
        sized,
        sized + row,
        sized + b"," + sized,
        row + b"\x80" + bytes(7),
        b"\x80" + bytes(7) + row,
    )
    return [
        bytes((which, encoder)) + one
        for which in (3, 4, 10, 28, 29)
        for encoder in range(9)
        for one in shapes
    ]


def _type_seeds() -> list[bytes]:
    found = [s for one in golden("state-schema") for s in schema.decode_schema(one).stores]
    texts = [b"\1" + text.encode() for s in found for text in (s.key, s.value)]
    return [
        *texts,
        *(b"\0" + s.encoder.encode() for s in found if s.encoder),
        b"\1" + struct_json(*EVERY).encode(),
    ]


WORDS = (
    b"\xff" * 8,
    b"\x10\0\0\0\x18\0\0\0",
    b"\x01\0\0\0\0\0\0\0",
    b"\0\0\0\x80",
    b"\2",
    b"\1\x80",
    b"\xff\xff\xff\x7f",
)
TYPE_WORDS = (
    b'{"type":"struct","fields":[',
    b'{"type":"array","elementType":',
    b'{"type":"map","keyType":"long","valueType":',
    b'"decimal(10,2)"',
    b'"interval day to second"',
    b'"udt","sqlType":',
    b'"name":"',
    b'"numColsPrefixKey":',
    b'"keyStateEncoderType":"',
    b'"orderingOrdinals":[',
    b"Infinity",
    b"1e400",
    b"[[[[",
    b'"string collate ',
)

TARGETS = (
    Target(
        "row",
        run_row,
        _row_seeds,
        (*spark("unsafe_row", "placement", "placement_columns"), *entries("vectors")),
        WORDS,
        2048,
    ),
    Target(
        "key",
        run_key,
        _key_seeds,
        (*entries("encoders", "columnar"), *spark("unsafe_row", "placement_columns")),
        WORDS,
        1024,
    ),
    Target(
        "types",
        run_types,
        _type_seeds,
        (*spark("types"), *entries("keys", "encoders")),
        TYPE_WORDS,
    ),
)
