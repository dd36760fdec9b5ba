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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from stateshift import plain
from stateshift.engines.flink import layout
from stateshift.engines.flink.changes import asked_version
from stateshift.engines.flink.findings.move import (
    of_changes,
    of_clusters,
    of_move,
    of_sources,
    of_target,
    waived,
)
from stateshift.engines.flink.findings.taking import ASKABLE, of_taking
from stateshift.engines.flink.image import is_readable, metadata_of
from stateshift.engines.flink.plan import savepoint as saving
from stateshift.engines.flink.plan import settings as job_settings
from stateshift.engines.flink.plan.comparison import compares
from stateshift.engines.flink.plan.copy import as_they_are, copies, kept, summary
from stateshift.engines.flink.plan.rounds import (
    bare,
    compared,
    names_of,
    of_rounds,
    round_of,
    there_already,
)
from stateshift.engines.flink.rewrite.choice import chosen, id_of
from stateshift.engines.flink.rewrite.move import Move
from stateshift.engines.flink.rewrite.redistribution import redistributed
from stateshift.engines.flink.rewrite.transforms import KEEP, METADATA
from stateshift.engines.rounds import kept as kept_of
from stateshift.engines.rounds import without_shown
from stateshift.engines.start import Awaited, Handed, start
from stateshift.errors import StalePlan
from stateshift.formats.flink.versions import newest_for
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec, Spec, SubmitSpec
from stateshift.specification.waves import sharing
from stateshift.step import (
    AnyStep,
    BringFiles,
    CompareImages,
    CopyFiles,
    KeepBrought,
    TakeCheckpoint,
    TakeSavepoint,
    TransformShard,
)
from stateshift.survey import Facts, FileInfo, Finding, Survey

STOP_SECONDS_MAX = 600


def plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    """Return the job's plans in their order: one for a stopped job or a start without state, else
    halt and move, with a round of copying first where the mode is warm.
    """
    if not spec.restart:
        phases = phases_of(*_start(job, facts, None))
        plan = _plan(job, facts, phases, tuple(of_clusters(facts)))
        return (replace(plan, purpose="start"),)
    if job.image_writers and job.mode == "warm":
        later = replace(_later(spec, job, facts), provisional=True, facts=identity_of(facts))
        return round_plan(spec, job, facts), halt_plan(spec, job, facts), later
    facts = bare(facts)
    if job.image_writers:
        later = _plan(job, facts, phases_of(*_start(job, facts, 0)), tuple(_of_taking(job, facts)))
        later = replace(later, provisional=True, facts=identity_of(facts))
        return halt_plan(spec, job, facts), later
    return (move_plan(spec, job, facts),)


def round_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Copy what can be copied of the last checkpoint while the job runs; nothing where there is
    none yet. The plan of the move says what speaks against it.
    """
    surveys, steps = (facts.source,), tuple[BringFiles, ...]()
    if _is_whole(facts.source):
        wholes = tuple(as_they_are(_move(job, facts, surveys)))
        steps = tuple(round_of(job, facts, wholes))
    made = _plan(job, facts, phases_of(Phase("copy", steps)), (), facts.source.epoch)
    return replace(made, purpose="warm", provisional=True, facts=identity_of(facts))


def _move(job: JobSpec, facts: Facts, surveys: Sequence[Survey]) -> Move:
    choice = chosen(job, surveys)
    redistribution = redistributed(job, surveys, choice)
    return Move(surveys, choice, redistribution, facts.target.location)


def standby_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Publish what a round has copied, so that a job can be started from it, and only then remove
    what it does not need any more. The round has copied everything that these facts need.
    """
    facts = bare(facts)
    if not _is_whole(facts.source):
        raise StalePlan(
            f"the last checkpoint of {job.name} is gone, since a newer one has been completed",
            hint="the next round brings that",
        )
    move = _move(job, facts, (facts.source,))
    copied, keeping = _behind_rounds(facts, move)
    retired = [replace(step, name=f"retire/{n}", items=()) for n, step in enumerate(keeping)]
    phases = phases_of(
        Phase("copy", copied),
        Phase("transform", (_metadata(job, move),)),
        Phase("publish", (_published(move.target),), ordered=True),
        Phase("retire", tuple(retired)),
    )
    made = _plan(job, facts, phases, (), facts.source.epoch)
    return replace(made, purpose="standby", provisional=True, facts=identity_of(facts))


def _behind_rounds(facts: Facts, move: Move) -> tuple[tuple[AnyStep, ...], tuple[KeepBrought, ...]]:
    """Return what is still to be copied, and what becomes of what rounds have copied."""
    wholes = tuple(as_they_are(move))
    wanted = names_of(wholes)
    at_target = there_already(facts, wanted)
    written = set(_written(move))
    written.update(name for key, name in wanted.items() if key not in at_target)
    copied = copies(move, wholes, at_target)
    return tuple(copied), tuple(kept_of(facts, at_target, written))


