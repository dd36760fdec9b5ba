"""What a person should know before a Spark job moves: refusals, warnings, notes. Pure.

A refusal that can be waived names its waiver; with it in the job's `waive` it becomes a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from shlex import quote

from stateshift.engines.free_space import of_room
from stateshift.engines.spark.check.judgement import rollback_of
from stateshift.engines.spark.findings.batches import of_batches
from stateshift.engines.spark.findings.changes import of_changes
from stateshift.engines.spark.findings.ends import of_ends, written_by
from stateshift.engines.spark.findings.inputs import of_inputs
from stateshift.engines.spark.findings.reach import of_reach
from stateshift.engines.spark.findings.strangers import of_strangers
from stateshift.engines.spark.layout import SINK_LOG, deepest_above, under
from stateshift.engines.spark.places import covered, needed_embedded
from stateshift.engines.spark.survey.operator_names import directory_of
from stateshift.specification import JobSpec, Spec
from stateshift.specification.location import relation
from stateshift.specification.warm import NEVER
from stateshift.specification.waves import stopped_for
from stateshift.survey import EmbeddedPath, Facts, Finding

FRESH_SECONDS = 60.0


def of_move(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
    """Everything worth saying before this job moves."""
    found = [
        *_of_source(job, facts),
        *_of_stopping(spec, job, facts),
        *_of_target(job, facts),
        *_of_links(job, facts),
        *_of_owners(job, facts),
        *_of_merges(job, facts),
        *_of_names(spec, job, facts),
        *_of_places(job, facts),
        *_of_data(job, facts),
        *of_strangers(job, facts),
        *of_batches(job, facts),
        *of_ends(facts),
        *of_room(job, facts),
        *of_inputs(job, facts),
        *_of_clusters(job, facts),
        *of_reach(spec, job, facts),
        *of_changes(job, facts),
    ]
    return tuple(_waived(finding, job.waive) for finding in found)


def of_first_start(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
    """Before a first deployment, which moves nothing."""
    return tuple(
        _waived(finding, job.waive)
        for finding in (*_of_names(spec, job, facts), *_of_clusters(job, facts))
    )


def directories(spec: Spec, job: JobSpec, facts: Facts) -> dict[str, str]:
    """Name -> directory of every operator: what the index beside the image says, then what the
    spec says.
    """
    names: dict[str, str] = {}
    for survey in (*facts.merges, facts.source):
        names.update(survey.names)
    return names | {
        operator.name: directory_of(spec, operator, names) for operator in job.operators
    }


def _waived(finding: Finding, waived: tuple[str, ...]) -> Finding:
    if finding.level == "refuse" and finding.waive in waived:
        return replace(
            finding, level="warn", message=f"{finding.message} (waived: {finding.waive})", hint=None
        )
    return finding


def _of_source(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    source = facts.source
    yield from source.findings
    if source.kind == "empty":
        yield Finding(
            "refuse",
            f"nothing is at {source.location}",
            hint=f"stateshift inspect {quote(source.location)}",
        )
    elif source.kind not in ("checkpoint", "workflow"):
        yield Finding(
            "refuse",
            f"{source.location} holds no Spark checkpoint ({source.kind})",
            hint=f"stateshift inspect {quote(source.location)}",
        )
    for image in source.images:
        yield from image.findings
        name = image.name or image.path or source.location
        if image.fence is not None:
            yield Finding(
                "refuse",
                f"{name} was moved away by run {image.fence}: its source is fenced",
                hint=rollback_of(image.fence),
            )
        elif image.epoch is None:
            yield Finding(
                "refuse",
                f"{name} has not committed a batch yet",
                hint="let the job finish its first batch",
            )


def _of_stopping(spec: Spec, job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Of a job that is taken to be stopped, though not by this run. One that its cluster does not
    know may run there under another name, or elsewhere. Of jobs that share a source, one is stopped
    for all of them.
    """
    source, cluster = facts.source, facts.source_cluster
    if not job.moves or facts.stopped or (cluster is not None and cluster.state != "absent"):
        return
    if cluster is not None and (job.cutover == NEVER or job is not stopped_for(spec, job)):
        return
    newest = max((file.modified for file in source.files), default=0.0)
    # Younger than now: the clock of whoever writes there is ahead of ours.
    fresh = bool(newest) and facts.at - newest < FRESH_SECONDS
    age = (
        f"the newest file of {source.location} is {max(0.0, facts.at - newest):.0f} s old: is "
        "the job stopped?"
    )
    hint = "stop it, or name its cluster in the spec (source_cluster) so that it is stopped for you"
    if cluster is not None:
        unknown = (
            f"the cluster {cluster.name!r} knows no job over {source.location} that is named "
            f"{job.name!r}"
        )
        hint = (
            "if it runs: say in `stop` which job it is, or stop it yourself; it would be "
            "fenced off as it is"
        )
        age = (
            f"{unknown}, and {age}"
            if fresh
            else f"{unknown}: it is moved as one that was stopped before"
        )
    if cluster is not None and job.mode == "warm":
        yield Finding(
            "refuse" if fresh else "warn",
            f"{age} It cannot be followed while it runs",
            waive="job-stopped",
            hint=hint,
        )
    elif fresh:
        yield Finding("warn", age, hint=hint)


