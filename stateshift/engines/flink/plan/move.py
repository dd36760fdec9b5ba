"""The plan of one Flink job, from spec and facts and nothing else.

    halt        take the savepoints of the jobs that still run, and stop them with it
    copy        the files of every image, in bundles; what lay elsewhere, or was a part of a file,
                becomes a file of its
                own; each image's metadata, beside the target's
    transform   the metadata of the target, not yet under its name
    compare     the entries of every operator
    publish     the metadata under its name: Flink looks for nothing else
    submit, confirm

The sources stay as they are (IF-10). A job that still runs has no image yet: its plan is a halt
plan, and a move plan that is made once the savepoints are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from stateshift import plain
from stateshift.engines.flink import layout
from stateshift.engines.flink.findings.move import (
    ASKABLE,
    of_changes,
    of_clusters,
    of_move,
    of_sources,
    of_taking,
    of_target,
    waived,
)
from stateshift.engines.flink.image import is_readable, metadata_of
from stateshift.engines.flink.plan import savepoint as saving
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
from stateshift.engines.flink.rewrite.choice import (
    Choice,
    Dealing,
    asked_version,
    chosen,
    dealing,
    id_of,
)
from stateshift.engines.flink.rewrite.transforms import KEEP, METADATA
from stateshift.engines.rounds import kept as kept_of
from stateshift.engines.start import Awaited, start
from stateshift.errors import StalePlan
from stateshift.formats.flink.versions import newest_for
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec, Spec
from stateshift.specification.waves import sharing
from stateshift.step import (
    AnyStep,
    BringFiles,
    CopyFiles,
    KeepBrought,
    TakeCheckpoint,
    TakeSavepoint,
    TransformShard,
)
from stateshift.survey import Facts, FileInfo, Finding, Survey


def plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    if not spec.restart:
        started = _plan(job, facts, phases_of(*_start(job, facts, None)), tuple(of_clusters(facts)))
        return (replace(started, purpose="start"),)
    if job.takes_savepoints and job.mode == "warm":
        later = replace(_later(spec, job, facts), provisional=True, facts=identity_of(facts))
        return round_plan(spec, job, facts), halt_plan(spec, job, facts), later
    facts = bare(facts)
    if job.takes_savepoints:
        later = _plan(job, facts, phases_of(*_start(job, facts, 0)), tuple(_of_taking(job, facts)))
        return halt_plan(spec, job, facts), replace(
            later, provisional=True, facts=identity_of(facts)
        )
    return (move_plan(spec, job, facts),)


def round_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Bring what can be brought of the last checkpoint while the job runs; nothing where there is
    none yet. What speaks against the move is told with the move.
    """
    surveys, steps = (facts.source,), tuple[BringFiles, ...]()
    if _is_whole(facts.source):
        choice = chosen(job, surveys)
        wholes = tuple(as_they_are(surveys, choice, dealing(job, surveys, choice)))
        steps = tuple(round_of(job, facts, wholes))
    made = _plan(job, facts, phases_of(Phase("copy", steps)), (), facts.source.epoch)
    return replace(made, purpose="warm", provisional=True, facts=identity_of(facts))


