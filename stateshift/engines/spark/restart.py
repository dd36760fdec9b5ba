"""What a restart of one query needs, and from which batches it would work.

The consistent cut: batch N is the highest one committed, its state has version N + 1. Needed are offsets N and N - 1,
commit N, the query's id, the sources' logs, and per operator, shard and store the chain of files of that version.
What is newer is left behind; a batch that was planned and not committed is told apart (`planned`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import StoreFiles, chain, expected_shards, partitions_of
from stateshift.engines.spark.endpoints import Endpoints, endpoints_of, written_by
from stateshift.engines.spark.reading import Reading
from stateshift.engines.spark.schemas import schemas_of
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.marks import fence_owner
from stateshift.formats.spark import commits as commit_format
from stateshift.formats.spark import metadata as metadata_format
from stateshift.formats.spark import offsets as offset_format
from stateshift.formats.spark import operator_metadata, rocksdb, schema, state_files
from stateshift.formats.spark.names import DEFAULT_STORE, CheckpointPath, classify
from stateshift.formats.spark.types import Atomic, decode_struct
from stateshift.formats.spark.uris import canonical
from stateshift.survey import EmbeddedPath, FileInfo, Image, Operator, ShardFiles, Store

# Operator -> shard -> the uuid of each store's file, in the order of the operator's stores.
Uuids = Mapping[str, tuple[tuple[str, ...], ...]]

# So many shards that are missing from an operator are told one by one.
MISSING_MAX = 20

PROVIDERS = {
    "HDFSBackedStateStoreProvider": "hdfs-backed",
    "RocksDBStateStoreProvider": "rocksdb",
}


@dataclass(slots=True)
class Found:
    """The files of one query, sorted by what they are; paths are relative to the image."""

    metadata: bool = False
    offsets: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)
    stores: dict[tuple[str, int, str], StoreFiles] = field(default_factory=dict)
    operator_files: dict[str, list[str]] = field(default_factory=dict)
    spark_crcs: set[str] = field(default_factory=set)


def surveyed_image(
    reading: Reading, files: tuple[FileInfo, ...], thorough: bool, changes: Sequence[Mapping[str, Any]] = ()
) -> Image:
    """One query's checkpoint, from its listing and its small files; what `changes` need to know besides. Where they
    rewind it, everything after that batch does not count."""
    found = _sorted(files, len(reading.prefix) + 1 if reading.prefix else 0)
    fence = _without_fence(reading, found)
    newest = (max(found.commits, default=None), max(found.offsets, default=None))
    rewound = _rewind(reading, found, changes)
    epoch, planned = max(found.commits, default=None), max(found.offsets, default=None)
    query = reading.decoded(layout.METADATA, metadata_format.decode_metadata) if found.metadata else None
    if not found.metadata and (found.offsets or found.commits):
        reading.refuse(f"{reading.path(layout.METADATA)} is missing: Spark 4.2 and later refuse to start, earlier ones "
                       "take it for another query", layout.METADATA)  # fmt: skip
    _warn_of_holes(reading, found)
    settings, lines = _offsets(reading, found, epoch, planned)
    unique = _commit(reading, epoch)
    operators = _operators(reading, found, settings)
    _refuse_foreign_state(reading, operators, settings, planned if epoch is None else epoch)
    shards = _shards(reading, found, operators, settings, unique, epoch)
    ends = endpoints_of(reading, found.sources, lines)
    return Image(
        path=reading.prefix,
        name=None,
        identity=None if query is None else query.id,
        epoch=epoch,
        epochs=_restartable(reading, found, operators, settings, ends, epoch, thorough),
        planned=planned,
        operators=operators,
        shards=shards,
        needed=_needed(reading, found, shards, epoch, planned),
        first_read=() if epoch is None else tuple(
            reading.path(p) for p in layout.first_read(epoch, planned if planned == epoch + 1 else None)
        ),
        embedded=(*ends.embedded, *_own_places(reading, found, epoch)),
        endpoints=ends.endpoints,
        settings=settings,
        written_by=written_by(settings, bool(found.operator_files)),
        fence=fence,
        findings=tuple(reading.findings),
        details={
            "offsets": len(found.offsets),
            "commits": len(found.commits),
            **({"newest": newest} if rewound else {}),
            **({"schemas": _schemas(reading, found, operators, epoch, settings)} if changes else {}),
        },
    )  # fmt: skip


def _rewind(reading: Reading, found: Found, changes: Sequence[Mapping[str, Any]]) -> bool:
    """Leave out what came after the batch to go back to; whether there was one."""
    batch = next((change["batch"] for change in changes if change["kind"] == "rewind"), None)
    if batch is None:
        return False
    if batch not in found.commits:
        newest = f"; the newest is batch {max(found.commits)}" if found.commits else ""
        reading.refuse(f"batch {batch} is not committed in {reading.storage.location}{newest}: there is no going back "
                       "to it")  # fmt: skip
        return False
    found.commits = {b for b in found.commits if b <= batch}
    found.offsets = {b for b in found.offsets if b <= batch + 1}
    return True


def _schemas(
    reading: Reading,
    found: Found,
    operators: tuple[Operator, ...],
    epoch: int | None,
    settings: Mapping[str, str],
) -> Mapping[str, Mapping[str, Any]]:
    stores = {operator.id: tuple(store.name for store in operator.stores) for operator in operators}
    newest = {operator: _newest_metadata(found, operator, epoch) for operator in stores}
    applying = {operator: path for operator, path in newest.items() if path}
    return schemas_of(reading, stores, found.operator_files, applying, settings)


def _sorted(files: Iterable[FileInfo], skip: int) -> Found:
    """One pass over the listing."""
    found = Found()
    for info in files:
        path = info.path[skip:]
        if "/." in path or path.startswith("."):
            continue  # Hadoop's sidecars and leftovers of writers: half of a local checkpoint, no part of any restart
        place = classify(path)
        area = place.area
        if area == "state":
            _add_state(found, path, place, info.size)
        elif area == "offsets" and place.version is not None:
            found.offsets.add(place.version)
        elif area == "commits" and place.version is not None:
            found.commits.add(place.version)
        elif area == "sources":
            found.sources.append(path)
        elif area in ("state-metadata", "state-schema"):
            found.operator_files.setdefault(place.operator or "", []).append(path)
        elif place.kind == "checksum":
            found.spark_crcs.add(path)
        elif path == layout.METADATA:
            found.metadata = True
    return found


def _add_state(found: Found, path: str, place: CheckpointPath, size: int) -> None:
    key = (place.operator or "", place.partition or 0, place.store or DEFAULT_STORE)
    store = found.stores.get(key)
    if store is None:
        operator, shard, name = key
        store = found.stores[key] = StoreFiles(operator, shard, name, _folder(operator, shard, name))
    store.files += 1
    store.bytes += size
    version = (place.version or 0, place.uuid or "")
    if place.kind in ("snapshot", "zip"):
        store.snapshots[version] = path
    elif place.kind in ("delta", "changelog"):
        store.changes[version] = path
    elif place.kind == "sst":
        store.ssts[path.rsplit("/", 1)[-1]] = path


def _folder(operator: str, shard: int, store: str) -> str:
    return f"state/{operator}/{shard}" + ("" if store == DEFAULT_STORE else f"/{store}")


def _without_fence(reading: Reading, found: Found) -> str | None:
    """A fence of ours is neither a planned nor a committed batch: whose it is, and the logs without it."""
    owner = None
    for numbers, path_of in ((found.offsets, layout.offset_path), (found.commits, layout.commit_path)):
        newest = max(numbers, default=None)
        if newest is None:
            continue
        try:
            held = fence_owner(reading.content(path_of(newest)))
        except MissingFile:
            continue
        if held is not None:
            numbers.discard(newest)
            owner = held
    return owner


def _offsets(
    reading: Reading, found: Found, epoch: int | None, planned: int | None
) -> tuple[dict[str, str], tuple[offset_format.SourceOffset, ...]]:
    """Settings and source lines of the last committed batch; the one before it, and a planned one, must read too."""
    if epoch is None:
        epoch = planned
    if epoch is None:
        return {}, ()
    entry = reading.decoded(layout.offset_path(epoch), offset_format.decode_offsets)
    for batch in (epoch - 1, epoch + 1):
        if batch >= 0 and (batch < epoch or batch in found.offsets):
            reading.decoded(layout.offset_path(batch), offset_format.decode_offsets)
    if entry is not None and entry.watermark_ms > 0 and not found.stores:
        place = reading.path("") or reading.storage.location
        reading.warn(f"{place} holds no state, though its query has a watermark: it needs none, or all is missing")
    if entry is None:
        return {}, ()
    told = entry.conf.get(offset_format.PARTITIONS)
    if told is not None and partitions_of(entry.conf) is None:
        path = layout.offset_path(epoch)
        reading.refuse(f"{reading.path(path)} says that there are {told[:40]!r} partitions, which no job has", path)
    return dict(entry.conf), entry.offsets


def _warn_of_holes(reading: Reading, found: Found) -> None:
    """Old offsets may be tidied away from the front only. A hole that a restart does not read is left behind by a move;
    where the job stays, Spark may refuse to start (SPARK-38033)."""
    hole = next((b for b in sorted(found.offsets) if b + 1 not in found.offsets), None)
    if hole is not None and hole + 2 < max(found.offsets):
        path = layout.offset_path(hole + 1)
        reading.warn(f"{reading.path(path)} is missing from between others: Spark may refuse to start here", path)


def _commit(reading: Reading, epoch: int | None) -> Uuids:
    """The uuids of the stores that belong to the commit, under checkpoint format 2."""
    if epoch is None:
        return {}
    entry = reading.decoded(layout.commit_path(epoch), commit_format.decode_commit)
    return {} if entry is None else entry.state_ids


def _operators(reading: Reading, found: Found, settings: Mapping[str, str]) -> tuple[Operator, ...]:
    provider = settings.get("spark.sql.streaming.stateStore.providerClass", "").rsplit(".", 1)[-1]
    ids = sorted({key[0] for key in found.stores} | set(found.operator_files) - {""}, key=_number)
    operators = []
    for operator in ids:
        own = [store for key, store in found.stores.items() if key[0] == operator]
        shards = expected_shards(settings, {s.shard for s in own}, _is_single(reading, found, operator, own))
        names = sorted({store.store for store in own})
        stores = tuple(
            Store(n, sum(s.files for s in own if s.store == n), sum(s.bytes for s in own if s.store == n))
            for n in names
        )
        title = _title(reading, found, operator)
        operators.append(
            Operator(operator, title, None, PROVIDERS.get(provider, provider or None), len(shards), stores)
        )
    return tuple(operators)


def _refuse_foreign_state(
    reading: Reading, operators: tuple[Operator, ...], settings: Mapping[str, str], epoch: int | None
) -> None:
    """State that neither of Spark's own providers keeps: which files it consists of only its provider knows."""
    provider = settings.get("spark.sql.streaming.stateStore.providerClass", "")
    if not operators or epoch is None or provider.rsplit(".", 1)[-1] in (*PROVIDERS, ""):
        return
    path = layout.offset_path(epoch)
    fact = f"{reading.path(path)} says that {provider[:200]} keeps the state, whose files only that provider knows"
    reading.refuse(fact, path, hint="copy the stopped job's whole checkpoint by other means")


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if _is_number(text) else (1 << 30, text)


