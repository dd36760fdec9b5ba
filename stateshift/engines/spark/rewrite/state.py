"""State fed through: the files of shards in, the files of other shards out. Pure.

    options  pieces    in the order of their inputs and of their outputs
               operator, store     of all of them
               sources             [[shard, [path, ...]], ...]: one input a path
               targets             [shard, ...]
               tables              RocksDB: [[name in SSTs/, ...], ...] for each target
               partitions          [before, after]: each entry goes to the shard of its key, after
                                   it was seen that it comes from where its key puts it
             rules     for these, "<operator>/<store>" -> KeyRule
             sums      "<operator>/<store>" -> how values of one key are added (see `sums`), where
                       checkpoints are merged: a piece then has the same shard of several of them
             evolve    "<operator>/<store>" -> Evolution, where rows become others (see `evolution`)
             rules_after   KeyRule of those of them whose keys do
             sessions  "<operator>/<store>" -> the key's schema, where the provider changes (see
                       `evolution`)
             part      what of the entries is kept (see `stores`); all, where it is left out
             rows      "<operator>/<store>" -> RowRule, where rows are checked as they are read (see
                       `request`)
             compared  the settings by which a comparison sees the sources, where it takes what
                       they come to from here (see `sources`)
             settings  what the sources' rows are read by (see `fold`)
             provider, codec, checksums     how the targets are written
             format    the number that stands in a zip's metadata (see `request`); null for that
                       of the sources, or `format_without_zip` where they have none

    outputs  HDFS-backed   N.snapshot                  for each target
             RocksDB       its tables, then N.zip      for each target

A piece is read once. Entries that are put in order or redistributed on the way are held in piles
(see `redistribution`) until the next piece is read; a shard that becomes one snapshot, or whose
tables are in the order of its new ones, goes straight through, a block at a time, and where its
files are little, record by record.

A piece may be made by several, with the same bytes (see `fleet.rewriting`): its tables, where it is
known at which keys they end, and its snapshots, from entries that all have dealt out.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, starmap

from stateshift.engines.spark.entries.fold import Begun, few_rows
from stateshift.engines.spark.layout import HDFS
from stateshift.engines.spark.rewrite import shards
from stateshift.engines.spark.rewrite.redistribution import Gathered, Gathering
from stateshift.engines.spark.rewrite.shards import TableContent
from stateshift.engines.spark.rewrite.sources import SourceSums, Straight
from stateshift.errors import errors_at
from stateshift.formats import bounds
from stateshift.formats.blocks import RowBlock
from stateshift.formats.rocksdb.manifest import TableFacts
from stateshift.formats.sorting import Scratch, SortedPile, SortedPiles
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, decode_zip
from stateshift.formats.spark.state_blocks import (
    add_row_checksums,
    add_value_checksums,
    encode_snapshot,
)
from stateshift.formats.spark.state_files import StateRecord, encode_delta, with_row_checksum
from stateshift.plain import JsonObject
from stateshift.step import ROWS_CHECKED
from stateshift.storage.protocol import Content, Input
from stateshift.survey import ShardFiles
from stateshift.world import Contents, ShardRead


def rewrite_state(
    options: JsonObject, inputs: Sequence[Input], scratch: Scratch = io.BytesIO
) -> Sequence[Content]:
    """Return the contents of every target, in order; nothing is read before one of them is."""
    contents: list[Content] = []
    position, held = 0, _Held(scratch)
    sums = SourceSums(options.get("compared"))
    for plain in options["pieces"]:
        count = sum(len(paths) for _, paths in plain["sources"])
        own = inputs[position : position + count]
        contents += _Piece(plain, options, own, held, sums).contents()
        position += count
    assert position == len(inputs), "every input belongs to a piece"
    return Contents(contents, sums.shards_read)


# The facts of all tables of a target, and the number of their entries that are Spark's own.
KnownTarget = tuple[Sequence[TableFacts], int]


@dataclass(frozen=True, slots=True)
class TablesPart:
    """Some tables of each target, and the entries and sums that are known after reading."""

    targets: Mapping[int, Sequence[TableContent]]
    entries: Gathered | Straight
    sums: SourceSums


def bounds_of_tables(options: JsonObject, inputs: Sequence[Input]) -> list[bytes] | None:
    """Return the bounds of every target's tables; None where only reading all shows them."""
    return _only_piece(options, inputs, SourceSums(None)).gathering().bounds()


def rewrite_tables(
    options: JsonObject,
    inputs: Sequence[Input],
    ends: Sequence[bytes | None],
    scratch: Scratch = io.BytesIO,
) -> TablesPart:
    """Return the tables between `ends`, some of the bounds, with the bytes of `rewrite_state`."""
    sums = SourceSums(options.get("compared"))
    piece = _only_piece(options, inputs, sums)
    entries = piece.gathering().between(ends, scratch)
    tables = {}
    for target in piece.plain["targets"]:
        tables[target] = piece.tables_of(lambda: entries, target, len(ends) - 1)
    return TablesPart(tables, entries, sums)


def rewrite_zips(
    options: JsonObject, inputs: Sequence[Input], targets: Iterable[KnownTarget]
) -> list[Content]:
    """Return the zips that name the tables of every target, which were all made before."""
    piece = _only_piece(options, inputs, SourceSums(None))
    return piece.zips_of(targets)


def deal_out(
    options: JsonObject,
    inputs: Sequence[Input],
    places: slice,
    piles: SortedPiles,
    heed: Callable[[], None],
) -> Sequence[ShardRead]:
    """Deal entries of some sources onto piles; return their sums. `heed` raises to end this."""
    sums = SourceSums(options.get("compared"))
    gathering = _only_piece(options, inputs, sums).gathering()
    for target, block, _ in replace(gathering, sources=gathering.sources[places]).dealt_out():
        heed()
        piles.add(target, block)
    return sums.shards_read()