def standby_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Behind a round that has brought everything these facts need: publish it, so that a job can be
    started from it, and only then remove what it does not need any more.
    """
    facts = bare(facts)
    surveys = (facts.source,)
    if not _is_whole(facts.source):
        raise StalePlan(
            f"the last checkpoint of {job.name} is gone, since a newer one has been completed",
            hint="the next round brings that",
        )
    choice = chosen(job, surveys)
    deal, target = dealing(job, surveys, choice), facts.target.location
    copied, keeping = _behind_rounds(facts, surveys, choice, deal)
    phases = phases_of(
        Phase("copy", copied),
        Phase("transform", (_metadata(job, surveys, choice, target, deal),)),
        Phase("publish", (_published(target),), ordered=True),
        Phase(
            "retire",
            tuple(replace(step, name=f"retire/{n}", items=()) for n, step in enumerate(keeping)),
        ),
    )
    made = _plan(job, facts, phases, (), facts.source.epoch)
    return replace(made, purpose="standby", provisional=True, facts=identity_of(facts))


def _behind_rounds(
    facts: Facts, surveys: Sequence[Survey], choice: Choice, deal: Dealing
) -> tuple[tuple[AnyStep, ...], tuple[KeepBrought, ...]]:
    """What is still to be copied, and what becomes of what rounds have brought."""
    wholes = tuple(as_they_are(surveys, choice, deal))
    wanted = names_of(wholes)
    there = there_already(facts, wanted)
    again = {*(name for key, name in wanted.items() if key not in there), *_written(choice, deal)}
    copied = copies(surveys, wholes, choice, facts.target.location, deal, there)
    return tuple(copied), tuple(kept_of(facts, there, again))


def _written(choice: Choice, deal: Dealing) -> Iterator[str]:
    """What a plan writes beside the files of its sources."""
    yield from (layout.METADATA, layout.STAGED)
    yield from (kept(number) for number, _ in enumerate(choice.taken))
    yield from (summary(one) for one in deal.rewritten)


def _is_whole(survey: Survey) -> bool:
    """Not so while Flink tidies it up, since there is a newer one."""
    found = (*survey.findings, *chain.from_iterable(image.findings for image in survey.images))
    return is_readable(survey) and not any(finding.level == "refuse" for finding in found)


def _later(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """The move as it would be from the last checkpoint: the one that the job ends with has
    little more.
    """
    said = (*of_taking(job, facts), *of_rounds(job, (facts.source,)), *of_clusters(facts))
    found = tuple(waived(one, job.waive) for one in said)
    if not is_readable(facts.source) or any(one.level == "refuse" for one in found):
        return _plan(job, facts, phases_of(*_start(job, facts, 0)), found)
    made = move_plan(spec, job, bare(facts))
    return replace(made, findings=tuple(dict.fromkeys((*found, *made.findings))))


def halt_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Take the savepoints. Where they are, the next survey is told."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    # Of several jobs it is not known which of them `source_submit` starts: they are told apart by a
    # person.
    again, cancel = job.source_submit if len(job.flink.job_ids) == 1 else None, job.flink.cancel_job
    patience = (
        spec.cluster(job.source_cluster).options.get("seconds_max", 600)
        if job.source_cluster
        else 600
    )
    if job.mode == "warm":
        (job_id,) = job.flink.job_ids
        step = TakeCheckpoint(
            name="halt/checkpoint",
            cluster=job.source_cluster or "",
            job=job.name,
            job_id=job_id,
            seconds_max=float(job.stop.get("seconds_max", patience)),
            restart=again.options if again else None,
            restart_environment=again.environment if again else {},
        )
        halted = _plan(job, facts, phases_of(Phase("halt", (step,))), ())
        return replace(halted, purpose="halt", epoch=None, facts=identity_of(facts))
    steps = tuple(
        TakeSavepoint(
            name=f"halt/savepoint-{number}",
            cluster=job.source_cluster or "",
            job=job.name,
            job_id=job_id,
            directory=job.source,
            stop=cancel is None and job.moves,
            cancel=bool(cancel),
            drain=bool(job.stop.get("drain", False)),
            native=saving.is_native(job, facts, job_id),
            seconds_max=float(job.stop.get("seconds_max", patience)),
            restart=again.options if again else None,
            restart_environment=again.environment if again else {},
        )
        for number, job_id in enumerate(job.flink.job_ids)
    )
    halted = _plan(job, facts, phases_of(Phase("halt", steps)), ())
    return replace(halted, purpose="halt", epoch=None, facts=identity_of(facts))


def _of_taking(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """What can be said before there is a savepoint."""
    found = [
        *of_taking(job, facts),
        *saving.findings(job, facts),
        *of_target(job, facts),
        *of_changes(job),
        *of_clusters(facts),
    ]
    yield from (waived(finding, job.waive) for finding in found)


def move_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    surveys = (facts.source, *facts.others)
    if not all(map(is_readable, surveys)):
        found = tuple(waived(finding, job.waive) for finding in of_sources(surveys))
        return _plan(job, facts, (), found)
    choice = chosen(job, surveys)
    deal = dealing(job, surveys, choice)
    found = of_move(job, facts, surveys, choice, _taken_by_others(spec, job), deal)
    found += tuple(
        waived(one, job.waive) for one in saving.of_parallelism(job, surveys, choice, deal)
    )
    if any(finding.level == "refuse" for finding in found):
        return _plan(job, facts, (), found)
    epoch = max(metadata_of(survey.images[0]).checkpoint_id for survey in surveys)
    if job.target is None:
        return _plan(job, facts, phases_of(*_start(job, facts, epoch)), found, epoch)
    target = facts.target.location
    copied, keeping = _behind_rounds(facts, surveys, choice, deal)
    # Rounds have compared what they brought byte for byte: the rest then is, too, where all of it
    # is copied as it is.
    bytewise = any(step.items for step in keeping) and all(
        isinstance(step, CopyFiles) for step in copied
    )
    compare = compared(copied) if bytewise else compares(job, surveys, choice, target, deal)
    phases = phases_of(
        Phase("copy", (*keeping, *copied)),
        Phase("transform", (_metadata(job, surveys, choice, target, deal),)),
        Phase("compare", tuple(compare) if job.verify != "none" else ()),
        Phase("publish", (_published(target),), ordered=True),
        *_start(job, facts, epoch),
    )
    return _plan(job, facts, phases, found, epoch)


def _taken_by_others(spec: Spec, job: JobSpec) -> frozenset[str] | None:
    """The operators that the jobs take which divide this one's savepoints with it; None where it
    divides nothing.
    """
    asked = spec.job(job.name)  # before its savepoints were taken
    others = sharing(spec, asked) if asked is not None else ()
    return (
        frozenset(id_of(operator.name)[0] for other in others for operator in other.operators)
        if others
        else None
    )


def identity_of(facts: Facts) -> str:
    """What does not change while a job runs: who it is, and where it goes, if it goes anywhere."""
    target, source, there = facts.target, facts.source_cluster, facts.target_cluster
    return plain.fingerprint(
        [
            None if target is facts.source else [target.location, target.kind, len(target.files)],
            source
            # one of a single application goes with its job, and tells no version then
            and source.name,
            there and [there.name, there.version],
        ]
    )


def fingerprint_of(facts: Facts) -> str:
    """Every file of every image."""
    return plain.fingerprint(
        [
            identity_of(facts),
            [[s.location, s.kind, sorted(s.files), s.epoch] for s in (facts.source, *facts.others)],
        ]
    )


def _plan(
    job: JobSpec,
    facts: Facts,
    phases: tuple[Phase, ...],
    found: tuple[Finding, ...],
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
        findings=found,
        facts=fingerprint_of(facts),
    )


def _metadata(
    job: JobSpec, surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing
) -> TransformShard:
    asked = asked_version(job)
    sizes = [_size(survey) for survey in surveys]
    return TransformShard(
        name="transform/metadata",
        transform=METADATA,
        options={
            "taken": [one.plain() for one in choice.taken],
            "version": newest_for(asked) if asked else None,
            "max_parallelism": deal.max_parallelism,
        },
        source=target,
        inputs=(
            *(FileInfo(kept(number), size) for number, size in enumerate(sizes)),
            *(FileInfo(summary(one), 0) for one in deal.rewritten),
        ),
        target=target,
        outputs=(layout.STAGED,),
    )


def _size(survey: Survey) -> int:
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
    return start(
        job, facts, location, _submitting(job), Awaited(location, epoch) if askable else None
    )


def _submitting(job: JobSpec) -> dict[str, object]:
    """What the spec says, and what it says beside `submit`."""
    options = dict(job.submit.options) if job.submit else {}
    if job.flink is not None and job.flink.allow_non_restored_state:
        options.setdefault("allow_non_restored_state", True)
    return options
