"""One shard's state written again: blocks of entries in, the files of one version out. Pure.

    HDFS-backed  N.snapshot                  every entry
    RocksDB      SSTs/000002-<uuid>.sst ...  tables of every entry, ascending
                 N.zip                       which tables those are, as Spark and as RocksDB say it

Tables are planned before anything is read, so there may be one that holds nothing. It is written,
as a table without entries, and named nowhere: Spark tidies it away with the next version that it
does.

An entry is (store, key, value) as `fold_shard` gives it: without a column family's id and row
checksums. Both are put on here, in the numbers of the shard that is written.

Why no changelog: a zip that names no tables and a changelog of puts has as many files, but Spark
puts every entry through RocksDB again before the first batch, and Spark 3.3 and 3.4 know no
changelogs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stateshift.engines.spark.layout import FRAME
from stateshift.engines.spark.rewrite.evolution import Bytes
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, RowBlock, edges, join_columns, lengths, without_first
from stateshift.formats.rocksdb.manifest import (
    CURRENT,
    FIRST_TABLE,
    MANIFEST,
    TableFacts,
    encode_manifest,
)
from stateshift.formats.rocksdb.sst_encoding import encode_sst
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, encode_zip, listed_table
from stateshift.formats.spark.text import (
    JsonObject,
    decode_object,
    encode_object,
    number_of,
    object_of,
)

NAMELESS = RocksDBSnapshot((), 0)

_SNAPSHOT = "a RocksDB snapshot"
_FAMILIES, _INTERNAL = "columnFamilyMapping", "columnFamilyTypeMap"
_LARGEST_ID = "maxColumnFamilyId"


@dataclass(slots=True)
class TableContent:
    """A table as a content that can be read again and again, and remembers what it was."""

    blocks: Callable[[], Iterable[RowBlock]]
    facts: TableFacts | None = None

    def __call__(self) -> Iterator[bytes]:
        self.facts = yield from encode_sst(self.blocks())

    def known(self) -> TableFacts:
        if self.facts is None:
            deque(self(), maxlen=0)
        assert self.facts is not None, "known once it was read"
        return self.facts


def version_zip(
    base: RocksDBSnapshot,
    names: Sequence[str],
    tables: Sequence[TableFacts],
    internal: int,
    format: int,
) -> bytes:
    """Return `N.zip` of tables, with the families of `base`; `internal` are Spark's own entries."""
    facts: dict[int, TableFacts] = {}
    listed: list[ListedTable] = []
    for number, known in enumerate(tables, start=FIRST_TABLE):
        if known.records:
            facts[number] = known
            listed.append(ListedTable(f"{number:06}.sst", names[number - FIRST_TABLE], known.size))
    keys = sum(known.records for known in facts.values()) - internal
    plain: JsonObject = _metadata_of(base) if base.text else {}
    plain["sstFiles"] = [listed_table(table) for table in listed]
    plain["numKeys"] = keys
    if "numInternalKeys" in plain:
        plain["numInternalKeys"] = internal
    snapshot = RocksDBSnapshot(tuple(listed), keys, text=encode_object(plain), format=format)
    return encode_zip(snapshot, {"CURRENT": CURRENT, MANIFEST: encode_manifest(facts)})


def unite_families(bases: Iterable[RocksDBSnapshot]) -> RocksDBSnapshot:
    """Return the first shard's column families, and others' additional ones under new ids."""
    snapshots = list(bases)
    if not snapshots:
        return NAMELESS
    first, *others = snapshots
    plain = _metadata_of(first)
    if others:
        ids = dict(first.families)
        internal = _internal_of(_metadata_of(first))
        for other in others:
            internal_there = _internal_of(_metadata_of(other))
            for name in sorted(other.families.keys() - ids.keys()):
                ids[name] = max(ids.values(), default=0) + 1
                internal[name] = internal_there.get(name, False)
        merged: JsonObject = {_FAMILIES: ids}
        if internal:
            merged[_INTERNAL] = internal
        if ids:
            merged[_LARGEST_ID] = max(ids.values())
        plain |= merged
    families = object_of(plain, _FAMILIES, _SNAPSHOT, 0)
    ids = {name: number_of(families, name, _SNAPSHOT, 0) for name in families}
    return RocksDBSnapshot((), 0, ids, encode_object(plain), first.format)


def _metadata_of(snapshot: RocksDBSnapshot) -> JsonObject:
    return decode_object(snapshot.text, _SNAPSHOT)


def _internal_of(plain: JsonObject) -> JsonObject:
    """Return Spark's own column families, by name."""
    return dict(object_of(plain, _INTERNAL, _SNAPSHOT, 0))


def internal_families(base: RocksDBSnapshot) -> frozenset[str]:
    """Return Spark's own column families: it counts their entries apart."""
    if not base.text:
        return frozenset()
    internal = _internal_of(_metadata_of(base))
    return frozenset(name for name in internal if internal[name])


def with_family(store: str, block: RowBlock, families: Mapping[str, int]) -> RowBlock:
    """Return keys as RocksDB holds them: behind their column family's id, if any."""
    if not families:
        return block
    name = store.rpartition("/")[2]
    if name not in families:
        raise FormatError(f"an entry of the column family {name}, which has no id")
    return RowBlock(join_columns(families[name].to_bytes(2, "little"), block.keys), block.values)


def frame_rows(store: str, block: RowBlock, key: Bytes | None = None) -> RowBlock:
    """Frame an HDFS-backed store's rows; `key` converts keys that are more than framed."""
    keys = join_columns(FRAME, block.keys) if key is None else block.mapped(key, None).keys
    return RowBlock(keys, join_columns(FRAME, block.values))


def unframe_rows(store: str, block: RowBlock, key: Bytes | None = None) -> RowBlock:
    """Return the inverse of `frame_rows`, for stores whose keys and values are single rows."""
    keys_fit = key is not None or _begin_framed(block.keys)
    if not keys_fit or not _begin_framed(block.values):
        raise FormatError(f"an entry of {store} does not begin with RocksDB's encoding byte 00")
    keys = without_first(block.keys, len(FRAME)) if key is None else block.mapped(key, None).keys
    return RowBlock(keys, without_first(block.values, len(FRAME)))


def _begin_framed(column: Binary) -> bool:
    if not len(column):
        return True
    if not lengths(column).all():
        return False
    starts, content = edges(column)
    return bool((np.frombuffer(content, np.uint8)[starts[:-1]] == FRAME[0]).all())