def rewrite_dealt(
    options: JsonObject, inputs: Sequence[Input], piles: Mapping[int, SortedPile]
) -> list[Content]:
    """Return the snapshots of some targets, whose entries lie in piles."""
    piece = _only_piece(options, inputs, SourceSums(None))
    gathered = piece.gathering().of_piles(piles)
    return [partial(piece.snapshot_of, gathered, target) for target in piles]


def _only_piece(options: JsonObject, inputs: Sequence[Input], sums: SourceSums) -> _Piece:
    (plain,) = options["pieces"]
    return _Piece(plain, options, inputs, _Held(io.BytesIO), sums)


@dataclass(eq=False)
class _Held:
    """The entries that were gathered for one piece, until another asks."""

    _scratch: Scratch
    _of: _Piece | None = field(default=None, init=False)
    _gathered: Gathered | Straight | None = field(default=None, init=False)

    def gathered(self, piece: _Piece) -> Gathered | Straight:
        if self._of is not piece or self._gathered is None:
            self._gathered = None  # free its memory first
            self._of, gathering = piece, piece.gathering()
            self._gathered = gathering.in_tables(gathering.bounds(), self._scratch)
        return self._gathered


class _Piece:
    """Source shards of one store that become target shards of it."""

    def __init__(
        self,
        plain: JsonObject,
        options: JsonObject,
        inputs: Sequence[Input],
        held: _Held,
        sums: SourceSums,
    ) -> None:
        self.plain, self.options, self.held, self.sums = plain, options, held, sums
        operator, store = plain["operator"], plain["store"]
        self.sources = [
            ShardFiles(operator, store, shard, tuple(paths)) for shard, paths in plain["sources"]
        ]
        paths = chain.from_iterable(source.files for source in self.sources)
        self.inputs = dict(zip(paths, inputs, strict=True))

    def contents(self) -> Iterator[Content]:
        targets = self.plain["targets"]
        if self.options["provider"] == HDFS:
            for target in targets:
                yield partial(self._snapshot, target)
            return
        for target, names in zip(targets, self.plain["tables"], strict=True):
            tables = self.tables_of(lambda: self.held.gathered(self), target, len(names))
            yield from tables
            yield partial(self._zipped, target, names, tables)

    def gathering(self) -> Gathering:
        return Gathering(
            plain=self.plain,
            options=self.options,
            sources=self.sources,
            open=self._open,
            base=self._base,
            sums=self.sums,
        )

    def _open(self, path: str, offset: int = 0) -> Iterator[bytes]:
        content = self.inputs[path]
        return content(offset) if offset else content()

    def _snapshot(self, target: int) -> Iterator[bytes]:
        if len(self.sources) == 1 and not self.plain.get("partitions"):
            gathering = self.gathering()
            begun = Begun(gathering.open)
            (source,) = self.sources
            if gathering.changes_nothing and not self.options.get(ROWS_CHECKED):
                rows = few_rows(begun, source, self.options["settings"])
                if rows is not None:
                    self.sums.add_rows(source, rows)
                    records: Iterator[StateRecord] = starmap(StateRecord, rows.items())
                    if self.options["checksums"]:
                        records = map(with_row_checksum, records)
                    return encode_delta(records, self.options["codec"])
            entries = replace(gathering, open=begun).read(source)
            return self._encoded(block for _, block in entries)
        return self.snapshot_of(self.held.gathered(self), target)

    def snapshot_of(self, entries: Gathered | Straight, target: int) -> Iterator[bytes]:
        return self._encoded(entries.blocks(target))

    def _encoded(self, blocks: Iterator[RowBlock]) -> Iterator[bytes]:
        checked = map(add_row_checksums, blocks) if self.options["checksums"] else blocks
        return encode_snapshot(checked, self.options["codec"])

    def _zipped(
        self, target: int, names: Sequence[str], tables: Sequence[TableContent]
    ) -> Iterator[bytes]:
        counts_apart = shards.internal_families(self._base)
        internal = self.held.gathered(self).internal_of(target) if counts_apart else 0
        known = [table.known() for table in tables]
        yield shards.version_zip(self._base, names, known, internal, self._format)

    def tables_of(
        self, gathered: Callable[[], Gathered | Straight], target: int, count: int
    ) -> list[TableContent]:
        """Return as many tables of the target's entries, which are gathered when one is read."""

        def blocks(number: int) -> Iterator[RowBlock]:
            own = gathered().blocks(target, number, count)
            return map(add_value_checksums, own) if self.options["checksums"] else own

        return [TableContent(partial(blocks, number)) for number in range(count)]

    def zips_of(self, targets: Iterable[KnownTarget]) -> list[Content]:
        def zipped(names: Sequence[str], known: KnownTarget) -> Iterator[bytes]:
            yield shards.version_zip(self._base, names, *known, self._format)

        pairs = zip(self.plain["tables"], targets, strict=True)
        return [partial(zipped, names, known) for names, known in pairs]

    @property
    def _format(self) -> int:
        of_sources = self._base.format if self._base.text else self.options["format_without_zip"]
        return int(self.options["format"] or of_sources)

    @cached_property
    def _base(self) -> RocksDBSnapshot:
        """Return the column families of the targets: those of the sources."""
        bases = []
        for path in chain.from_iterable(source.files for source in self.sources):
            if path.endswith(".zip"):
                with errors_at(path):
                    bases.append(decode_zip(bounds.gather(self._open(path), "a zip")))
        return shards.unite_families(base for base in bases if base.text)
