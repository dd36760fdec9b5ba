"""What a person should know before a Spark job moves: refusals, warnings, notes. Pure.

A refusal that can be waived names its waiver; with it in the job's `waive` it becomes a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from shlex import quote

from stateshift.engines.faster_storage import of_faster_storage
from stateshift.engines.free_space import of_free_space
from stateshift.engines.spark.findings.batches import of_batches
from stateshift.engines.spark.findings.changes import of_changes
from stateshift.engines.spark.findings.ends import of_ends, written_by
from stateshift.engines.spark.findings.inputs import of_inputs
from stateshift.engines.spark.findings.kept_tables import staying_files
from stateshift.engines.spark.findings.reach import of_reach
from stateshift.engines.spark.findings.strangers import of_strangers
from stateshift.engines.spark.image import name_of
from stateshift.engines.spark.layout import SINK_LOG, deepest_above, rollback_of, under
from stateshift.engines.spark.places import covered, needed_embedded, own_places_of
from stateshift.engines.spark.survey.own_part import directory_of
from stateshift.specification import DataSpec, JobSpec, Spec
from stateshift.specification.location import relation
from stateshift.specification.warm import NEVER
from stateshift.specification.waves import stopped_for
from stateshift.survey import ClusterFacts, EmbeddedPath, Facts, Finding, InputFacts, Survey

FRESH_SECONDS = 60.0


def of_move(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
    """Return everything worth saying before this job moves."""
    findings = [
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
        *of_free_space(job, facts, staying_files(job, facts)),
        *of_faster_storage(job, facts),
        *of_inputs(job, facts),
        *_of_clusters(job, facts),
        *of_reach(spec, job, facts),
        *of_changes(job, facts),
    ]
    return tuple(_waived(finding, job.waive) for finding in findings)


def of_first_start(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
    """Return everything worth saying before a first deployment, which moves nothing."""
    findings = [*_of_names(spec, job, facts), *_of_clusters(job, facts)]
    return tuple(_waived(finding, job.waive) for finding in findings)


def directories(spec: Spec, job: JobSpec, facts: Facts) -> dict[str, str]:
    """Return the directory of every operator by its name: what the index beside the image says,
    then what the spec says.
    """
    names: dict[str, str] = {}
    for survey in (*facts.merges, facts.source):
        names.update(survey.names)
    by_spec = {operator.name: directory_of(spec, operator, names) for operator in job.operators}
    return names | by_spec


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
        name = name_of(image, source.location)
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
    """Say what speaks against it that a job is stopped, which this run has not stopped itself."""
    if not job.moves or facts.stopped:
        return
    cluster = facts.source_cluster
    if cluster is None:
        yield from _of_unwatched(job, facts)
    elif cluster.state == "absent" and job.cutover != NEVER and job is stopped_for(spec, job):
        # Of jobs that share a source, one is stopped for all of them.
        yield from _of_absent(job, facts, cluster)


def _of_unwatched(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Warn of a job without a cluster whose files are new; those of a standby's job are."""
    if _is_fresh(facts) and not job.may_run:
        yield Finding(
            "warn",
            _age(facts),
            hint="stop it, or name its cluster in the spec (source_cluster) so that it is stopped "
            "for you",
        )


def _of_absent(job: JobSpec, facts: Facts, cluster: ClusterFacts) -> Iterator[Finding]:
    """Warn of a job that its cluster does not know: it may run there under another name, or
    elsewhere.
    """
    is_fresh = _is_fresh(facts)
    fact = (
        f"the cluster {cluster.name!r} knows no job over {facts.source.location} that is named "
        f"{job.name!r}"
    )
    if is_fresh:
        fact += f", and {_age(facts)}"
    else:
        fact += ": it is moved as one that was stopped before"
    hint = (
        "if it runs: say in `stop` which job it is, or stop it yourself; it would be "
        "fenced off as it is"
    )
    if job.mode == "warm":
        yield Finding(
            "refuse" if is_fresh else "warn",
            f"{fact} It cannot be followed while it runs",
            waive="job-stopped",
            hint=hint,
        )
    elif is_fresh:
        yield Finding("warn", fact, hint=hint)


def _newest_change(facts: Facts) -> float:
    return max((file.modified for file in facts.source.files), default=0.0)


def _is_fresh(facts: Facts) -> bool:
    """Whether a file of the source is so new that somebody may still write there."""
    newest = _newest_change(facts)
    return bool(newest) and facts.at - newest < FRESH_SECONDS


def _age(facts: Facts) -> str:
    # Newer than now: the clock of whoever writes there is ahead of ours.
    seconds = max(0.0, facts.at - _newest_change(facts))
    return f"the newest file of {facts.source.location} is {seconds:.0f} s old: is the job stopped?"


