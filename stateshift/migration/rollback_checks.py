"""What keeps a run, or some of its waves, from being taken back. Each check is about some plans of
the run, and raises a PlanError with the fact and the way out.

    refuse_rollback          every check below, before anything is taken back
    refuse_moved_on          a later run has moved the job on from the target
    refuse_foreign_job       somebody else has started the job on the target
    refuse_built_on          the image was changed in place, and the job has gone on from it
    refuse_lost_progress     a job has committed on the target
    refuse_new_checkpoint    the same, asked once more while the job still runs
    refuse_last_batch        a job has committed while it was being stopped
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from shlex import quote

from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.engines.registry import engine
from stateshift.errors import ClusterError, PlanError
from stateshift.journal import PlanProgress
from stateshift.migration.arrivals import arrivals
from stateshift.migration.context import RunContext
from stateshift.migration.history import NOT_MOVING, plans_while_running
from stateshift.plan import PHASES, Plan
from stateshift.specification import JobSpec
from stateshift.step import AwaitProgress, LiftFence, SubmitJob
from stateshift.step.evidence import JobConfirmed, known
from stateshift.storage import locations
from stateshift.terms import Terms, terms_of

# These phases are undone before it is asked once more whether a job has committed: it is stopped
# by then.
FROM_THE_START = PHASES[PHASES.index("submit") :]


class CommittedSince(PlanError):
    """A rollback would throw away what a job has committed on its target."""


def refuse_rollback(context: RunContext, plans: Iterable[PlanProgress], discard: bool) -> None:
    """Refuse to take these plans back, if anything speaks against it. With `discard`, what jobs
    have committed may be thrown away.
    """
    checked = list(plans)
    refuse_moved_on(context, checked)
    refuse_foreign_job(context, checked)
    refuse_built_on(context, checked)
    if not discard:
        refuse_lost_progress(context, checked)


def may_have_started(context: RunContext, adopted: PlanProgress) -> bool:
    """Return whether a job may have begun to run on the plan's target. Where nothing was submitted,
    and nothing is finished, nobody has: the target need not be asked, and may be what has failed.
    """
    if adopted.undone or adopted.purpose in NOT_MOVING:
        return False
    if adopted.finished_at is not None or _is_in_place(context.plans.read(adopted)):
        return True
    if _is_hidden(adopted):
        return False
    return any(step.phase in FROM_THE_START for step in adopted.steps.values())


def _is_hidden(adopted: PlanProgress) -> bool:
    """Return whether what made the target's image visible was taken back."""
    visible = [step for step in adopted.steps.values() if step.phase == "publish"]
    return bool(visible) and all(step.state == "undone" for step in visible)


def refuse_moved_on(context: RunContext, plans: Iterable[PlanProgress]) -> None:
    """Refuse where a later run has moved a job on from the target. Taking this run back would
    pull its source away from under that run, and start the old job beside the new one.
    """
    for adopted in plans:
        if adopted.undone or not adopted.steps:
            continue
        plan = context.plans.read(adopted)
        if plan.purpose != "move" or plan.target == plan.source:
            continue
        _refuse_later_run(context, adopted.job, plan.target)


def _refuse_later_run(context: RunContext, job: str, target: str) -> None:
    owner = context.world.fence(target)
    if owner not in (None, context.world.run):
        raise PlanError(
            f"run {owner} has moved {job} on from {target} since",
            hint="take that run back first: stateshift runs lists the workdirs",
        )


def refuse_foreign_job(
    context: RunContext, plans: Iterable[PlanProgress], then: str = "rollback"
) -> None:
    """Refuse where a job runs on the target that somebody else has started there. `then` is the
    command to give once it is stopped.
    """
    for adopted in plans:
        job = context.spec.job(adopted.job)
        if job is None or not job.moves or adopted.undone:
            continue
        if _publishes_standby(context, adopted) and job.target_cluster != job.source_cluster:
            _refuse_started_by_hand(context, job, then)
        for step in context.plans.read(adopted):
            if isinstance(step, SubmitJob) and step.name in adopted.steps:
                _refuse_if_foreign(context, job, step, then)


def _refuse_if_foreign(context: RunContext, job: JobSpec, step: SubmitJob, then: str) -> None:
    if step.status(context.world).state.alive:
        return
    request = StopRequest(job.name, job.destination)
    if context.world.cluster(step.cluster).find_source(request).state.alive:
        raise _foreign(context, job, then)


