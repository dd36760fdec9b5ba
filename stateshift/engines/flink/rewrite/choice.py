"""Which operators of which image go to the target, and under which ids. Pure.

    choose(job, surveys)    Choice(taken, unknown, twice, left, elsewhere, alone)

An operator is named by its uid, whose hash is its id, or by the id itself (32 hexadecimal digits).
Without names, all go.

    "operators": [...]                                  only these: keep, and split
    {"kind": "drop", "operators": [...]}                all but these
    {"kind": "rename", "operators": {"old": "new"}}     under another uid, or another id
    {"kind": "union", "operators": [...]}               of several images, become one

A drop or rename may be `of` one image: jobs that were started from one jar have the same uids. An
image is called by its location, or by the id of the job that it was taken of.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stateshift.engines.flink.image import flink_image, id_of, metadata_of, places_of
from stateshift.engines.flink.places import location_of
from stateshift.engines.flink.rewrite.metadata import Taken
from stateshift.formats.flink.references import files_named
from stateshift.formats.flink.stream_handles import RelativeFile
from stateshift.specification import JobSpec
from stateshift.specification.transform import (
    Convert,
    Drop,
    Evolve,
    Prune,
    Rename,
    Union,
    find_change,
    locations_merged,
)
from stateshift.survey import Image, Survey

# An operator that one of the target is made of: the number of its image, and its id there.
Source = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The operators that go to the target, and the faults of the names of the spec.

    taken      of each image, the operators that go along
    unknown    names that match no operator
    twice      ids that two images would give to the target
    left       ids of operators with state that stay behind
    elsewhere  what changes are `of`, where no image is called so
    alone      names of operators that were to become one of several, and are in one image
    """

    taken: tuple[Taken, ...]
    unknown: tuple[str, ...]
    twice: tuple[str, ...]
    left: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


def choose(job: JobSpec, surveys: Sequence[Survey]) -> Choice:
    """Return the operators of each image that go to the target, and the faults of the names."""
    images = [survey.images[0] for survey in surveys]
    stateful = [
        {operator.id for operator in image.operators if operator.stores} for image in images
    ]
    taken = _without_empty_twins(stateful, _taken_of_each(job, images))
    left: set[str] = set()
    for own, full in zip(taken, stateful, strict=True):
        left |= full - own.operators.keys()
    by_id = sources_by_id(taken)
    united = {id_of(name) for name in unions_of(job)}
    twice = []
    for new, sources in by_id.items():
        are_of_different_images = len({number for number, _ in sources}) == len(sources)
        may_be_one = new in united and are_of_different_images
        if len(sources) > 1 and not may_be_one:
            twice.append(new)
    count, elsewhere = len(images), []
    for change in job.transform:
        if isinstance(change, Rename | Drop) and change.of and not images_meant(job, count, change):
            elsewhere.append(change.of)
    return Choice(
        taken=tuple(taken),
        unknown=tuple(dict.fromkeys(_unknown(job, images, by_id))),
        twice=tuple(sorted(twice)),
        left=tuple(sorted(left)),
        alone=tuple(name for name in unions_of(job) if len(by_id.get(id_of(name), ())) == 1),
        elsewhere=tuple(elsewhere),
    )


def _taken_of_each(job: JobSpec, images: Sequence[Image]) -> list[Taken]:
    """Return each image's operators that go along; files with the same names lie apart."""
    names: set[str] = set()
    taken = []
    for number, image in enumerate(images):
        new_ids: dict[str, tuple[str, str | None]] = {}
        for old, new in new_names(job, number).items():
            new_id = id_of(new)
            new_ids[id_of(old)] = new_id, None if new_id == new else new
        going = _going(job, number, [operator.id for operator in image.operators])
        operators = {id_: new_ids.get(id_, (id_, None)) for id_ in going}
        metadata = metadata_of(image)
        files = {file.path for file in files_named(metadata) if isinstance(file, RelativeFile)}
        taken.append(Taken(places_of(image), operators, apart=bool(files & names)))
        names |= files
    return taken


def take_along(job: JobSpec, number: int, image: Image) -> Image:
    """Return the job's `number`th image without the operators that its spec leaves behind."""
    kept = flink_image(image)
    if kept is None:
        return image
    whole = kept.metadata
    going = _going(job, number, [operator.id.hex() for operator in whole.operators])
    operators = tuple(operator for operator in whole.operators if operator.id.hex() in going)
    return replace(image, details=replace(kept, metadata=replace(whole, operators=operators)))


