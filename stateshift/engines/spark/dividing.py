"""A workflow that several jobs divide: what one of them takes along. Pure.

    own_part(spec, job, survey)    the survey of the source with only this job's operators in it; as it was where the
                                   source is this job's alone

Algorithm 5's split: workflow 1 becomes workflows 2 and 3, each with some of its operators. Nothing may be left over:
a directory that no job takes is named, and stays only where the spec says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from stateshift.engines.spark.naming import directory_of
from stateshift.spec import JobSpec, Spec
from stateshift.spec.waves import sharing
from stateshift.survey import Finding, Survey


def own_part(spec: Spec, job: JobSpec, survey: Survey) -> Survey:
    others = sharing(spec, job)
    if not others or survey.kind == "empty":
        return survey
    own = _directories(spec, job, survey)
    taken = own.union(*(_directories(spec, other, survey) for other in others))
    first = min((job, *others), key=spec.jobs.index) is job
    return replace(
        survey,
        files=tuple(file for file in survey.files if file.path.split("/", 1)[0] in own),
        images=tuple(image for image in survey.images if image.path in own),
        names={name: directory for name, directory in survey.names.items() if directory in own},
        findings=(*survey.findings, *_of_part(job, survey, own), *(_of_rest(survey, taken) if first else ())),
    )


def _directories(spec: Spec, job: JobSpec, survey: Survey) -> frozenset[str]:
    return frozenset(directory_of(spec, operator, survey.names) for operator in job.operators)


def _of_part(job: JobSpec, survey: Survey, own: frozenset[str]) -> Iterator[Finding]:
    if survey.kind != "workflow":
        yield Finding(
            "refuse",
            f"{survey.location} is one query's checkpoint: jobs cannot divide it by operators",
            hint='give each job "mode": "fork" and a "transform" of kind "split": by shards, or by a column of the key',
        )
    elif not own.intersection(image.path for image in survey.images):
        yield Finding(
            "refuse",
            f"none of the operators of {job.name!r} is in {survey.location}",
            hint=f"stateshift inspect {quote(survey.location)} lists the directories; "
            '{"name": …, "directory": …} adopts one',
        )


def _of_rest(survey: Survey, taken: frozenset[str]) -> Iterator[Finding]:
    """Told once, of the job that comes first."""
    for path in sorted(image.path for image in survey.images if image.path and image.path not in taken):
        yield Finding(
            "refuse",
            f"{survey.location}/{path} is taken along by none of the jobs that divide this workflow",
            waive="operators-stay",
            hint="add its operator to one of them; or, where its state is no longer wanted, waive it",
        )
