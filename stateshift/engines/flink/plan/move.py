"""The plan of one Flink job, from spec and facts and nothing else.

    halt        take the savepoints of the jobs that still run, and stop them with it
    copy        the files of every image, in bundles; what lay elsewhere, or was a part of a file,
                becomes a file of its own; each image's metadata, beside the target's
    transform   the metadata of the target, not yet under its name
    compare     the entries of every operator
    publish     the metadata under its name: Flink looks for nothing else
    submit, confirm

The sources stay as they are (IF-10). A job that still runs has no image yet: its plan is a halt
plan, and a move plan that is made once the savepoints are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter

from stateshift import plain
from stateshift.engines.bundles import keep_copied as kept_of
from stateshift.engines.bundles import without_kept, without_shown
from stateshift.engines.findings import findings_of
from stateshift.engines.flink import layout
from stateshift.engines.flink.findings.move import (
    FINDINGS,
    FINDINGS_OF_CHECKPOINT,
    FINDINGS_OF_SAVEPOINTS,
    FINDINGS_OF_START,
    of_sources,
)
from stateshift.engines.flink.findings.taking import ASKABLE, is_native
from stateshift.engines.flink.findings.target import PARALLELISM, carried_settings, takes_settings
from stateshift.engines.flink.image import is_readable, metadata_of
from stateshift.engines.flink.plan.comparison import compares
from stateshift.engines.flink.plan.copy import (
    as_they_are,
    bare,
    compare_copies,
    copies,
    metadata_copy,
    names_of,
    paths_of,
    round_of,
    summary,
    there_already,
)
from stateshift.engines.flink.rewrite.choice import asked_version
from stateshift.engines.flink.rewrite.move import Move
from stateshift.engines.flink.rewrite.transforms import KEEP, METADATA
from stateshift.engines.flink.rewrite.unkeyed import MANAGED
from stateshift.engines.start import Awaited, Handed, group_steps, start
from stateshift.errors import StalePlan
from stateshift.formats.flink.versions import newest_for
from stateshift.formats.marks import FOLDER
from stateshift.formats.standby import epoch_folder
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec, Spec, SubmitSpec
from stateshift.step import (
    AnyStep,
    BringFiles,
    CompareImages,
    CopyFiles,
    Elsewhere,
    EndedJob,
    KeepBrought,
    TakeCheckpoint,
    TakeSavepoint,
    TransformShard,
)
from stateshift.survey import Facts, FileInfo, Finding, Survey

STOP_SECONDS_MAX = 600


def plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the job's plans in order: one, or halt and move, with a round of copying if warm."""
    move = Move(spec, job, facts)
    if not spec.restart:
        phases = phases_of(*_start(move, None))
        plan = _plan(move, phases, findings_of(move, FINDINGS_OF_START))
        return (replace(plan, purpose="start"),)
    if job.image_writers and job.mode == "warm":
        later = _provisional(_move_from_checkpoint(move), facts)
        return round_plan(spec, job, facts), halt_plan(move), later
    move = replace(move, facts=bare(facts))
    if job.image_writers:
        findings = findings_of(move, FINDINGS_OF_SAVEPOINTS)
        later = _provisional(_plan(move, phases_of(*_start(move, 0)), findings), facts)
        return halt_plan(move), later
    return (move_plan(move),)


def _provisional(plan: Plan, facts: Facts) -> Plan:
    """Return the plan as one that holds only as long as the job is this one: it may write on."""
    return replace(plan, provisional=True, facts=identity_of(facts))