def _of_target(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    target = facts.target
    if job.target is None:
        return
    yield from (finding for finding in target.findings if finding.level == "refuse")
    if target.kind == "empty":
        return
    held = (
        f"an image at epoch {target.epoch}"
        if target.epoch is not None
        else f"{len(target.files)} files"
    )
    yield Finding(
        "refuse",
        f"the target {target.location} is not empty: it holds {held}",
        hint=(
            f"stateshift inspect {quote(target.location)}; choose another remote_location, or "
            "clear this one yourself"
        ),
    )


def _of_links(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Places that the spec keeps apart by their names, and that a link makes one."""
    places = [facts.source, *([facts.target] if job.target else ()), *facts.merges, *facts.others]
    for one, other in combinations(places, 2):
        if relation(one.location, other.location) == "apart":
            lies = relation(one.real or one.location, other.real or other.location)
            if lies != "apart":
                fact = (
                    "are one place"
                    if lies == "same"
                    else f"are not apart: one lies inside the other ({lies})"
                )
                yield Finding(
                    "refuse",
                    f"{one.location} and {other.location} {fact}: a link leads there",
                    hint=f"name another place: {quote(one.location)} is "
                    f"{quote(one.real or one.location)}, "
                    f"{quote(other.location)} is {quote(other.real or other.location)}",
                )


def _of_owners(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """What a store has no word for cannot be kept there."""
    for survey in (facts.source, facts.target):
        if job.keep and job.target is not None and not survey.traits.get("owners", True):
            yield Finding(
                "refuse",
                f"{survey.location} has no {' and no '.join(job.keep)} of files to keep",
                hint='leave out "keep"',
            )


def _of_merges(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    taken = {_top(file.path): facts.source.location for file in facts.source.files}
    for merge in facts.merges:
        yield from merge.findings
        if merge.kind == "empty":
            yield Finding(
                "refuse",
                f"nothing to merge is at {merge.location}",
                hint="remove it from merge_jobs",
            )
        if merge.location.split("/")[:3] != facts.source.location.split("/")[:3]:
            yield Finding(
                "refuse",
                (
                    f"{merge.location} is not on the file system of {facts.source.location}: a "
                    "merge is a rename"
                ),
                hint=(
                    "move it there as a job of its own first (checkpoint_location, remote_location)"
                ),
            )
        elif not facts.source.traits.get("renames", True):
            yield Finding(
                "refuse",
                (
                    f"the storage of {facts.source.location} cannot rename: a merge there "
                    "would be a copy and a delete"
                ),
                hint="move both to a file system, or merge them as jobs with a remote_location",
            )
        tops = {_top(file.path) for file in merge.files} - {"_stateshift"}
        for name in sorted(tops & taken.keys()):
            yield Finding(
                "refuse",
                (
                    f"{name} is both in {taken[name]} and in {merge.location}: merging would "
                    "mix two operators"
                ),
                hint="remove or rename one of them; nothing was moved",
            )
        taken.update(dict.fromkeys(tops, merge.location))
        for image in merge.images:
            yield from image.findings
            if image.fence is not None:
                yield Finding(
                    "refuse",
                    f"{under(merge.location, image.path)} is fenced by run {image.fence}",
                    hint=rollback_of(image.fence),
                )


def _of_names(spec: Spec, job: JobSpec, facts: Facts) -> Iterator[Finding]:
    owners: dict[str, str] = {}
    for name, directory in directories(spec, job, facts).items():
        if directory in owners:
            yield Finding(
                "refuse",
                f"operators {owners[directory]!r} and {name!r} have the same directory {directory}",
                hint=(
                    "rename one, choose another uid_hash, or give one a directory of its own "
                    "in the spec"
                ),
            )
        owners[directory] = name
    if facts.source.kind == "workflow":
        there = {image.path for image in facts.source_images}
        for operator in job.operators:
            if operator.directory is not None and operator.directory not in there:
                yield Finding(
                    "refuse",
                    f"operator {operator.name!r} is mapped to {operator.directory}, which "
                    "is not in "
                    f"{facts.source.location}",
                    hint=f"stateshift inspect {quote(facts.source.location)} lists the directories",
                )


def _of_places(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Absolute places inside the image: each is taken along, or said to stay."""
    places = tuple((data.source, data.target) for data in job.data)
    if job.target is None:
        return
    for survey in (facts.source, *facts.merges):
        lost: dict[str, list[EmbeddedPath]] = {}
        for embedded in chain.from_iterable(needed_embedded(survey.images).values()):
            if embedded.role == "source" and not covered(embedded.path, places):
                lost.setdefault(embedded.file.rpartition("/")[0], []).append(embedded)
            elif embedded.role == "self" and not covered(
                embedded.path, ((survey.location, ""), (job.source, ""))
            ):
                yield Finding(
                    "refuse",
                    (
                        f"{embedded.file} names {embedded.path}, which is not in "
                        f"{survey.location}: it cannot be rewritten"
                    ),
                    hint="this checkpoint was copied by hand before: move it from where it was "
                    "made; or it is the same "
                    "place by another name: make checkpoint_location begin as "
                    f"{embedded.path} does",
                    path=embedded.file,
                )
        for log, found in sorted(lost.items()):
            place = deepest_above(e.path for e in found)
            yield Finding(
                "refuse",
                f"{log} names {sum(e.count for e in found)} files under {place}: if "
                "they lie elsewhere afterwards, the job reads all of them again",
                waive="paths-stay",
                hint=f'add to the job "data": [{{"source": "{place}", "target": '
                f'"${{NEW_PLACE}}"}}], or, where the job '
                'goes on reading there, "waive": ["paths-stay"]',
            )


def _of_data(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        logs = [file for file in here.files if f"{SINK_LOG}/" in file.path]
        moved = any(f"{SINK_LOG}/" in file.path for file in there.files)
        if data.copy and here.kind == "empty":
            yield Finding(
                "refuse",
                f"nothing is at {data.source}, which should move along",
                hint="correct `data`",
            )
        if data.copy and there.files:
            yield Finding(
                "refuse",
                f"the place {data.target} is not empty: it holds {len(there.files)} files",
                hint=(
                    'choose another, clear it yourself, or say "copy": false where the data is '
                    "there already"
                ),
            )
        if not data.copy and not there.files:
            yield Finding(
                "refuse",
                (
                    f"nothing is at {data.target}, where the data is said to be already "
                    '("copy": false)'
                ),
                hint='move it there first, or say "copy": true',
            )
        yield from there.findings
        if not data.copy and logs and not moved:
            yield Finding(
                "refuse",
                (
                    f"{data.source} has a {SINK_LOG}, {data.target} has none: readers would "
                    "silently see nothing"
                ),
                hint=f'say "copy": true, or bring {SINK_LOG} over with its paths rewritten',
            )
        if data.copy and not there.traits.get("keeps_times", True):
            yield Finding(
                "warn",
                f"{data.target} cannot keep the times of files: a file source whose "
                "maxFileAge has passed "
                "would read old files again",
                hint="give the source an ending maxFileAge, or keep the data on a file system",
            )


def _of_clusters(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    for cluster in (facts.source_cluster, facts.target_cluster):
        if cluster is not None:
            yield from cluster.findings
    if job.submit is None and job.target is not None:
        written = written_by(facts) if facts.target_cluster is None else None
        by = f" (Spark {written} wrote it)" if written is not None else ""
        yield Finding(
            "note",
            f"the spec has no `submit`: start the job on the target yourself{by}",
        )


def _top(path: str) -> str:
    return path.split("/", 1)[0]
