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


def united(blocks: Iterator[Block], add: Add) -> Iterator[Block]:
    """Each key once. The last key of a block waits for the next one, which may begin with it."""
    waiting: Block | None = None
    for block in blocks:
        found = _once(block if waiting is None else whole([waiting, block]), add)
        yield part(found, 0, len(found) - 1)
        waiting = part(found, len(found) - 1, len(found))
    if waiting is not None:
        yield waiting


def _once(block: Block, add: Add) -> Block:
    """Neighbours of one key are added, every second of them at a time, until there are none."""
    while (again := _again(block.keys)).any():
        seconds = np.flatnonzero(again & ~np.concatenate(([False], again[:-1])))
        block = _added(block, seconds, add)
    return block


def _added(block: Block, seconds: Ints, add: Add) -> Block:
    """Without the records at `seconds`, each of which is added to the one before it."""
    one, other = (block.take(places) for places in (seconds - 1, seconds))
    sums = add(one.keys, one.values, other.values)
    places = np.arange(len(block))
    places[seconds - 1] = len(block) + np.arange(len(seconds))
    values = pa.concat_arrays([block.values, sums]).take(pa.array(np.delete(places, seconds)))
    return Block(block.keys.take(pa.array(np.delete(np.arange(len(block)), seconds))), values)


def _again(keys: Binary) -> Flags:
    """Whether the key of each record is that of the one before."""
    count = len(keys)
    if not count:
        return np.zeros(0, bool)
    same = np.asarray(pc.equal(keys.slice(1), keys.slice(0, count - 1)))
    return np.concatenate(([False], same.astype(bool)))
