"""The checks that keep a run, or some of its waves, from being taken back. Each is about some plans
of the run, and raises a PlanError with the fact and a hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from shlex import quote

from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.engines.registry import engine
from stateshift.errors import ClusterError, PlanError, StateshiftError
from stateshift.journal import PlanProgress
from stateshift.migration.arrivals import arrivals
from stateshift.migration.context import RunContext
from stateshift.migration.history import NOT_MOVING, plans_while_running
from stateshift.plan import PHASES, Plan
from stateshift.specification import JobSpec
from stateshift.step import AwaitProgress, LiftFence, SetAside, SubmitJob
from stateshift.step.evidence import JobConfirmed, require_known
from stateshift.storage import locations
from stateshift.terms import terms_of

# These phases are undone before it is asked once more whether a job has committed: it is stopped
# by then.
FROM_THE_START = PHASES[PHASES.index("submit") :]


class CommittedSince(PlanError):
    """A rollback would throw away what a job has committed on its target."""


def refuse_rollback(context: RunContext, plans: Iterable[PlanProgress], discard: bool) -> None:
    """Refuse to take these plans back, if anything is against it but `discard`ed progress."""
    checked = list(plans)
    refuse_moved_on(context, checked)
    refuse_foreign_job(context, checked)
    # Refuse where state was compacted in place: later versions of the job may name our files.
    terms = terms_of(context.spec.engine)
    for adopted in checked:
        if adopted.undone or not _is_in_place(context.plans.read(adopted)):
            continue
        if _has_gone_on(context, adopted):
            raise PlanError(
                f"{adopted.job} has {terms.done} {terms.many} since, on the files that were "
                "written here: it cannot do without them",
                hint="what was set aside may be removed; there is nothing to take back",
            )
    if not discard:
        # Refuse where a job has committed since, whoever started it.
        terms = terms_of(context.spec.engine)
        for adopted in checked:
            # If it was taken back, the image there is a later attempt's.
            if adopted.undone or not _has_committed(context, adopted):
                continue
            again = ""
            if is_only_stopped(adopted):
                again = "`stateshift resume WORKDIR` starts it there again; "
            raise CommittedSince(
                f"{adopted.job} has {terms.done} {terms.many} on the target since; a rollback "
                "would throw them away",
                hint=f"{again}if that is what you want: {_discarding(context)}",
            )


def may_have_started(context: RunContext, adopted: PlanProgress) -> bool:
    """Whether a job may have begun to run on the plan's target. None has while nothing is submitted
    or finished: then the target need not be asked, and may be what has failed.
    """
    if adopted.undone or adopted.purpose in NOT_MOVING:
        return False
    if adopted.finished_at is not None or _is_in_place(context.plans.read(adopted)):
        return True
    published = [step for step in adopted.steps.values() if step.phase == "publish"]
    if published and all(step.state == "undone" for step in published):
        return False
    return any(step.phase in FROM_THE_START for step in adopted.steps.values())


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
        owner = context.world.fence(plan.target)
        before = {step.fenced_by for step in asides_of(context, adopted.job)}
        if owner not in (None, context.world.run, *before):
            raise PlanError(
                f"run {owner} has moved {adopted.job} on from {plan.target} since",
                hint="take that run back first: stateshift runs lists the workdirs",
            )


def asides_of(context: RunContext, job: str) -> Iterator[SetAside]:
    """Yield the steps that have set aside what was at the job's target."""
    for adopted in plans_while_running(context.progress, job):
        if adopted.purpose == "aside":
            plan = context.plans.read(adopted)
            yield from (step for step in plan if isinstance(step, SetAside))


def refuse_foreign_job(
    context: RunContext, plans: Iterable[PlanProgress], then: str = "rollback"
) -> None:
    """Refuse where others have started a job on the target; once it is stopped, give `then`."""
    for adopted in plans:
        job = context.spec.job(adopted.job)
        if job is None or not job.moves or adopted.undone:
            continue
        if _runs_unsubmitted(context, job, adopted):
            raise PlanError(
                f"{job.name} runs on {job.target_cluster}, and this run did not start it",
                hint=f"stop it, then: stateshift {then} {quote(str(context.workdir.path))}",
            )


def _runs_unsubmitted(context: RunContext, job: JobSpec, adopted: PlanProgress) -> bool:
    world, request = context.world, StopRequest(job.name, job.destination)
    is_elsewhere = job.target_cluster != job.source_cluster and job.target_cluster is not None
    if is_elsewhere and _publishes_standby(context, adopted):
        with suppress(ClusterError):  # a cluster that cannot be asked keeps nobody from it
            if world.cluster(job.target_cluster or "").find_source(request).state.alive:
                return True
    for step in context.plans.read(adopted):
        if isinstance(step, SubmitJob) and step.name in adopted.steps:
            if step.status(world).state.alive:
                continue
            if world.cluster(step.cluster).find_source(request).state.alive:
                return True
    return False


