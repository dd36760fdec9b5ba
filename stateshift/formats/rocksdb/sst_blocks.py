"""The entries of an SST as blocks: what `table` does, for a million entries at once; and which of
some keys the tables of a database hold.

A data block is cut into runs (one begins at each of its restarts, every 16 entries), and only
within a run does an entry need the one before it. The runs of many blocks are walked in
lockstep: 16 steps, each of them a few numpy operations on all runs. Keys are put together in a
matrix, a row for each run.

Bytes that RocksDB does not write (numbers of more than three bytes, very long keys, runs that do
not end where the next one begins) are left to `table`, with all blocks that were taken together: it
reads what can be read, and says what is wrong and where.

    Lookup(tables)
      .live(keys)      whether the newest write of each key is no delete; keys ascend, from one call
                       to the next, too

Only the blocks are read in which a key would stand, as the tables' indexes say. A table is opened
with the first key that lies between its smallest and its largest one, and its index forgotten
behind the last: of tables that do not overlap one is open at a time. Filters are not asked, since
RocksDB's hash for them is its own. Column families, and range deletions, which reach into other
tables, are the caller's to refuse.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise

import numpy as np
import pyarrow.compute as pc

from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, Flags, Ints, RowBlock, binary, count_upto, cut
from stateshift.formats.rocksdb.block import WHAT, DataBlock, Handle, read_block
from stateshift.formats.rocksdb.manifest import TableFile
from stateshift.formats.rocksdb.table import (
    ALL_KEYS,
    BEFORE_ALL,
    DELETES,
    MERGE,
    PUT,
    EndedBlock,
    KeyRange,
    SstTable,
    TableEntry,
    entries_of,
    in_order,
    open_content,
)
from stateshift.formats.spans import Content, Words, first_bytes, missing, word_rows, words

BATCH = 2 * 1024 * 1024  # bytes of blocks decoded together: some hundred thousand runs at most

# Longer keys, and runs of more entries, are decoded one by one.
KEY_MAX, RUN_MAX = 256, 64

Decoded = tuple[RowBlock, Words]


def decode_sst_blocks(content: bytes) -> Iterator[Decoded]:
    """Yield the table's entries in their order, each block with the sequences of its entries."""
    return decode_table(open_content(content), ALL_KEYS)


def decode_table(table: SstTable, keys: KeyRange) -> Iterator[Decoded]:
    """Yield the table's entries of some `keys`: blocks, each with its entries' sequences."""
    last, begin = BEFORE_ALL, b""
    for batch in _batches(table.blocks_by_end(keys), keys):
        blocks = [block for _, block in batch]
        decoded = _decoded(blocks)
        if not _follow(decoded, last):  # said as one by one: in which block
            for _ in in_order(blocks, last):
                pass
        block, sequences = decoded
        if len(block):
            last = TableEntry(block.keys[-1].as_py(), int(sequences[-1]), PUT, b"")
        if keys == ALL_KEYS:
            yield decoded
            continue
        end, _ = batch[-1]
        if len(block) and (block.keys[0].as_py() < begin or last.key > end):
            fact = f"{WHAT} has an index that leads to other keys than its blocks hold"
            raise FormatError(fact, None, blocks[0].offset)
        begin = end
        yield _within(decoded, keys)


def _within(decoded: Decoded, keys: KeyRange) -> Decoded:
    """Return the entries of these keys; those at either end of what was decoded may be others."""
    block, sequences = decoded
    start = 0 if keys.after is None else count_upto(block.keys, keys.after)
    end = len(block) if keys.upto is None else count_upto(block.keys, keys.upto)
    merges = None if block.merges is None else block.merges[start:end]
    columns = block.keys.slice(start, end - start), block.values.slice(start, end - start)
    return RowBlock(*columns, merges), sequences[start:end]


def decoded_blocks(blocks: Iterator[DataBlock]) -> Iterator[Decoded]:
    """Yield the entries of some of a table's blocks."""
    for batch in _batches(((b"", block) for block in blocks), ALL_KEYS):
        yield _decoded([block for _, block in batch])


def _follow(decoded: Decoded, last: TableEntry) -> bool:
    """Whether the entries are in their order, and all after the `last` one."""
    block, sequences = decoded
    keys = block.keys
    if not len(keys):
        return True
    first = keys[0].as_py()
    same_key = first == last.key
    if first < last.key or (same_key and sequences[0] >= last.sequence):
        return False
    before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
    ascends = pc.less(before, after).to_numpy(zero_copy_only=False)
    if ascends.all():
        return True
    same_keys = pc.equal(before, after).to_numpy(zero_copy_only=False)
    older = sequences[1:] < sequences[:-1]
    return bool((ascends | same_keys & older).all())


def _batches(blocks: Iterable[EndedBlock], keys: KeyRange) -> Iterator[list[EndedBlock]]:
    """Yield the blocks that are decoded together. The first block of a part is decoded by itself,
    and so is the one after its last key: others read them for keys of their own, so that the index
    has to be checked for them.
    """
    held: list[EndedBlock] = []
    size, is_first = 0, keys.after is not None
    try:
        for end, block in blocks:
            is_behind = keys.upto is not None and end > keys.upto
            if is_behind and held:
                yield held
                held, size = [], 0
            held.append((end, block))
            size += len(block.content)
            if size >= BATCH or is_first:
                yield held
                held, size = [], 0
            is_first = False
    except FormatError:
        if held:  # what is wrong before it is said first
            yield held
        raise
    if held:
        yield held


