"""A shard whose entries are read in the order of their keys, given to its tables as they come: none
of them is held, and nothing is sorted. Pure.

    tables of a target   | up to bounds[0] | up to bounds[1] | ... | all that is left |

Tables are asked for one after the other, and are cut from one pass over the entries. Whoever asks
for one again, or for a later one, has the entries before it read once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from stateshift.formats.binaries import count_upto, part
from stateshift.formats.blocks import Block

# Yields blocks in order, each with how many of its entries are Spark's own.
Entries = Callable[[], Iterator[tuple[Block, int]]]

_NOWHERE = -1


class Straight:
    """The entries of one source and target; `bounds` are the last keys of tables but the last."""

    def __init__(self, entries: Entries, bounds: Sequence[bytes]) -> None:
        self._entries = entries
        self._bounds: list[bytes | None] = [*bounds, None]
        self._coming: Iterator[tuple[Block, int]] | None = None
        self._rest: Block | None = None
        self._next = 0
        self._internal = 0
        self._read_whole = False

    def blocks(self, target: int, table: int = 0, tables: int = 1) -> Iterator[Block]:
        """Yield the entries of one of the target's tables."""
        assert tables == len(self._bounds), "as many as were planned"
        if self._coming is None or table != self._next:
            self._begin()
            for bound in self._bounds[:table]:
                deque(self._upto(bound), maxlen=0)
        self._next = _NOWHERE  # until all of this one was taken
        yield from self._upto(self._bounds[table])
        self._next = table + 1

    def internal_of(self, target: int) -> int:
        """Return the number of the target's entries in Spark's own column families."""
        if not self._read_whole:
            self._begin()
            deque(self._upto(None), maxlen=0)
            self._next = len(self._bounds)
        return self._internal

    def _begin(self) -> None:
        self._coming, self._rest = self._entries(), None
        self._internal, self._read_whole = 0, False

    def _upto(self, bound: bytes | None) -> Iterator[Block]:
        """Yield everything up to a key, this one included."""
        while (block := self._taken()) is not None:
            count = len(block) if bound is None else count_upto(block.keys, bound)
            is_cut = count < len(block)
            if is_cut:
                self._rest = part(block, count, len(block))
            if count:
                yield part(block, 0, count)
            if is_cut:
                return

    def _taken(self) -> Block | None:
        """Return the rest of a block, or else the next block; None behind the last."""
        block, self._rest = self._rest, None
        if block is not None:
            return block
        assert self._coming is not None, "begun before"
        for block, internal in self._coming:
            self._internal += internal
            return block
        self._read_whole = True
        return None