def _is_number(text: str) -> bool:
    """Whether a name is one: other digits than these, and more of them, `int` may not take."""
    return text.isascii() and text.isdigit() and len(text) <= 19


def _title(reading: Reading, found: Found, operator: str) -> str | None:
    """The operator's name as its metadata has it: Spark 4.0 and later."""
    path = _newest_metadata(found, operator, None)
    if path is None:
        return None
    # Spark 4.3 starts with a damaged v1, too; v2 says where the schemas are, and is needed.
    read = reading.hinted if layout.is_spare(path) else reading.decoded
    decoded = read(path, operator_metadata.decode_operator_metadata)
    return None if decoded is None else decoded.name


def _newest_metadata(found: Found, operator: str, epoch: int | None) -> str | None:
    """`_metadata/v2/<batch>` of the newest batch up to `epoch`, else `_metadata/metadata`."""
    files = found.operator_files.get(operator, [])
    versions = [path for path in files if "/_metadata/v2/" in path and _is_number(path.rsplit("/", 1)[-1])]
    fitting = [path for path in versions if epoch is None or int(path.rsplit("/", 1)[-1]) <= epoch]
    if fitting:
        return max(fitting, key=lambda path: int(path.rsplit("/", 1)[-1]))
    first = f"state/{operator}/_metadata/metadata"
    return first if first in files else None