def _of_target(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    target = facts.target
    if job.target is None:
        return
    yield from (finding for finding in target.findings if finding.level == "refuse")
    if target.kind == "empty":
        return
    held = f"{len(target.files)} files"
    if target.epoch is not None:
        held = f"an image at epoch {target.epoch}"
    yield Finding(
        "refuse",
        f"the target {target.location} is not empty: it holds {held}",
        hint=(
            f"stateshift inspect {quote(target.location)}; choose another remote_location, or "
            "clear this one yourself"
        ),
    )


def _of_links(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Refuse places that the spec keeps apart by their names, and that a link makes one."""
    places = [facts.source, *facts.merges, *facts.others]
    if job.target:
        places.insert(1, facts.target)
    for first, second in combinations(places, 2):
        if relation(first.location, second.location) == "apart":
            yield from _of_link(first, second)


def _of_link(first: Survey, second: Survey) -> Iterator[Finding]:
    first_real, second_real = first.real or first.location, second.real or second.location
    lies = relation(first_real, second_real)
    if lies == "apart":
        return
    fact = f"are not apart: one lies inside the other ({lies})"
    if lies == "same":
        fact = "are one place"
    yield Finding(
        "refuse",
        f"{first.location} and {second.location} {fact}: a link leads there",
        hint=f"name another place: {quote(first.location)} is {quote(first_real)}, "
        f"{quote(second.location)} is {quote(second_real)}",
    )


def _of_owners(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Refuse to keep what a storage has no word for."""
    if not job.keep or job.target is None:
        return
    for survey in (facts.source, facts.target):
        if not survey.traits.get("owners", True):
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
        yield from _of_rename(facts.source, merge)
        tops = {_top(file.path) for file in merge.files} - {"_stateshift"}
        for name in sorted(tops & taken.keys()):
            yield Finding(
                "refuse",
                f"{name} is both in {taken[name]} and in {merge.location}: merging would "
                "mix two operators",
                hint="remove or rename one of them; nothing was moved",
            )
        taken.update(dict.fromkeys(tops, merge.location))
        yield from _of_merged_images(merge)


def _of_rename(source: Survey, merge: Survey) -> Iterator[Finding]:
    """Refuse a merge that is no rename."""
    if _file_system(merge.location) != _file_system(source.location):
        yield Finding(
            "refuse",
            f"{merge.location} is not on the file system of {source.location}: a merge is a rename",
            hint="move it there as a job of its own first (checkpoint_location, remote_location)",
        )
    elif not source.traits.get("renames", True):
        yield Finding(
            "refuse",
            f"the storage of {source.location} cannot rename: a merge there "
            "would be a copy and a delete",
            hint="move both to a file system, or merge them as jobs with a remote_location",
        )


def _file_system(location: str) -> list[str]:
    """Return scheme and authority of a location."""
    return location.split("/")[:3]


def _of_merged_images(merge: Survey) -> Iterator[Finding]:
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
    if facts.source.kind != "workflow":
        return
    directories_there = {image.path for image in facts.source_images}
    for operator in job.operators:
        if operator.directory is not None and operator.directory not in directories_there:
            yield Finding(
                "refuse",
                f"operator {operator.name!r} is mapped to {operator.directory}, which "
                f"is not in {facts.source.location}",
                hint=f"stateshift inspect {quote(facts.source.location)} lists the directories",
            )


def _of_places(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Report absolute places inside the image that are not taken along."""
    if job.target is None:
        return
    for survey in (facts.source, *facts.merges):
        yield from _of_own_places(job, survey)
        by_log: dict[str, list[EmbeddedPath]] = {}
        for embedded in _outside(job, survey, "source"):
            by_log.setdefault(embedded.file.rpartition("/")[0], []).append(embedded)
        for log in sorted(by_log):
            yield _left_behind(job, facts, log, by_log[log])


def _of_own_places(job: JobSpec, survey: Survey) -> Iterator[Finding]:
    """Warn of an image that was copied by hand, and refuse one whose files name others."""
    known = tuple((place, "") for place in own_places_of(job, survey))
    for embedded in _outside(job, survey, "self"):
        named = f"{embedded.file} names {embedded.path}, which is not in {survey.location}"
        if embedded.found == "different":
            yield Finding(
                "refuse",
                f"{named}, and other files are there: which of the two the state was written by "
                "is not known",
                hint=f"move it from where it was made: stateshift inspect {quote(embedded.path)}",
                path=embedded.file,
            )
        elif covered(embedded.path, known):
            fact = f"{named}: it was copied by other means. It will name its new place"
            yield Finding("warn", fact, hint='say where it was: --was-at, or "was_at" in the spec')
        else:
            yield Finding(
                "refuse",
                f"{named}: it cannot be rewritten",
                hint="say where the checkpoint was when it was made, or what its place is also "
                'called: --was-at OLD, or "was_at" in the spec',
                path=embedded.file,
            )
    names = [each.path for image in survey.images for each in image.embedded]
    if job.was_at and not any(covered(name, ((job.was_at, ""),)) for name in names):
        fact = f"nothing in {survey.location} names {job.was_at}: it was not there (`was_at`)"
        yield Finding("note", fact)


def _outside(job: JobSpec, survey: Survey, role: str) -> Iterator[EmbeddedPath]:
    """Yield the places of this role that lie in none of those that move along."""
    moved = tuple((data.source, data.target) for data in job.data)
    if role == "self":
        moved = ((survey.location, ""), (job.source, ""), (job.was_at or survey.location, ""))
    for embedded in chain.from_iterable(needed_embedded(survey.images).values()):
        if embedded.role == role and not covered(embedded.path, moved):
            yield embedded


def _left_behind(job: JobSpec, facts: Facts, log: str, places: list[EmbeddedPath]) -> Finding:
    """Warn of input that stays and is there; refuse it where that is not known."""
    folder = deepest_above(place.path for place in places)
    files = sum(place.count for place in places)
    named = f"{log} names {files:,} files under {folder}"
    asked = next((inputs for inputs in facts.inputs if inputs.log == log), None)
    unknown = _why_unknown(job, facts, folder, asked)
    if unknown is None:
        assert asked is not None, "else it is not known"
        looked_for = "all of them" if asked.asked >= files else f"{asked.asked:,} were looked for, "
        looked_for += " are there" if asked.asked >= files else "all there"
        fact = f"{named}; {looked_for}. The job has to go on reading there"
        return Finding("warn", fact)
    return Finding(
        "refuse",
        f"{named}{unknown}: if they lie elsewhere afterwards, the job reads all of them again",
        waive="paths-stay",
        hint=f'add to the job "data": [{{"source": "{folder}", "target": "${{NEW_PLACE}}"}}], or, '
        'where the job keeps reading there, "waive": ["paths-stay"]',
    )


def _why_unknown(job: JobSpec, facts: Facts, folder: str, asked: InputFacts | None) -> str | None:
    """Return why the job may not find its input where it was, as the end of a sentence; None where
    it will.
    """
    if asked is None:
        return ""
    if asked.wrong is not None:
        return f", which could not be looked for ({asked.wrong})"
    if asked.missing:
        return (
            f", of which {asked.missing:,} of {asked.asked:,} are missing ({asked.first_missing})"
        )
    cluster = facts.target_cluster
    if folder.startswith("file://"):
        if cluster is not None and cluster.host and cluster.reaches is not True:
            return f" on a disk of this machine, and {cluster.name} runs jobs on {cluster.host}"
        if cluster is None and not job.destination.startswith("file://"):
            return " on a disk of this machine, and the image goes elsewhere"
    return None


def _of_data(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        if data.copy:
            yield from _of_copied(data, here, there)
        else:
            yield from _of_moved_before(data, here, there)


def _of_copied(data: DataSpec, here: Survey, there: Survey) -> Iterator[Finding]:
    """Report on data that this run copies."""
    if here.kind == "empty":
        yield Finding(
            "refuse",
            f"nothing is at {data.source}, which should move along",
            hint="correct `data`",
        )
    if there.files:
        yield Finding(
            "refuse",
            f"the place {data.target} is not empty: it holds {len(there.files)} files",
            hint=(
                'choose another, clear it yourself, or say "copy": false where the data is '
                "there already"
            ),
        )
    yield from there.findings
    if not there.traits.get("keeps_times", True):
        yield Finding(
            "warn",
            f"{data.target} cannot keep the times of files: a file source whose "
            "maxFileAge has passed would read old files again",
            hint="give the source an ending maxFileAge, or keep the data on a file system",
        )


def _of_moved_before(data: DataSpec, here: Survey, there: Survey) -> Iterator[Finding]:
    """Report on data that somebody has moved before this run."""
    if not there.files:
        yield Finding(
            "refuse",
            f'nothing is at {data.target}, where the data is said to be already ("copy": false)',
            hint='move it there first, or say "copy": true',
        )
    yield from there.findings
    if _has_sink_log(here) and not _has_sink_log(there):
        yield Finding(
            "refuse",
            f"{data.source} has a {SINK_LOG}, {data.target} has none: readers would "
            "silently see nothing",
            hint=f'say "copy": true, or copy {SINK_LOG} there with its paths rewritten',
        )


def _has_sink_log(survey: Survey) -> bool:
    return any(f"{SINK_LOG}/" in file.path for file in survey.files)


def _of_clusters(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    for cluster in (facts.source_cluster, facts.target_cluster):
        if cluster is not None:
            yield from cluster.findings
    if job.submit is None and job.target is not None:
        yield _without_submit(facts)


def _without_submit(facts: Facts) -> Finding:
    fact = "the spec has no `submit`: start the job on the target yourself"
    writer = written_by(facts)
    if facts.target_cluster is None and writer is not None:
        fact += f" (Spark {writer} wrote it)"
    return Finding("note", fact)


def _top(path: str) -> str:
    return path.split("/", 1)[0]
