"""Copies for which nobody waits until they are on disk (`"sync": false`). Pure.

Only a fork may have one: its source goes on, so that a copy that a power cut has damaged can be
made again. Only a local disk is synced at all.
"""

from __future__ import annotations

from stateshift.specification.location import scheme
from stateshift.specification.model import JobSpec, Spec


def unsynced_locations(spec: Spec) -> frozenset[str]:
    """Return the local directories that are copied to without a sync, of all jobs. Those that
    another job copies to as well, and has synced, are.
    """
    places: set[str] = set()
    synced: set[str] = set()
    for job in spec.jobs:
        if job.sync:
            synced.update(_copied_to(job))
        elif not job.moves:
            places.update(place for place in _copied_to(job) if scheme(place) == "file")
    return frozenset(places - synced)


def unsynced_places(spec: Spec, job: JobSpec) -> list[str]:
    """Return those of them that a job is copied to."""
    not_synced = unsynced_locations(spec)
    return [place for place in _copied_to(job) if place in not_synced]


def _copied_to(job: JobSpec) -> list[str]:
    """Return the targets of a job's copies: its image, and the data that goes along."""
    return [job.destination, *(data.target for data in job.data if data.copy)]
