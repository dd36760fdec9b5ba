"""The version of a RocksDB shard that its newest zip says: its tables and where they lie, its
column families, and how its tables are sorted.

Tables that do not overlap are a sorted run, by the MANIFEST in the zip. If that cannot be read
there are none, and nothing is refused for it: Spark's own metadata names the tables, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from stateshift.engines.spark.layout import newest_files
from stateshift.engines.spark.small_files import errors_at
from stateshift.engines.window import Window
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.blocks import Block
from stateshift.formats.rocksdb.manifest import KeyPlace, TableFile, decode_manifest, sorted_runs
from stateshift.formats.rocksdb.sst_blocks import Decoded
from stateshift.formats.rocksdb.table import SstTable as OpenTable
from stateshift.formats.rocksdb.table import open_table
from stateshift.formats.spans import Words
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, Table, decode_zip_version
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
    def tables(self) -> Mapping[int, Table]:
        """The tables by their numbers."""
        return {number_of(table): table for table in self.snapshot.tables}

    @cached_property
    def table_paths(self) -> Mapping[str, str]:
        """The paths of tables by their names in SSTs/."""
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
        """The tables as sorted runs; none where the MANIFEST does not tell them, or where what is
        held of each run is more than may be held at once.
        """
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
    """Open a table through a window of what a storage gives at once: to hold less of that would be
    to ask for the rest again. `chunks` reads it from an offset on.
    """
    return open_table(Window(chunks, size, CHUNK).read, size)


def checked_against(
    fact: TableFile, table: OpenTable, decoded: Iterable[Decoded]
) -> Iterator[Decoded]:
    """Yield all that a table holds; refused where it is another one than the MANIFEST names. Each
    block of one that changed places with another fits its checksum, and RocksDB fails, or finds
    other entries.
    """
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


def _place(block: Block, sequences: Words, at: int) -> KeyPlace:
    return KeyPlace(block.keys[at].as_py(), -int(sequences[at]))


def _of_other(fact: str) -> FormatError:
    said = f"{fact} the version's MANIFEST says: it has changed places with another one"
    return FormatError(said, None, 0)


def number_of(table: Table) -> int:
    """Return the number by which the MANIFEST knows a table; -1 where its name says none."""
    name = table.local.removesuffix(".sst")
    return int(name) if name.isdecimal() and len(name) <= _DIGITS_MAX else -1
