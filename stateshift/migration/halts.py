"""The plans that stop jobs: found or adopted, prepared while the jobs run, and undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from stateshift import executor
from stateshift.journal import StepProgress
from stateshift.migration.context import RunContext
from stateshift.migration.history import attempt_number, was_prepared_and_undone
from stateshift.migration.observation import (
    ENDS,
    facts_as_proposed,
    halt_of_restarted_job,
    once_heard,
)
from stateshift.migration.plan_book import NumberedPlan
from stateshift.plan import Phase, Plan
from stateshift.specification import JobSpec
from stateshift.step import AnyStep, PrepareJob, StopJob
from stateshift.step.evidence import JobStopped
from stateshift.step.jobs import RAN


def halt_of(context: RunContext, job: JobSpec) -> NumberedPlan | None:
    """Return the plan that stops a job, adopted where it was not yet. None where nothing has to
    stop it.
    """
    adopted = context.plans.adopted(job, "halt")
    if adopted is not None:
        again = halt_of_restarted_job(context, adopted)
        if again is not None:
            return context.plans.adopt(again)
        if not was_prepared_and_undone(context.progress.plans[adopted[0]]):
            return adopted
    proposed = context.plans.proposed(job, "halt")
    if proposed is None or context.plans.adopted(job, "move", "start") is not None:
        return None
    once_heard(context, partial(facts_as_proposed, context, job, proposed))
    attempt = attempt_number(context.progress, job.name)
    return context.plans.adopt(_for_attempt(proposed, attempt))


def prepare(context: RunContext, jobs: Sequence[JobSpec]) -> bool:
    """Do what the halts of these jobs can do while the jobs run. Return whether there was any."""
    early = []
    for job in jobs:
        halt = halt_of(context, job)
        if halt is not None and halt[1].phase("prepare"):
            early.append(halt)
    context.execute(early, phases=("prepare",))
    return bool(early)


def stopped_by_run(context: RunContext, jobs: Sequence[JobSpec]) -> bool:
    """Return whether the run has stopped a job of these that ran, or may have; and has not started
    it again.
    """
    for plan in context.progress.plans_of([job.name for job in jobs]):
        if plan.undone:
            continue
        ends = [step for step in context.plans.read(plan) if isinstance(step, ENDS)]
        names = [step.name for step in ends if isinstance(step, StopJob) or step.ends]
        if any(_may_have_stopped(plan.steps[name]) for name in names if name in plan.steps):
            return True
    return False


def _may_have_stopped(step: StepProgress) -> bool:
    if isinstance(step.evidence, JobStopped):
        evidence = step.evidence
        was_stopped = step.repeated or evidence.repeated or evidence.state_before in RAN
        return was_stopped and step.state != "undone"
    return step.state != "undone"


def undo_halts(context: RunContext, jobs: Sequence[JobSpec]) -> None:
    """Let the jobs of a wave that does not move go on where they are."""
    for job in reversed(jobs):
        adopted = context.plans.adopted(job, "halt")
        if adopted is not None:
            number, plan = adopted
            others = _others_of(context, job, number)
            executor.roll_back(number, plan, context.world, context.journal, others)


def _others_of(context: RunContext, job: JobSpec, halt: int) -> list[NumberedPlan]:
    """Return the plans of a job that stand beside its halt: what they have written stays."""
    standing: list[NumberedPlan] = []
    for plan in context.progress.plans_of((job.name,)):
        if plan.undone or plan.plan == halt:
            continue
        standing.append((plan.plan, context.plans.read(plan)))
    return standing


def _for_attempt(halt: Plan, attempt: int) -> Plan:
    """Return the halt with the tags of this attempt to start the job."""
    if attempt == 1:
        return halt
    return replace(halt, phases=tuple(_phase_for(phase, attempt) for phase in halt.phases))


def _phase_for(phase: Phase, attempt: int) -> Phase:
    return replace(phase, steps=tuple(_step_for(step, attempt) for step in phase.steps))


def _step_for(step: AnyStep, attempt: int) -> AnyStep:
    return replace(step, attempt=attempt) if isinstance(step, PrepareJob) else step