def round_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Copy what can be copied of the last checkpoint, if there is one, while the job runs."""
    move = Move(spec, job, replace(facts, others=()))
    steps: tuple[BringFiles, ...] = ()
    if _is_whole(facts.source):
        steps = tuple(round_of(move, tuple(as_they_are(move))))
    made = _plan(move, phases_of(Phase("copy", steps)), (), facts.source.epoch)
    return replace(_provisional(made, facts), purpose="warm")


def standby_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Publish what a round has copied as a start, and only then remove what it does not need."""
    move = Move(spec, job, replace(bare(facts), others=()))
    if not _is_whole(move.facts.source):
        raise StalePlan(
            f"the last checkpoint of {job.name} is gone, since a newer one has been completed",
            hint="the next round brings that",
        )
    copied, keeping = _behind_rounds(move)
    epoch, target = move.facts.source.epoch, move.target
    assert epoch is not None, "a whole image has one"
    # A later checkpoint's metadata takes its name, and the files that this one names are kept.
    kept = layout.under(epoch_folder(epoch), layout.METADATA)
    retired = []
    for number, step in enumerate(without_kept(move.facts, keeping)):
        dropped = tuple(path for path in step.dropped if path != kept)
        retired.append(replace(step, name=f"retire/{number}", items=(), dropped=dropped))
    published = (_published("publish/kept", target, kept), _published("publish/metadata", target))
    phases = phases_of(
        Phase("copy", copied),
        Phase("transform", (_metadata(move),)),
        Phase("publish", published, ordered=True),
        Phase("retire", tuple(retired)),
    )
    made = _plan(move, phases, (), epoch)
    return replace(_provisional(made, move.facts), purpose="standby")


def _behind_rounds(move: Move) -> tuple[tuple[AnyStep, ...], tuple[KeepBrought, ...]]:
    """Return the steps left after rounds, and those that keep or remove the rounds' files."""
    wholes = tuple(as_they_are(move))
    wanted = names_of(wholes)
    at_target = there_already(move.facts, wanted)
    # The files that a plan writes beside those of its sources.
    written = {layout.METADATA, layout.STAGED}
    written.update(metadata_copy(number) for number, _ in enumerate(move.choice.taken))
    written.update(summary(rewritten) for rewritten in move.redistribution.rewritten)
    written.update(name for key, name in wanted.items() if key not in at_target)
    copied = copies(move, wholes, at_target)
    return tuple(copied), tuple(kept_of(move.facts, at_target, written))


def _is_whole(survey: Survey) -> bool:
    """Whether an image is there and whole: Flink removes a checkpoint once it has a newer one."""
    findings = [*survey.findings]
    for image in survey.images:
        findings.extend(image.findings)
    return is_readable(survey) and not _are_refused(findings)


def _are_refused(findings: Iterable[Finding]) -> bool:
    return any(finding.level == "refuse" for finding in findings)


def _move_from_checkpoint(move: Move) -> Plan:
    """Return the move from the last checkpoint: the job's end adds little to it."""
    findings = findings_of(move, FINDINGS_OF_CHECKPOINT)
    if not is_readable(move.facts.source) or _are_refused(findings):
        return _plan(move, phases_of(*_start(move, 0)), findings)
    made = move_plan(replace(move, facts=bare(move.facts)))
    return replace(made, findings=tuple(dict.fromkeys((*findings, *made.findings))))


def halt_plan(move: Move) -> Plan:
    """Return the plan that takes the savepoints. The next survey is made where they are."""
    job, again = move.job, _restarting(move.job)
    steps: tuple[AnyStep, ...]
    if job.mode == "warm":
        (job_id,) = job.image_writers
        take_checkpoint = TakeCheckpoint(
            name="halt/checkpoint",
            cluster=job.source_cluster or "",
            job=job.name,
            job_id=job_id,
            seconds_max=_patience(move.spec, job),
            restart=again.options if again else None,
            restart_environment=again.environment if again else {},
        )
        steps = (take_checkpoint,)
    else:
        steps = tuple(_take_savepoints(move))
    halted = _plan(move, phases_of(Phase("halt", steps)), ())
    return replace(halted, purpose="halt", epoch=None, facts=identity_of(move.facts))