def _has_committed(context: RunContext, adopted: PlanProgress) -> bool:
    """Whether the job has committed on the target, by our evidence, its files or its cluster."""
    for step in adopted.steps.values():
        if step.phase == "confirm" and step.state == "finished":
            evidence = require_known(step.evidence)
            if isinstance(evidence, JobConfirmed) and evidence.committed:
                return True
    return _has_gone_on(context, adopted) or _has_completed(context, adopted)


def refuse_new_checkpoint(context: RunContext, adopted: PlanProgress) -> None:
    """Refuse where a running job has gone on since it was asked last, by its cluster's word."""
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
    terms = terms_of(context.spec.engine)
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
    """Whether nothing of the plan is taken back but the start of its job."""
    undone = [step for step in adopted.steps.values() if step.state == "undone"]
    return all(step.phase in FROM_THE_START for step in undone)


def is_only_stopped(adopted: PlanProgress) -> bool:
    """Whether the plan's job was stopped to be taken back, and no other step was undone."""
    submits = [step for step in adopted.steps.values() if step.phase == "submit"]
    return any(step.state == "undone" for step in submits) and is_whole(adopted)


def _discarding(context: RunContext) -> str:
    return f"stateshift rollback {quote(str(context.workdir.path))} --discard-progress"


def _has_completed(context: RunContext, adopted: PlanProgress) -> bool:
    """Whether the job that was started there has completed a checkpoint of its own, where only its
    cluster tells: the first one that still knows a job which was started.
    """
    plan, world = context.plans.read(adopted), context.world
    awaited = [step for step in plan if isinstance(step, AwaitProgress)]
    waits = [step for step in awaited if not step.commits]
    if not waits:
        return False
    submits = [step for step in plan if isinstance(step, SubmitJob)]
    for submit in submits:
        if not adopted.has_effect(submit.name):
            continue
        state = submit.status(world).state
        if state.alive:
            return any(wait.completed(world) for wait in waits)
        if state is JobState.FAILED:
            with suppress(ClusterError):  # its cluster may know no more of it
                return any(wait.completed(world) for wait in waits)
    return False


def _has_gone_on(context: RunContext, adopted: PlanProgress) -> bool:
    """Whether the target's image has a later epoch than the one that was copied there."""
    plan = context.plans.read(adopted)
    if _publishes_standby(context, adopted):
        _, survey = engine(plan.engine).survey(plan.target, context.world.storage)
        rounds = plans_while_running(context.progress, adopted.job)
        ours = arrivals(rounds, context.plans.read).written.get(plan.target, set())
        committed = [image for image in survey.images if image.epoch is not None]
        return any(not ours.issuperset(image.first_read[-1:]) for image in committed)
    if not adopted.steps or plan.purpose != "move":
        return False
    if plan.target == plan.source and not _is_in_place(plan):
        return False
    at_target = _epochs_at(context, plan.engine, plan.target)
    copied: dict[str, int | None] = {"": plan.epoch}
    if plan.epoch is None and set(at_target.values()) - {None}:  # a workflow
        copied = _epochs_at(context, plan.engine, plan.source)
    for path, epoch in copied.items():
        if epoch is not None and (at_target.get(path) or 0) > epoch:
            return True
    return False


def discarded_progress(context: RunContext) -> Iterator[str]:
    """Yield, for each job, the epochs at its target that a rollback throws away, in words."""
    terms = terms_of(context.spec.engine)
    for adopted in context.progress.known:
        plan = context.plans.read(adopted)
        is_elsewhere = plan.purpose == "move" and plan.target != plan.source
        if adopted.undone or not is_elsewhere or plan.epoch is None:
            continue
        newest = plan.epoch
        with suppress(StateshiftError):  # a place that cannot be read is not described
            for epoch in _epochs_at(context, plan.engine, plan.target).values():
                newest = max(newest, epoch or 0)
        if newest > plan.epoch:
            first = plan.epoch + 1
            epochs = f"{terms.one} {first}"
            if newest > first:
                epochs = f"{terms.many} {first} to {newest}"
            yield (
                f"{adopted.job}: {epochs} at {plan.target} is discarded; it goes on from "
                f"{plan.source}, after {terms.one} {plan.epoch}"
            )


def _publishes_standby(context: RunContext, adopted: PlanProgress) -> bool:
    """Whether this plan has published the last image of a standby."""
    if adopted.purpose != "standby" or adopted.undone:
        return False
    publishing: list[PlanProgress] = []
    for plan in context.progress.plans_of((adopted.job,)):
        has_published = any(step.phase == "publish" for step in plan.steps.values())
        if plan.plan >= adopted.plan and not plan.undone and has_published:
            publishing.append(plan)
    return publishing == [adopted]


def _epochs_at(context: RunContext, kind: str, location: str) -> dict[str, int | None]:
    """Return the epochs of the images there, by their paths below the location."""
    above = context.world.storage(location).location
    _, survey = engine(kind).survey(location, context.world.storage)
    epochs = {}
    for image in survey.images:
        place = locations.join(survey.location, image.path)
        epochs[locations.relative(place, above)] = image.epoch
    return epochs


def _is_in_place(plan: Plan) -> bool:
    """Whether the plan changes an image where it lies."""
    return plan.target == plan.source and any(isinstance(step, LiftFence) for step in plan)
