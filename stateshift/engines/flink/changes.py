"""The changes that a spec's `transform` asks of Flink images. Pure.

    changed(job, kind)          the change of a kind, empty where there is none
    Rescale.of(change)          the numbers of subtasks and key groups that are asked for
    unions_of(job)              names of operators that become one of several
    asked_version(job)          the Flink that the metadata is written for
    dropped, renamed            what is asked of one image's operators
    images_meant, is_meant      which images a drop or rename is `of`

An image is called by its location, or by the id of the job that it was taken of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.engines.flink.places import location_of
from stateshift.plain import JsonObject
from stateshift.specification import JobSpec

# One of `transform`, as the spec has it: its keys depend on its kind, and the parser has checked
# them.
Change = JsonObject


@dataclass(frozen=True, slots=True)
class Rescale:
    """The numbers of subtasks and key groups that are asked for; None where the old ones stay."""

    parallelism: int | None = None
    max_parallelism: int | None = None

    @classmethod
    def of(cls, change: Change) -> Rescale:
        return cls(change.get("parallelism"), change.get("max_parallelism"))


def change_of(job: JobSpec, kind: str) -> Change:
    """Return the first change of a kind that the spec asks for, an empty one without any."""
    return next((change for change in job.transform if change["kind"] == kind), {})


def unions_of(job: JobSpec) -> tuple[str, ...]:
    """Return the operators that become one of several, empty where no union is asked for."""
    return tuple(change_of(job, "union").get("operators", ()))


def asked_version(job: JobSpec) -> str | None:
    """Return the Flink that the metadata is to be written for."""
    version: str | None = change_of(job, "convert").get("flink")
    return version


def dropped_names(job: JobSpec, number: int) -> list[str]:
    """Return the names that drops have for operators of the `number`th image."""
    names: list[str] = []
    for change in _changes_of_image(job, number, "drop"):
        names.extend(change.get("operators", ()))
    return names


def new_names(job: JobSpec, number: int) -> dict[str, str]:
    """Return the new names of operators of the `number`th image, by their old ones."""
    names: dict[str, str] = {}
    for change in _changes_of_image(job, number, "rename"):
        names.update(change.get("operators", {}))
    return names


def _changes_of_image(job: JobSpec, number: int, kind: str) -> Iterator[Change]:
    for change in job.transform:
        if change["kind"] == kind and is_meant(job, number, change):
            yield change


def images_meant(job: JobSpec, count: int, change: Change) -> list[int]:
    """Return the numbers of the images that a change is for, out of `count`."""
    return [number for number in range(count) if is_meant(job, number, change)]


def is_meant(job: JobSpec, number: int, change: Change) -> bool:
    """Whether a change is for the `number`th image: it is `of` that one, or of none."""
    of = change.get("of")
    if of is None:
        return True
    names = set(_names_of(job, number))
    return of in names or location_of(of) in names


def _names_of(job: JobSpec, number: int) -> Iterator[str]:
    """Yield the location of an image, and the id of the job that it was taken of."""
    yield from _locations(job)[number : number + 1]
    if job.flink is not None:
        yield from job.flink.job_ids[number : number + 1]


def _locations(job: JobSpec) -> list[str]:
    """Return the locations of the job's images, in their order."""
    existing = job.flink.existing_savepoints if job.flink is not None else ()
    locations = list(existing or (job.source,))
    for change in job.transform:
        if change["kind"] == "merge":
            locations += change["locations"]
    return locations
