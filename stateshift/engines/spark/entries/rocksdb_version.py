"""The version of a RocksDB shard that its newest zip says: its tables and where they lie, its
column families, and how its tables are sorted.

Tables that do not overlap are a sorted run, by the MANIFEST in the zip. If that cannot be read
there are none, and nothing is refused for it: Spark's own metadata names the tables, too.

A shard can be cut into parts, each read by itself: together they hold its entries, each once, in
its order.

    part  keys after one and up to another, of a RocksDB shard whose tables are sorted runs. The
          blocks of those are read that may hold such keys, and all changelogs. Which tables may,
          the MANIFEST says: one that holds other keys is refused

    "stateshift.shard-part": "[AFTER, UPTO]"    keys in hexadecimal, or null

A part stands among the settings that a reader of entries is given anyway; Spark has none that begin
like it. Other shards are read whole: to cut them by the hash of their keys, all of them had to be
decoded for each part, which is most of the work (1 million entries of a snapshot: 0.99 s of CPU as
one, 0.88 and 0.90 in two halves).

It is cut at ends of its tables, or of their blocks. The indexes of tables are read for it, and no
entries: keys that only changelogs write show nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.engines.spark.entries.last_writes import Writes
from stateshift.engines.spark.layout import has_tables, newest_files
from stateshift.engines.window import Window
from stateshift.errors import FormatError, errors_at
from stateshift.formats import bounds
from stateshift.formats.blocks import RowBlock
from stateshift.formats.rocksdb.manifest import KeyPlace, TableFile, decode_manifest, sorted_runs
from stateshift.formats.rocksdb.sst_blocks import Decoded
from stateshift.formats.rocksdb.table import ALL_KEYS, KeyRange, open_table
from stateshift.formats.rocksdb.table import SstTable as OpenTable
from stateshift.formats.sorting import cuts
from stateshift.formats.spans import Words
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, decode_zip_version
from stateshift.storage.protocol import CHUNK
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom

_NOTHING = RocksDBSnapshot((), 0)
_DIGITS_MAX = 20  # of a number of 64 bits
_RUN_BYTES = 24 * 1024 * 1024  # of a table that is read: its end, and a few batches of blocks


@dataclass(frozen=True)
class Version:
    """The newest zip of a shard's files, its path in `zip`; empty where there is none."""

    files: tuple[str, ...]
    zip: str = ""
    snapshot: RocksDBSnapshot = _NOTHING
    manifest: bytes | None = None

    @cached_property
    def tables(self) -> Mapping[int, ListedTable]:
        return {number_of(table): table for table in self.snapshot.tables}

    @cached_property
    def table_paths(self) -> Mapping[str, str]:
        listed = [path for path in self.files if path.endswith(".sst")]
        return {path.rpartition("/")[2]: path for path in listed}

    @cached_property
    def facts(self) -> Mapping[int, TableFile]:
        """The tables' facts in the MANIFEST, by number; none where it cannot be read."""
        if self.manifest is None:
            return {}
        try:
            families = decode_manifest(self.manifest).families
        except FormatError:
            return {}
        if families.keys() != {0}:
            return {}
        facts = families[0].tables.values()
        return {fact.number: fact for fact in facts if fact.number in self.tables}

    @cached_property
    def runs(self) -> list[list[TableFile]]:
        """The tables as sorted runs; none without a MANIFEST, or if they need too much memory."""
        facts = list(self.facts.values())
        if len(facts) < len(self.snapshot.tables):
            return []
        for fact in facts:
            if fact.largest.key < fact.smallest.key:
                said = f"the version's MANIFEST has table {fact.number} end before it begins"
                raise FormatError(said, self.zip)
        runs = sorted_runs(facts)
        held = sum(min(_RUN_BYTES, max(fact.size for fact in run)) for run in runs)
        return runs if held <= bounds.whole() else []


def version_of(read: ReadFrom, shard: ShardFiles) -> Version:
    """Return the version that a shard's newest zip says."""
    newest = newest_files(shard.files, ".zip")
    zips = [path for path in newest if path.endswith(".zip")]
    if not zips:
        return Version(shard.files)
    (path,) = zips
    with errors_at(path):
        decoded = decode_zip_version(bounds.gather(read(path), "a zip"))
    return Version(shard.files, path, decoded.snapshot, decoded.manifest)


def table_at(chunks: Callable[[int], Iterator[bytes]], size: int) -> OpenTable:
    """Open a table through a window of what a storage gives at once: less would be asked again."""
    return open_table(Window(chunks, size, CHUNK).read, size)


def check_table(fact: TableFile, table: OpenTable, decoded: Iterable[Decoded]) -> Iterator[Decoded]:
    """Yield all that a table holds; refuse one that changed places with another."""
    number = table.number(b"rocksdb.original.file.number")  # since RocksDB 6.24: Spark 3.4
    if number not in (None, fact.number):
        raise _of_other(f"it is table {number}, and not the {fact.number} that")
    last: KeyPlace | None = None
    for block, sequences in decoded:
        if len(block):
            if last is None and _place(block, sequences, 0) != fact.smallest:
                raise _of_other("it holds other keys than")
            last = _place(block, sequences, -1)
            newest = int(sequences.max())
            if not fact.first_sequence <= int(sequences.min()) <= newest <= fact.last_sequence:
                raise _of_other("it holds writes of other sequences than")
        yield block, sequences
    if last != fact.largest:
        raise _of_other("it holds other keys than")


