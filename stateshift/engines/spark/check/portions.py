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

from stateshift.engines.bundles import FILES_MAX, bundle_by
from stateshift.engines.spark.layout import inside, under
from stateshift.engines.spark.survey.planned_image import narrow_image, planned_files
from stateshift.engines.views import NumberedPart
from stateshift.formats.spark.names import classify
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

    def place_of(path: str) -> Place | None:
        return _place_of(path.removeprefix(start))

    own_files = [file for file in survey.files if file.path.startswith(start)]
    listed = _by_place(own_files, lambda file: place_of(file.path))
    describing, others = _describing(image)
    needed = _by_place(others, place_of)
    known = _by_place(image.read_before, place_of)
    planned = _by_place(planned_files(image), place_of)
    of_no_shard = [*describing, *needed.pop(None, [])]
    whole = replace(image, read_before=tuple(known.pop(None, ())))
    yield _portion(survey, whole, (), of_no_shard, listed.pop(None, []))
    sizes = {file.path: file.size for file in own_files}
    shards = _by_place(image.shards, shard_place)

    def amount(place: Place | None) -> tuple[int, int]:
        paths = needed.get(place, [])
        return len(paths), sum(sizes.get(path, 0) for path in paths)

    # The files of shards that are left out of the image lie there, too.
    there = dict.fromkeys(chain(shards, needed, listed))
    for places in bundle_by(there, amount, files_max):
        own_needed = [*describing, *_at(places, needed)]
        own_shards = tuple(_at(places, shards))
        own = replace(image, read_before=tuple(_at(places, known)))
        portion, part = _portion(survey, own, own_shards, own_needed, _at(places, listed))
        written = tuple(_at(places, planned))
        yield portion, replace(part, planned_state=PlannedState(written) if written else None)


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
            left_out.add(shard_place(shard))

    def stays(path: str) -> bool:
        return not path.startswith(start) or _place_of(path.removeprefix(start)) not in left_out

    shards = (shard for shard in image.shards if shard_place(shard) not in left_out)
    files = tuple(file for file in survey.files if stays(file.path))
    return replace(survey, files=files), narrow_image(image, stays, shards)


def places_in(image: Image) -> set[Place]:
    """Return the shards of an image, each once, however many stores it has."""
    return set(map(shard_place, image.shards))


def shard_place(shard: ShardFiles) -> Place:
    """Return the shard's place: all of its stores have it."""
    return shard.operator, shard.shard


def drop_shards(image: Image) -> Image:
    """Return the image without its shards: what it takes to know how their rows are read."""
    return _without(image, (), _describing(image)[0])


def shard_groups(
    shards: tuple[ShardFiles, ...], sizes: Mapping[str, int]
) -> list[list[ShardFiles]]:
    """Return shards by place, as many together as are worth a task."""

    def amount(stores: list[ShardFiles]) -> tuple[int, int]:
        paths = list(chain.from_iterable(shard.files for shard in stores))
        return len(paths), sum(sizes.get(path, 0) for path in paths)

    groups = bundle_by(_by_place(shards, shard_place).values(), amount)
    return [list(chain.from_iterable(group)) for group in groups]


def _describing(image: Image) -> tuple[list[str], list[str]]:
    """Return the needed files that say how rows are read, and all the others."""
    describing: list[str] = []
    others: list[str] = []
    for path in image.needed:
        is_describing = classify(inside(image, path)).area in _DESCRIBING
        (describing if is_describing else others).append(path)
    return describing, others


def _by_place(
    items: Iterable[T], place_of: Callable[[T], Place | None]
) -> dict[Place | None, list[T]]:
    by_place: dict[Place | None, list[T]] = {}
    for item in items:
        by_place.setdefault(place_of(item), []).append(item)
    return by_place


def _at(places: Iterable[Place | None], by_place: Mapping[Place | None, list[T]]) -> list[T]:
    return list(chain.from_iterable(by_place.get(place, []) for place in places))


def _place_of(path: str) -> Place | None:
    """Return the shard of a file by its path inside its image; None where it belongs to none."""
    place = classify(path)
    if place.operator is None or place.partition is None:
        return None
    is_of_shard = place.area in ("state", "sidecar")
    return (place.operator, place.partition) if is_of_shard else None


def _portion(
    survey: Survey,
    image: Image,
    shards: tuple[ShardFiles, ...],
    needed: list[str],
    files: list[FileInfo],
) -> tuple[Survey, Image]:
    part = replace(survey, files=tuple(files), images=(), findings=())
    return part, _without(image, shards, needed)


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