def _refuse_started_by_hand(context: RunContext, job: JobSpec, then: str) -> None:
    """Refuse where a job runs on a standby. A cluster that cannot be asked keeps nobody from it."""
    if job.target_cluster is None:
        return
    request = StopRequest(job.name, job.destination)
    with suppress(ClusterError):
        if context.world.cluster(job.target_cluster).find_source(request).state.alive:
            raise _foreign(context, job, then)


def _foreign(context: RunContext, job: JobSpec, then: str) -> PlanError:
    return PlanError(
        f"{job.name} runs on {job.target_cluster}, and this run did not start it",
        hint=f"stop it, then: stateshift {then} {quote(str(context.workdir.path))}",
    )


def refuse_built_on(context: RunContext, plans: Iterable[PlanProgress]) -> None:
    """Refuse where state was compacted in place: later versions of a job that has gone on may
    name our files.
    """
    terms = _terms(context)
    for adopted in plans:
        if adopted.undone or not _is_in_place(context.plans.read(adopted)):
            continue
        if _has_gone_on(context, adopted):
            raise _built_on(adopted.job, terms)


def _built_on(job: str, terms: Terms) -> PlanError:
    return PlanError(
        f"{job} has {terms.done} {terms.many} since, on the files that were "
        "written here: it cannot do without them",
        hint="what was set aside may be removed; there is nothing to take back",
    )


def refuse_lost_progress(context: RunContext, plans: Iterable[PlanProgress]) -> None:
    """Refuse where a job has committed since, whoever started it."""
    terms = _terms(context)
    for adopted in plans:
        # Of one that was taken back, the image there is a later attempt's.
        if adopted.undone or not _has_committed(context, adopted):
            continue
        again = ""
        if is_only_stopped(adopted):
            again = "`stateshift resume WORKDIR` starts it there again; "
        raise CommittedSince(
            f"{adopted.job} has {terms.done} {terms.many} on the target since; a rollback would "
            "throw them away",
            hint=f"{again}if that is what you want: {_discarding(context)}",
        )


def _has_committed(context: RunContext, adopted: PlanProgress) -> bool:
    """Return whether the job has committed on the target: by our own evidence, by the files that
    are there, or by its cluster.
    """
    if _was_seen_to_commit(adopted):
        return True
    return _has_gone_on(context, adopted) or _has_completed(context, adopted)


def _was_seen_to_commit(adopted: PlanProgress) -> bool:
    for step in adopted.steps.values():
        if step.phase == "confirm" and step.state == "finished":
            evidence = known(step.evidence)
            if isinstance(evidence, JobConfirmed) and evidence.committed:
                return True
    return False


def refuse_new_checkpoint(context: RunContext, adopted: PlanProgress) -> None:
    """Refuse where a job that still runs has gone on since it was asked last, as only its cluster
    can tell.
    """
    if not adopted.undone and _has_completed(context, adopted):
        raise CommittedSince(
            f"{adopted.job} has completed a checkpoint on the target since; a rollback would "
            "throw that away",
            hint=f"if that is what you want: {_discarding(context)}",
        )


def refuse_last_batch(context: RunContext, adopted: PlanProgress, discards: bool) -> None:
    """Refuse where a job has ended its batch before it stopped, and committed it."""
    in_place = _is_in_place(context.plans.read(adopted))
    if discards and not in_place:
        return
    if not _has_gone_on(context, adopted):
        return
    terms = _terms(context)
    again = "`stateshift resume WORKDIR` starts it there again"
    if in_place:
        raise CommittedSince(
            f"{adopted.job} has {terms.went_on} while it was being stopped, on the files that "
            "were written here: it cannot do without them",
            hint=f"{again}; there is nothing to take back",
        )
    raise CommittedSince(
        f"{adopted.job} has {terms.went_on} on the target while it was being stopped; to take it "
        "back would throw that away. It is stopped, and its image is whole",
        hint=f"{again}; if it may be thrown away: {_discarding(context)}",
    )


def is_whole(adopted: PlanProgress) -> bool:
    """Return whether nothing of the plan is taken back but what a job had been started by."""
    undone = [step for step in adopted.steps.values() if step.state == "undone"]
    return all(step.phase in FROM_THE_START for step in undone)


def is_only_stopped(adopted: PlanProgress) -> bool:
    """Return whether the plan's job was stopped to be taken back, and nothing else of the plan
    was undone.
    """
    submits = [step for step in adopted.steps.values() if step.phase == "submit"]
    return any(step.state == "undone" for step in submits) and is_whole(adopted)


def _discarding(context: RunContext) -> str:
    return f"stateshift rollback {quote(str(context.workdir.path))} --discard-progress"


def _terms(context: RunContext) -> Terms:
    return terms_of(context.spec.engine)


