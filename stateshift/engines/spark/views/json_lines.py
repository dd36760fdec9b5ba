"""Pieces as JSON lines: many at once where their types allow it, else one by one, and the same
either way.

A piece is entries, or changes, on their way out of an image: a block of one store of one shard,
with the view that reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from stateshift.engines.spark.entries.columnar import keys_of, values_of
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.views import json_text
from stateshift.engines.spark.views.json_text import join_texts
from stateshift.engines.views import HINT_FILE
from stateshift.errors import FormatError
from stateshift.formats.binaries import part
from stateshift.formats.blocks import Block
from stateshift.formats.spark.text import JsonObject
from stateshift.formats.spark.types import Value


def lines_of(piece: Piece) -> Iterator[bytes]:
    """Yield the entries of a piece as JSON, one a line."""
    together = _together(piece)
    yield "".join(_one_by_one(piece)).encode("utf-8") if together is None else together


def _together(piece: Piece) -> bytes | None:
    view, block = piece.view, piece.block
    if view.key is None or view.value is None or piece.changes:
        return None
    keys, values = keys_of(view, block.keys), values_of(view, block.values)
    if keys is None or values is None:
        return None
    value_texts = json_text.lists if view.many else json_text.texts
    key, value = json_text.texts(keys, view.key), value_texts(values, view.value)
    if key is None or value is None:
        return None
    shared = json.dumps(_shared(piece), ensure_ascii=False)
    lines = join_texts(shared[:-1] + ', "key": ', key, ', "value": ', value, "}\n")
    _, _, content = lines.buffers()
    assert lines.offset == 0, "a column that was just made begins at its beginning"
    end = int(memoryview(lines.buffers()[1]).cast("q")[len(lines)])
    return bytes(pa.py_buffer(content))[:end]


def _shared(piece: Piece) -> JsonObject:
    """Return the fields that are the same for all entries of a piece."""
    return {"operator": piece.operator, "store": piece.view.store, "shard": piece.shard}


def _one_by_one(piece: Piece) -> Iterator[str]:
    shared = _shared(piece)
    for at, (key, value) in enumerate(piece.block.records()):
        plain: JsonObject = {}
        if piece.changes:
            plain |= {"batch": piece.batch, "change": piece.changes[at]}
        plain |= shared
        shown_key: object
        if piece.view.key is None:
            shown_key = {"hex": key.hex()}
        else:
            shown_key = piece.view.named_key(key_of(piece, key))
        plain |= {"key": shown_key, "value": _shown_value(piece, value)}
        text = json.dumps(plain, ensure_ascii=False)
        if not _is_utf8(text):
            # A byte of a string that is not UTF-8 is kept as a surrogate, which JSON can only say
            # as an escape.
            text = json.dumps(plain)
        yield text + "\n"


def _shown_value(piece: Piece, value: bytes | None) -> object:
    decoded = value_of(piece, value)
    if decoded is None:
        return None
    if isinstance(decoded, bytes):
        return {"hex": decoded.hex()}
    return piece.view.named_value(decoded)


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class Piece(NamedTuple):
    """Entries, or changes, of one store of one shard on their way out. `path` is a file to blame
    where one of them does not decode; `changes` says what each change is.
    """

    view: StoreView
    operator: str
    shard: int
    block: Block
    path: str
    batch: int = 0
    changes: tuple[str, ...] = ()


def part_of(piece: Piece, start: int, count: int) -> Piece:
    """Return some of its entries."""
    if start == 0 and len(piece.block) <= count:
        return piece
    block = part(piece.block, start, min(start + count, len(piece.block)))
    return piece._replace(block=block, changes=piece.changes[start : start + count])


def key_of(piece: Piece, key: bytes) -> Value:
    """Return a key's columns, its bytes where they are not known."""
    if piece.view.key is None:
        return key
    try:
        return piece.view.decode_key(key)
    except FormatError as error:
        raise _at(error, piece) from error


def value_of(piece: Piece, value: bytes | None) -> Value:
    """Return a value's columns, its bytes where they are not known; None of a deletion."""
    if value is None or piece.view.value is None:
        return value
    try:
        return piece.view.decode_value(value)
    except FormatError as error:
        raise _at(error, piece) from error


def _at(error: FormatError, piece: Piece) -> FormatError:
    fact = f"a row of the store {piece.view.store} does not fit its schema: {error.fact}"
    return FormatError(fact, piece.path, hint=HINT_FILE)
