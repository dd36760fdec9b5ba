"""Records of one key, made one: where checkpoints are merged. Pure.

united(blocks, add)      blocks in order, of which keys may stand behind each other several times
add(keys, values, others)   what each of these keys has instead of both; or an error, where they are
                            not added
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.formats.binaries import part, whole
from stateshift.formats.blocks import Binary, Block, Flags, Ints

Add = Callable[[Binary, Binary, Binary], Binary]


def unite_records(blocks: Iterator[Block], add: Add) -> Iterator[Block]:
    """Yield each key once. The last key of a block waits for the next one, which may begin with
    it.
    """
    waiting: Block | None = None
    for block in blocks:
        once = _once(block if waiting is None else whole([waiting, block]), add)
        yield part(once, 0, len(once) - 1)
        waiting = part(once, len(once) - 1, len(once))
    if waiting is not None:
        yield waiting


def _once(block: Block, add: Add) -> Block:
    """Add neighbours of one key, every second of them at a time, until there are none."""
    while (again := _again(block.keys)).any():
        seconds = np.flatnonzero(again & ~np.concatenate(([False], again[:-1])))
        block = _added(block, seconds, add)
    return block


def _added(block: Block, seconds: Ints, add: Add) -> Block:
    """Return the block without the records at `seconds`, each of which is added to the one before
    it.
    """
    firsts, others = block.take(seconds - 1), block.take(seconds)
    sums = add(firsts.keys, firsts.values, others.values)
    places = np.arange(len(block))
    keys = block.keys.take(pa.array(np.delete(places, seconds)))
    places[seconds - 1] = len(block) + np.arange(len(seconds))
    values = pa.concat_arrays([block.values, sums]).take(pa.array(np.delete(places, seconds)))
    return Block(keys, values)


def _again(keys: Binary) -> Flags:
    """Whether the key of each record is that of the one before."""
    count = len(keys)
    if not count:
        return np.zeros(0, bool)
    same = np.asarray(pc.equal(keys.slice(1), keys.slice(0, count - 1)))
    return np.concatenate(([False], same.astype(bool)))