def _has_completed(context: RunContext, adopted: PlanProgress) -> bool:
    """Return whether the job that was started there has completed a checkpoint of its own, where
    only its cluster tells.
    """
    plan = context.plans.read(adopted)
    awaited = [step for step in plan if isinstance(step, AwaitProgress)]
    waits = [step for step in awaited if not step.commits]
    if not waits:
        return False
    return _any_started_has_completed(context, _started(plan, adopted), waits)


def _started(plan: Plan, adopted: PlanProgress) -> Iterator[SubmitJob]:
    """Yield the steps of a plan that have started a job."""
    for step in plan:
        if isinstance(step, SubmitJob) and adopted.has_effect(step.name):
            yield step


def _any_started_has_completed(
    context: RunContext, started: Iterable[SubmitJob], waits: list[AwaitProgress]
) -> bool:
    """Return what the first cluster says that still knows a job which was started."""
    for step in started:
        completed = _has_completed_as_started(context, step, waits)
        if completed is not None:
            return completed
    return False


def _has_completed_as_started(
    context: RunContext, step: SubmitJob, waits: list[AwaitProgress]
) -> bool | None:
    state = step.status(context.world).state
    if state.alive:
        return _any_completed(context, waits)
    if state is JobState.FAILED:
        with suppress(ClusterError):  # its cluster may know no more of it
            return _any_completed(context, waits)
    return None


def _any_completed(context: RunContext, waits: Iterable[AwaitProgress]) -> bool:
    return any(wait.completed(context.world) for wait in waits)


def _has_gone_on(context: RunContext, adopted: PlanProgress) -> bool:
    """Return whether the target's image has a later epoch than the one that was copied there."""
    plan = context.plans.read(adopted)
    if _publishes_standby(context, adopted):
        return _has_gone_on_from_standby(context, adopted, plan)
    if not adopted.steps or not _writes_image(plan):
        return False
    at_target = _epochs_at(context, plan.engine, plan.target)
    copied = _copied_epochs(context, plan, at_target)
    return any(_is_later(at_target.get(path), epoch) for path, epoch in copied.items())


def _publishes_standby(context: RunContext, adopted: PlanProgress) -> bool:
    """Whether this is the plan that has published last what a job could be started from, while the
    job ran.
    """
    plans = context.progress.plans_of((adopted.job,))
    later = [plan for plan in plans if plan.plan > adopted.plan and not plan.undone]
    publishing = [plan for plan in (adopted, *later) if _begun_to_publish(plan)]
    return adopted.purpose == "standby" and not adopted.undone and publishing == [adopted]


def _begun_to_publish(adopted: PlanProgress) -> bool:
    return any(step.phase == "publish" for step in adopted.steps.values())


def _has_gone_on_from_standby(context: RunContext, adopted: PlanProgress, plan: Plan) -> bool:
    """Return whether a job has committed at a standby: what says so is none of our files."""
    _, survey = engine(plan.engine).survey(plan.target, context.world.storage)
    rounds = plans_while_running(context.progress, adopted.job)
    ours = arrivals(rounds, context.plans.read).written.get(plan.target, set())
    committed = [image for image in survey.images if image.epoch is not None]
    return any(not ours.issuperset(image.first_read[-1:]) for image in committed)


def _writes_image(plan: Plan) -> bool:
    """Return whether the plan writes an image: at another location, or in place."""
    if plan.purpose != "move":
        return False
    return plan.target != plan.source or _is_in_place(plan)


def _copied_epochs(
    context: RunContext, plan: Plan, at_target: Mapping[str, int | None]
) -> Mapping[str, int | None]:
    """Return the epoch of each image that was copied, by its path."""
    if plan.epoch is None and set(at_target.values()) - {None}:  # a workflow
        return _epochs_at(context, plan.engine, plan.source)
    return {"": plan.epoch}


def _is_later(epoch: int | None, copied: int | None) -> bool:
    return copied is not None and (epoch or 0) > copied


def _epochs_at(context: RunContext, kind: str, location: str) -> dict[str, int | None]:
    """Return the epochs of the images there, by where they lie below the location."""
    above = context.world.storage(location).location
    _, survey = engine(kind).survey(location, context.world.storage)
    epochs = {}
    for image in survey.images:
        place = locations.join(survey.location, image.path)
        epochs[locations.relative(place, above)] = image.epoch
    return epochs


def _is_in_place(plan: Plan) -> bool:
    """Return whether the plan changes an image where it lies."""
    return plan.target == plan.source and any(isinstance(step, LiftFence) for step in plan)