def _take_savepoints(move: Move) -> Iterator[TakeSavepoint]:
    job = move.job
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    again, cancel = _restarting(job), job.flink.cancel_job
    is_stopped = cancel is None and job.moves
    kind = "savepoint" if is_stopped or cancel else "copy"  # the latter stops no job
    for number, job_id in enumerate(job.image_writers):
        yield TakeSavepoint(
            name=f"halt/{kind}-{number}",
            cluster=job.source_cluster or "",
            job=job.name,
            job_id=job_id,
            directory=job.source,
            stop=is_stopped,
            cancel=bool(cancel),
            drain=bool(job.stop.get("drain", False)),
            native=is_native(job, move.facts, job_id),
            seconds_max=_patience(move.spec, job),
            restart=again.options if again else None,
            restart_environment=again.environment if again else {},
        )


def _restarting(job: JobSpec) -> SubmitSpec | None:
    """Return the way a rollback starts the old job; a person tells several apart."""
    return job.source_submit if len(job.image_writers) == 1 else None


def _patience(spec: Spec, job: JobSpec) -> float:
    seconds = STOP_SECONDS_MAX
    if job.source_cluster:
        seconds = spec.cluster(job.source_cluster).options.get("seconds_max", seconds)
    return float(job.stop.get("seconds_max", seconds))


def move_plan(move: Move) -> Plan:
    """Return the plan of complete images; with findings and no steps if one refuses the move."""
    if not all(map(is_readable, move.surveys)):
        return _plan(move, (), findings_of(move, (of_sources,)))
    findings = findings_of(move, FINDINGS)
    if _are_refused(findings):
        return _plan(move, (), findings)
    epoch = max(metadata_of(survey.images[0]).checkpoint_id for survey in move.surveys)
    if move.job.target is None:
        return _plan(move, phases_of(*_start(move, epoch)), findings, epoch)
    copied, kept = _behind_rounds(move)
    keeping, gone_last = without_shown(move.facts, kept)
    published: tuple[AnyStep, ...] = (*gone_last, _published("publish/metadata", move.target))
    published += tuple(group_steps(move.facts))
    is_as_it_is = all(isinstance(step, CopyFiles) for step in copied)
    compared: Iterator[CompareImages] = compares(move)
    if move.job.verify == "none":
        compared = iter(())
    elif is_as_it_is and any(step.items for step in keeping):
        # Rounds have compared what they copied byte for byte: the rest then is, too.
        compared = compare_copies(copied)
    phases = phases_of(
        Phase("copy", (*keeping, *copied)),
        Phase("transform", (_metadata(move),)),
        Phase("compare", tuple(compared)),
        Phase("publish", published, ordered=True),
        *_start(move, epoch),
    )
    return _plan(move, phases, findings, epoch)


def identity_of(facts: Facts) -> str:
    """Return the fingerprint of what does not change while a job runs: its identity and place."""
    target, theirs = facts.target, facts.target_cluster
    goes_to = None
    if target is not facts.source:
        files_there = [file for file in target.files if not file.path.startswith(f"{FOLDER}/")]
        goes_to = [target.location, target.kind, len(files_there)]
    # A cluster of a single application goes with its job, and tells no version then.
    runs_on = facts.source_cluster and facts.source_cluster.name
    starts_on = theirs and [theirs.name, theirs.version]
    return plain.fingerprint([goes_to, runs_on, starts_on])


def fingerprint_of(facts: Facts) -> str:
    """Return a fingerprint of every file of every image."""
    images = [
        [survey.location, survey.kind, sorted(survey.files), survey.epoch]
        for survey in (facts.source, *facts.others)
    ]
    return plain.fingerprint([identity_of(facts), images])


def _plan(
    move: Move, phases: tuple[Phase, ...], findings: tuple[Finding, ...], epoch: int | None = None
) -> Plan:
    job, facts = move.job, move.facts
    ends = chain.from_iterable(image.endpoints for image in facts.source_images)
    return Plan(
        job=job.name,
        engine=layout.ENGINE,
        purpose="move",
        source=facts.source.location,
        target=facts.target.location if job.target else facts.source.location,
        epoch=epoch,
        phases=phases,
        findings=findings,
        facts=fingerprint_of(facts),
        endpoints=tuple(end.plain for end in ends),
        positions=tuple(chain.from_iterable(each.changes for each in facts.positions)),
    )


