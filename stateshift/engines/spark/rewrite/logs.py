"""What becomes of the logs and the operators' metadata of an image whose state is changed. Pure.

logs_of          offsets and commits, by path           what else they say afterwards
operators_of     operators' metadata, by path           further options of their rewriting
paths_of         files that get another path, or none, because their operator or source does
schemas_of       schema files of stores whose rows become others
joined_logs      source logs of other checkpoints, under the numbers they have in the merged one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.engines.bundles import PIECES_MAX, bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.rewrite.merge import MERGE_COMMITS, MERGE_OFFSETS, Joining
from stateshift.engines.spark.rewrite.request import Asked
from stateshift.step import TransformShard
from stateshift.survey import FileInfo, ShardFiles

REWRITE_OFFSETS = "spark.rewrite-offsets"
REWRITE_COMMIT = "spark.rewrite-commit"
KEEP = "spark.keep"
REWRITE_SCHEMA = "spark.rewrite-schema"


@dataclass(frozen=True, slots=True)
class Change:
    """A file of the source that another one is made from: by which transform, and where to (below
    the target). Where more than that file is needed, `source` and `inputs` say it.
    """

    transform: str
    options: Mapping[str, Any]
    path: str
    source: str | None = None
    inputs: tuple[FileInfo, ...] = ()


def logs_of(asked: Asked, shards: tuple[ShardFiles, ...]) -> Iterator[tuple[str, Change]]:
    """`shards` is the state as it lies at the target."""
    for path in asked.image.first_read:
        inside = asked.inside(path)
        if asked.joining is not None:
            if inside != layout.METADATA:
                yield path, _joined(asked, asked.joining, inside, shards)
            continue
        new = asked.log_path(path)
        sources, dropped = asked.wishes.sources, asked.wishes.dropped_sources
        if inside.startswith("offsets/") and (asked.conf or sources or dropped):
            options = {"conf": asked.conf, "sources": dict(sources), "dropped": list(dropped)}
            yield path, Change(REWRITE_OFFSETS, options, new)
        elif inside.startswith("commits/") and asked.format_2:
            ids = _ids(asked, shards) if asked.uuids else None
            yield path, Change(REWRITE_COMMIT, {"state_ids": ids}, new)
        elif new != path:
            yield path, Change(KEEP, {}, new)


def operators_of(asked: Asked) -> Iterator[tuple[str, Mapping[str, Any]]]:
    folders = {f"state/{old}": f"state/{new}" for old, new in asked.wishes.operators.items()}
    under = {
        layout.under(asked.image.path, a): layout.under(asked.image.path, b)
        for a, b in folders.items()
    }
    for path in asked.image.needed:
        place = asked.place(path)
        if place.area == "delta-schema-log" and asked.wishes.sources:
            yield path, {"folders": _source_folders(asked)}
        if place.area != "state-metadata":
            continue
        new = asked.wishes.operators.get(place.operator or "")
        changes = {
            **({"partitions": asked.wishes.partitions} if asked.wishes.partitions else {}),
            **({"operator": int(new), "folders": under} if new is not None else {}),
        }
        if changes:
            yield path, changes


def _source_folders(asked: Asked) -> dict[str, str]:
    """The folders of sources that get another number or name, as Delta's schema logs name them."""
    renamed = {f"sources/{old}": f"sources/{new}" for old, new in asked.wishes.sources.items()}
    return {
        layout.under(asked.image.path, a): layout.under(asked.image.path, b)
        for a, b in renamed.items()
    }


def paths_of(asked: Asked) -> dict[str, str | None]:
    moved = {path: new for path in asked.image.needed if (new := asked.path(path)) != path}
    return moved | dict.fromkeys(_logs_of_dropped_sources(asked))


def _logs_of_dropped_sources(asked: Asked) -> Iterator[str]:
    """Delta's schema logs of sources that are left behind."""
    for embedded in asked.image.embedded:
        folder, _, source = embedded.path.rpartition("/")
        is_of_source = (
            folder.endswith("/sources") and asked.place(embedded.file).area == "delta-schema-log"
        )
        if is_of_source and source in asked.wishes.dropped_sources:
            yield embedded.file


def schemas_of(asked: Asked) -> Iterator[TransformShard]:
    """Each a step of its own: they are few."""
    for path in asked.image.needed:
        place = asked.place(path)
        new = asked.path(path)
        if place.area != "state-schema" or new is None:
            continue
        start = f"{place.operator}/{place.store}"
        changed = {}
        for name, one in asked.evolved.items():
            if name == start or name.startswith(f"{start}/"):
                changed[name[len(start) + 1 :]] = {"key": one.new_key, "value": one.new_value}
        if changed:
            yield TransformShard(
                f"transform/schema-{asked.number}-{new}",
                REWRITE_SCHEMA,
                {"stores": changed},
                asked.above,
                (asked.info(path),),
                asked.target,
                (new,),
            )


def joined_logs(asked: Asked) -> Iterator[TransformShard]:
    logs = dict(asked.joining.logs()) if asked.joining else {}
    for number, bundle in enumerate(
        bundled((asked.info(path) for path in sorted(logs)), PIECES_MAX)
    ):
        yield TransformShard(
            f"transform/joined-{number}",
            KEEP,
            {},
            asked.above,
            tuple(bundle),
            asked.target,
            tuple(logs[file.path] for file in bundle),
        )


def _joined(asked: Asked, joining: Joining, inside: str, shards: tuple[ShardFiles, ...]) -> Change:
    """A log of all the checkpoints together."""
    if inside.startswith("commits/"):
        options = {
            "state_ids": _ids(asked, shards) if asked.uuids else None,
            "format_2": asked.format_2,
        }
        return Change(
            MERGE_COMMITS, options, inside, asked.above, tuple(map(asked.info, joining.commits()))
        )
    back = (asked.image.epoch or 0) - int(inside.rpartition("/")[2])
    inputs = tuple(map(asked.info, joining.offsets(back)))
    return Change(MERGE_OFFSETS, {"conf": asked.conf}, inside, asked.above, inputs)


def _ids(asked: Asked, shards: tuple[ShardFiles, ...]) -> dict[str, list[list[str]]]:
    """Which file of the version is the right one, by operator, shard and store."""
    found: dict[str, dict[int, list[str]]] = {}
    for shard in sorted(shards, key=lambda shard: (shard.operator, shard.shard, shard.store)):
        own = [path for path in shard.files if path.endswith((".zip", ".changelog"))]
        uuid = asked.place(own[-1]).uuid if own else None
        operator = asked.wishes.operators.get(shard.operator, shard.operator)
        found.setdefault(operator, {}).setdefault(shard.shard, []).append(uuid or "")
    return {
        operator: [stores for _, stores in sorted(numbered.items())]
        for operator, numbered in found.items()
    }
