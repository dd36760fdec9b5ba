"""A shard's tables kept as they are, and what the changelogs behind them write as one table more:
`{"kind": "compact", "keep_tables": true}`. Pure.

    options  shards   [{"operator", "store", "shard", "files": [path, ...],
                        "table": the new one's name in SSTs/}, ...]
                      in the order of their inputs, one a path, and of their outputs
    outputs           for each: the new table, if the changelogs write anything, then N.zip

    table     on level 0: the last write of every key in the changelogs, puts and deletes, of one
              sequence beyond all others
    N.zip     the files of the zip before it, an edit more behind its MANIFEST, a table more in its
              metadata. numKeys goes by what each changed key was before, as the kept tables say

The changes are compared, and the words about the rest (`stateshift.changes` among the settings): of
the source its zip and its changelogs, of the target its zip and the new table. The kept tables
themselves are compared byte for byte, as copies are.

Tried on real Sparks (3.3.4, 3.5.9, 4.0.5, 4.3.0): checkpoint format 1 without column families and
row checksums. All else is refused before anything is written (`of_kept_tables`), and here, where
only the bytes show it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from stateshift.engines.spark.entries.fold import PLAINLY, last_changes
from stateshift.engines.spark.entries.last_writes import Writes
from stateshift.engines.spark.entries.rocksdb_version import part_in, table_at, within
from stateshift.errors import FormatError, Incompatible, errors_at
from stateshift.formats import bounds
from stateshift.formats.blocks import RowBlock, block_of
from stateshift.formats.rocksdb.manifest import (
    SEQUENCE_MAX,
    Manifest,
    TableFacts,
    TableFile,
    decode_current,
    decode_manifest,
    with_table,
)
from stateshift.formats.rocksdb.sst_blocks import Lookup, StoredTable, decode_sst_blocks
from stateshift.formats.rocksdb.sst_encoding import encode_sst
from stateshift.formats.spans import missing
from stateshift.formats.spark.rocksdb import (
    METADATA,
    ListedTable,
    RocksDBSnapshot,
    decode_snapshot_metadata,
    decode_zip_members,
    encode_zip,
    listed_table,
)
from stateshift.formats.spark.state_blocks import decode_changelog_blocks
from stateshift.formats.spark.text import decode_object, encode_object
from stateshift.plain import JsonObject
from stateshift.storage.protocol import Content, Input
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom, Whole

_NUMBERS = re.compile("[0-9]{1,18}")
_DEFAULT = 0  # the column family that every RocksDB has
_WHAT = "a RocksDB snapshot"


def keep_tables(options: JsonObject, inputs: Sequence[Input]) -> Sequence[Content | None]:
    """Return each shard's new table and zip; first only the existence of a table is looked up."""
    contents: list[Content | None] = []
    coming = iter(inputs)
    for plain in options["shards"]:
        files = tuple(plain["files"])
        shard = ShardFiles(plain["operator"], plain["store"], plain["shard"], files)
        own = {path: next(coming) for path in files}
        kept = _Kept(shard, plain["table"], own, options["settings"])
        contents += [kept.table if kept.is_changed() else None, kept.zipped]
    return contents


@dataclass(eq=False)
class _Kept:
    """The new table of one shard, and the zip that names it."""

    _shard: ShardFiles
    _name: str
    _inputs: Mapping[str, Input]
    _settings: Mapping[str, str]
    _facts: TableFacts | None = field(default=None, init=False)
    _keys: int = field(default=0, init=False)

    def is_changed(self) -> bool:
        """Whether the changelogs write anything: a batch may leave a shard as it was."""
        for path in self._shard.files:
            if path.endswith(".changelog"):
                with errors_at(path):
                    _, blocks = decode_changelog_blocks(self._open(path))
                    if next(blocks, None) is not None:
                        return True
        return False

    def table(self) -> Iterator[bytes]:
        sequence = self._version.manifest.last_sequence + 1
        self._facts = yield from encode_sst(self._counted(), sequence)

    def zipped(self) -> Iterator[bytes]:
        if self._facts is None:
            deque(self.table(), maxlen=0)
        assert self._facts is not None, "known once it was made"
        yield self._version.with_table(self._name, self._facts, self._keys)

    def _counted(self) -> Iterator[RowBlock]:
        """Yield the writes of the changelogs, and count the keys that there are afterwards."""
        keys = self._version.snapshot.keys
        if keys < 0:  # a job can be told not to count them
            self._keys = keys
            yield from last_changes(self._open, self._shard, self._settings)
            return
        paths = {path.rpartition("/")[2]: path for path in self._shard.files}
        tables: list[StoredTable] = []
        for table in self._version.snapshot.tables:
            path = paths[table.stored]
            opened = partial(table_at, self._inputs[path], table.size)
            tables.append(StoredTable(self._version.facts[table.local], path, opened))
        lookup = Lookup(tables)
        for block in last_changes(self._open, self._shard, self._settings):
            yield block
            after = ~missing(block.values)
            keys += int(after.sum()) - int(lookup.live(block.keys).sum())
        self._keys = keys

    def _open(self, path: str, offset: int = 0) -> Iterator[bytes]:
        return self._inputs[path](offset)

    @cached_property
    def _version(self) -> Version:
        return version_of(self._open, self._shard)