def _place(block: RowBlock, sequences: Words, at: int) -> KeyPlace:
    return KeyPlace(block.keys[at].as_py(), -int(sequences[at]))


def _of_other(fact: str) -> FormatError:
    said = f"{fact} the version's MANIFEST says: it has changed places with another one"
    return FormatError(said, None, 0)


def number_of(table: ListedTable) -> int:
    """Return the number by which the MANIFEST knows a table; -1 where its name says none."""
    name = table.local.removesuffix(".sst")
    return int(name) if name.isdecimal() and len(name) <= _DIGITS_MAX else -1


SHARD_PART = "stateshift.shard-part"


def encode_part(keys: KeyRange) -> str:
    """Return the value of the setting that asks for these keys."""
    return json.dumps([None if key is None else key.hex() for key in keys])


def part_in(settings: Mapping[str, str]) -> KeyRange:
    """Return the keys that the settings ask for."""
    if SHARD_PART not in settings:
        return ALL_KEYS
    ends = json.loads(settings[SHARD_PART])
    return KeyRange(*(None if key is None else bytes.fromhex(key) for key in ends))


def parts_between(bounds: Sequence[bytes]) -> list[KeyRange]:
    """Return the parts that end with these keys, and the one behind the last of them."""
    return [KeyRange(*ends) for ends in pairwise((None, *bounds, None))]


def within(writes: Writes, keys: KeyRange) -> Writes:
    """Return the writes to these keys, whatever their order."""
    if keys == ALL_KEYS:
        return writes
    after, upto = keys
    wanted = np.ones(len(writes.block), bool)
    if after is not None:
        is_after = pc.greater(writes.block.keys, pa.scalar(after, pa.large_binary()))
        wanted &= is_after.to_numpy(zero_copy_only=False)
    if upto is not None:
        is_before = pc.less_equal(writes.block.keys, pa.scalar(upto, pa.large_binary()))
        wanted &= is_before.to_numpy(zero_copy_only=False)
    places = np.flatnonzero(wanted)
    return Writes(writes.block.take(places), writes.when[places])


_EARLY = 0.25  # of a table: it ends where one of those ends that it is made of
_TABLES_A_PART = 8  # so many, and parts that end with tables are about even
SAMPLES_A_TABLE = 512  # at most, of where its blocks end

# A key, and how many bytes lie between it and the one before.
Sample = tuple[bytes, float]


class BlockEnds(NamedTuple):
    """The last keys of a shard's blocks, and the numbers with which keys of families begin."""

    samples: list[Sample]
    families: Mapping[str, int]


def table_bounds(read: ReadFrom, shard: ShardFiles, count: int) -> list[bytes] | None:
    """Return `count` - 1 keys that cut the shard into parts of about the same size, as far as the
    tables that it lies in show; None where `fold_shard` does not give its entries in the order of
    their keys. Column families are part of the keys.

    Tables that overlap may all end alike, and a few may be too few: then it is their blocks that
    show where the shard can be cut.
    """
    if not any(path.endswith(".zip") for path in shard.files):
        return None
    version = version_of(read, shard)
    runs = version.runs
    if not runs:
        return None
    if count == 1:
        return []
    facts = list(chain.from_iterable(runs))
    if len(runs) > 1 or len(facts) < count:
        return cuts(_ends_of_blocks(read, version, facts), count)
    return cuts([(fact.largest.key, fact.size) for fact in facts], count, early=_EARLY)


def parts_of(read: ReadFrom, shard: ShardFiles, count: int) -> list[KeyRange]:
    """Return about `count` parts of a shard, in its order; one where it cannot be cut."""
    if not has_tables(shard.files):
        return [ALL_KEYS]
    version = version_of(read, shard)
    facts = list(chain.from_iterable(version.runs))
    if not facts:
        return [ALL_KEYS]
    ends: Iterable[Sample] = [(fact.largest.key, fact.size) for fact in facts]
    if len(facts) < _TABLES_A_PART * count:
        ends = _ends_of_blocks(read, version, facts)
    return parts_between(sorted(set(cuts(ends, count))))


def block_ends(read: ReadFrom, shard: ShardFiles) -> BlockEnds | None:
    """Return the block ends of a RocksDB shard's tables; None where those are no sorted runs."""
    version = version_of(read, shard)
    if version.snapshot.tables and not version.runs:
        return None
    ends = list(_ends_of_blocks(read, version, chain.from_iterable(version.runs)))
    return BlockEnds(ends, version.snapshot.families)


def _ends_of_blocks(
    read: ReadFrom, version: Version, facts: Iterable[TableFile]
) -> Iterator[Sample]:
    """Yield ends of blocks, each with the bytes since the one before, from the indexes alone."""
    for fact in facts:
        path = version.table_paths.get(version.tables[fact.number].stored)
        if path is None:
            continue
        least = fact.size // SAMPLES_A_TABLE
        end, passed = b"", 0
        with errors_at(path):
            for end, handle in table_at(partial(read, path), fact.size).ends():
                passed += handle.size
                if passed >= least:
                    yield end, passed
                    passed = 0
        if passed:
            yield end, passed