def _written(move: Move) -> Iterator[str]:
    """Yield what a plan writes beside the files of its sources."""
    yield from (layout.METADATA, layout.STAGED)
    yield from (kept(number) for number, _ in enumerate(move.choice.taken))
    yield from (summary(rewritten) for rewritten in move.redistribution.rewritten)


def _is_whole(survey: Survey) -> bool:
    """Whether an image is there and whole: Flink removes a checkpoint once it has a newer one."""
    findings = [*survey.findings]
    for image in survey.images:
        findings.extend(image.findings)
    return is_readable(survey) and not _are_refused(findings)


def _are_refused(findings: Iterable[Finding]) -> bool:
    return any(finding.level == "refuse" for finding in findings)


def _waived(job: JobSpec, *findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(waived(finding, job.waive) for finding in chain.from_iterable(findings))


def _later(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Return the move as it would be from the last checkpoint: the one that the job ends with has
    little more.
    """
    findings = _waived(
        job,
        of_taking(job, facts),
        of_rounds(job, (facts.source,)),
        job_settings.findings(job, facts),
        of_clusters(facts),
    )
    if not is_readable(facts.source) or _are_refused(findings):
        return _plan(job, facts, phases_of(*_start(job, facts, 0)), findings)
    made = move_plan(spec, job, bare(facts))
    return replace(made, findings=tuple(dict.fromkeys((*findings, *made.findings))))


def halt_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Return the plan that takes the savepoints. The next survey is made where they are."""
    steps = tuple(_halt_steps(spec, job, facts))
    halted = _plan(job, facts, phases_of(Phase("halt", steps)), ())
    return replace(halted, purpose="halt", epoch=None, facts=identity_of(facts))


def _halt_steps(spec: Spec, job: JobSpec, facts: Facts) -> Iterator[AnyStep]:
    if job.mode == "warm":
        yield _take_checkpoint(spec, job)
    else:
        yield from _take_savepoints(spec, job, facts)


def _take_checkpoint(spec: Spec, job: JobSpec) -> TakeCheckpoint:
    (job_id,) = job.image_writers
    again = _restarting(job)
    return TakeCheckpoint(
        name="halt/checkpoint",
        cluster=job.source_cluster or "",
        job=job.name,
        job_id=job_id,
        seconds_max=_patience(spec, job),
        restart=again.options if again else None,
        restart_environment=again.environment if again else {},
    )


def _take_savepoints(spec: Spec, job: JobSpec, facts: Facts) -> Iterator[TakeSavepoint]:
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    again, cancel = _restarting(job), job.flink.cancel_job
    is_stopped = cancel is None and job.moves
    for number, job_id in enumerate(job.image_writers):
        yield TakeSavepoint(
            name=f"halt/savepoint-{number}",
            cluster=job.source_cluster or "",
            job=job.name,
            job_id=job_id,
            directory=job.source,
            stop=is_stopped,
            cancel=bool(cancel),
            drain=bool(job.stop.get("drain", False)),
            native=saving.is_native(job, facts, job_id),
            seconds_max=_patience(spec, job),
            restart=again.options if again else None,
            restart_environment=again.environment if again else {},
        )


def _restarting(job: JobSpec) -> SubmitSpec | None:
    """Return how a rollback starts the old job again. Of several jobs it is not known which of them
    `source_submit` starts: a person tells them apart.
    """
    return job.source_submit if len(job.image_writers) == 1 else None


def _patience(spec: Spec, job: JobSpec) -> float:
    """Return how many seconds a savepoint may take."""
    seconds = STOP_SECONDS_MAX
    if job.source_cluster:
        seconds = spec.cluster(job.source_cluster).options.get("seconds_max", seconds)
    return float(job.stop.get("seconds_max", seconds))


def _of_taking(job: JobSpec, facts: Facts) -> tuple[Finding, ...]:
    """Return what is known before there is a savepoint."""
    return _waived(
        job,
        of_taking(job, facts),
        saving.findings(job, facts),
        job_settings.findings(job, facts),
        of_target(job, facts),
        of_changes(job),
        of_clusters(facts),
    )


def move_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Return the plan that moves a job whose images are complete; it has findings and no steps
    where one of them refuses the move.
    """
    surveys = (facts.source, *facts.others)
    if not all(map(is_readable, surveys)):
        return _plan(job, facts, (), _waived(job, of_sources(surveys)))
    move = _move(job, facts, surveys)
    findings = (
        *of_move(job, facts, move, _taken_by_others(spec, job)),
        *_waived(job, saving.of_parallelism(job, move)),
    )
    if _are_refused(findings):
        return _plan(job, facts, (), findings)
    epoch = max(metadata_of(survey.images[0]).checkpoint_id for survey in surveys)
    if job.target is None:
        return _plan(job, facts, phases_of(*_start(job, facts, epoch)), findings, epoch)
    copied, kept = _behind_rounds(facts, move)
    keeping, gone_last = without_shown(facts, kept)
    phases = phases_of(
        Phase("copy", (*keeping, *copied)),
        Phase("transform", (_metadata(job, move),)),
        Phase("compare", tuple(_comparisons(job, move, copied, keeping))),
        Phase("publish", (*gone_last, _published(move.target)), ordered=True),
        *_start(job, facts, epoch),
    )
    return _plan(job, facts, phases, findings, epoch)


def _comparisons(
    job: JobSpec, move: Move, copied: Sequence[AnyStep], keeping: Sequence[KeepBrought]
) -> Iterator[CompareImages]:
    """Yield the comparisons. Rounds have compared what they copied byte for byte: the rest then is,
    too, where all of it is copied as it is.
    """
    if job.verify == "none":
        return
    after_rounds = any(step.items for step in keeping)
    if after_rounds and all(isinstance(step, CopyFiles) for step in copied):
        yield from compared(copied)
    else:
        yield from compares(job, move)


def _taken_by_others(spec: Spec, job: JobSpec) -> frozenset[str] | None:
    """Return the operators of the jobs that divide this one's savepoints with it; None where it
    divides nothing.
    """
    asked = spec.job(job.name)  # before its savepoints were taken
    others = sharing(spec, asked) if asked is not None else ()
    if not others:
        return None
    operators = chain.from_iterable(other.operators for other in others)
    return frozenset(id_of(operator.name) for operator in operators)


def identity_of(facts: Facts) -> str:
    """Return what does not change while a job runs: who it is, and where it goes, if anywhere."""
    target, theirs = facts.target, facts.target_cluster
    goes_to = None
    if target is not facts.source:
        goes_to = [target.location, target.kind, len(target.files)]
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
    job: JobSpec,
    facts: Facts,
    phases: tuple[Phase, ...],
    findings: tuple[Finding, ...],
    epoch: int | None = None,
) -> Plan:
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
    )


def _metadata(job: JobSpec, move: Move) -> TransformShard:
    asked = asked_version(job)
    inputs = [
        FileInfo(kept(number), _metadata_size(survey)) for number, survey in enumerate(move.surveys)
    ]
    inputs += [FileInfo(summary(rewritten), 0) for rewritten in move.redistribution.rewritten]
    return TransformShard(
        name="transform/metadata",
        transform=METADATA,
        options={
            "taken": [taken.plain() for taken in move.choice.taken],
            "version": newest_for(asked) if asked else None,
            "max_parallelism": move.redistribution.max_parallelism,
        },
        source=move.target,
        inputs=tuple(inputs),
        target=move.target,
        outputs=(layout.STAGED,),
    )


def _metadata_size(survey: Survey) -> int:
    path = layout.under(survey.images[0].path, layout.METADATA)
    return next(file.size for file in survey.files if file.path == path)


def _published(target: str) -> TransformShard:
    return TransformShard(
        name="publish/metadata",
        transform=KEEP,
        options={},
        source=target,
        inputs=(FileInfo(layout.STAGED, 0),),
        target=target,
        outputs=(layout.METADATA,),
        whole=True,
    )


def _start(job: JobSpec, facts: Facts, epoch: int | None) -> Iterator[Phase]:
    location = job.destination if epoch is not None else ""
    askable = facts.target_cluster is None or facts.target_cluster.kind in ASKABLE
    awaited = Awaited(location, epoch) if askable else None
    return start(job, facts, Handed(location, _submitting(job, facts)), awaited)


def _submitting(job: JobSpec, facts: Facts) -> dict[str, object]:
    """Return the options of `submit`, with what the spec says of restored state elsewhere, and the
    settings that the job has now and would not have there.
    """
    options = dict(job.submit.options) if job.submit else {}
    settings = job_settings.carried(job, facts)
    if settings and job_settings.can_be_given(facts):
        parallelism = settings.pop(job_settings.PARALLELISM, None)
        if parallelism is not None:
            options["parallelism"] = int(parallelism)
        if settings:
            options["flink_configuration"] = {
                **settings,
                **(options.get("flink_configuration") or {}),
            }
    if job.flink is not None and job.flink.allow_non_restored_state:
        options.setdefault("allow_non_restored_state", True)
    return options