@dataclass(frozen=True)
class Version:
    """A version's zip: Spark's metadata, and RocksDB's own files with the MANIFEST among them."""

    snapshot: RocksDBSnapshot
    members: Mapping[str, bytes]
    manifest_name: str
    manifest: Manifest

    @property
    def facts(self) -> dict[str, TableFile]:
        """The facts of the tables in the MANIFEST, by the names that they have in RocksDB."""
        tables = self.manifest.families[_DEFAULT].tables
        return {f"{number:06}.sst": table for number, table in tables.items()}

    def with_table(self, name: str, facts: TableFacts, keys: int) -> bytes:
        """Return the zip with a table `name` in SSTs/; without it where the table is empty."""
        members = {each: self.members[each] for each in self.members if each != METADATA}
        plain = decode_object(self.snapshot.text, _WHAT)
        if facts.records:
            # A number that no file has: logs and options have theirs from the same row.
            numbers = [self.manifest.next_file - 1, *self.manifest.numbers]
            for file in self.members:
                numbers += map(int, _NUMBERS.findall(file))
            number = max(numbers) + 1
            manifest = with_table(members[self.manifest_name], number, facts)
            members[self.manifest_name] = manifest
            table = ListedTable(f"{number:06}.sst", name, facts.size)
            plain["sstFiles"] = [*map(listed_table, self.snapshot.tables), listed_table(table)]
            plain["numKeys"] = keys
        snapshot = replace(self.snapshot, text=encode_object(plain))
        return encode_zip(snapshot, members)

    def check(self) -> None:
        """Refuse a version whose tables cannot be kept, or whose files contradict each other."""
        families = self.manifest.families
        if self.snapshot.families or families.keys() != {_DEFAULT}:
            raise Incompatible(
                "the state has column families, beside which no table is kept", hint=PLAINLY
            )
        if self.facts.keys() != {table.local for table in self.snapshot.tables}:
            raise FormatError(f"{_WHAT} lists other tables than its {self.manifest_name}")
        for table in self.facts.values():
            is_known = table.last_sequence != SEQUENCE_MAX
            if is_known and table.last_sequence > self.manifest.last_sequence:
                raise FormatError(f"{self.manifest_name} has a table of later sequences than all")


def version_of(read: ReadFrom, shard: ShardFiles) -> Version:
    """Return the version that a shard's zip holds, checked."""
    (path,) = (path for path in shard.files if path.endswith(".zip"))
    with errors_at(path):
        content = bounds.gather(read(path), "a zip")
        members = decode_zip_members(content)
        name = decode_current(members.get("CURRENT", b""))
        if name not in members:
            raise FormatError(f"CURRENT names {name}, which is not there")
        snapshot = decode_snapshot_metadata(members.get(METADATA, b""))
        version = Version(snapshot, members, name, decode_manifest(members[name]))
        version.check()
    return version


# ---- what is compared


def compared_changes(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, RowBlock]]:
    """Yield the writes of a version behind its kept tables, and the tables by the words that are
    said of them. Its files are a zip and changelogs, or a zip and the table that was made of those.
    The tables are named with the first part of the shard (see `rocksdb_version`).
    """
    part = part_in(settings)
    version = version_of(read, shard)
    kept = {table.stored: table for table in version.snapshot.tables}
    added = [path for path in shard.files if path.endswith(".sst")]
    blocks: Iterable[RowBlock] = ()
    if not added:
        blocks = last_changes(read, shard, settings)
    for path in added:
        table = kept.pop(path.rpartition("/")[2], None)
        if table is None:  # the changelogs write nothing: no table was made of them
            continue
        with errors_at(path):
            writes = _added(bounds.gather(read(path), "an SST"), table, version)
        blocks = (within(written, part).block for written in writes)
    facts = version.facts
    listed = [
        (table.stored.encode(), repr((table, facts[table.local])).encode())
        for table in kept.values()
    ]
    if part.after is None:
        yield Whole(f"{shard.store}/tables", "files"), block_of(listed)
    for block in blocks:
        deletes = missing(block.values)
        yield shard.store, block.take(np.flatnonzero(~deletes))
        gone = block.take(np.flatnonzero(deletes))
        deleted = RowBlock(gone.keys, gone.values.fill_null(b""))
        yield Whole(f"{shard.store}/deleted", "uncounted"), deleted


def _added(content: bytes, table: ListedTable, version: Version) -> list[Writes]:
    """Return the new table's content; it must be the newest, and all facts about it true."""
    decoded = list(decode_sst_blocks(content))
    writes = [Writes(block, sequences) for block, sequences in decoded if len(block)]
    if not writes:
        raise FormatError("a table that its version names holds nothing")
    fact = version.facts[table.local]
    others = [other.last_sequence for other in version.facts.values() if other is not fact]
    before = max((number for number in others if number != SEQUENCE_MAX), default=0)
    sequences: set[int] = set()
    for _, own in decoded:
        sequences.update(map(int, np.unique(own)))
    says = (
        fact.level == 0,
        fact.size == table.size == len(content),
        fact.smallest.key == writes[0].block.keys[0].as_py(),
        fact.largest.key == writes[-1].block.keys[-1].as_py(),
        sequences == {fact.first_sequence} == {fact.last_sequence},
        before < fact.first_sequence == version.manifest.last_sequence,
        fact.number < version.manifest.next_file,
    )
    if not all(says):
        raise FormatError("a table is not what its version's MANIFEST says of it")
    return writes