def _is_single(reading: Reading, found: Found, operator: str, stores: list[StoreFiles]) -> bool:
    """A global limit, or an aggregation without a key: only shard 0 exists, whatever the partition count says. The
    key's schema has no fields, or the one void field that stands for none."""
    if {store.shard for store in stores} != {0}:
        return False
    path = f"state/{operator}/0/_metadata/schema"
    if path not in found.operator_files.get(operator, []):
        return False
    key = reading.decoded(path, lambda content: decode_struct(schema.decode_schema(content).stores[0].key))
    return key is not None and all(kind == Atomic("void") for kind in key.types)


def _shards(
    reading: Reading,
    found: Found,
    operators: tuple[Operator, ...],
    settings: Mapping[str, str],
    unique: Uuids,
    epoch: int | None,
) -> tuple[ShardFiles, ...]:
    """The chain of every store of every shard at the epoch; what is missing from one is refused by name."""
    if epoch is None:
        return ()
    shards = []
    for operator in operators:
        names = [store.name for store in operator.stores]
        missing: list[str] = []
        for shard in range(operator.shards):
            for number, name in enumerate(names):
                store = found.stores.get((operator.id, shard, name))
                if store is None:
                    missing.append(_folder(operator.id, shard, name))
                    continue
                uuid = _uuid(unique, operator.id, shard, number) if store.uses_uuids else ""
                files = chain(store, epoch + 1, lambda p: _ssts(reading, p), lambda p: _lineage(reading, p), uuid)
                for path in files.missing:
                    place = reading.path(path)
                    reading.refuse(f"{place} is missing: epoch {epoch} cannot be restored without it", path)
                shards.append(ShardFiles(operator.id, name, shard, tuple(reading.path(p) for p in files.files)))
        _refuse_missing(reading, operator, missing)
    return tuple(shards)


