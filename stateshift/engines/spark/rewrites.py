"""State fed through: the files of shards in, the files of other shards out. Pure.

    options  pieces    in the order of their inputs and of their outputs
               operator, store     of all of them
               sources             [[shard, [path, ...]], ...]: one input a path
               targets             [shard, ...]: one output (HDFS-backed) or two (RocksDB: N-1.zip, N.changelog) each
               uuids               [[of N-1, of N], ...] for each target, under checkpoint format 2
               partitions          [before, after]: each entry goes to the shard of its key, after it was seen that it
                                   comes from where its key puts it
             rules     for these, "<operator>/<store>" -> KeyRule
             sums      "<operator>/<store>" -> how values of one key are added (see `sums`), where checkpoints are
                       merged: a piece then has the same shard of several of them
             part      what of the entries is kept (see `parts`); all, where it is left out
             version   N
             settings  what the sources' rows are read by (see `entries`)
             provider, codec, checksums     how the targets are written

A piece with partitions is read once, and held until its last output is written; one without is never held whole but
by the fold of its one shard. The planner cuts pieces so that this fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from stateshift.engines.spark import shards
from stateshift.engines.spark.entries import entries
from stateshift.engines.spark.keys import KeyRule, key_hash
from stateshift.engines.spark.parts import belongs
from stateshift.engines.spark.shards import HDFS, ROCKSDB, Item
from stateshift.engines.spark.sums import adders
from stateshift.errors import FormatError, Incompatible
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, decode_zip
from stateshift.plain import from_plain
from stateshift.storage.protocol import Content
from stateshift.survey import ShardFiles

Items = Callable[[], Iterable[Item]]


def rewrite_state(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """The contents of every target, in order; nothing is read before one of them is."""
    contents: list[Content] = []
    position = 0
    for plain in options["pieces"]:
        count = sum(len(paths) for _, paths in plain["sources"])
        contents += _Piece(plain, options, inputs[position : position + count]).contents()
        position += count
    assert position == len(inputs), "every input belongs to a piece"
    return contents


class _Piece:
    """Source shards of one store that become target shards of it."""

    def __init__(self, plain: Mapping[str, Any], options: Mapping[str, Any], inputs: Sequence[Content]) -> None:
        self.plain, self.options = plain, options
        operator, store = plain["operator"], plain["store"]
        self.sources = [ShardFiles(operator, store, shard, tuple(paths)) for shard, paths in plain["sources"]]
        paths = [path for source in self.sources for path in source.files]
        self.inputs = dict(zip(paths, inputs, strict=True))

    def contents(self) -> Iterator[Content]:
        items = self._items()
        base = cache(self._base)
        for number, target in enumerate(self.plain["targets"]):
            uuids = (self.plain.get("uuids") or [None] * (number + 1))[number]
            yield from self._written(items(target), uuids, base)

    def _items(self) -> Callable[[int], Items]:
        """Per target shard: its entries. They are sorted into buckets once, for all of them."""
        if not self.plain.get("partitions"):
            if len(self.sources) > 1:
                return lambda target: self._united
            (source,) = self.sources
            return lambda target: lambda: self._read(source)
        buckets = cache(self._buckets)
        return lambda target: lambda: buckets()[target]

    def _buckets(self) -> Mapping[int, list[Item]]:
        before, after = self.plain["partitions"]
        rules = {name: from_plain(KeyRule, rule) for name, rule in self.options["rules"].items()}
        own = f"{self.plain['operator']}/"
        hashes = {name.removeprefix(own): key_hash(rule) for name, rule in rules.items() if name.startswith(own)}
        found: dict[int, list[Item]] = {target: [] for target in self.plain["targets"]}
        for source in self.sources:
            for item in self._read(source):
                hashed = hashes.get(item.store)
                if hashed is None:
                    raise FormatError(f"entries of the store {item.store}, of which no schema tells", source.files[0])
                number = hashed(item.key)
                if number % before != source.shard:
                    raise _misplaced(source, item, number % before)
                bucket = found.get(number % after)
                if bucket is not None:  # else of another piece, which takes the shard's other keys
                    bucket.append(item)
        return found

    def _united(self) -> Iterable[Item]:
        """The entries of one shard in several checkpoints: a key that is in two of them is added, or refused."""
        found: dict[tuple[str, bytes], Item] = {}
        add = adders(self.plain["operator"], self.options.get("sums", {}))
        for source in self.sources:
            for item in self._read(source):
                place = (item.store, item.key)
                known = found.get(place)
                if known is not None and item.store not in add:
                    raise _twice(source, item)
                found[place] = item if known is None else item._replace(value=add[item.store](known.value, item.value))
        return found.values()

    def _read(self, source: ShardFiles) -> Iterator[Item]:
        change, part = _framing(source.files, self.options["provider"]), self.options.get("part")
        kept = belongs(part, source.operator, source.shard) if part else None
        for entry in entries(lambda path: self.inputs[path](), source, self.options["settings"]):
            if kept is not None and not kept(entry.store, entry.key):
                continue
            item = Item(entry.store, entry.key, entry.value)
            yield change(item) if change else item

    def _base(self) -> RocksDBSnapshot | None:
        """The column families of the targets: those of the sources."""
        zips = [path for source in self.sources for path in source.files if path.endswith(".zip")]
        bases = (self._decoded(path) for path in zips)
        return shards.united(base for base in bases if base.text)

    def _decoded(self, path: str) -> RocksDBSnapshot:
        try:
            return decode_zip(b"".join(self.inputs[path]()))
        except FormatError as error:
            raise error.at(path) from error

    def _written(
        self, items: Items, uuids: Sequence[str] | None, base: Callable[[], RocksDBSnapshot | None]
    ) -> Iterator[Content]:
        codec, checksums, version = (self.options[name] for name in ("codec", "checksums", "version"))
        if self.options["provider"] == HDFS:
            yield lambda: shards.snapshot(items(), codec, checksums)
            return
        lineage = ((version - 1, uuids[0]),) if uuids and version > 1 else ()
        if version > 1:
            yield lambda: iter((shards.empty_version(base()),))
        yield lambda: shards.changelog(items(), _families(base()), lineage, codec, checksums)


def _families(base: RocksDBSnapshot | None) -> Mapping[str, int]:
    return base.families if base else {}


def _framing(files: tuple[str, ...], provider: str) -> Callable[[Item], Item] | None:
    """What changes about a row when the provider does."""
    came = ROCKSDB if any(path.endswith((".zip", ".changelog")) for path in files) else HDFS
    if came == provider or not files:
        return None
    return shards.framed if provider == ROCKSDB else shards.unframed


def _twice(source: ShardFiles, item: Item) -> Incompatible:
    folder = source.files[0].rpartition("/")[0]
    return Incompatible(
        f"{folder}: the key {item.key.hex()} of store {item.store} is in another of the merged checkpoints, too",
        hint="take this run back (`stateshift rollback WORKDIR`); merge checkpoints of disjoint keys, or name under "
        "`sum` the columns whose values can be added",
    )


def _misplaced(source: ShardFiles, item: Item, belongs: int) -> Incompatible:
    folder = source.files[0].rpartition("/")[0]
    return Incompatible(
        f"{folder}: the key {item.key.hex()} of store {item.store} belongs to shard {belongs} by its hash, and is in "
        f"shard {source.shard}: this state was not distributed by all of its key columns",
        hint="a checkpoint born before Spark 3.3 (useStrictDistribution=false) keeps its number of partitions; take "
        "this run back (`stateshift rollback WORKDIR`) and leave `repartition` out",
    )
