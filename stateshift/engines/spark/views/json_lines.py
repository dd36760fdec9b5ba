"""Pieces as JSON lines: many at once where their types allow it, else one by one, and the same
either way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stateshift.engines.spark.entries.columnar import keys_of, values_of
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.views import json_text
from stateshift.engines.spark.views.blocks import Piece, key_of, value_of
from stateshift.engines.spark.views.json_text import joined


def lines_of(piece: Piece) -> Iterator[bytes]:
    together = _together(piece)
    yield "".join(_one_by_one(piece)).encode("utf-8") if together is None else together


def _together(piece: Piece) -> bytes | None:
    view, block = piece.view, piece.block
    if view.key is None or view.value is None or piece.changes:
        return None
    keys, values = keys_of(view, block.keys), values_of(view, block.values)
    if keys is None or values is None:
        return None
    key = json_text.texts(keys, view.key)
    value = (
        json_text.lists(values, view.value) if view.many else json_text.texts(values, view.value)
    )
    if key is None or value is None:
        return None
    shared = json.dumps(
        {"operator": piece.operator, "store": view.store, "shard": piece.shard}, ensure_ascii=False
    )
    lines = joined(shared[:-1] + ', "key": ', key, ', "value": ', value, "}\n")
    _, _, content = lines.buffers()
    assert lines.offset == 0, "a column that was just made begins at its beginning"
    return bytes(pa.py_buffer(content))[: _end(lines)]


def _end(lines: Any) -> int:
    """Where the last line ends in the content of all."""
    return int(memoryview(lines.buffers()[1]).cast("q")[len(lines)])


def _one_by_one(piece: Piece) -> Iterator[str]:
    view = piece.view
    shared = {"operator": piece.operator, "store": view.store, "shard": piece.shard}
    for at, (key, value) in enumerate(piece.block.records()):
        found = value_of(piece, value)
        plain = {
            **({"batch": piece.batch, "change": piece.changes[at]} if piece.changes else {}),
            **shared,
            "key": {"hex": key.hex()} if view.key is None else view.named_key(key_of(piece, key)),
            "value": {"hex": found.hex()} if isinstance(found, bytes) else _named(view, found),
        }
        text = json.dumps(plain, ensure_ascii=False)
        # What is not UTF-8 in a string is kept as a surrogate, which JSON can only say as an
        # escape.
        yield (text if text.isascii() or _encodable(text) else json.dumps(plain)) + "\n"


def _named(view: StoreView, value: Any) -> Any:
    return None if value is None else view.named_value(value)


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
