"""An image in portions that can be read to their ends independently, by whoever: what `verify
--deep` hands to a fleet.

    portion  survey and image, with the shards of some places only, what is listed there, and of
             what is needed that,
             and the schemas and metadata without which no shard's rows can be read

The stores of one shard of one operator stay together: a join's are held against each other.
Everything that belongs to no shard (logs, source logs) is in the first portion. Findings of all
portions together are those of the image, but for what is found out about schemas and metadata,
which every portion finds; and for `sidecars.orphans`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from stateshift.engines.bundles import BYTES_MAX, FILES_MAX
from stateshift.engines.spark.check.planned_batch import planned_files
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.survey import FileInfo, Image, PlannedState, ShardFiles, Survey

# An operator's id and the number of a shard.
Place = tuple[str, int]
_DESCRIBING = ("state-schema", "state-metadata")


def portions(
    survey: Survey, image: Image, files_max: int = FILES_MAX
) -> Iterator[tuple[Survey, Image]]:
    """The portions of one image of a survey: at most so many files each, and never less than a
    shard.
    """
    start = len(image.path) + 1 if image.path else 0
    top = image.path + "/" if image.path else ""
    inside = [file for file in survey.files if file.path.startswith(top)]
    listed: dict[Place | None, list[FileInfo]] = {}
    for file in inside:
        listed.setdefault(_place(classify(file.path[start:])), []).append(file)
    needed: dict[Place | None, list[str]] = {}
    describing = []
    for path in image.needed:
        place = classify(path[start:])
        if place.area in _DESCRIBING:
            describing.append(path)
        else:
            needed.setdefault(_place(place), []).append(path)
    planned: dict[Place | None, list[str]] = {}
    for path in planned_files(image):
        planned.setdefault(_place(classify(path[start:])), []).append(path)
    shards = {(shard.operator, shard.shard) for shard in image.shards}
    elsewhere = [place for place in needed if place not in shards]
    rest = list(chain.from_iterable(needed[place] for place in elsewhere))
    elsewhere = [place for place in listed if place not in shards]
    others = list(chain.from_iterable(listed[place] for place in elsewhere))
    yield _portion(survey, image, (), [*describing, *rest], others)
    for bundle in _bundled(
        image.shards, needed, {file.path: file.size for file in inside}, files_max
    ):
        places = dict.fromkeys((shard.operator, shard.shard) for shard in bundle)
        own = list(chain.from_iterable(needed.get(place, []) for place in places))
        files = list(chain.from_iterable(listed.get(place, []) for place in places))
        portion, part = _portion(survey, image, tuple(bundle), [*describing, *own], files)
        written = tuple(chain.from_iterable(planned.get(place, []) for place in places))
        yield portion, replace(part, planned_state=PlannedState(written) if written else None)


def undivided(image: Image) -> Image:
    """The image without its shards: what it takes to know how their rows are read."""
    start = len(image.path) + 1 if image.path else 0
    describing = [path for path in image.needed if classify(path[start:]).area in _DESCRIBING]
    return _without(image, (), describing)


def shard_groups(
    shards: tuple[ShardFiles, ...], sizes: Mapping[str, int]
) -> list[list[ShardFiles]]:
    """Shards by place, as many together as are worth a task."""
    paths: dict[Place | None, list[str]] = {}
    for shard in shards:
        paths.setdefault((shard.operator, shard.shard), []).extend(shard.files)
    return list(_bundled(shards, paths, sizes, FILES_MAX))


def _without(image: Image, shards: tuple[ShardFiles, ...], needed: list[str]) -> Image:
    return replace(
        image,
        shards=shards,
        needed=tuple(needed),
        embedded=(),
        first_read=(),
        endpoints=(),
        details=None,
        planned_state=None,
    )


def _portion(
    survey: Survey,
    image: Image,
    shards: tuple[ShardFiles, ...],
    needed: list[str],
    files: list[FileInfo],
) -> tuple[Survey, Image]:
    return replace(survey, files=tuple(files), images=(), findings=()), _without(
        image, shards, needed
    )


def _place(place: CheckpointPath) -> Place | None:
    if place.area not in ("state", "sidecar") or place.operator is None or place.partition is None:
        return None
    return place.operator, place.partition


def _bundled(
    shards: tuple[ShardFiles, ...],
    needed: dict[Place | None, list[str]],
    sizes: Mapping[str, int],
    files_max: int,
) -> Iterator[list[ShardFiles]]:
    """Shards by place, as many together as are worth a task."""
    by_place: dict[Place, list[ShardFiles]] = {}
    for shard in shards:
        by_place.setdefault((shard.operator, shard.shard), []).append(shard)
    bundle: list[ShardFiles] = []
    files = size = 0
    for place, own in by_place.items():
        paths = needed.get(place, [])
        bytes_own = sum(sizes.get(path, 0) for path in paths)
        if bundle and (files + len(paths) > files_max or size + bytes_own > BYTES_MAX):
            yield bundle
            bundle, files, size = [], 0, 0
        bundle += own
        files, size = files + len(paths), size + bytes_own
    if bundle:
        yield bundle
