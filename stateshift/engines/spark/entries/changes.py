"""What single batches did to the state: the puts, merges and deletes in their deltas or changelogs.
Reads only.

    changes of batch b  =  per operator, shard and store the change file of version b + 1

A RocksDB store without changelog checkpointing keeps none, and Spark tidies old ones away: a file
that is missing is named, for a feed with holes would be taken for one without. Under checkpoint
format 2 the commit says which of several files of a version is the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from stateshift.engines.spark import layout
from stateshift.engines.spark.entries.checksummed import checked_chunks
from stateshift.engines.spark.entries.row_checksums import (
    without_delete_checksum,
    without_value_checksums,
)
from stateshift.engines.spark.entries.settings import ROW_CHECKSUM, delimiter
from stateshift.engines.spark.small_files import SMALL
from stateshift.errors import FormatError, PlanError
from stateshift.formats.spark import commits, rocksdb
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.formats.spark.state_files import (
    Record,
    decode_changelog,
    decode_delta,
    without_row_checksum,
)
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, ShardFiles, Survey

Uuids = Mapping[str, tuple[tuple[str, ...], ...]]


class Change(NamedTuple):
    """One change. `value` is None where the key was deleted."""

    batch: int
    change: Literal["put", "merge", "delete"]
    operator: str
    store: str
    shard: int
    key: bytes
    value: bytes | None


class Changes:
    """The change files of one image, found once."""

    def __init__(self, storage: Storage, survey: Survey, image: Image) -> None:
        self._storage, self._image = storage, image
        self._chunks = checked_chunks(storage, survey)
        self._ids: dict[int, Uuids] = {}
        self._changes: dict[tuple[str, int, str, int], dict[str, str]] = {}
        self._zips: dict[tuple[str, int, str], dict[int, str]] = {}
        start = len(image.path) + 1 if image.path else 0
        for path, *_ in survey.files:
            place = classify(path[start:]) if path.startswith(image.path) else None
            if place is not None and place.area == "state" and place.version is not None:
                self._add(path, place, place.version)

    def of(self, shard: ShardFiles, batch: int) -> Iterator[Change]:
        """What the batch did to the shard's store, in the order it was written down."""
        path = self._path(shard, batch)
        try:
            yield from self._read(path, shard, batch)
        except FormatError as error:
            raise error.at(path) from error

    def _add(self, path: str, place: CheckpointPath, version: int) -> None:
        key = (place.operator or "", place.partition or 0, place.store or "")
        if place.kind in ("delta", "changelog"):
            self._changes.setdefault((*key, version), {})[place.uuid or ""] = path
        elif place.kind == "zip":
            self._zips.setdefault(key, {})[version] = path

    def _path(self, shard: ShardFiles, batch: int) -> str:
        files = self._changes.get((shard.operator, shard.shard, shard.store, batch + 1), {})
        uuid = "" if "" in files or not files else self._uuid(shard, batch)
        if uuid not in files:
            raise PlanError(
                f"the changes of batch {batch} in shard {shard.shard} of operator "
                f"{shard.operator} are not there: "
                "tidied away, or never written (RocksDB without changelog checkpointing)",
                hint=(
                    "narrow --changes to batches whose delta or changelog is still there, or "
                    "export the state itself"
                ),
            )
        return files[uuid]

    def _uuid(self, shard: ShardFiles, batch: int) -> str | None:
        if batch not in self._ids:
            path = layout.under(self._image.path, layout.commit_path(batch))
            self._ids[batch] = commits.decode_commit(self._storage.read(path, SMALL)).state_ids
        names = next(o.stores for o in self._image.operators if o.id == shard.operator)
        number = [store.name for store in names].index(shard.store)
        try:
            return self._ids[batch][shard.operator][shard.shard][number]
        except (KeyError, IndexError):
            return None

    def _read(self, path: str, shard: ShardFiles, batch: int) -> Iterator[Change]:
        checked, between = (
            self._image.settings.get(ROW_CHECKSUM) == "true",
            delimiter(self._image.settings),
        )
        families: dict[int, str] = {}
        if path.endswith(".delta"):
            records = decode_delta(self._chunks(path))
            bare = (without_row_checksum(record) if checked else record for record in records)
        else:
            header, records = decode_changelog(self._chunks(path))
            bare = (_unchecked(record, between) if checked else record for record in records)
            families = self._families(shard, batch + 1) if header.column_families else {}
            if header.column_families and not families:
                raise FormatError("a changelog has column families, and no snapshot names them")
        for key, value, merge in bare:
            change: Any = "delete" if value is None else "merge" if merge else "put"
            store, rest = _family(families, shard.store, key)
            yield Change(batch, change, shard.operator, store, shard.shard, rest, value)

    def _families(self, shard: ShardFiles, version: int) -> dict[int, str]:
        """The column families as the newest snapshot up to the version names them."""
        zips = self._zips.get((shard.operator, shard.shard, shard.store), {})
        fitting = [number for number in zips if number <= version]
        if not fitting:
            return {}
        snapshot = rocksdb.decode_zip(self._storage.read(zips[max(fitting)], SMALL))
        return {number: f"{shard.store}/{name}" for name, number in snapshot.families.items()}


def _unchecked(record: Record, between: bytes) -> Record:
    """A changelog's record without the checksums of `rowChecksum.enabled`."""
    key, value, merge = record
    if value is None:
        return Record(without_delete_checksum(key), None)
    return Record(key, without_value_checksums(key, value, between), merge)


def _family(families: Mapping[int, str], store: str, key: bytes) -> tuple[str, bytes]:
    if not families:
        return store, key
    name = families.get(int.from_bytes(key[:2], "little")) if len(key) >= 2 else None
    if name is None:
        raise FormatError(f"a key of the column family {key[:2].hex()}, which has no name")
    return name, key[2:]
