"""An image in portions that can be read to their ends independently, by whoever: what `verify
--deep` hands to a fleet.

    portion  survey and image, with the shards of some places only: what is listed and needed there,
             and the schemas and metadata without which no shard's rows can be read

The stores of one shard of one operator stay together: a join's are compared with each other.
Everything that belongs to no shard (logs, source logs) is in the first portion. Findings of all
portions together are those of the image, with two exceptions: every portion reports schemas and
metadata, and none reports `sidecars.orphans`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from stateshift.engines.bundles import DECODED_BYTES_MAX, FILES_MAX
from stateshift.engines.spark.layout import inside, under
from stateshift.engines.spark.survey.planned_image import planned_files
from stateshift.engines.views import NumberedPart
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.survey import FileInfo, Image, PlannedState, ShardFiles, Survey

# An operator's id and the number of a shard.
Place = tuple[str, int]
_DESCRIBING = ("state-schema", "state-metadata")

T = TypeVar("T")


def portions(
    survey: Survey, image: Image, files_max: int = FILES_MAX
) -> Iterator[tuple[Survey, Image]]:
    """Yield the portions of an image: at most so many files each, and a shard at least."""
    start = under(image.path, "")
    own_files = [file for file in survey.files if file.path.startswith(start)]
    listed = _by_place(own_files, lambda file: file.path.removeprefix(start))
    describing, others = _describing(image)
    needed = _by_place(others, lambda path: path.removeprefix(start))
    planned = _by_place(planned_files(image), lambda path: path.removeprefix(start))
    of_no_shard = [*describing, *needed.pop(None, [])]
    yield _portion(survey, image, (), of_no_shard, listed.pop(None, []))
    sizes = {file.path: file.size for file in own_files}
    shards = _of_places(image.shards)
    # The files of shards that are left out of the image lie there, too.
    there = dict.fromkeys(chain(shards, needed, listed))
    for places in _bundled(there, needed, sizes, files_max):
        own_needed = [*describing, *_at(places, needed)]
        own_shards = tuple(_at(places, shards))
        portion, part = _portion(survey, image, own_shards, own_needed, _at(places, listed))
        written = tuple(_at(places, planned))
        planned_state = None
        if written:
            planned_state = PlannedState(written)
        yield portion, replace(part, planned_state=planned_state)


def each_alone(survey: Survey, shards: Iterable[tuple[Image, ShardFiles]]) -> Iterator[Survey]:
    """Yield the survey of each shard alone, with its checksums, metadata and schemas."""
    images: dict[str, Image] = {}
    sidecars = {file.path: file for file in survey.files if file.path.endswith(".crc")}
    for image, shard in shards:
        beside = (sidecars.get(f"{path}.crc") for path in shard.files)
        files = tuple(file for file in beside if file is not None)
        if image.path not in images:
            images[image.path] = drop_shards(image)
        own = replace(images[image.path], shards=(shard,))
        yield replace(survey, files=files, images=(own,), findings=())


def part_of(survey: Survey, image: Image, part: NumberedPart) -> tuple[Survey, Image]:
    """Return the shards of one part alone, with all that belongs to no shard: logs and schemas."""
    start = under(image.path, "")
    left_out: set[Place | None] = set()
    for shard in image.shards:
        # Operators of a workflow's queries have the same ids.
        if not part.holds(f"{image.path}/{shard.operator}", shard.shard):
            left_out.add(_shard_place(shard))

    def stays(path: str) -> bool:
        if not path.startswith(start):
            return True
        return _place(classify(path.removeprefix(start))) not in left_out

    planned = image.planned_state
    if planned is not None:
        planned = replace(planned, files=tuple(filter(stays, planned.files)))
    own = replace(
        image,
        shards=tuple(shard for shard in image.shards if _shard_place(shard) not in left_out),
        needed=tuple(filter(stays, image.needed)),
        planned_state=planned,
    )
    files = tuple(file for file in survey.files if stays(file.path))
    return replace(survey, files=files), own


def places_in(image: Image) -> set[Place]:
    """Return the shards of an image, each once, however many stores it has."""
    return set(map(_shard_place, image.shards))


def drop_shards(image: Image) -> Image:
    """Return the image without its shards: what it takes to know how their rows are read."""
    describing, _ = _describing(image)
    return _without(image, (), describing)


def _describing(image: Image) -> tuple[list[str], list[str]]:
    """Return the needed files that say how rows are read, and all the others."""
    describing: list[str] = []
    others: list[str] = []
    for path in image.needed:
        is_describing = classify(inside(image, path)).area in _DESCRIBING
        (describing if is_describing else others).append(path)
    return describing, others


def _by_place(files: Iterable[T], path_of: Callable[[T], str]) -> dict[Place | None, list[T]]:
    """Return files by the shard that they belong to, by their path inside the image."""
    by_place: dict[Place | None, list[T]] = {}
    for file in files:
        by_place.setdefault(_place(classify(path_of(file))), []).append(file)
    return by_place


def _at(places: Iterable[Place | None], by_place: Mapping[Place | None, list[T]]) -> list[T]:
    """Return the items at these places, in their order."""
    files: list[T] = []
    for place in places:
        files += by_place.get(place, [])
    return files


def shard_groups(
    shards: tuple[ShardFiles, ...], sizes: Mapping[str, int]
) -> list[list[ShardFiles]]:
    """Return shards by place, as many together as are worth a task."""
    by_place = _of_places(shards)
    paths: dict[Place | None, list[str]] = {}
    for place, own in by_place.items():
        paths[place] = list(chain.from_iterable(shard.files for shard in own))
    return [_at(places, by_place) for places in _bundled(by_place, paths, sizes, FILES_MAX)]


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
    part = replace(survey, files=tuple(files), images=(), findings=())
    return part, _without(image, shards, needed)


def _place(place: CheckpointPath) -> Place | None:
    """Return the shard that a file belongs to; None where it belongs to none."""
    if place.operator is None or place.partition is None:
        return None
    is_of_shard = place.area in ("state", "sidecar")
    return (place.operator, place.partition) if is_of_shard else None


def _shard_place(shard: ShardFiles) -> Place:
    return shard.operator, shard.shard


def _of_places(shards: Iterable[ShardFiles]) -> dict[Place | None, list[ShardFiles]]:
    """Return the stores of each place."""
    by_place: dict[Place | None, list[ShardFiles]] = {}
    for shard in shards:
        by_place.setdefault(_shard_place(shard), []).append(shard)
    return by_place


def _bundled(
    places: Iterable[Place | None],
    needed: Mapping[Place | None, list[str]],
    sizes: Mapping[str, int],
    files_max: int,
) -> Iterator[list[Place | None]]:
    """Yield as many places together as are worth a task."""
    bundle: list[Place | None] = []
    files = size = 0
    for place in places:
        paths = needed.get(place, [])
        own_size = sum(sizes.get(path, 0) for path in paths)
        is_full = files + len(paths) > files_max or size + own_size > DECODED_BYTES_MAX
        if bundle and is_full:
            yield bundle
            bundle, files, size = [], 0, 0
        bundle.append(place)
        files += len(paths)
        size += own_size
    if bundle:
        yield bundle
