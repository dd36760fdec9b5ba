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

from stateshift.formats.spark.names import CheckpointPath
from stateshift.formats.spark.offsets import PARTITIONS

# More partitions than any job has: what a damaged number must not make us count to.
PARTITIONS_MAX = 100_000

# So many files that are missing from a chain are named.
GAPS_MAX = 10

# (path of the zip) -> the paths of the SST files it needs
Ssts = Callable[[str], tuple[str, ...]]

# (path of the changelog) -> its lineage as (version, uuid), oldest first
Lineage = Callable[[str], tuple[tuple[int, str], ...]]


@dataclass(slots=True)
class StoreFiles:
    """The files of one store of one shard, by version; the keys hold a uuid under checkpoint
    format 2, else ''.
    """

    operator: str
    shard: int
    store: str
    folder: str
    snapshots: dict[tuple[int, str], str] = field(default_factory=dict)
    changes: dict[tuple[int, str], str] = field(default_factory=dict)
    ssts: dict[str, str] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0

    @property
    def uses_uuids(self) -> bool:
        return any(uuid for _, uuid in self.snapshots) or any(uuid for _, uuid in self.changes)

    def add(self, path: str, place: CheckpointPath) -> None:
        """A file of this store."""
        version = (place.version or 0, place.uuid or "")
        if place.kind in ("snapshot", "zip"):
            self.snapshots[version] = path
        elif place.kind in ("delta", "changelog"):
            self.changes[version] = path
        elif place.kind == "sst":
            self.ssts[path.rpartition("/")[2]] = path

    def at(self, version: int) -> bool:
        """Whether there is anything of that version."""
        return any(v == version for v, _ in (*self.snapshots, *self.changes))

    def loadable(self) -> set[int]:
        """The versions for which every snapshot and change file is there. Under format 2 this says
        that files of those versions exist; that they belong together, only `chain` can tell.
        """
        snapshots, changes = {v for v, _ in self.snapshots}, {v for v, _ in self.changes}
        found = {0}
        for version in sorted(snapshots | changes):
            if version in snapshots or (version in changes and version - 1 in found):
                found.add(version)
        return found


@dataclass(frozen=True, slots=True)
class Chain:
    """The files to fold, in order, and the ones that are missing from among them."""

    files: tuple[str, ...]
    missing: tuple[str, ...] = ()


def chain(store: StoreFiles, version: int, ssts: Ssts, lineage: Lineage, uuid: str = "") -> Chain:
    """The files of `version`; `uuid` is the commit's word for it under checkpoint format 2."""
    if version == 0:
        return Chain(())
    wanted = _lineage(store, version, uuid, lineage) if uuid else _plain(store, version)
    files: list[str] = []
    missing: list[str] = []
    for key in wanted:
        if key in store.snapshots and key == wanted[0]:
            files += _with_ssts(store.snapshots[key], ssts)
        elif key in store.changes:
            files.append(store.changes[key])
        else:
            missing.append(_name(store, key))
    there = set(store.ssts.values())
    paths = []
    for path in files:
        if "/SSTs/" in f"/{path}" and path not in there:
            paths.append(path)
    missing += paths
    return Chain(tuple(path for path in files if path not in missing), tuple(missing))


def _plain(store: StoreFiles, version: int) -> list[tuple[int, str]]:
    """From the newest snapshot on, from version 1 where there is none; after GAPS_MAX that are
    missing no more of them are named: a version is a number in a file's name, and can be any.
    """
    base = max((v for v, _ in store.snapshots if v <= version), default=0)
    wanted: list[tuple[int, str]] = []
    gaps = 0
    for v in range(max(base, 1), version + 1):
        wanted.append((v, ""))
        gaps += v != base and (v, "") not in store.changes
        if gaps == GAPS_MAX:
            break
    return wanted


def _lineage(store: StoreFiles, version: int, uuid: str, lineage: Lineage) -> list[tuple[int, str]]:
    """What the commit's own file says came before it, cut at the newest snapshot."""
    own = (version, uuid)
    if own in store.snapshots or own not in store.changes:
        return [own]
    line = [*lineage(store.changes[own]), own]
    snapshots = [at for at, key in enumerate(line) if key in store.snapshots]
    return line[snapshots[-1] :] if snapshots else line


def _with_ssts(path: str, ssts: Ssts) -> list[str]:
    return [path, *ssts(path)] if path.endswith(".zip") else [path]


def _name(store: StoreFiles, key: tuple[int, str]) -> str:
    """How a missing file would be called."""
    version, uuid = key
    paths = (*store.snapshots.values(), *store.changes.values())
    rocksdb = any(path.endswith((".zip", ".changelog")) for path in paths)
    ending = ("changelog" if store.changes else "zip") if rocksdb else "delta"
    return f"{store.folder}/{version}{'_' + uuid if uuid else ''}.{ending}"


def expected_shards(settings: Mapping[str, str], found: set[int], single: bool) -> set[int]:
    """Which shards an operator must have. The offset log's partition count pins it; an operator
    without a key lives in shard 0 alone, whatever its metadata says.
    """
    if single:
        return {0}
    count = partitions_of(settings)
    return found if count is None else set(range(count))


def partitions_of(settings: Mapping[str, str]) -> int | None:
    """The partition count of the offset log's conf; None where there is none that a job can
    have.
    """
    text = settings.get(PARTITIONS, "")
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return count if 0 < count <= PARTITIONS_MAX else None
