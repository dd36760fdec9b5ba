"""How a plan ends that starts the job: it is submitted, and waited for until it has gone on.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

from stateshift.plain import JsonObject
from stateshift.plan import Phase
from stateshift.specification import JobSpec
from stateshift.step import (
    AwaitProgress,
    CommitOffsets,
    EndedJob,
    FenceSource,
    PrepareJob,
    SubmitJob,
)
from stateshift.survey import Facts


@dataclass(frozen=True)
class Awaited:
    """The evidence that the job goes on: files below a location, or its cluster's word.
    `epoch_seconds` is the length of the first epoch, in seconds: `submit` counts from its end.
    """

    location: str
    epoch: int | None
    commits: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    epoch_seconds: float = 0.0


@dataclass(frozen=True)
class Handed:
    """The job's own parameters: the place of its image, and options for its cluster (JSON).
    `ended`: the jobs that it goes on for, where somebody else may have them run again.
    """

    location: str
    options: JsonObject
    ended: tuple[EndedJob, ...] = ()


class _Submission(TypedDict):
    """How the job is started, whether early or when its image is there."""

    cluster: str
    job: str
    location: str
    connection: str | None
    options: JsonObject
    environment: Mapping[str, str]
    attempt: int


def prepare_phase(job: JobSpec, facts: Facts, handed: Handed) -> Iterator[Phase]:
    """Yield the phase in which the new job comes up and waits, if the spec asks for it."""
    if job.submit is None or job.target_cluster is None or not job.submit.prepare:
        return
    how = _submission(job, facts, handed)
    early = PrepareJob(name="prepare/job", seconds_max=job.submit.seconds_max, **how)
    yield Phase("prepare", (early,))


def start(
    job: JobSpec,
    facts: Facts,
    handed: Handed,
    awaited: Awaited | None,
    fences: tuple[FenceSource, ...] = (),
) -> Iterator[Phase]:
    """Yield the phases that start the job; nothing where the spec says nothing of it."""
    if job.submit is None or job.target_cluster is None:
        return
    submit = SubmitJob(
        name="submit/job",
        fences=fences,
        prepared=job.submit.prepare,
        ended=handed.ended,
        **_submission(job, facts, handed),
    )
    yield Phase("submit", (submit,))
    if awaited is not None:
        progress = AwaitProgress(
            name="confirm/progress",
            cluster=job.target_cluster,
            job=job.name,
            location=awaited.location,
            commits=awaited.commits,
            idle=awaited.idle,
            epoch=awaited.epoch,
            seconds_max=job.submit.seconds_max + awaited.epoch_seconds,
            attempt=facts.attempt,
            ended=handed.ended,
        )
        yield Phase("confirm", (progress,))


def group_steps(facts: Facts) -> Iterator[CommitOffsets]:
    """Yield the steps that have consumer groups read on where the job does."""
    commits = [each.commit for each in facts.positions if each.commit is not None]
    for number, commit in enumerate(commits):
        yield CommitOffsets(f"publish/offsets-{number}", commit)


def _submission(job: JobSpec, facts: Facts, handed: Handed) -> _Submission:
    """Return the submission, by which a job that was started early is recognised."""
    assert job.submit is not None and job.target_cluster is not None, (
        "only a job that is to be started"
    )
    return {
        "cluster": job.target_cluster,
        "job": job.name,
        "location": handed.location,
        "connection": job.connection,
        "options": handed.options,
        "environment": job.submit.environment,
        "attempt": facts.attempt,
    }
