"""Everything that a person should know before savepoints are taken of running jobs, or their
checkpoints are copied while they run. Pure.

A canonical savepoint fits any state backend, and can be rescaled by us. Not every job can write
one; a native one does where nothing needs the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from stateshift.engines.flink.findings.target import of_reading, of_writing
from stateshift.engines.flink.image import flink_facts, is_readable, metadata_of
from stateshift.engines.flink.places import location_of
from stateshift.engines.flink.rewrite.choice import asked_version
from stateshift.engines.flink.rewrite.move import Move
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import AbsoluteFile, FileHandle, Segment, files_of
from stateshift.formats.flink.versions import newest_for
from stateshift.specification import JobSpec
from stateshift.specification.location import relation
from stateshift.specification.model import JOB_STOPPED
from stateshift.storage import locations
from stateshift.survey import (
    ClusterFacts,
    Facts,
    Finding,
    LiveJob,
    Savable,
    Survey,
    note,
    refuse,
    warn,
)

# The clusters that can be asked for savepoints, and for a job's progress since.
ASKABLE = ("flink_rest", "flink_yarn", "flink_operator", "memory")
FRESH_SECONDS = 60.0
# Application mode with high availability gives a job no id of its own, but 0 (ZERO_JOB_ID of
# Flink's ApplicationDispatcherBootstrap) or, later, a signed hash of its cluster's id.
FIXED_IDS = ("000000", "ffffffff")
_SAVEPOINT = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")  # as Flink names it
LISTED_MAX = 8  # jobs that a hint names
REWRITE_STATE = ("rescale", "union")  # changes that read keyed state, key by key
_BACKENDS = ("state.backend.type", "state.backend")
_KINDS = ("hashmap", "rocksdb", "forst")
# Messages about checkpoints of which nothing stays, and the setting with which it does.
_PARTS = (
    "are parts of files that still grow",
    '"execution.checkpointing.file-merging.enabled": false',
)
_WRITTEN_AGAIN = (
    "are written again each time",
    '"state.backend.type": rocksdb with "execution.checkpointing.incremental": true',
)


def of_taking(move: Move) -> Iterator[Finding]:
    """Report clusters that cannot take savepoints, or read them, and the end of the old job."""
    job, facts, cluster = move.job, move.facts, move.facts.source_cluster
    if cluster is not None:
        yield from _of_asking(job, cluster)
    # The newest version that the metadata may have: as asked for, or as the cluster writes it.
    written = newest_for(asked_version(job))
    if written is None and cluster is not None:
        written = newest_for(cluster.version)
    if facts.target_cluster is not None and written is not None:
        yield from of_reading(facts.target_cluster, written)
    if cluster is not None:
        theirs = facts.target_cluster.version if facts.target_cluster is not None else None
        yield from of_writing(cluster, theirs or asked_version(job))
    if job.mode == "warm":
        yield warn(
            "what the job does since its last checkpoint is done again, as after a failure: a sink "
            "that is not transactional gets it twice",
            hint='"mode": "move" ends it with a savepoint, and nothing is done after that',
        )
    elif job.target is not None:
        yield note(
            "what is copied, and what is rewritten, is planned from the savepoints, once they are "
            "taken"
        )
    yield from _of_stopping(job)


def _of_asking(job: JobSpec, cluster: ClusterFacts) -> Iterator[Finding]:
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    if cluster.kind not in ASKABLE:
        yield refuse(
            f"{cluster.name} ({cluster.kind}) cannot be asked for a savepoint",
            hint='give it "kind": "flink_rest" and its "url"; or take the savepoint yourself, and '
            'name it in "existing_savepoint_paths"',
        )
    elif job.mode == "warm" and cluster.kind == "flink_operator":
        yield refuse(
            f"{cluster.name} ({cluster.kind}) ends a job with a savepoint, and not with a "
            "checkpoint",
            hint='"mode": "move"',
        )
    elif cluster.state not in ("running", "unknown"):
        what = "no savepoint can be taken" if job.mode != "warm" else "it cannot be followed"
        yield refuse(
            f"{', '.join(job.flink.job_ids)} on {cluster.name}: {cluster.state}, and {what}",
            hint=f"{_running_there(cluster)}; or name the savepoint it ended with in "
            '"existing_savepoint_paths"',
        )


def _running_there(cluster: ClusterFacts) -> str:
    ids: dict[str, None] = {}  # each once, in their order
    for savable in cluster.savable:
        ids.update(dict.fromkeys(savable.listed))
    if not ids:
        return f"no job runs on {cluster.name}"
    more = f" and {len(ids) - LISTED_MAX} more" if len(ids) > LISTED_MAX else ""
    return f'jobs that run there, for "job_ids": {", ".join([*ids][:LISTED_MAX])}{more}'


def _of_stopping(job: JobSpec) -> Iterator[Finding]:
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    if job.flink.cancel_job:
        yield warn(
            "records that the job reads between its savepoint and its cancellation are done twice, "
            "or lost where its source cannot be read again",
            hint='leave out "cancel_job": the job then ends with its savepoint, and does nothing '
            "after it",
        )
    elif job.flink.cancel_job is False or job.mode == "fork":
        yield warn(
            "the old job goes on: what it does after its savepoint is not in the new one, and both "
            "write",
            hint='leave out "cancel_job" to stop it with its savepoint',
        )
    if job.stop.get("drain"):
        yield warn(
            "a drained job fires all its windows and timers, as at the end of all input: it is not "
            "meant to go on"
        )


# ---- jobs that run beside an image of which only the files are named


def of_fresh_checkpoint(move: Move) -> Iterator[Finding]:
    """Warn of a checkpoint just written, by a job that nobody can be asked about. A savepoint that
    ends its job is always new.
    """
    job, facts = move.job, move.facts
    if facts.stopped or not job.moves or job.image_writers or job.takes_over is not None:
        return
    newest = max((file.modified for file in facts.source.files), default=0.0)
    is_checkpoint = flink_facts(facts.source.images[0]).kind == "checkpoint"
    is_fresh = newest > 0.0 and facts.at - newest < FRESH_SECONDS
    if facts.source_cluster is None and is_checkpoint and is_fresh:
        age = max(0.0, facts.at - newest)
        yield warn(
            f"the newest file of {facts.source.place} is {age:.0f} s old: is the job stopped?",
            hint='one that runs on would be beside the new job; a "source_cluster" of kind '
            "flink_rest or flink_operator in the spec is asked whether it does",
        )


def of_live_jobs(move: Move) -> Iterator[Finding]:
    """Refuse to start a job beside the one whose image this is, and warn of one that may be it."""
    job, facts, source = move.job, move.facts, move.facts.source_cluster
    cluster = source or facts.target_cluster
    if cluster is None or facts.stopped or not job.is_known_by_files:
        return
    spec = "the spec names it" if job.ids_on_cluster or job.stop else "it has the job's name"
    is_named = source is not None and source.state in ("running", "queued")
    silent = []
    jobs = cluster.live
    if is_named and job.ids_on_cluster:
        jobs = (LiveJob(cluster.job or "", job.name, cluster.job or job.ids_on_cluster[0]),)
    for live in jobs:
        known = f"{live.name} ({live.label})"
        why = spec if is_named and cluster.job in (live.id, live.label) else None
        ties = (_tie(move, survey, live) for survey in move.surveys)
        tie = next(filter(None, ties), None)
        why, likeness = tie or why, _likeness(move, live)
        fact = f"{known} runs on {cluster.name}"
        end = (
            f'"job_ids": ["{live.label}"] in place of "existing_savepoint_paths" ends it with a '
            "savepoint, which is moved; or end it yourself, and name the savepoint that it leaves"
        )
        if why is not None and job.flink is not None and job.flink.cancel_job is False:
            yield warn(f"{fact}, and {why}: it goes on beside the new job, and both write")
        elif why is not None:
            # A fork starts from the image of another job, and ids and names may be alike.
            other = f'if that is another job, "waive": ["{JOB_STOPPED}"]; if it is this one, '
            yield refuse(
                f"{fact}, and {why}: it would run on, beside a job that starts from what it was "
                "before",
                waive=JOB_STOPPED,
                hint=f'{other if tie else ""}{end}; or "mode": "fork", where both are to run',
            )
        elif likeness is not None:
            yield warn(
                f"{fact} with {likeness}: if that is its job, it runs on beside the new one",
                hint=f"if it is: {end}",
            )
        elif live.operators is None:
            silent.append(known)
    if silent:
        yield warn(
            f"{cluster.name} does not tell of {', '.join(silent[:LISTED_MAX])} what it has "
            "written: whether this image is its own is not known"
        )


def _likeness(move: Move, live: LiveJob) -> str | None:
    """Return the likeness of a running job to an image that may be another job's, if any."""
    if any(_is_named_for(survey, live) for survey in move.surveys):
        return "an id that many jobs have, for which this image is named"
    if move.facts.source_cluster is None or not live.operators:
        return None
    own = set[str]()
    for survey in filter(is_readable, move.surveys):
        own.update(operator.id.hex() for operator in metadata_of(survey.images[0]).operators)
    return "the operators of this image" if own.issuperset(live.operators) else None


