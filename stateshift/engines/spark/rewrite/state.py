"""State fed through: the files of shards in, the files of other shards out. Pure.

    options  pieces    in the order of their inputs and of their outputs
               operator, store     of all of them
               sources             [[shard, [path, ...]], ...]: one input a path
               targets             [shard, ...]
               tables              RocksDB: [[name in SSTs/, ...], ...] for each target
               partitions          [before, after]: each entry goes to the shard of its key, after
                                   it was seen that it
                                   comes from where its key puts it
             rules     for these, "<operator>/<store>" -> KeyRule
             sums      "<operator>/<store>" -> how values of one key are added (see `sums`), where
                       checkpoints are
                       merged: a piece then has the same shard of several of them
             evolve    "<operator>/<store>" -> Evolution, where rows become others (see `evolution`)
             rules_after   KeyRule of those of them whose keys do
             sessions  "<operator>/<store>" -> the key's schema, where the provider changes (see
                       `session_keys`)
             part      what of the entries is kept (see `split`); all, where it is left out
             settings  what the sources' rows are read by (see `fold`)
             provider, codec, checksums     how the targets are written
             format    the number that stands in a zip's metadata (see `zip_format`); null for that
                       of the sources, or
                       `format_without_zip` where they have none

    outputs  HDFS-backed   N.snapshot                  for each target
             RocksDB       its tables, then N.zip      for each target

A piece is read once. What has to be put in order or dealt out on the way is held in piles (see
`redistribution`) until the next piece is read; a shard that becomes one snapshot goes straight through,
a block at a time, and where its files are little, record by record.

Profile (a million entries of 24 and 32 bytes, seconds of one core): compacted 0.6 as snapshots and
1.3 as tables, dealt out anew 1.4 and 1.8; most of it is Arrow's taking, joining and sorting, then
LZ4's. Reading six million from disk and writing them as tables held 0.5 GB at most, a million 0.3
GB: beyond what piles may hold, they lie in the scratch file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import starmap
from typing import Any

from stateshift.engines.spark.entries.small_shards import Begun, few_rows
from stateshift.engines.spark.layout import HDFS
from stateshift.engines.spark.rewrite import shards
from stateshift.engines.spark.rewrite.redistribution import Gathered, Gathering
from stateshift.engines.spark.rewrite.shards import TableContent
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.blocks import Block
from stateshift.formats.sorting import Scratch
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, decode_zip
from stateshift.formats.spark.row_encoding import checked_rows, checked_values, encode_snapshot
from stateshift.formats.spark.state_files import Record, encode_delta, with_row_checksum
from stateshift.storage.protocol import Content
from stateshift.survey import ShardFiles


def rewrite_state(
    options: Mapping[str, Any], inputs: Sequence[Content], scratch: Scratch = io.BytesIO
) -> Sequence[Content]:
    """The contents of every target, in order; nothing is read before one of them is."""
    contents: list[Content] = []
    position, held = 0, _Held(scratch)
    for plain in options["pieces"]:
        count = sum(len(paths) for _, paths in plain["sources"])
        contents += _Piece(plain, options, inputs[position : position + count], held).contents()
        position += count
    assert position == len(inputs), "every input belongs to a piece"
    return contents


class _Held:
    """What was gathered for one piece, until another asks."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._of: _Piece | None = None
        self._gathered: Gathered | None = None

    def gathered(self, piece: _Piece) -> Gathered:
        if self._of is not piece or self._gathered is None:
            self._gathered = None  # make room first
            self._of, self._gathered = piece, piece.gathering().gathered(self._scratch)
        return self._gathered


class _Piece:
    """Source shards of one store that become target shards of it."""

    def __init__(
        self,
        plain: Mapping[str, Any],
        options: Mapping[str, Any],
        inputs: Sequence[Content],
        held: _Held,
    ) -> None:
        self.plain, self.options, self.held = plain, options, held
        operator, store = plain["operator"], plain["store"]
        self.sources = [
            ShardFiles(operator, store, shard, tuple(paths)) for shard, paths in plain["sources"]
        ]
        paths: list[str] = []
        for source in self.sources:
            paths.extend(source.files)
        self.inputs = dict(zip(paths, inputs, strict=True))

    def contents(self) -> Iterator[Content]:
        for number, target in enumerate(self.plain["targets"]):
            if self.options["provider"] == HDFS:
                yield self._snapshot(target)
            else:
                yield from self._version(target, self.plain["tables"][number])

    def gathering(self) -> Gathering:
        return Gathering(
            self.plain, self.options, self.sources, lambda path: self.inputs[path](), self._base
        )

    def _snapshot(self, target: int) -> Content:
        def content() -> Iterator[bytes]:
            if not self._goes_straight:
                return self._encoded(self.held.gathered(self).blocks(target))
            gathering = self.gathering()
            begun = Begun(gathering.open)
            rows = (
                few_rows(begun, self.sources[0], self.options["settings"])
                if gathering.changes_nothing
                else None
            )
            if rows is None:
                return self._encoded(
                    block for _, block in replace(gathering, open=begun).read(self.sources[0])
                )
            records = starmap(Record, rows.items())
            return encode_delta(
                map(with_row_checksum, records) if self.options["checksums"] else records,
                self.options["codec"],
            )

        return content

    def _encoded(self, blocks: Iterator[Block]) -> Iterator[bytes]:
        checked = map(checked_rows, blocks) if self.options["checksums"] else blocks
        return encode_snapshot(checked, self.options["codec"])

    def _version(self, target: int, names: Sequence[str]) -> Iterator[Content]:
        tables = [
            TableContent(partial(self._in_table, target, n, len(names))) for n in range(len(names))
        ]
        yield from tables

        def zipped() -> Iterator[bytes]:
            internal = self.held.gathered(self).internal[target] if self._counted_apart else 0
            yield shards.version_zip(self._base, names, tables, internal, self._format)

        yield zipped

    def _in_table(self, target: int, number: int, count: int) -> Iterator[Block]:
        blocks = self.held.gathered(self).blocks(target, number, count)
        return map(checked_values, blocks) if self.options["checksums"] else blocks

    @property
    def _goes_straight(self) -> bool:
        return len(self.sources) == 1 and not self.plain.get("partitions")

    @property
    def _counted_apart(self) -> bool:
        return bool(shards.internal_families(self._base))

    @property
    def _format(self) -> int:
        found = self._base.format if self._base.text else self.options["format_without_zip"]
        return int(self.options["format"] or found)

    @cached_property
    def _base(self) -> RocksDBSnapshot:
        """The column families of the targets: those of the sources."""
        zips = []
        for source in self.sources:
            for path in source.files:
                if path.endswith(".zip"):
                    zips.append(path)
        bases = (self._decoded(path) for path in zips)
        return shards.united(base for base in bases if base.text)

    def _decoded(self, path: str) -> RocksDBSnapshot:
        try:
            return decode_zip(bounds.gathered(self.inputs[path](), "a zip"))
        except FormatError as error:
            raise error.at(path) from error
