"""Which copies nobody waits for until they are on disk (`"sync": false`). Pure.

Only a fork may have one: its source goes on, so that a copy that a power cut has damaged can be
made again. Only a local disk is synced at all.
"""

from __future__ import annotations

from stateshift.specification.location import scheme
from stateshift.specification.model import JobSpec, Spec


def unsynced_places(job: JobSpec) -> tuple[str, ...]:
    """Return the local directories that a job is copied to without a sync."""
    if job.sync or job.moves:
        return ()
    return tuple(place for place in _copied_to(job) if scheme(place) == "file")


def unsynced(spec: Spec) -> frozenset[str]:
    """Return the local directories that are not synced, of all jobs. Those that another job copies
    to as well, and has synced, are.
    """
    places: set[str] = set()
    synced: set[str] = set()
    for job in spec.jobs:
        places.update(unsynced_places(job))
        if job.sync:
            synced.update(_copied_to(job))
    return frozenset(places - synced)


def _copied_to(job: JobSpec) -> list[str]:
    """Return where files of a job are copied to: its image, and the data that goes along."""
    return [job.destination, *(data.target for data in job.data if data.copy)]
