"""The plans that stop jobs: found or adopted, prepared while the jobs run, and undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from stateshift import executor
from stateshift.migration.context import RunContext
from stateshift.migration.history import attempt_number, was_prepared_and_undone
from stateshift.migration.observation import (
    ENDS,
    facts_as_proposed,
    halt_of_restarted_job,
    once_heard,
)
from stateshift.migration.plan_book import NumberedPlan
from stateshift.specification import JobSpec
from stateshift.step import PrepareJob, StopJob
from stateshift.step.evidence import JobStopped
from stateshift.step.jobs import RAN


def halt_of(context: RunContext, job: JobSpec) -> NumberedPlan | None:
    """Return the plan that stops a job, adopted if it was not yet; None if none has to."""
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
    # It has the tags of this attempt to start the job.
    attempt = attempt_number(context.progress, job.name)
    phases = []
    for phase in proposed.phases:
        steps = [
            replace(step, attempt=attempt) if isinstance(step, PrepareJob) else step
            for step in phase.steps
        ]
        phases.append(replace(phase, steps=tuple(steps)))
    return context.plans.adopt(replace(proposed, phases=tuple(phases)))


def prepare(context: RunContext, jobs: Sequence[JobSpec]) -> bool:
    """Do what the halts of these jobs can do while the jobs run; whether there was any."""
    early = []
    for job in jobs:
        halt = halt_of(context, job)
        if halt is not None and halt[1].phase("prepare"):
            early.append(halt)
    context.execute(early, phases=("prepare",))
    return bool(early)


def has_stopped_running_job(context: RunContext, jobs: Sequence[JobSpec]) -> bool:
    """Whether the run may have stopped a running job of these, and not started it again."""
    for plan in context.progress.plans_of([job.name for job in jobs]):
        if plan.undone:
            continue
        for step in context.plans.read(plan):
            if not isinstance(step, ENDS) or not (isinstance(step, StopJob) or step.ends):
                continue
            done = plan.steps.get(step.name)
            if done is None or done.state == "undone":
                continue
            evidence = done.evidence
            if not isinstance(evidence, JobStopped) or done.repeated:
                return True
            if evidence.repeated or evidence.state_before in RAN:
                return True
    return False


def undo_halts(context: RunContext, jobs: Sequence[JobSpec]) -> None:
    """Let the jobs of a wave that does not move go on where they are."""
    for job in reversed(jobs):
        adopted = context.plans.adopted(job, "halt")
        if adopted is None:
            continue
        number, halt = adopted
        # The files of the job's other plans stay.
        others: list[NumberedPlan] = []
        for plan in context.progress.plans_of((job.name,)):
            if not plan.undone and plan.plan != number:
                others.append((plan.plan, context.plans.read(plan)))
        executor.roll_back(number, halt, context.world, context.journal, others)
