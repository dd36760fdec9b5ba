"""Which jobs of a spec move together. Pure.

    in_waves(spec)       the waves in their order, every job in one
    sharing(spec, job)   the jobs that take their operators out of the same source

Jobs that share a source move together: it is stopped once, and started again only when none of them is moved any more.
A fork takes nothing out of its source.
"""

from __future__ import annotations

from stateshift.spec.location import relation
from stateshift.spec.model import JobSpec, Spec


def in_waves(spec: Spec) -> tuple[tuple[JobSpec, ...], ...]:
    """As the spec says; else one after the other, but for those that share a source."""
    if spec.waves:
        by_name = {job.name: job for job in spec.jobs}
        return tuple(tuple(by_name[name] for name in wave) for wave in spec.waves)
    waves: list[list[JobSpec]] = []
    for job in spec.jobs:
        shared = next((wave for wave in waves if share(wave[0], job)), None)
        if shared is None:
            waves.append([job])
        else:
            shared.append(job)
    return tuple(tuple(wave) for wave in waves)


def sharing(spec: Spec, job: JobSpec) -> tuple[JobSpec, ...]:
    return tuple(other for other in spec.jobs if other is not job and share(job, other))


def share(job: JobSpec, other: JobSpec) -> bool:
    """Whether both take something out of one source. A savepoint may be started from by any number of jobs; what is
    still to be taken of a running job, is taken once."""
    if job.flink is not None and other.flink is not None:
        taking = job.takes_savepoints and other.takes_savepoints
        return taking and bool(set(job.flink.job_ids) & set(other.flink.job_ids))
    moving = job.moves and other.moves and bool(job.source and other.source)
    return moving and relation(job.source, other.source) == "same"