def _is_named_for(survey: Survey, live: LiveJob) -> bool:
    """Whether an image has the name that Flink gives to those of this job: it calls the folder of
    checkpoints by the job's id, and a savepoint by the first six digits of that.
    """
    of_savepoint = f"savepoint-{live.id[:6]}-"
    is_named = locations.name(survey.place).startswith(of_savepoint)
    return bool(live.id) and (is_named or live.id in survey.place.split("/"))


def _tie(move: Move, survey: Survey, live: LiveJob) -> str | None:
    """Return the reason to call a running job the image's own, if there is one."""
    place, name = survey.place, locations.name(survey.place)
    if _is_named_for(survey, live) and not live.id.startswith(FIXED_IDS):
        return "this image is named for it"

    def is_it(image: str) -> bool:
        there = location_of(image, place)
        is_same_name = _SAVEPOINT.fullmatch(name) and locations.name(image.rstrip("/")) == name
        return bool(is_same_name) or (there is not None and relation(there, place) == "same")

    if any(map(is_it, live.images)):
        return "this image is one of its own"
    others = [other for other in move.spec.jobs if other.name != move.job.name]
    is_shared = any(place in (other.source, *other.further_images) for other in others)
    # Several jobs of one spec may start from one image, on the cluster where it was taken.
    is_restored = live.restored is not None and is_it(live.restored)
    if is_restored and move.facts.source_cluster is not None and not is_shared:
        return "it was started from this image"
    return None


