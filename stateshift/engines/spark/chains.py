"""Which files a shard's state at a version is folded from, and which versions can be loaded at all.
Pure.

    version v  =  the newest snapshot s <= v, then every change file s+1 … v  (v = 0: empty, no
    file)

The same rule serves both providers: `N.snapshot` and `N.delta`, `N.zip` and `N.changelog`. A zip
leans on SST files that its own metadata names. Under checkpoint format 2 a file's name carries a
uuid; which one belongs to a commit is said by the commit, and which ones came before by the lineage
at the head of a changelog (RocksDBFileManager, StateStoreChangelog; Spark 4.0 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stateshift.engines.spark.layout import under
from stateshift.formats.spark.names import DEFAULT_STORE, CheckpointPath, classify
from stateshift.formats.spark.offset_conf import is_integer
from stateshift.formats.spark.offsets import PARTITIONS
from stateshift.survey import Image, ShardFiles, Survey

# More partitions than any job has: what a damaged number must not make us count to.
PARTITIONS_MAX = 100_000

# The number of files missing from a chain that are named.
GAPS_MAX = 10

# An operator's id, the number of a shard, and the name of a store.
StoreKey = tuple[str, int, str]

# A version and a uuid, which is empty but for checkpoint format 2.
VersionKey = tuple[int, str]

# (path of the zip) -> the paths of the SST files it needs
Ssts = Callable[[str], tuple[str, ...]]

# (path of the changelog) -> its lineage as (version, uuid), oldest first
Lineage = Callable[[str], tuple[VersionKey, ...]]


@dataclass(slots=True)
class StoreFiles:
    """The files of one store of one shard, by version."""

    operator: str
    shard: int
    store: str
    folder: str
    snapshots: dict[VersionKey, str] = field(default_factory=dict)
    changes: dict[VersionKey, str] = field(default_factory=dict)
    ssts: dict[str, str] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0

    @property
    def uses_uuids(self) -> bool:
        versions = (*self.snapshots, *self.changes)
        return any(uuid for _, uuid in versions)

    def add(self, path: str, place: CheckpointPath) -> None:
        version = (place.version or 0, place.uuid or "")
        if place.kind in ("snapshot", "zip"):
            self.snapshots[version] = path
        elif place.kind in ("delta", "changelog"):
            self.changes[version] = path
        elif place.kind == "sst":
            self.ssts[path.rpartition("/")[2]] = path

    def at(self, version: int) -> bool:
        versions = (*self.snapshots, *self.changes)
        return any(number == version for number, _ in versions)

    def loadable(self) -> set[int]:
        """Return the versions whose files are all there; under format 2 only `chain` can tell."""
        snapshots = {version for version, _ in self.snapshots}
        changes = {version for version, _ in self.changes}
        loadable = {0}
        for version in sorted(snapshots | changes):
            continues = version in changes and version - 1 in loadable
            if continues or version in snapshots:
                loadable.add(version)
        return loadable


def place_of(shard: ShardFiles) -> StoreKey:
    """Return the name of the shard's store, unlike all others of its image."""
    return shard.operator, shard.shard, shard.store


def store_key(place: CheckpointPath) -> StoreKey:
    """Return the store that a file of state belongs to."""
    return place.operator or "", place.partition or 0, place.store or DEFAULT_STORE


def listed_stores(survey: Survey, image: Image) -> Mapping[StoreKey, StoreFiles]:
    """Return the image's state files by store, with the paths of the listing."""
    start = under(image.path, "")
    stores: dict[StoreKey, StoreFiles] = {}
    for path, *_ in survey.files:
        if not path.startswith(start):
            continue
        place = classify(path.removeprefix(start))
        if place.area == "state":
            key, folder = store_key(place), path.rpartition("/")[0]
            stores.setdefault(key, StoreFiles(*key, folder)).add(path, place)
    return stores


@dataclass(frozen=True, slots=True)
class Chain:
    """The files to fold, in order, and the ones that are missing from among them."""

    files: tuple[str, ...]
    missing: tuple[str, ...] = ()


def chain(store: StoreFiles, version: int, ssts: Ssts, lineage: Lineage, uuid: str = "") -> Chain:
    """Return the files of `version`; under checkpoint format 2, the commit says its `uuid`."""
    if version == 0:
        return Chain(())
    keys = _keys_by_lineage(store, version, uuid, lineage) if uuid else _keys(store, version)
    files: list[str] = []
    missing: list[str] = []
    for key in keys:
        is_base = key == keys[0] and key in store.snapshots
        if is_base:
            path = store.snapshots[key]
            files += [path, *ssts(path)] if path.endswith(".zip") else [path]
        elif key in store.changes:
            files.append(store.changes[key])
        else:
            number, own_uuid = key
            stem = f"{number}_{own_uuid}" if own_uuid else f"{number}"
            missing.append(f"{store.folder}/{stem}.{_ending(store)}")
    is_a_change = keys[0] in store.changes and keys[0] not in store.snapshots
    if uuid and is_a_change and keys[0][0] > 1:
        # RocksDB.loadWithCheckpointId: CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT otherwise.
        number, own_uuid = keys[0]
        missing.append(f"{store.folder}/{number}_{own_uuid}.zip")
    listed = set(store.ssts.values())
    for path in files:
        if "/SSTs/" in f"/{path}" and path not in listed:
            missing.append(path)
    return Chain(tuple(path for path in files if path not in missing), tuple(missing))


def _keys(store: StoreFiles, version: int) -> list[VersionKey]:
    """Return the versions to fold: from the newest snapshot on, from 1 where there is none. After
    GAPS_MAX that are missing no more of them are named: a version is a number in a file's name, and
    can be any.
    """
    snapshots = [number for number, _ in store.snapshots if number <= version]
    base = max(snapshots, default=0)
    keys: list[VersionKey] = []
    gaps = 0
    for number in range(max(base, 1), version + 1):
        key = (number, "")
        keys.append(key)
        if number != base and key not in store.changes:
            gaps += 1
        if gaps == GAPS_MAX:
            break
    return keys


def _keys_by_lineage(
    store: StoreFiles, version: int, uuid: str, lineage: Lineage
) -> list[VersionKey]:
    """Return the lineage in the commit's own file, cut at the newest snapshot."""
    own = (version, uuid)
    if own in store.snapshots or own not in store.changes:
        return [own]
    line = [*lineage(store.changes[own]), own]
    snapshots = [position for position, key in enumerate(line) if key in store.snapshots]
    return line[snapshots[-1] :] if snapshots else line


def _ending(store: StoreFiles) -> str:
    """Return the ending of the store's changes, or of its snapshots where there are none."""
    paths = (*store.snapshots.values(), *store.changes.values())
    is_rocksdb = any(path.endswith((".zip", ".changelog")) for path in paths)
    if not is_rocksdb:
        return "delta"
    return "changelog" if store.changes else "zip"


def expected_shards(settings: Mapping[str, str], listed: set[int], single: bool) -> set[int]:
    """Return the shards an operator must have, by the offset log's count, or as `listed`."""
    if single:
        return {0}
    count = partitions_of(settings)
    return listed if count is None else set(range(count))


def partitions_of(settings: Mapping[str, str]) -> int | None:
    """Return the partition count of the offset log's conf; None where no job can have it."""
    text = settings.get(PARTITIONS, "").strip()
    count = int(text) if is_integer(text) else 0
    return count if 0 < count <= PARTITIONS_MAX else None
