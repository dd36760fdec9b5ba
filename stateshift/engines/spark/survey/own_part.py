"""A workflow that several jobs divide: what one of them takes along. Pure.

Algorithm 5's split: workflow 1 becomes workflows 2 and 3, each with some of its operators. Nothing
may be left over: a directory that no job takes is named, and stays only where the spec says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from shlex import quote

from stateshift.engines.spark.layout import is_strange, under
from stateshift.formats import uid
from stateshift.specification import JobSpec, OperatorSpec, Spec
from stateshift.specification.job_relations import sharing
from stateshift.survey import Finding, Image, Survey


def own_part(spec: Spec, job: JobSpec, survey: Survey) -> Survey:
    """Return the job's part of a survey, with strangers, which are copied as the engine's own."""
    own = _own_operators(spec, job, survey)
    if not job.also:
        return own
    images = tuple(replace(image, needed=_needed(job, own, image)) for image in own.images)
    return replace(own, images=images)


def _needed(job: JobSpec, survey: Survey, image: Image) -> tuple[str, ...]:
    start = under(image.path, "")
    needed = set(image.needed)
    for file in survey.files:
        path = file.path.removeprefix(start)
        is_inside = file.path.startswith(start)
        if is_inside and is_strange(path) and is_taken(job, path):
            needed.add(file.path)
    return tuple(sorted(needed))


def is_taken(job: JobSpec, path: str) -> bool:
    """Whether the spec takes this file along: its own name, or a folder that it lies in."""
    return any(path == asked or path.startswith(f"{asked}/") for asked in job.also)


def _own_operators(spec: Spec, job: JobSpec, survey: Survey) -> Survey:
    others = sharing(spec, job)
    if not others or survey.kind == "empty":
        return survey
    own = _directories(spec, job, survey)
    findings = [*survey.findings, *_of_part(job, survey, own)]
    first_job = min((job, *others), key=spec.jobs.index)
    if job is first_job:  # what no job takes is reported once
        taken = own.union(*(_directories(spec, other, survey) for other in others))
        findings += _of_rest(survey, taken)
    names = survey.names
    return replace(
        survey,
        files=tuple(file for file in survey.files if file.path.split("/", 1)[0] in own),
        images=tuple(image for image in survey.images if image.path in own),
        names={name: names[name] for name in names if names[name] in own},
        findings=tuple(findings),
    )


def _directories(spec: Spec, job: JobSpec, survey: Survey) -> frozenset[str]:
    return frozenset(directory_of(spec, operator, survey.names) for operator in job.operators)


def directory_of(spec: Spec, operator: OperatorSpec, index: Mapping[str, str]) -> str:
    """Return the directory in the spec, else in the index, else the name's hash."""
    profile = spec.uid_hash
    hashed = uid.directory_name(operator.name, profile.p, profile.m, profile.offset, profile.signed)
    return operator.directory or index.get(operator.name) or hashed


def _of_part(job: JobSpec, survey: Survey, own: frozenset[str]) -> Iterator[Finding]:
    if survey.kind != "workflow":
        yield Finding(
            "refuse",
            f"{survey.location} is one query's checkpoint: jobs cannot divide it by operators",
            hint='give each job "mode": "fork" and a "transform" of kind "split": by shards, or '
            "by a column of the key",
        )
    elif not own.intersection(image.path for image in survey.images):
        yield Finding(
            "refuse",
            f"none of the operators of {job.name!r} is in {survey.location}",
            hint=f"stateshift inspect {quote(survey.location)} lists the directories; "
            '{"name": …, "directory": …} adopts one',
        )


def _of_rest(survey: Survey, taken: frozenset[str]) -> Iterator[Finding]:
    """Refuse the directories that no job takes."""
    directories = {image.path for image in survey.images if image.path}
    for path in sorted(directories - taken):
        yield Finding(
            "refuse",
            f"{survey.location}/{path} is taken along by none of the jobs that divide this "
            "workflow",
            waive="operators-stay",
            hint=(
                "add its operator to one of them; or, where its state is no longer wanted, waive it"
            ),
        )
