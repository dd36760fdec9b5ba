"""Relations between the jobs of a spec, by the places that they share. Pure.
(`dataflow.wave_strategy` has the order of the waves.)

Jobs that share a source move together: it is stopped once, and started again only when none of them
is moved any more. A fork takes nothing out of its source.

Only a fork may have a copy for which nobody waits until it is on disk (`"sync": false`): its source
goes on, so that a copy that a power cut has damaged can be made again. Only a local disk is synced
at all.
"""

from __future__ import annotations

from stateshift.specification.location import relation, scheme
from stateshift.specification.model import JobSpec, Spec


def group_by_source(spec: Spec) -> tuple[tuple[JobSpec, ...], ...]:
    """Return each job once, with those that share its source, by the first in the spec."""
    groups: list[list[JobSpec]] = []
    for job in spec.jobs:
        group = next((group for group in groups if share(group[0], job)), None)
        if group is None:
            groups.append([job])
        else:
            group.append(job)
    return tuple(map(tuple, groups))


def sharing(spec: Spec, job: JobSpec) -> tuple[JobSpec, ...]:
    """Return the other jobs that take their operators out of the same source."""
    others = [other for other in spec.jobs if other.name != job.name]
    return tuple(other for other in others if share(job, other))


def job_to_stop(spec: Spec, job: JobSpec) -> JobSpec:
    """Return the job that is stopped, once, for all that share this one's source."""
    return min((job, *sharing(spec, job)), key=spec.jobs.index)


def share(job: JobSpec, other: JobSpec) -> bool:
    """Whether both take from one source: where a job writes, or running jobs that write both
    images. Any number may start from an image at which nobody writes.
    """
    if not (job.writes_at_source or other.writes_at_source):
        return bool(set(job.image_writers) & set(other.image_writers))
    moving = job.moves and other.moves and bool(job.source and other.source)
    return moving and relation(job.source, other.source) == "same"


def unsynced_locations(spec: Spec) -> frozenset[str]:
    """Return the local targets of copies that no job syncs."""
    places: set[str] = set()
    synced: set[str] = set()
    for job in spec.jobs:
        if job.sync:
            synced.update(job.copy_targets)
        elif not job.moves:
            places.update(place for place in job.copy_targets if scheme(place) == "file")
    return frozenset(places - synced)


def unsynced_places(spec: Spec, job: JobSpec) -> list[str]:
    """Return those of them that a job is copied to."""
    not_synced = unsynced_locations(spec)
    return [place for place in job.copy_targets if place in not_synced]
