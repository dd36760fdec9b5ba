"""What a person should know before a Flink job moves: refusals, warnings, notes. Pure.

A refusal that can be waived names its waiver; with it in the job's `waive` it becomes a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from shlex import quote

from stateshift.engines.faster_storage import of_faster_storage
from stateshift.engines.flink.findings.changes import of_changes
from stateshift.engines.flink.findings.operators import (
    of_choice,
    of_key_groups,
    of_left,
    of_redistribution,
)
from stateshift.engines.flink.findings.taking import ASKABLE
from stateshift.engines.flink.findings.versions import of_versions
from stateshift.engines.flink.image import flink_image
from stateshift.engines.flink.rewrite.move import Move
from stateshift.engines.free_space import of_free_space
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Image, Survey


def waived(finding: Finding, names: tuple[str, ...]) -> Finding:
    """Return the finding, as a warning where the job waives it."""
    if finding.level != "refuse" or finding.waive not in names:
        return finding
    message = f"{finding.message} (waived: {finding.waive})"
    return replace(finding, level="warn", message=message, hint=None)


def of_sources(surveys: Sequence[Survey]) -> Iterator[Finding]:
    """Yield what the source images are refused or warned for; an image's own notes are left out."""
    for survey in surveys:
        yield from survey.findings
        if not survey.images:
            what = "nothing is" if survey.kind == "empty" else "no Flink savepoint or checkpoint is"
            yield Finding(
                "refuse",
                f"{what} at {survey.location}",
                hint=f"stateshift inspect {quote(survey.location)}",
            )
        for image in survey.images:
            yield from (finding for finding in image.findings if finding.level != "note")
            yield from _of_image(survey, image)


def of_move(
    job: JobSpec, facts: Facts, move: Move, others: frozenset[str] | None
) -> tuple[Finding, ...]:
    """Return everything; `others` are the operators of jobs that divide the source with this one;
    None where it is not divided.
    """
    findings = (
        *of_sources(move.surveys),
        *of_changes(job),
        *of_target(job, facts),
        *of_choice(move.surveys, move.choice),
        *of_left(move.choice, others),
        *of_redistribution(move.redistribution),
        *of_key_groups(move),
        *of_versions(job, facts, move),
        *of_free_space(job, facts),
        *of_faster_storage(job, facts),
        *of_clusters(facts),
    )
    return tuple(waived(finding, job.waive) for finding in findings)


def of_clusters(facts: Facts) -> Iterator[Finding]:
    """Yield the findings of both clusters, and a note where the target reports no progress."""
    for cluster in (facts.source_cluster, facts.target_cluster):
        if cluster is not None:
            yield from cluster.findings
    theirs = facts.target_cluster
    if theirs is not None and theirs.kind not in ASKABLE:
        yield Finding(
            "note",
            f"{theirs.name} ({theirs.kind}) is not asked how far the job comes: a run ends once it "
            "has taken the job",
        )


def _of_image(survey: Survey, image: Image) -> Iterator[Finding]:
    kept = flink_image(image)
    if kept is not None and kept.drained:
        yield Finding(
            "warn",
            f"{survey.location} was drained: its windows and timers have fired as at the end of "
            "all input",
            hint="a job that goes on needs a savepoint that was taken without drain",
        )
    backends = _backends(image)
    if backends:
        yield Finding(
            "note",
            f"{survey.location} is in the format of the {' and '.join(backends)} backend, which "
            "the job that starts from it has to use: a canonical savepoint fits any",
        )
    if kept is not None and kept.kind == "checkpoint":
        yield Finding(
            "note",
            f"{survey.location} is a checkpoint of a job: what it did after that is done again "
            "where it starts here",
        )


def _backends(image: Image) -> list[str]:
    """Return the backends in whose own formats the state is."""
    names: set[str] = set()
    for operator in image.operators:
        if operator.provider:
            names.add(operator.provider.rpartition(" ")[2])  # also of "changelog over rocksdb"
    return sorted(names & {"rocksdb", "hashmap"})


def of_target(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield a refusal where the target is not empty, or where the change needs a new savepoint and
    the spec names no place for it.
    """
    target = facts.target
    if job.target is None:
        yield from _of_no_target(job)
    elif target.kind != "empty":
        yield Finding(
            "refuse",
            f"{target.location} is not empty ({len(target.files)} files): the new savepoint must "
            "not exist",
            hint=f"choose an empty place, or look: stateshift inspect {quote(target.location)}",
        )


def _of_no_target(job: JobSpec) -> Iterator[Finding]:
    """Yield why there must be a place for a new savepoint."""
    if job.flink is None:
        has_several_sources = False
    else:
        has_several_sources = len(job.flink.job_ids) > 1 or len(job.flink.existing_savepoints) > 1
    if has_several_sources:
        what = "several images become one"
    elif job.operators:
        what = "only some operators go along"
    else:
        return
    yield Finding(
        "refuse",
        f"{what}, and there is no place for the new savepoint",
        hint='name it: "new_savepoint_path"',
    )
