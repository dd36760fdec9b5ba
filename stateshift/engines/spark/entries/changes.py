"""The changes of single batches to the state: the puts, merges and deletes in their deltas or
changelogs. Reads only.

    changes of batch b  =  per operator, shard and store the change file of version b + 1

A RocksDB store without changelog checkpointing keeps none, and Spark tidies old ones away: a file
that is missing is named, for a feed with holes would be taken for one without. Under checkpoint
format 2 the commit says which of several files of a version is the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import listed_stores, place_of
from stateshift.engines.spark.entries.row_checksums import (
    checked_chunks,
    without_delete_checksum,
    without_value_checksums,
)
from stateshift.engines.spark.small_files import SMALL, errors_at
from stateshift.errors import FormatError, PlanError
from stateshift.formats.spark import commits, rocksdb
from stateshift.formats.spark.offset_conf import delimiter, has_row_checksums
from stateshift.formats.spark.state_files import (
    Record,
    decode_changelog,
    decode_delta,
    without_row_checksum,
)
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, ShardFiles, Survey

Uuids = Mapping[str, tuple[tuple[str, ...], ...]]
ChangeKind = Literal["put", "merge", "delete"]


class StoreChange(NamedTuple):
    """One change. `value` is None where the key was deleted."""

    kind: ChangeKind
    store: str
    key: bytes
    value: bytes | None


class Changes:
    """The change files of one image, looked up once."""

    def __init__(self, storage: Storage, survey: Survey, image: Image) -> None:
        self._storage, self._image = storage, image
        self._chunks = checked_chunks(storage, survey)
        self._is_checked = has_row_checksums(image.settings)
        self._between = delimiter(image.settings)
        self._ids: dict[int, Uuids] = {}
        self._stores = listed_stores(survey, image)

    def of(self, shard: ShardFiles, batch: int) -> Iterator[StoreChange]:
        """Yield the changes of the batch to the shard's store, in the order of their writes."""
        path = self._path(shard, batch)
        with errors_at(path):
            families, records = self._records(path, shard, batch + 1)
            for key, value, merge in records:
                kind: ChangeKind = "merge" if merge else "put"
                store, own_key = _family(families, shard.store, key)
                yield StoreChange("delete" if value is None else kind, store, own_key, value)

    def _path(self, shard: ShardFiles, batch: int) -> str:
        store, files = self._stores.get(place_of(shard)), {}
        for (version, uuid), path in store.changes.items() if store else ():
            if version == batch + 1:
                files[uuid] = path
        own = "" if "" in files or not files else self._uuid(shard, batch)
        if own not in files:
            raise PlanError(
                f"the changes of batch {batch} in shard {shard.shard} of operator "
                f"{shard.operator} are not there: "
                "tidied away, or never written (RocksDB without changelog checkpointing)",
                hint="narrow --changes to batches whose delta or changelog is still there, or "
                "export the state itself",
            )
        return files[own]

    def _uuid(self, shard: ShardFiles, batch: int) -> str | None:
        """Return the id of the file of a version that counts, as the batch's commit says."""
        operators = {operator.id: operator for operator in self._image.operators}
        names = [store.name for store in operators[shard.operator].stores]
        try:
            if batch not in self._ids:
                path = layout.under(self._image.path, layout.commit_path(batch))
                self._ids[batch] = commits.decode_commit(self._storage.read(path, SMALL)).state_ids
            ids = self._ids[batch]
            return ids[shard.operator][shard.shard][names.index(shard.store)]
        except (KeyError, IndexError):
            return None

    def _records(
        self, path: str, shard: ShardFiles, version: int
    ) -> tuple[Mapping[int, str], Iterator[Record]]:
        """Return the column families of a file's keys, and its records without checksums."""
        if path.endswith(".delta"):
            records = decode_delta(self._chunks(path))
            return {}, map(without_row_checksum, records) if self._is_checked else records
        header, records = decode_changelog(self._chunks(path))
        families = self._families(shard, version) if header.column_families else {}
        if header.column_families and not families:
            raise FormatError("a changelog has column families, and no snapshot names them")
        if self._is_checked:
            records = map(self._unchecked, records)
        return families, records

    def _unchecked(self, record: Record) -> Record:
        """Return a changelog's record without the checksums of `rowChecksum.enabled`."""
        key, value, merge = record
        if value is None:
            return Record(without_delete_checksum(key), None)
        return Record(key, without_value_checksums(key, value, self._between), merge)

    def _families(self, shard: ShardFiles, version: int) -> dict[int, str]:
        """Return the column families as the newest snapshot up to the version names them."""
        zips = {}
        store = self._stores.get(place_of(shard))
        for (number, _), path in store.snapshots.items() if store else ():
            if number <= version:
                zips[number] = path
        if not zips:
            return {}
        snapshot = rocksdb.decode_zip(self._storage.read(zips[max(zips)], SMALL))
        return {number: f"{shard.store}/{name}" for name, number in snapshot.families.items()}


def _family(families: Mapping[int, str], store: str, key: bytes) -> tuple[str, bytes]:
    """Return the name of a key's column family, and the key without its id."""
    if not families:
        return store, key
    name = families.get(int.from_bytes(key[:2], "little")) if len(key) >= 2 else None
    if name is None:
        raise FormatError(f"a key of the column family {key[:2].hex()}, which has no name")
    return name, key[2:]
