"""Everything that a person should know before a Spark job moves: refusals, warnings, notes. Pure.

A refusal that can be waived names its waiver; with it in the job's `waive` it becomes a warning.
Each part yields what it finds in the `Move`; `FINDINGS` is the order in which they are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from math import ceil
from shlex import quote

from stateshift.engines.findings import of_faster_storage, of_free_space, of_standby
from stateshift.engines.spark.findings.batches import of_batches
from stateshift.engines.spark.findings.changes import (
    of_changes,
    of_kept_tables,
    of_merge,
    staying_files,
)
from stateshift.engines.spark.findings.clusters import of_clusters, of_ends, of_reach, of_versions
from stateshift.engines.spark.findings.inputs import of_positions, of_replay, of_tables, of_topics
from stateshift.engines.spark.findings.places import of_data, of_places, of_strangers
from stateshift.engines.spark.findings.rewind import REPEATED, WAIVE, may_know, of_renumbering
from stateshift.engines.spark.findings.sinks import of_moved_output, of_sink
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import METADATA, offset_path, rollback_of, under
from stateshift.engines.spark.real_time import longest_batch
from stateshift.engines.spark.rewrite.in_place import of_in_place
from stateshift.engines.spark.rewrite.merge import of_joining
from stateshift.engines.spark.rewrite.move import Move, long_enough_stop
from stateshift.engines.spark.survey.checkpoint import directory_of
from stateshift.engines.spark.survey.planned_image import SKIPPING
from stateshift.specification.grammars import NEVER
from stateshift.specification.job_relations import job_to_stop
from stateshift.specification.location import relation
from stateshift.specification.model import JOB_STOPPED
from stateshift.specification.transform import Import
from stateshift.storage import locations
from stateshift.survey import ClusterFacts, Finding, Survey

FRESH_SECONDS = 60.0

Findings = Callable[[Move], Iterable[Finding]]


def of_source(move: Move) -> Iterator[Finding]:
    """Report a source that is no checkpoint, has no commit yet, or was moved away."""
    source = move.facts.source
    yield from source.findings
    if source.kind == "empty":
        above = quote(locations.parent(source.location))
        hint = f"check the path: stateshift inspect {above}"
        fact = source.absence or f"nothing is at {source.location}"
        yield Finding("refuse", fact, hint=hint)
    elif source.kind not in ("checkpoint", "workflow") and not source.findings:
        fact = f"{source.location} holds no Spark checkpoint ({source.kind})"
        yield Finding("refuse", fact, hint=f"stateshift inspect {quote(source.location)}")
    for image, name in move.named_images:
        yield from image.findings
        if source.superseded:
            continue
        if image.fence is not None:
            fact = f"{name} was moved away by run {image.fence}: its source is fenced"
            yield Finding("refuse", fact, hint=rollback_of(image.fence))
        elif image.epoch is None:
            fact = f"{name} has not committed a batch yet"
            yield Finding("refuse", fact, hint="let the job finish its first batch")


def of_stopping(move: Move) -> Iterator[Finding]:
    """Report a job that may still run, which this run has not stopped itself."""
    job, facts, cluster = move.job, move.facts, move.facts.source_cluster
    if not job.moves or facts.stopped or job.takes_over is not None:
        return
    newest = max((file.modified for file in facts.source.files), default=0.0)
    # In real-time mode nothing is written before a batch ends.
    fresh_seconds = FRESH_SECONDS + longest_batch(move.images)
    is_fresh = bool(newest) and facts.at - newest < fresh_seconds
    # Newer than now: the clock of whoever writes there is ahead of ours.
    seconds = max(0.0, facts.at - newest)
    age = f"the newest file of {move.source} is {seconds:.0f} s old: is the job stopped?"
    if cluster is None:
        if is_fresh and not job.may_run:  # the files of a standby's job are new
            yield Finding(
                "warn",
                age,
                hint="stop it, or have it stopped for you: by source_cluster in a spec, or by "
                "stateshift move --stop",
            )
    elif cluster.state == "absent" and job.cutover != NEVER and job is job_to_stop(move.spec, job):
        # One of the jobs that share a source is stopped for all of them.
        yield from _of_absent(move, cluster, age if is_fresh else None)


def _of_absent(move: Move, cluster: ClusterFacts, age: str | None) -> Iterator[Finding]:
    """Warn of a job unknown to its cluster. `age` tells how new its files are, if they are."""
    fact = (
        f"the cluster {cluster.name!r} knows no job over {move.source} that is named "
        f"{move.job.name!r}"
    )
    if age is not None:
        fact += f", and {age}"
    else:
        fact += ": it is moved as one that was stopped before"
    hint = (
        "if it runs: say in `stop` of the spec which job it is, or stop it yourself; it would be "
        "fenced off as it is"
    )
    if move.job.mode == "warm":
        message = f"{fact} It cannot be followed while it runs"
        yield Finding("warn" if age is None else "refuse", message, JOB_STOPPED, hint)
    elif age is not None:
        yield Finding("warn", fact, hint=hint)


def of_real_time(move: Move) -> Iterator[Finding]:
    """Report what batches of minutes mean for a job in real-time mode."""
    rpo = move.job.standby.rpo
    for image, name in move.named_images:
        seconds = spark_image(image).real_time_seconds
        if seconds is None:
            continue
        fact = f"{name} is in real-time mode: it commits every {seconds:.0f} s"
        if move.job.is_standby and rpo is not None and rpo < seconds:
            yield Finding(
                "warn",
                f"{fact}, and its standby cannot keep to an rpo of {rpo:.0f} s",
                hint="give the job's trigger a shorter batch, or the standby a longer rpo",
            )
        elif move.runs and move.job.moves:
            yield _of_stop(move, fact, seconds)


def _of_stop(move: Move, fact: str, seconds: float) -> Finding:
    """Return a note that a stop waits for a batch of so many seconds, or a warning that it does
    not wait long enough.
    """
    waits = move.batch_end_seconds_max
    if waits >= seconds:
        return Finding(
            "note",
            f"{fact}. A stop waits for the end of a batch; cut short, it would be read again "
            "and written to the sink twice",
        )
    return Finding(
        "warn",
        f"{fact}, and a stop waits {waits:.0f} s for the end of a batch: cut short, it is read "
        "again and written to the sink twice",
        hint='give the job a longer stop: "stop": '
        f'{{"seconds_max": {ceil(long_enough_stop(seconds))}}}',
    )


def of_target(move: Move) -> Iterator[Finding]:
    """Refuse a target that is not empty."""
    target = move.facts.target
    if move.job.target is None:
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
        hint=f"stateshift inspect {quote(target.location)}; choose another target, or "
        'clear this one yourself; of a warm move, "set_aside": true keeps it beside the new image',
    )


def of_links(move: Move) -> Iterator[Finding]:
    """Refuse places that the spec keeps apart by their names, and that a link makes one."""
    facts = move.facts
    places = [facts.source, *facts.merges, *facts.others]
    if move.job.target:
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


def of_owners(move: Move) -> Iterator[Finding]:
    """Refuse to keep what a storage has no word for."""
    job = move.job
    if not job.keep or job.target is None:
        return
    for survey in (move.facts.source, move.facts.target):
        if not survey.traits.get("owners", True):
            fact = f"{survey.location} has no {' and no '.join(job.keep)} of files to keep"
            yield Finding("refuse", fact, hint='leave out "keep"')


def of_merges(move: Move) -> Iterator[Finding]:
    """Refuse directories that cannot be merged into the source by rename."""
    facts = move.facts
    taken = {_top(file.path): move.source for file in facts.source.files}
    for merge in facts.merges:
        yield from merge.findings
        if merge.kind == "empty":
            fact = f"nothing to merge is at {merge.location}"
            yield Finding("refuse", fact, hint="remove it from merge_jobs")
        scheme_and_authority = facts.source.location.split("/")[:3]
        if merge.location.split("/")[:3] != scheme_and_authority:
            yield Finding(
                "refuse",
                f"{merge.location} is not on the file system of {facts.source.location}: a merge "
                "is a rename",
                hint="move it there as a job of its own first (checkpoint_location, "
                "remote_location)",
            )
        elif not facts.source.traits.get("renames", True):
            yield Finding(
                "refuse",
                f"the storage of {facts.source.location} cannot rename: a merge there would be a "
                "copy and a delete",
                hint="move both to a file system, or merge them as jobs with a remote_location",
            )
        tops = {_top(file.path) for file in merge.files} - {"_stateshift"}
        for name in sorted(tops & taken.keys()):
            yield Finding(
                "refuse",
                f"{name} is both in {taken[name]} and in {merge.location}: merging would "
                "mix two operators",
                hint="remove or rename one of them; nothing was moved",
            )
        taken.update(dict.fromkeys(tops, merge.location))
        for image in merge.images:
            yield from image.findings
            if image.fence is not None:
                fact = f"{under(merge.location, image.path)} is fenced by run {image.fence}"
                yield Finding("refuse", fact, hint=rollback_of(image.fence))


def _top(path: str) -> str:
    return path.split("/", 1)[0]


def of_names(move: Move) -> Iterator[Finding]:
    """Refuse operators whose directories collide, or are not there."""
    owners: dict[str, str] = {}
    for name, directory in directories(move).items():
        if directory in owners:
            yield Finding(
                "refuse",
                f"operators {owners[directory]!r} and {name!r} have the same directory {directory}",
                hint="rename one, choose another uid_hash, or give one a directory of its own "
                "in the spec",
            )
        owners[directory] = name
    if move.facts.source.kind != "workflow":
        return
    directories_there = {image.path for image in move.images}
    for operator in move.job.operators:
        if operator.directory is not None and operator.directory not in directories_there:
            fact = (
                f"operator {operator.name!r} is mapped to {operator.directory}, which "
                f"is not in {move.source}"
            )
            hint = f"stateshift inspect {quote(move.source)} lists the directories"
            yield Finding("refuse", fact, hint=hint)


def directories(move: Move) -> dict[str, str]:
    """Return the directories of operators by name: from the spec, else from the index."""
    names: dict[str, str] = {}
    for survey in (*move.facts.merges, move.facts.source):
        names.update(survey.names)
    operators = move.job.operators
    by_spec = {operator.name: directory_of(move.spec, operator, names) for operator in operators}
    return names | by_spec


def of_storage(move: Move) -> Iterator[Finding]:
    """Report a target that cannot be written to, and a storage that could be faster."""
    yield from of_free_space(move.job, move.facts, staying_files(move))
    yield from of_faster_storage(move.job, move.facts)


# A first deployment moves nothing.
FINDINGS_OF_START: tuple[Findings, ...] = (of_names, of_clusters)


FILES_MAX = 5  # named in a message


def of_repair(move: Move) -> Iterator[Finding]:
    """Report the files that are left out, taken and rebuilt. Refuse a repair beside anything else,
    and a planned batch that is lost where a sink may have it.
    """
    repair = move.repair
    if repair is None:
        return
    refused = tuple(_not_alone(move))
    yield from refused
    if refused or isinstance(repair, Import):
        return
    (image,) = move.images
    if repair.leave:
        yield Finding("warn", f"left out, as damaged: {_named(repair.leave)}")
    for place in dict.fromkeys(repair.take.values()):
        paths = [path for path, location in repair.take.items() if location == place]
        yield Finding("warn", f"taken from {place}: {_named(paths)}")
    if repair.rebuild:
        told = _named(tuple(repair.rebuild))
        yield Finding("warn", f"rebuilt, as the next batch's offsets have it: {told}")
    if METADATA in repair.take:
        yield Finding(
            "warn",
            f"the query id is that of {repair.take[METADATA]}: if that is a fork, sinks take the "
            "job for another query",
            hint="the job's own log and its progress name its id",
        )
    following = (image.epoch or 0) + 1
    if offset_path(following) in repair.leave:
        fact = (
            f"batch {following} was planned, and its offsets are damaged: its input is planned "
            "again, in other batches maybe"
        )
        if may_know(move, image, following):
            fact = (
                f"{fact}. A sink that has batch {following} ({SKIPPING}) drops what gets its number"
            )
            yield Finding("refuse", fact, waive=REPEATED, hint=WAIVE)
        else:
            yield Finding("warn", fact)


def of_import(move: Move) -> Iterator[Finding]:
    """Note the place of the files that were made of rows."""
    if isinstance(move.repair, Import):
        for place in dict.fromkeys(move.repair.take.values()):
            yield Finding("note", f"files of state that were made of rows: {place}")


def _not_alone(move: Move) -> Iterator[Finding]:
    """Refuse a repair that is not of one checkpoint, to another place, and nothing else."""
    job, images = move.job, len(move.images)
    change = "an import" if isinstance(move.repair, Import) else "a repair"
    if len(job.transform) != 1:
        hint = f"{change} first, in a job of its own; then change the new image"
        yield Finding("refuse", f"{change} beside another change", hint=hint)
    if job.target is None:
        hint = 'say where the new image goes: "remote_location"'
        yield Finding("refuse", f"{change} in place", hint=hint)
    if job.mode not in ("move", "fork"):
        hint = 'stop the job, and do it with "mode": "move" or "fork"'
        yield Finding("refuse", f'{change} in rounds ("mode": "{job.mode}")', hint=hint)
    if images != 1:
        hint = "name the checkpoint of one query as the job's location: a job for each"
        yield Finding("refuse", f"{change} of {images} queries at once", hint=hint)


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - FILES_MAX} more" if len(paths) > FILES_MAX else ""
    return f"{', '.join(paths[:FILES_MAX])}{more}"


FINDINGS: tuple[Findings, ...] = (
    of_source,
    of_stopping,
    of_real_time,
    of_target,
    of_links,
    of_owners,
    of_merges,
    of_names,
    of_places,
    of_data,
    of_strangers,
    of_batches,
    of_ends,
    of_storage,
    of_standby,
    of_replay,
    of_positions,
    of_topics,
    of_tables,
    of_sink,
    of_moved_output,
    of_clusters,
    of_reach,
    of_joining,
    of_in_place,
    of_kept_tables,
    of_versions,
    of_merge,
    of_renumbering,
    of_repair,
    of_import,
    of_changes,
)