# ---- savepoints


def is_native(job: JobSpec, facts: Facts, id: str) -> bool:
    """Whether this job's savepoint is native: by the spec, or as no other can be taken."""
    asked = job.stop.get("format")
    if asked is None:
        return _savable(facts, id).no_canonical is not None
    return bool(asked == "native")


def of_savepoints(move: Move) -> Iterator[Finding]:
    """Report the format of savepoints that are yet to be taken, and the width of their jobs."""
    job = move.job
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    for id_ in job.flink.job_ids:
        savable = _savable(move.facts, id_)
        if savable.no_canonical is not None:
            yield from _of_format(job, savable)
        yield from _of_widths(job, savable)


def _of_format(job: JobSpec, savable: Savable) -> Iterator[Finding]:
    if job.stop.get("format") == "native":
        return
    if job.stop.get("format") == "canonical":
        hint = 'leave out "format" of `stop`, or make it "native"'
        yield refuse(f"{savable.no_canonical}: asked for one, the job fails", hint=hint)
        return
    needs = _needs_canonical(job, savable)
    if needs is not None:
        fact = f"{savable.no_canonical}, and {needs} needs one"
        yield refuse(fact, hint="leave that out: a native savepoint is then taken by itself")
        return
    yield note(
        f"{savable.no_canonical}: its savepoint is taken in the native format, which is restored "
        "by the state backend that wrote it alone"
    )