def _going(job: JobSpec, number: int, ids: Iterable[str]) -> list[str]:
    """Return the `number`th image's operators that go along: those named, or all not dropped."""
    left_out = {id_of(name) for name in dropped_names(job, number)}
    staying = [id_ for id_ in ids if id_ not in left_out]
    named = {id_of(operator.name) for operator in job.operators}
    if not named:
        return staying
    return [id_ for id_ in staying if id_ in named]


def _without_empty_twins(
    stateful: Sequence[Collection[str]], taken: Sequence[Taken]
) -> list[Taken]:
    """Return the same, without operators that have no state and the id of another operator.

    Jobs of one jar have the same operators. One without state is of no use beside one that has it.
    """
    held: set[str] = set()
    for own, full in zip(taken, stateful, strict=True):
        held.update(new for old, (new, _) in own.operators.items() if old in full)
    kept_of_each = []
    for own, full in zip(taken, stateful, strict=True):
        kept = {}
        for old, given in own.operators.items():
            if old in full or given[0] not in held:
                kept[old] = given
        held.update(new for new, _ in kept.values())
        kept_of_each.append(replace(own, operators=kept))
    return kept_of_each


def _unknown(
    job: JobSpec, images: Sequence[Image], made: Mapping[str, Sequence[Source]]
) -> Iterator[str]:
    ids_of_each = [{operator.id for operator in image.operators} for image in images]
    named = [operator.name for operator in job.operators]
    yield from _not_among(named, set().union(*ids_of_each))
    going: set[str] = set()
    for sources in made.values():
        going.update(old for _, old in sources)
    for change in job.transform:
        if isinstance(change, Drop | Rename):
            meant = [ids_of_each[number] for number in images_meant(job, len(images), change)]
            ids = set().union(*meant)
            if ids:
                yield from _not_among(change.operators, ids)
        if isinstance(change, Evolve | Prune) and change.operator is not None:
            yield from _not_among([change.operator], going)
    yield from _not_among(unions_of(job), made)


def _not_among(names: Iterable[str], ids: Container[str]) -> list[str]:
    return [name for name in names if id_of(name) not in ids]


def sources_by_id(taken: Sequence[Taken]) -> dict[str, tuple[Source, ...]]:
    """Return the sources of each operator of the target, by its id there."""
    sources: dict[str, tuple[Source, ...]] = {}
    for number, own in enumerate(taken):
        for old, (new, _) in own.operators.items():
            sources[new] = (*sources.get(new, ()), (number, old))
    return sources


# ---- what `transform` asks of them


def unions_of(job: JobSpec) -> tuple[str, ...]:
    """Return the operators that become one of several, empty where no union is asked for."""
    union = find_change(job.transform, Union)
    return () if union is None else union.operators


def asked_version(job: JobSpec) -> str | None:
    """Return the Flink that the metadata is to be written for."""
    convert = find_change(job.transform, Convert)
    return None if convert is None else convert.flink


def dropped_names(job: JobSpec, number: int) -> list[str]:
    """Return the names that drops have for operators of the `number`th image."""
    names: list[str] = []
    for change in job.transform:
        if isinstance(change, Drop) and is_meant(job, number, change):
            names.extend(change.operators)
    return names


def new_names(job: JobSpec, number: int) -> dict[str, str]:
    """Return the new names of operators of the `number`th image, by their old ones."""
    names: dict[str, str] = {}
    for change in job.transform:
        if isinstance(change, Rename) and is_meant(job, number, change):
            names.update(change.operators)
    return names


def images_meant(job: JobSpec, count: int, change: Rename | Drop) -> list[int]:
    """Return the numbers of the images that a change is for, out of `count`."""
    return [number for number in range(count) if is_meant(job, number, change)]


def is_meant(job: JobSpec, number: int, change: Rename | Drop) -> bool:
    """Whether a change is for the `number`th image: it is `of` that one, or of none."""
    if change.of is None:
        return True
    names = set(_names_of(job, number))
    return change.of in names or location_of(change.of) in names


def _names_of(job: JobSpec, number: int) -> Iterator[str]:
    """Yield the location of an image, and the id of the job that it was taken of."""
    existing = job.flink.existing_savepoints if job.flink is not None else ()
    locations = [*(existing or (job.source,)), *locations_merged(job.transform)]
    yield from locations[number : number + 1]
    if job.flink is not None:
        yield from job.flink.job_ids[number : number + 1]
