"""The way back: of a whole run, or of one wave while the run goes on.

All jobs are stopped and asked before any image is touched, so that what cannot be taken back is
whole. Long work that keeps no job from running where it was comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from stateshift import executor
from stateshift.clusters.protocol import StopRequest
from stateshift.errors import ClusterError, StateshiftError, StorageError
from stateshift.journal import PlanProgress, RollbackRefused, RunRolledBack, StepUndone
from stateshift.migration.context import RunContext
from stateshift.migration.last_copy import refuse_last_copy
from stateshift.migration.rollback_checks import (
    FROM_THE_START,
    CommittedSince,
    discarded_progress,
    is_only_stopped,
    is_whole,
    may_have_started,
    refuse_foreign_job,
    refuse_last_batch,
    refuse_moved_on,
    refuse_new_checkpoint,
)
from stateshift.migration.target_locks import give_claim_back, lock_target, release_target
from stateshift.plan import PHASES, PhaseName, Plan
from stateshift.report import Report
from stateshift.specification import JobSpec
from stateshift.step import FenceSource, MoveFiles, StopJob, TakeCheckpoint, TakeSavepoint
from stateshift.step.marks import forget_stop

# The phases that fill a target which nobody sees yet.
FILLING: tuple[PhaseName, ...] = ("copy", "transform", "compare")
NOT_FILLING = tuple(name for name in PHASES if name not in FILLING)


def roll_back_run(context: RunContext) -> Report:
    """Take the whole run back, from wherever that stands."""
    try:
        # Also when this goes on: a job may have been moved on in between.
        refuse_moved_on(context, context.progress.known)
        if context.progress.discard and not context.progress.rehearses:
            for line in discarded_progress(context):
                context.say(line)
        _undo(context, context.progress.known)
        for name in context.progress.jobs:
            give_claim_back(context, context.job(name))
            release_target(context, context.job(name))
        context.record(RunRolledBack(context.now()))
    except CommittedSince as error:
        refusal = error.with_hint(context.with_workdir(error.hint))
        kind = type(refusal).__name__
        context.record(
            RollbackRefused(context.now(), kind, refusal.fact, refusal.hint, refusal.exit_code)
        )
        with suppress(StorageError):
            context.write_report()
        raise refusal from error
    except StateshiftError as error:
        raise context.record_failure(error) from error
    return context.write_report()


def note_running_jobs(context: RunContext, is_said: bool) -> None:
    """Write down which jobs run again where they were. A person may have said so of all; else the
    clusters are asked of those that were stopped, and not started again.
    """
    for adopted in context.progress.known:
        for step in context.plans.read(adopted):
            done = adopted.steps.get(step.name)
            if done is None or not isinstance(step, StopJob | TakeSavepoint | TakeCheckpoint):
                continue
            is_told = bool(done.left) and (is_said or _runs_again(context, step))
            if not is_told and (done.state == "undone" or not is_said):
                continue
            if isinstance(step, StopJob):  # else it would stop this one, too
                forget_stop(context.world.storage(step.location), step.job)
            context.say(f"{step.job} runs again where it was")
            context.record(StepUndone(context.now(), adopted.plan, step.name, ()))


def _runs_again(context: RunContext, step: StopJob | TakeSavepoint | TakeCheckpoint) -> bool:
    """Whether a cluster sees a job running that may have been started again under another tag."""
    request = StopRequest(step.job, "")
    if isinstance(step, StopJob):
        request = replace(step.request, tag=None)
    with suppress(ClusterError):
        return context.world.cluster(step.cluster).find_source(request).state.alive
    return False


def take_wave_back(context: RunContext, wave: Sequence[JobSpec]) -> None:
    """Take one wave back, while the run goes on."""
    names = tuple(job.name for job in wave)
    _undo(context, context.progress.plans_of(names))
    for job in wave:
        release_target(context, job)


def stop_started_jobs(context: RunContext) -> None:
    """Stop the jobs that the run has started, and leave their images."""
    for adopted in context.progress.known:
        _undo_phases(context, adopted, FROM_THE_START)


def take_last_plan_back(context: RunContext, job: JobSpec) -> None:
    """Take the newest plan of a job back, which has started nothing. The copies of rounds stay."""
    pending = [plan for plan in reversed(context.progress.plans_of((job.name,))) if not plan.undone]
    if pending and pending[0].purpose == "move":
        refuse_last_copy(context, pending)
        _undo_plan(context, pending[0], pending[1:])


def _undo(context: RunContext, plans: Sequence[PlanProgress]) -> None:
    pending = [adopted for adopted in reversed(plans) if not adopted.undone]
    if not any(may_have_started(context, adopted) for adopted in pending):
        _undo_halts(context, pending)  # asks no target: what has failed may be that
    if not context.progress.last_copy:
        refuse_last_copy(context, plans)
    refuse_foreign_job(context, [adopted for adopted in pending if is_whole(adopted)])
    _stop_started_jobs(context, pending)
    # Undo everything that keeps the old jobs from running, and start them.
    for position, adopted in enumerate(pending):
        plan = context.plans.read(adopted)
        if _keeps_job_from_running(plan):
            _undo_plan(context, adopted, pending[position + 1 :])
        else:
            # Files in the target that nobody can see do not keep the job from running.
            _undo_phases(context, adopted, NOT_FILLING)
    for position, adopted in enumerate(pending):
        _undo_plan(context, adopted, pending[position + 1 :])


def _keeps_job_from_running(plan: Plan) -> bool:
    if plan.target == plan.source:
        return True
    filling = [phase.steps for phase in plan.phases if phase.name in FILLING]
    steps = chain.from_iterable(filling)
    return any(isinstance(step, FenceSource | MoveFiles) for step in steps)


def _undo_halts(context: RunContext, pending: Sequence[PlanProgress]) -> None:
    """Lift the fences and start the old jobs, where that is all that they need."""
    plans = [context.plans.read(adopted) for adopted in pending]
    for adopted, plan in zip(pending, plans, strict=True):
        if adopted.steps and plan.purpose != "halt" and _keeps_job_from_running(plan):
            return
    for adopted in pending:
        _undo_phases(context, adopted, ("halt",))


def _undo_phases(context: RunContext, adopted: PlanProgress, phases: Sequence[PhaseName]) -> None:
    plan = context.plans.read(adopted)
    executor.roll_back_phases(adopted.plan, plan, context.world, context.journal, phases)


def _undo_plan(context: RunContext, adopted: PlanProgress, later: Sequence[PlanProgress]) -> None:
    plan = context.plans.read(adopted)
    others = [(other.plan, context.plans.read(other)) for other in later]
    executor.roll_back(adopted.plan, plan, context.world, context.journal, others)


def _stop_started_jobs(context: RunContext, pending: Sequence[PlanProgress]) -> None:
    """Stop the jobs that the run has started, and refuse what they have committed meanwhile."""
    progress = context.progress
    discards = context.spec.on_failure == "discard"
    if progress.state == "rolling-back":
        discards = progress.discard
    if not discards:
        for adopted in pending:
            refuse_new_checkpoint(context, adopted)
    for adopted in pending:
        # Ours still; or again, where the run had finished.
        lock_target(context, context.job(adopted.job))
    for adopted in pending:
        _undo_phases(context, adopted, FROM_THE_START)
    for adopted in pending:
        now = context.progress.plans[adopted.plan]
        if is_only_stopped(now):
            refuse_last_batch(context, now, discards)
