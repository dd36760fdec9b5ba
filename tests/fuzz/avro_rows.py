"""Rows, keys and values of Avro. The first byte chooses the columns, the second how a key is put
together.
"""

from __future__ import annotations

from functools import cache

from stateshift.engines.spark.entries.columnar import hashes_of, keys_of, values_of
from stateshift.engines.spark.entries.encoders import Encoder, avro_rows_of
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import binary
from stateshift.formats.spark.avro_rows import row_reader
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.types import StructType, decode_struct
from stateshift.testing.memory_storage import MemoryDisk
from tests.fuzz.oracles import attempt, same
from tests.fuzz.rows import EVERY, as_columns, as_lists, struct_json, usable
from tests.fuzz.seeds import of_cases
from tests.fuzz.targets import Target, entries, spark
from tests.support.checkpoints import put

CASES = ("tws-avro", "tws-avro-ttl", "tws-avro-evolved", "tws-avro-types")
NESTED = [
    {"type": "array", "elementType": {"type": "array", "elementType": "string"}},
    {
        "type": "array",
        "elementType": {"type": "struct", "fields": [{"name": "nothing", "type": "void"}]},
    },
    {"type": "map", "keyType": "string", "valueType": "void"},
    {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "map", "keyType": "string", "valueType": "long"},
    },
    {"type": "struct", "fields": []},
]
ENCODERS = (
    Encoder("row", avro=True),
    Encoder("prefix", (0,), True),
    Encoder("prefix", (0, 1), True),
    Encoder("range", (0,), True),
    Encoder("range", (1, 0), True),
    Encoder("range", (0, 1, 2), True),
)


@cache
def schemas() -> tuple[StructType, ...]:
    """Each type that can be, all of them, none, and what the stores of real Sparks have."""
    possible = [kind for kind in (*EVERY, *NESTED) if _possible(decode_struct(struct_json(kind)))]
    made = [
        decode_struct(struct_json(*kinds))
        for kinds in (*([kind] for kind in possible), possible, [])
    ]
    made.append(decode_struct(struct_json("long", "integer", "string", "double")))
    seen = [kind for view, _, _ in _golden() for kind in (view.key, view.value) if kind is not None]
    return tuple(dict.fromkeys((*made, *seen)))[:250]


def _possible(kind: StructType) -> bool:
    try:
        row_reader(kind)
    except FormatError:
        return False
    return True


@cache
def _golden() -> tuple[tuple[StoreView, bytes, bytes], ...]:
    """Entries of real checkpoints, and how they are read."""
    found = []
    for name, files in of_cases(*CASES):
        storage = MemoryDisk().open(f"file:///fuzz/{name}")
        for path, content in files.items():
            put(storage, path, content)
        for image in survey(storage).images:
            views = views_of(storage, image)
            for shard in image.shards:
                for store, block in fold_shard(storage.chunks, shard, image.settings):
                    view = views.of(shard.operator, store)
                    found += [(view, key, value or b"") for key, value in block.records()]
    return tuple(found)


@cache
def _view(number: int, which: int, many: bool) -> StoreView | None:
    """Values of schema 0 have the columns, those of 1 the same in another order."""
    kind, encoder = schemas()[number], ENCODERS[which]
    if len(kind.types) <= len(encoder.columns):
        return None
    written = {0: kind, 1: _turned(kind)}
    placed = tuple((at,) for at in range(len(kind.types)))
    rows = avro_rows_of(kind, encoder, kind, written)
    return StoreView("0", "s", kind, kind, encoder, many, placed=placed, avro=rows)


def _turned(kind: StructType) -> StructType:
    return StructType(kind.names[::-1], kind.types[::-1])


def run_avro_row(data: bytes) -> None:
    """A row that decodes can be shown, placed and put into Arrow, and is the same by columns of
    another order.
    """
    kind, content = schemas()[(data[0] if data else 0) % len(schemas())], data[1:]
    row = attempt(lambda: row_reader(kind)(content, 0), len(content))
    again = attempt(lambda: row_reader(kind, _turned(kind))(content, 0), len(content))
    if len(set(kind.names)) == len(kind.names):
        same(
            repr(again),
            repr(None if row is None else row[::-1]),
            "a row, and its columns in another order",
        )
    if row is not None:
        usable(row, kind)


def run_avro_key(data: bytes) -> None:
    """Keys behind each encoder, values and lists."""
    head, content = data[:2].ljust(2, b"\0"), data[2:]
    number, which = head[0] % len(schemas()), head[1] % len(ENCODERS)
    view, lists = _view(number, which, False), _view(number, which, True)
    if view is None or lists is None:
        return
    kind = schemas()[number]
    key = attempt(lambda: view.decode_key(content), must_tell=False)
    as_columns(keys_of(view, binary([content])), [key], kind)
    hashed = attempt(lambda: hashes_of(view, binary([content])), must_tell=False)
    alone = None if key is None else attempt(lambda: signed_hash(key, kind.types), must_tell=False)
    same(None if hashed is None else int(hashed[0]), alone, "the hash of a key by columns")
    value = attempt(lambda: view.decode_value(content), must_tell=False)
    as_columns(values_of(view, binary([content])), [value], kind)
    items = attempt(lambda: lists.decode_value(content), must_tell=False)
    together = values_of(lists, binary([content]))
    if items is None or together is not None:
        as_lists(together, items, kind)
    for row in (key, value, *(items or ())):
        if row is not None:
            usable(row, kind)


def _row_seeds() -> list[bytes]:
    numbers = {kind: number for number, kind in enumerate(schemas())}
    rows = [
        bytes((numbers[view.value],)) + value[3:]
        for view, _, value in _golden()
        if view.value in numbers
    ]
    return [*(bytes((number,)) + bytes(9) for number in numbers.values()), *dict.fromkeys(rows)]


def _key_seeds() -> list[bytes]:
    numbers, found = {kind: number for number, kind in enumerate(schemas())}, []
    for view, key, value in _golden():
        which = ENCODERS.index(view.encoder) if view.encoder in ENCODERS else 0
        found += [
            bytes((numbers[kind], which)) + one
            for kind, one in ((view.key, key), (view.value, value))
            if kind in numbers
        ]
    return list(dict.fromkeys(found))


WORDS = (
    b"\2\2",
    b"\0\0\0",
    b"\0\1\0",
    b"\2\2\1\2\x10",
    b"\xff" * 9 + b"\1",
    b"\x80\x80\x80\x80\x20",
    b"\x06\0\0\0\0",
    b"\1\2",
)

TARGETS = (
    Target("avro-row", run_avro_row, _row_seeds, spark("avro_rows"), WORDS, 1024),
    Target(
        "avro-key",
        run_avro_key,
        _key_seeds,
        (*entries("encoders", "columnar"), *spark("avro_rows")),
        WORDS,
        1024,
    ),
)
