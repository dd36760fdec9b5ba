"""Entries of two images put on piles by their key, on disk where they are many: each pile is compared by itself.

    pile    (u8 side | u32 key size | u32 value size | key | value)*

Keys are dealt out by a hash, so that the same key of both sides lies on one pile. What is held in memory is one pile;
how many there are follows from the bytes that are expected.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from typing import IO

import mmh3

PILE_BYTES = 32 * 1024 * 1024
PILES_MAX = 256

_HEAD = struct.Struct("<BII")


class Piles:
    """Piles for about `bytes_expected` bytes of entries; they are gone when this is closed."""

    def __init__(self, bytes_expected: int) -> None:
        count = max(1, min(PILES_MAX, bytes_expected // PILE_BYTES + 1))
        in_memory = PILE_BYTES // count
        self._piles: list[IO[bytes]] = [
            tempfile.SpooledTemporaryFile(in_memory)  # noqa: SIM115 - `close` closes them
            for _ in range(count)
        ]
        self.empty = True

    def put(self, side: int, key: bytes, value: bytes) -> None:
        pile = self._piles[mmh3.hash(key, signed=False) % len(self._piles)]
        pile.write(_HEAD.pack(side, len(key), len(value)))
        pile.write(key)
        pile.write(value)
        self.empty = False

    def each(self) -> Iterator[tuple[dict[bytes, list[bytes]], dict[bytes, list[bytes]]]]:
        """What either side has of each pile: key -> its values (a sound image has one)."""
        for pile in self._piles:
            pile.seek(0)
            sides: tuple[dict[bytes, list[bytes]], dict[bytes, list[bytes]]] = ({}, {})
            while head := pile.read(_HEAD.size):
                side, key_size, value_size = _HEAD.unpack(head)
                sides[side].setdefault(pile.read(key_size), []).append(pile.read(value_size))
            yield sides

    def close(self) -> None:
        for pile in self._piles:
            pile.close()