def _metadata(move: Move) -> TransformShard:
    asked = asked_version(move.job)
    options: dict[str, object] = {
        "taken": [taken.plain() for taken in move.choice.taken],
        "version": newest_for(asked) if asked else None,
        "max_parallelism": move.redistribution.max_parallelism,
    }
    inputs: list[Elsewhere] = []
    for number, survey in enumerate(move.surveys):
        path = layout.under(survey.images[0].path, layout.METADATA)
        info = next(file for file in survey.files if file.path == path)
        kept = Elsewhere(move.target, (FileInfo(metadata_copy(number), info.size),))
        inputs.append(Elsewhere(survey.location, (info,)) if move.prunes else kept)
    for rewritten in move.redistribution.rewritten:
        inputs.append(Elsewhere(move.target, (FileInfo(summary(rewritten), 0),)))
    # The state that is rewritten into the metadata: it is small.
    survey = move.facts.source
    infos = {file.path: file for file in survey.files}
    paths: dict[str, None] = {}
    for operator in move.new_offsets:
        paths.update(dict.fromkeys(paths_of(survey.images[0], operator, (MANAGED,))))
    files = tuple(infos[path] for path in paths)
    if move.new_offsets:
        options["changed"] = {
            **move.choice.taken[0].places.plain(),
            "operators": {id_: new.plain() for id_, new in move.new_offsets.items()},
            "paths": [file.path for file in files],
        }
    if files:
        inputs.append(Elsewhere(move.facts.source.location, files))
    first, *beside = (
        Elsewhere(location, tuple(chain.from_iterable(place.files for place in own)))
        for location, own in groupby(inputs, key=attrgetter("location"))
    )
    return TransformShard(
        name="transform/metadata",
        transform=METADATA,
        options=options,
        source=first.location,
        inputs=first.files,
        target=move.target,
        outputs=(layout.STAGED,),
        beside=tuple(beside),
    )


def _published(name: str, target: str, path: str = layout.METADATA) -> TransformShard:
    return TransformShard(
        name=name,
        transform=KEEP,
        options={},
        source=target,
        inputs=(FileInfo(layout.STAGED, 0),),
        target=target,
        outputs=(path,),
        whole=True,
    )


def _start(move: Move, epoch: int | None) -> Iterator[Phase]:
    """Yield the phases that start the job from its image; from none where there is no epoch."""
    location = move.job.destination if epoch is not None else ""
    cluster = move.facts.target_cluster
    awaited = Awaited(location, epoch) if cluster is None or cluster.kind in ASKABLE else None
    # `submit` with the settings that would be missing, and the spec's word on restoring.
    job = move.job
    options = dict(job.submit.options) if job.submit else {}
    settings = carried_settings(move)
    if settings and takes_settings(move):
        parallelism = settings.pop(PARALLELISM, None)
        if parallelism is not None:
            options["parallelism"] = int(parallelism)
        if settings:
            options["flink_configuration"] = {
                **settings,
                **(options.get("flink_configuration") or {}),
            }
    if job.flink is not None and job.flink.allow_non_restored_state:
        options.setdefault("allow_non_restored_state", True)
    handed = Handed(location, options, _ended_jobs(move))
    return start(job, move.facts, handed, awaited)


def _ended_jobs(move: Move) -> tuple[EndedJob, ...]:
    """Return the jobs that others may write back: an operator starts what its resource wants."""
    job, source = move.job, move.job.source_cluster
    is_ended = job.moves and job.flink is not None and job.flink.cancel_job is None
    if source is None or not is_ended:
        return ()
    if move.spec.cluster(source).kind != "flink_operator":
        return ()
    return tuple(EndedJob(source, id) for id in job.ids_on_cluster)