def _refuse_missing(reading: Reading, operator: Operator, folders: list[str]) -> None:
    """Shards without any file: the first few by name, for there may be as many as somebody wrote into a log."""
    for folder in folders[:MISSING_MAX]:
        reading.refuse(f"{reading.path(folder)} is missing: the operator has {operator.shards} shards", folder)
    if len(folders) > MISSING_MAX:
        more, folder = len(folders) - MISSING_MAX, f"state/{operator.id}"
        reading.refuse(f"{more} more shards are missing from {reading.path(folder)}, of {operator.shards}", folder)


def _uuid(unique: Uuids, operator: str, shard: int, store: int) -> str:
    """The commit's word for the store's file; "" where it has none, which `chain` reports as missing."""
    try:
        return unique[operator][shard][store]
    except (KeyError, IndexError):
        return ""


def _ssts(reading: Reading, path: str) -> tuple[str, ...]:
    """The SST files that a zip's metadata names."""
    decoded = reading.decoded(path, rocksdb.decode_zip)
    folder = path.rsplit("/", 1)[0]
    return () if decoded is None else tuple(f"{folder}/SSTs/{table.stored}" for table in decoded.tables)


def _lineage(reading: Reading, path: str) -> tuple[tuple[int, str], ...]:
    try:
        return state_files.decode_changelog(reading.chunks(path))[0].lineage
    except FormatError as error:
        reading.refuse(f"{reading.path(path)} is damaged: {error.fact}", path, error.offset or 0)
    except MissingFile:
        reading.vanished(path)
    return ()