def _decoded(blocks: list[DataBlock]) -> Decoded:
    runs = _Runs.of(blocks)
    entries = runs.walked() if runs is not None else None
    decoded = entries.decoded() if entries is not None else None
    return decoded or _one_by_one(list(chain.from_iterable(map(entries_of, blocks))))


def _one_by_one(entries: list[TableEntry]) -> Decoded:
    values = [None if entry.kind in DELETES else entry.value for entry in entries]
    merges = np.array([entry.kind == MERGE for entry in entries], bool)
    block = RowBlock(
        binary([entry.key for entry in entries]), binary(values), merges if merges.any() else None
    )
    return block, np.array([entry.sequence for entry in entries], np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Runs of entries in `content`: where they start and end."""

    content: bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, blocks: list[DataBlock]) -> _Runs | None:
        """Return the runs, one for each restart; None if the restarts are not in order."""
        around = bytes(KEY_MAX)
        content = b"".join((around, *(block.content for block in blocks), around))
        sizes = np.fromiter((len(block.content) for block in blocks), np.int64, len(blocks))
        if sizes.min() < 8:
            return None
        # Keys are read whole, also the part that is shared: the first and the last need room.
        lasts = np.cumsum(sizes) + KEY_MAX - 4
        firsts = lasts + 4 - sizes
        numbers = np.ndarray((len(content) - 3,), "<u4", content, strides=(1,))
        counts = numbers[lasts].astype(np.int64)
        edges = lasts - 4 * counts
        if (counts < 1).any() or (edges < firsts).any():
            return None
        block = np.repeat(np.arange(len(blocks)), counts)
        within = np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = numbers[edges[block] + 4 * within].astype(np.int64) + firsts[block]
        last = within == counts[block] - 1
        ends = np.where(last, edges[block], np.append(starts[1:], 0))
        right = (starts < ends) & (starts >= firsts[block]) & (ends <= edges[block])
        right &= (within > 0) | (starts == firsts[block])
        return cls(content, starts, ends) if right.all() else None

    def walked(self) -> _Entries | None:
        """Return every entry, run by run; None if RocksDB would not write it so."""
        content = np.frombuffer(self.content, np.uint8)
        here = np.arange(len(self.starts))  # the runs that go on
        at = self.starts
        known = np.zeros(len(self.starts), np.int64)  # how long the key before is
        counts = np.zeros(len(self.starts), np.int64)  # of each run's entries
        steps: list[tuple[Ints, ...]] = []
        while len(here):
            if len(steps) == RUN_MAX:
                return None
            numbers = _three_numbers(content, at)
            if numbers is None:
                return None
            shared, fresh, size, at = numbers
            ends, after, keys = self.ends[here], at + fresh + size, shared + fresh
            if (shared > known).any() or (after > ends).any() or (keys > KEY_MAX).any():
                return None
            steps.append((here, shared, fresh, at, size))
            counts[here] = len(steps)
            more = after < ends
            here, at, known = here[more], after[more], keys[more]
        firsts = np.cumsum(counts) - counts
        runs, shared, fresh, places, value_sizes = zip(*steps, strict=True)
        order = np.concatenate([firsts[here] + step for step, here in enumerate(runs)])
        columns = map(np.concatenate, (shared, fresh, places, value_sizes))
        return _Entries(content, runs, order, *columns)


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """Entries as they were walked: first all that begin a run, then all that follow those, ..."""

    content: Content
    runs: Sequence[Ints]  # those that have an entry in each of these steps
    order: Ints  # the place of each entry among all
    shared: Ints  # bytes that its key shares with the one before
    fresh: Ints  # bytes that it adds to them
    places: Ints  # their beginning
    value_sizes: Ints  # of the value after them

    def decoded(self) -> Decoded | None:
        sizes = self.shared + self.fresh
        if (sizes < 8).any():
            return None
        rows = self._keys(sizes)
        sizes = self._in_order(sizes)
        keys = rows.view(np.uint8).ravel()
        starts = np.arange(len(rows)) * 8 * rows.shape[1]
        tails = words(keys, starts + sizes - 8)
        kinds = tails & np.uint64(0xFF)
        deleted = np.isin(kinds, DELETES)
        if not (deleted | (kinds == PUT) | (kinds == MERGE)).all():
            return None
        values = self._in_order(self.places + self.fresh)
        ends = values + self._in_order(self.value_sizes)
        merges = kinds == MERGE
        block = RowBlock(
            cut(keys, starts, starts + sizes - 8),
            cut(self.content, values, ends, deleted if deleted.any() else None),
            merges if merges.any() else None,
        )
        return block, tails >> np.uint64(8)

    def _in_order(self, column: Ints) -> Ints:
        ordered = np.empty_like(column)
        ordered[self.order] = column
        return ordered

    def _keys(self, sizes: Ints) -> Words:
        """Return keys, in order, as rows of words; a shared part is in the step before."""
        width = -(-int(sizes.max()) // 8)
        firsts = _firsts(width)
        old = firsts.take(self.shared, axis=0)
        # More than the longest key may be stands before the first block and behind the last.
        new = word_rows(self.content, self.places - self.shared, width)
        new &= firsts.take(sizes, axis=0) ^ old
        end = len(self.runs[0])  # of the entries that share nothing
        for before, here in pairwise(self.runs):
            above = new[end - len(before) : end]
            if len(here) < len(before):
                above = above[np.searchsorted(before, here)]
            start, end = end, end + len(here)
            old[start:end] &= above
            new[start:end] |= old[start:end]
        rows = new.view(f"V{8 * width}").ravel()  # each as one item
        return self._in_order(rows).view("<u8").reshape(-1, width)


@cache
def _firsts(width: int) -> Words:
    """Return for each number of bytes so many words of which the first bytes are set."""
    counts = np.clip(np.arange(8 * width + 1)[:, None] - 8 * np.arange(width), 0, 8)
    return first_bytes(~np.uint64(0), counts)


def _three_numbers(content: Content, at: Ints) -> tuple[Ints, Ints, Ints, Ints] | None:
    """Return three varints at each place, and their ends; None if one is too long."""
    word = words(content, at)
    if not (word & np.uint64(0x808080)).any():
        one, two, three = (word >> np.uint64(8 * n) & np.uint64(0x7F) for n in range(3))
        return one.astype(np.int64), two.astype(np.int64), three.astype(np.int64), at + 3
    numbers = []
    for _ in range(3):
        word = words(content, at).astype(np.int64)
        second, third = word & 0x80 != 0, word & 0x8080 == 0x8080
        fourth = third & (word & 0x800000 != 0)
        if fourth.any():
            return None
        numbers.append(word & 0x7F | second * (word >> 1 & 0x3F80) | third * (word >> 2 & 0x1FC000))
        at = at + 1 + second + third
    return numbers[0], numbers[1], numbers[2], at


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table by its MANIFEST, where it lies, and how it is opened."""

    fact: TableFile
    path: str
    open: Callable[[], SstTable]


class Lookup:
    """The tables of a database, asked for keys in their order."""

    def __init__(self, tables: Iterable[StoredTable]) -> None:
        self._tables = list(tables)
        self._opened: dict[int, _Indexed] = {}

    def live(self, keys: Binary) -> Flags:
        """Return whether the newest write of each key is no delete."""
        asked = keys.to_pylist()
        newest = _Newest.of(keys, asked)
        for table in self._tables:
            fact = table.fact
            start = bisect_left(asked, fact.smallest.key)
            end = bisect_right(asked, fact.largest.key)
            if start == end:
                continue
            try:
                indexed = self._opened.pop(fact.number, None) or _Indexed.of(table.open())
                for found in decoded_blocks(indexed.blocks(asked[start:end])):
                    newest.note(found)
            except FormatError as error:
                raise error.at(table.path) from error
            if end == len(asked):  # the keys that come may lie in it as well
                self._opened[fact.number] = indexed
        return newest.live


@dataclass(frozen=True, slots=True)
class _Indexed:
    table: SstTable
    lasts: list[bytes]
    handles: list[Handle]

    @classmethod
    def of(cls, table: SstTable) -> _Indexed:
        if table.deletions:
            fact = f"{WHAT} has a rocksdb.range_del block, which is not read"
            raise FormatError(fact, None, table.index.offset)
        entries = list(table.ends())
        return cls(table, [end for end, _ in entries], [handle for _, handle in entries])

    def blocks(self, keys: Sequence[bytes]) -> Iterator[DataBlock]:
        places = {bisect_left(self.lasts, key) for key in keys}
        for place in sorted(places):
            if place < len(self.handles):
                handle = self.handles[place]
                yield DataBlock(read_block(self.table.file, handle), handle.offset)


@dataclass(frozen=True, slots=True, eq=False)
class _Newest:
    """The sequence of each key's newest write, -1 if it has none, and whether it is no delete."""

    keys: Binary
    asked: list[bytes]
    sequences: Ints
    live: Flags

    @classmethod
    def of(cls, keys: Binary, asked: list[bytes]) -> _Newest:
        return cls(keys, asked, np.full(len(keys), -1, np.int64), np.zeros(len(keys), bool))

    def note(self, found: Decoded) -> None:
        block, sequences = found
        if not len(block):
            return
        start = bisect_left(self.asked, block.keys[0].as_py())
        end = bisect_right(self.asked, block.keys[-1].as_py())
        # Only the keys between them: all of them would be hashed again for every few blocks.
        places = pc.index_in(block.keys, value_set=self.keys.slice(start, end - start))
        own = np.flatnonzero(~missing(places))
        at, when = places.drop_null().to_numpy() + start, sequences[own].astype(np.int64)
        np.maximum.at(self.sequences, at, when)
        is_newest = self.sequences[at] == when
        self.live[at[is_newest]] = ~missing(block.values)[own[is_newest]]
