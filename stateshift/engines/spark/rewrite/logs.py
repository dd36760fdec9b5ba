"""The changes of the logs and the operators' metadata of an image whose state is changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from stateshift.engines.bundles import PIECES_MAX, bundle_items
from stateshift.engines.spark import layout
from stateshift.engines.spark.rewrite.merge import MERGE_COMMITS, MERGE_OFFSETS, Joining
from stateshift.engines.spark.rewrite.request import Request
from stateshift.plain import JsonObject
from stateshift.step import TransformShard
from stateshift.survey import FileInfo, ShardFiles

REWRITE_OFFSETS = "spark.rewrite-offsets"
REWRITE_COMMIT = "spark.rewrite-commit"
KEEP = "spark.keep"
REWRITE_SCHEMA = "spark.rewrite-schema"
REWRITE_FIRST_OFFSET = "spark.rewrite-first-offset"


@dataclass(frozen=True, slots=True)
class LogChange:
    """The transform that makes a file below the target, of this file or of `inputs`."""

    transform: str
    options: JsonObject
    path: str
    source: str | None = None
    inputs: tuple[FileInfo, ...] = ()


def logs_of(request: Request, shards: tuple[ShardFiles, ...]) -> Iterator[tuple[str, LogChange]]:
    """Yield the changes of offsets and commits, by path. `shards` is the target's state."""
    for path in request.image.first_read:
        change = _log_change(request, path, shards)
        if change is not None:
            yield path, change


def _log_change(request: Request, path: str, shards: tuple[ShardFiles, ...]) -> LogChange | None:
    inside = request.inside(path)
    if request.joining is not None:
        if inside == layout.METADATA:
            return None
        return _joined(request, request.joining, inside, shards)
    folder, _, name = inside.rpartition("/")
    new = path
    if folder in ("offsets", "commits"):
        number = int(name) + request.version_after - request.version
        new = layout.under(request.image.path, f"{folder}/{number}")
    sources, dropped = request.change.sources, request.change.dropped_sources
    positions = request.job_move.positions_in(int(name)) if folder == "offsets" else {}
    if folder == "offsets" and any((request.conf, sources, dropped, positions)):
        options: dict[str, object] = {
            "conf": request.conf,
            "sources": dict(sources),
            "dropped": list(dropped),
        }
        if positions:
            options["positions"] = positions
        return LogChange(REWRITE_OFFSETS, options, new)
    if inside.startswith("commits/") and request.changes_ids:
        ids = _ids(request, shards) if request.uuids else None
        return LogChange(REWRITE_COMMIT, {"state_ids": ids}, new)
    return LogChange(KEEP, {}, new) if new != path else None


def operators_of(request: Request) -> Iterator[tuple[str, JsonObject]]:
    """Yield the operator metadata that changes, with what changes in each."""
    change = request.change
    for path in request.image.needed:
        place = request.place(path)
        changes: dict[str, object] = {}
        if place.area == "delta-schema-log" and change.sources:
            changes["folders"] = _folders(request, "sources", change.sources)
        if place.area == "state-metadata" and change.partitions:
            changes["partitions"] = change.partitions
        new = change.operators.get(place.operator or "")
        if place.area == "state-metadata" and new is not None:
            changes["operator"] = int(new)
            changes["folders"] = _folders(request, "state", change.operators)
        if changes:
            yield path, changes


