"""How a plan ends that starts the job: it is submitted, and waited for until it has gone on.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.plan import Phase
from stateshift.specification import JobSpec
from stateshift.step import AwaitProgress, FenceSource, PrepareJob, SubmitJob
from stateshift.survey import Facts


@dataclass(frozen=True)
class Awaited:
    """By what the job shows that it has gone on from its image: files below a location, or what
    its cluster says.
    """

    location: str
    epoch: int | None
    commits: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()


def prepared(
    job: JobSpec, facts: Facts, location: str, options: Mapping[str, Any]
) -> Iterator[Phase]:
    """Before the old job is stopped: the new one comes up, and waits. Nothing where the spec
    does not ask for it.
    """
    if job.submit is None or job.target_cluster is None or not job.submit.prepare:
        return
    how = _started(job, facts, location, options)
    yield Phase(
        "prepare", (PrepareJob(name="prepare/job", seconds_max=job.submit.seconds_max, **how),)
    )


def start(
    job: JobSpec,
    facts: Facts,
    location: str,
    options: Mapping[str, Any],
    awaited: Awaited | None,
    fences: tuple[FenceSource, ...] = (),
) -> Iterator[Phase]:
    """Nothing where the spec says nothing of it. `location` is what the job is handed."""
    if job.submit is None or job.target_cluster is None:
        return
    submit = SubmitJob(
        name="submit/job",
        fences=fences,
        prepared=job.submit.prepare,
        **_started(job, facts, location, options),
    )
    yield Phase("submit", (submit,))
    if awaited is not None:
        yield Phase(
            "confirm",
            (
                AwaitProgress(
                    name="confirm/progress",
                    cluster=job.target_cluster,
                    job=job.name,
                    location=awaited.location,
                    commits=awaited.commits,
                    idle=awaited.idle,
                    epoch=awaited.epoch,
                    seconds_max=job.submit.seconds_max,
                    attempt=facts.attempt,
                ),
            ),
        )


def _started(
    job: JobSpec, facts: Facts, location: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """How the job is started, whether early or when its image is there: the second recognises
    the first.
    """
    assert job.submit is not None and job.target_cluster is not None, (
        "only a job that is to be started"
    )
    return {
        "cluster": job.target_cluster,
        "job": job.name,
        "location": location,
        "connection": job.connection,
        "options": options,
        "environment": job.submit.environment,
        "attempt": facts.attempt,
    }
