"""Entries, or changes, on their way out of an image: a block of one store of one shard, and how
it is read.
"""

from __future__ import annotations

from typing import NamedTuple

from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.views import HINT_FILE
from stateshift.errors import FormatError
from stateshift.formats.binaries import part
from stateshift.formats.blocks import Block
from stateshift.formats.spark.types import Value


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