def _needs_canonical(job: JobSpec, savable: Savable) -> str | None:
    """Return the demand that a native savepoint would not satisfy."""
    rewriting = _rewriting_change(job)
    if rewriting is not None:
        return f'"kind": "{rewriting}"'
    wanted = _configured_backend(job)
    backend = (savable.backend or "").lower()
    ours = next((kind for kind in _KINDS if kind in backend), None)
    if wanted is None or ours is None or ours in wanted:
        return None
    return f"the state backend {wanted!r} of `submit`, which is not the job's own,"


def _rewriting_change(job: JobSpec) -> str | None:
    """Return the kind of the first change that reads keyed state, key by key."""
    for change in job.transform:
        if change.kind in REWRITE_STATE:
            return change.kind
    return None


def _configured_backend(job: JobSpec) -> str | None:
    if job.submit is None:
        return None
    configured: Mapping[str, object] = job.submit.options.get("flink_configuration") or {}
    for key in _BACKENDS:
        if key in configured:
            return str(configured[key]).lower()
    return None


def _of_widths(job: JobSpec, savable: Savable) -> Iterator[Finding]:
    """Yield a refusal for more subtasks than there are key groups: Flink does not start that."""
    wanted = _parallelism(job)
    if wanted is None or _rewriting_change(job) is not None:
        return
    widest = max((count for count, _ in savable.widths.values()), default=0)
    for name, (count, most) in savable.widths.items():
        if count == widest and 1 < most < wanted:
            yield _too_wide(wanted, f"{name!r} of {savable.name}", most)


def of_parallelism(move: Move) -> Iterator[Finding]:
    """Refuse more subtasks than an operator of the images has key groups."""
    wanted = _parallelism(move.job)
    if wanted is None:
        return
    operators, narrow = move.operators, []
    # One with fewer subtasks than the widest has a number of its own, which `submit` does not
    # change.
    widest = max((operator.parallelism for operator in operators), default=0)
    for operator in operators:
        most = move.redistribution.max_parallelism or operator.max_parallelism
        is_widest = bool(operator.subtasks) and operator.parallelism == widest
        if is_widest and 1 < most < wanted:
            narrow.append((most, operator.uid or operator.id.hex()))
    if narrow:
        most, name = min(narrow)
        more = f" (and of {len(narrow) - 1} more)" if len(narrow) > 1 else ""
        yield _too_wide(wanted, f"operator {name}{more}", most)


def _too_wide(wanted: int, operator: str, most: int) -> Finding:
    power_of_two = 1 << max(7, (wanted - 1).bit_length())
    return refuse(
        f"`submit` asks for parallelism {wanted}, and the state of {operator} has max parallelism "
        f"{most}: Flink refuses it",
        hint=f'"parallelism" up to {most}; or {{"kind": "rescale", "max_parallelism": '
        f'{power_of_two}}} under "transform"',
    )


def _savable(facts: Facts, id: str) -> Savable:
    known = facts.source_cluster.savable if facts.source_cluster is not None else ()
    return next((savable for savable in known if savable.id == id), Savable(id))


def _parallelism(job: JobSpec) -> int | None:
    wanted = job.submit.options.get("parallelism") if job.submit is not None else None
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None


# ---- checkpoints


def of_rounds(move: Move) -> Iterator[Finding]:
    """Refuse a checkpoint of which a round could copy nothing for good."""
    source = move.facts.source
    reason = _why_nothing_stays(source) if is_readable(source) else None
    if reason is not None:
        what, way = reason
        yield refuse(
            f"{move.job.name}'s checkpoints {what}: nothing can be copied for good before the job "
            "is stopped",
            hint=f'start it with {way}; or "mode": "move"',
        )


def _why_nothing_stays(survey: Survey) -> tuple[str, str] | None:
    """Return the reason why nothing of a checkpoint stays as it is, and the remedy's setting."""
    files: list[FileHandle] = []
    for reference in references(metadata_of(survey.images[0])):
        if reference.role == "keyed":
            files.extend(files_of(reference.stream))
    if not files or any(isinstance(file, AbsoluteFile) for file in files):
        return None
    if any(isinstance(file, Segment) for file in files):
        return _PARTS
    return _WRITTEN_AGAIN  # what a checkpoint does not share with others lies beside its metadata
