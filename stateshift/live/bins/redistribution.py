"""Bins of a worker redistributed by another number of them: the same in the driver and in a task
of Spark's.

    Redistribution  one bin that is split, or those that are merged into one; as they are kept
    redistribute    reads the states that are not in memory, redistributes keys, their timers, and
                    rows that are held, and writes each new bin as a whole

A key's hash tells its bin, which needs to know how Spark hashes the key's columns (`hashing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from stateshift.errors import Incompatible
from stateshift.live.bins.batches import Columns, Records, Row, Rows, keys_of
from stateshift.live.bins.bin_run import Memory, Writing, portions
from stateshift.live.bins.commits import BinSnapshot, FilePiece, RedistributedBin
from stateshift.live.bins.hashing import encoders_of, hasher
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.stores import Store, redistribute_stores, rows_as_bytes, rows_from_bytes
from stateshift.live.protocol.applying import Key
from stateshift.live.protocol.configuration import HASH_BITS, bits_of, related_bins

Place = Callable[[Key], int]  # the bin of a key


@dataclass(frozen=True, slots=True)
class OldBin:
    """A bin by the number before: `kept` is None where others have it, and rows are held here."""

    bin: int
    kept: BinSnapshot | None
    held: tuple[FilePiece, ...]


@dataclass(frozen=True, slots=True)
class BinCounts:
    """The number of bins before and after, and the kinds of the key's columns."""

    before: int
    after: int
    key_kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Redistribution:
    """Bins that are redistributed together."""

    sources: tuple[OldBin, ...]
    numbers: BinCounts


def redistribute(
    parts: Sequence[Redistribution],
    memory: Memory,
    writing: Writing,
    write: Callable[[str, bytes], None],
) -> list[RedistributedBin]:
    """Redistribute bins, and write them. All are taken out of memory before any is put back: a
    number may name a bin of before, and another one of after.
    """
    stores: dict[int, Store] = {}  # by the number before; of bins that have any state
    sources = chain.from_iterable(part.sources for part in parts)
    for some in portions(sources, lambda one: 0 if one.kept is None else one.kept.size):
        needed: list[FilePiece] = []
        for source in some:
            needed += source.held
            if source.kept is not None:
                needed += memory.missing_of(source.bin, source.kept)
        memory.fetch_pieces(needed)
        for source in some:
            if source.kept is not None and source.kept.pieces:
                stores[source.bin] = memory.take(source.bin, source.kept)
    done: list[RedistributedBin] = []
    for part in parts:
        done += _redistribute(part, stores, memory, writing)
    writing.finish(write)
    return done


def _redistribute(
    part: Redistribution, stores: Mapping[int, Store], memory: Memory, writing: Writing
) -> list[RedistributedBin]:
    numbers = part.numbers
    targets: dict[int, None] = {}
    for source in part.sources:
        targets |= dict.fromkeys(related_bins(source.bin, numbers.before, numbers.after))
    mine = [stores[source.bin] for source in part.sources if source.bin in stores]
    kept: dict[int, BinSnapshot] = {}
    held: dict[int, Rows] = {}
    if mine or any(source.held for source in part.sources):
        place = place_of(memory.operator, numbers)
        for source in part.sources:
            for piece in source.held:
                rows = rows_from_bytes(memory.content(piece))
                for bin, some in _rows_by_bin(rows, memory.operator, place).items():
                    held[bin] = held[bin].merged(some) if bin in held else some
        for bin, store in redistribute_stores(memory.operator, mine, place).items():
            kept[bin] = BinSnapshot((writing.add(store.whole()),), store.keys, store.due)
            memory.put(bin, kept[bin], store)
    is_here = any(source.kept is not None for source in part.sources)
    return [
        RedistributedBin(
            bin=bin,
            kept=kept.get(bin, BinSnapshot()) if is_here else None,
            held=(writing.add(rows_as_bytes(held[bin])),) if bin in held else (),
        )
        for bin in targets
    ]


def place_of(operator: BinOperator, numbers: BinCounts) -> Place:
    """Return the function that tells the bin of a key."""
    if not numbers.key_kinds:
        raise Incompatible(
            f"{operator.name}: nothing says how Spark hashes the keys of its states",
            hint="start the worker by the number of bins that it had, and let it read a batch",
        )
    hash_of = hasher(encoders_of(numbers.key_kinds, operator.key))
    shift = HASH_BITS - bits_of(numbers.after)
    return lambda key: hash_of(key) >> shift


def _rows_by_bin(rows: Rows, operator: BinOperator, place: Place) -> dict[int, Rows]:
    """Return rows by the bins of their keys, in the order that they have."""
    if isinstance(rows, Records):
        records: dict[int, list[Row]] = {}
        for record in rows.records:
            records.setdefault(place(record[1]), []).append(record)
        return {bin: Records(some) for bin, some in records.items()}
    assert isinstance(rows, Columns), "rows are one of both"
    numbers: dict[int, list[int]] = {}
    for number, key in enumerate(keys_of(rows.table, operator.key)):
        numbers.setdefault(place(key), []).append(number)
    return {
        bin: Columns([rows.moments[number] for number in some], rows.table.take(some))
        for bin, some in numbers.items()
    }
