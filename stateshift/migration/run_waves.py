"""The waves of a run: those of its spec, with the jobs that the run was asked for."""

from __future__ import annotations

from stateshift.migration.context import RunContext
from stateshift.migration.wave_order import Wave, waves


def waves_of(context: RunContext) -> list[Wave]:
    """Return the waves of the run's jobs, in the order in which they move."""
    names = context.progress.jobs
    with_jobs = []
    for wave in waves(context.spec):
        asked = tuple(job for job in wave if job.name in names)
        if asked:
            with_jobs.append(asked)
    return with_jobs
