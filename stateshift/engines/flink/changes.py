"""The changes that a spec's `transform` asks of Flink images. Pure.

An image is called by its location, or by the id of the job that it was taken of.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.flink.places import location_of
from stateshift.specification import JobSpec
from stateshift.specification.transform import (
    Convert,
    Drop,
    Rename,
    Union,
    find_change,
    locations_merged,
)


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
