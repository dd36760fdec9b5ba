"""Entries added up, whatever their order: what two ways to one version have to agree on. Pure.

tally.add(store, block) ...      a sum of a number for each entry, modulo 2^64
tally == other                   as many entries, and the same ones but for chance
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stateshift.formats.blocks import Block, binary
from stateshift.formats.spans import hash64

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


@dataclass(slots=True)
class Tally:
    """A count and a sum over entries, the same in whatever order they come."""

    records: int = 0
    total: int = 0

    def add(self, store: str, block: Block) -> None:
        name = hash64(binary([store.encode()]))[0]
        mixed = (hash64(block.keys) + name) * _FIRST ^ hash64(block.values)
        mixed = (mixed ^ mixed >> np.uint64(32)) * _SECOND
        mixed ^= mixed >> np.uint64(29)
        self.records += len(block)
        self.total = (self.total + int(mixed.sum(dtype=np.uint64))) % (1 << 64)