def _restartable(
    reading: Reading,
    found: Found,
    operators: tuple[Operator, ...],
    settings: Mapping[str, str],
    ends: Endpoints,
    epoch: int | None,
    thorough: bool,
) -> tuple[int, ...]:
    """The committed batches from which a restart works: their offsets and the ones before are there, and every store
    can be loaded. `thorough` also looks into every zip they lean on."""
    if not found.metadata or any(f.level == "refuse" and f.path and "sources/" in f.path for f in reading.findings):
        return ()
    batches = {b for b in found.commits if b in found.offsets and (b == 0 or b - 1 in found.offsets)}
    broken = {f.path for f in reading.findings if f.level == "refuse"}
    batches = {b for b in batches if not broken & {reading.path(p) for p in layout.first_read(b)}}
    for operator in operators:
        for shard in range(operator.shards):
            for store in operator.stores:
                files = found.stores.get((operator.id, shard, store.name))
                loadable = files.loadable() if files else set()
                batches = {b for b in batches if b + 1 in loadable}
    if any(f.level == "refuse" and f.path and "state/" in f.path for f in reading.findings):
        batches.discard(epoch if epoch is not None else -1)
    if thorough:
        batches = {b for b in batches if b == epoch or _zips_whole(reading, found, b + 1)}
    return tuple(sorted(batches))


def _zips_whole(reading: Reading, found: Found, version: int) -> bool:
    """Whether every zip and SST of a version is there and reads; for plain chains only, uuids are the commit's word."""
    probe = Reading(reading.storage, reading.prefix)
    for store in found.stores.values():
        if store.ssts and not store.uses_uuids:
            files = chain(store, version, lambda p: _ssts(probe, p), lambda p: _lineage(probe, p))
            if files.missing or probe.findings:
                return False
    return True


def _needed(
    reading: Reading, found: Found, shards: tuple[ShardFiles, ...], epoch: int | None, planned: int | None
) -> tuple[str, ...]:
    """Every path a restart reads. Spark's own checksums stay with the bytes they describe; Hadoop's are not needed."""
    if epoch is None:
        return ()
    logs = set(layout.first_read(epoch, planned if planned == epoch + 1 else None))
    there = {layout.offset_path(b) for b in found.offsets} | {layout.commit_path(b) for b in found.commits}
    there |= {layout.METADATA} if found.metadata else set()
    paths = {reading.path(path) for path in (logs & there) | set(found.sources)}
    paths |= {reading.path(path) for path in _operator_files(found, epoch)}
    paths |= {path for shard in shards for path in shard.files}
    crcs = {reading.path(path) for path in found.spark_crcs}
    return tuple(sorted(paths | {f"{path}.crc" for path in paths if f"{path}.crc" in crcs}))


def _operator_files(found: Found, epoch: int) -> list[str]:
    """Metadata and schemas of the operators; of the versioned ones only those up to the epoch."""
    kept = []
    for files in found.operator_files.values():
        for path in files:
            head = path.rsplit("/", 1)[-1].split("_")[0]
            versioned = "/_metadata/v2/" in path or "/_stateSchema/" in path
            if not versioned or not _is_number(head) or int(head) <= epoch:
                kept.append(path)
    return kept


def _own_places(reading: Reading, found: Found, epoch: int | None) -> list[EmbeddedPath]:
    """The paths of schema files that operator metadata v2 names absolutely."""
    places = []
    for files in found.operator_files.values():
        for path in files:
            if "/_metadata/v2/" not in path:
                continue
            decoded = reading.decoded(path, operator_metadata.decode_operator_metadata)
            named = () if decoded is None else (p for store in decoded.stores for p in store.schema_paths)
            folders: dict[str, int] = {}
            for name in named:
                folder = canonical(name.rsplit("/", 1)[0])
                folders[folder] = folders.get(folder, 0) + 1
            places += [EmbeddedPath(reading.path(path), f, n, "self") for f, n in sorted(folders.items())]
    return places