def _folders(request: Request, area: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return renamed folders of operators or sources, as the files of an image name them."""
    above = layout.under(request.image.path, area)
    return {f"{above}/{old}": f"{above}/{new}" for old, new in names.items()}


def paths_of(request: Request) -> dict[str, str | None]:
    """Return the files that get another path; None as the path of those left behind."""
    moved: dict[str, str | None] = {}
    for path in request.image.needed:
        new = request.path(path)
        if new != path:
            moved[path] = new
    for embedded in request.image.embedded:  # Delta's schema logs among it
        folder, _, source = embedded.path.rpartition("/")
        is_dropped = folder.endswith("/sources") and source in request.change.dropped_sources
        if is_dropped and request.place(embedded.file).area == "delta-schema-log":
            moved[embedded.file] = None
    return moved


def schemas_of(request: Request) -> Iterator[TransformShard]:
    """Yield a step for each schema file of stores whose rows become others: they are few."""
    for path in request.image.needed:
        place = request.place(path)
        new = request.path(path)
        if place.area != "state-schema" or new is None:
            continue
        changed = {}  # by column family; a store's own under ""
        store = f"{place.operator}/{place.store}"
        for name, evolution in request.evolved.items():
            if name == store or name.startswith(f"{store}/"):
                family = name[len(store) + 1 :]
                changed[family] = {"key": evolution.new_key, "value": evolution.new_value}
        if changed:
            yield TransformShard(
                name=f"transform/schema-{request.number}-{new}",
                transform=REWRITE_SCHEMA,
                options={"stores": changed},
                source=request.above,
                inputs=(request.info(path),),
                target=request.target,
                outputs=(new,),
            )


def first_offsets_of(request: Request) -> Iterator[TransformShard]:
    """Yield the steps that write the first offset of repositioned sources of Kafka and Iceberg (in
    `sources/<i>/offsets`). Spark reads it only where it has no other; `inspect` and the user then
    see one topic, or table, everywhere.
    """
    positions = request.job_move.positions_in(request.image.epoch or 0)
    places = product(positions.items(), ("0", "offsets/0"))
    for (source, offset), name in places:
        path = layout.under(request.image.path, f"sources/{source}/{name}")
        new = request.path(path)
        if path in request.image.needed and new is not None:
            yield TransformShard(
                name=f"transform/first-offset-{request.number}-{source}",
                transform=REWRITE_FIRST_OFFSET,
                options={"offset": offset},
                source=request.above,
                inputs=(request.info(path),),
                target=request.target,
                outputs=(new,),
            )


def keep_files(
    name: str, files: Iterable[FileInfo], paths: Mapping[str, str], ends: tuple[str, str]
) -> Iterator[TransformShard]:
    """Yield the steps that write files as they are, from one location to paths at another."""
    source, target = ends
    for number, bundle in enumerate(bundle_items(files, PIECES_MAX)):
        yield TransformShard(
            name=f"transform/{name}-{number}",
            transform=KEEP,
            options={},
            source=source,
            inputs=tuple(bundle),
            target=target,
            outputs=tuple(paths[file.path] for file in bundle),
        )


def _joined(
    request: Request, joining: Joining, inside: str, shards: tuple[ShardFiles, ...]
) -> LogChange:
    if inside.startswith("commits/"):
        ids = _ids(request, shards) if request.uuids else None
        options = {"state_ids": ids, "format_2": request.changes_ids}
        inputs = tuple(map(request.info, joining.last_logs(layout.commit_path)))
        return LogChange(MERGE_COMMITS, options, inside, request.above, inputs)
    batch = int(inside.rpartition("/")[2])
    back = (request.image.epoch or 0) - batch
    inputs = tuple(map(request.info, joining.last_logs(layout.offset_path, back)))
    return LogChange(MERGE_OFFSETS, {"conf": request.conf}, inside, request.above, inputs)


def _ids(request: Request, shards: tuple[ShardFiles, ...]) -> dict[str, list[list[str]]]:
    """Return the id of the right file of the version, by operator, shard and store."""
    by_operator: dict[str, dict[int, list[str]]] = {}
    for shard in sorted(shards, key=lambda shard: (shard.operator, shard.shard, shard.store)):
        operator = request.change.operators.get(shard.operator, shard.operator)
        by_shard = by_operator.setdefault(operator, {})
        own = [path for path in shard.files if path.endswith((".zip", ".changelog"))]
        uuid = request.place(own[-1]).uuid if own else None
        by_shard.setdefault(shard.shard, []).append(uuid or "")
    ids = {}
    for operator, by_shard in by_operator.items():
        ids[operator] = [by_shard[number] for number in sorted(by_shard)]
    return ids
