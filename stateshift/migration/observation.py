"""Facts as a run sees them now: after the rounds that it has made, and with the job by the id that
it has now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from stateshift.clusters.protocol import SILENT_SECONDS_MAX, Silence, Silent
from stateshift.errors import StalePlan
from stateshift.journal import PlanProgress
from stateshift.migration.arrivals import Arrivals, arrivals, with_arrivals
from stateshift.migration.context import RunContext
from stateshift.migration.gathering import LOOKS, SECONDS_BETWEEN_LOOKS, Extent, gather
from stateshift.migration.history import is_stopping, plans_while_running
from stateshift.migration.one_cut import JointStart
from stateshift.migration.plan_book import NumberedPlan
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.step import StopJob, TakeCheckpoint, TakeSavepoint, places_filled
from stateshift.step.jobs import current_tag
from stateshift.survey import Facts, Survey

# The steps that end a job.
ENDS = (StopJob, TakeCheckpoint, TakeSavepoint)

SECONDS_BETWEEN_QUESTIONS = 2.0  # to a cluster that gives no answer

T = TypeVar("T")


def once_heard(context: RunContext, look: Callable[[], T]) -> T:
    """Return the result of `look`, looking again while a cluster gives it no answer. A look changes
    nothing.

    Raises:
        Silent: the cluster has given no answer for too long.
    """
    silence = Silence(context.now)
    was_silent = False
    while True:
        context.world.check_interrupted()
        try:
            return look()
        except Silent as error:
            if silence.is_too_long():
                raise
            if not was_silent:
                seconds = f"{SILENT_SECONDS_MAX:.0f} s"
                context.say(f"{error.fact}; it is asked again, for {seconds} at most")
            was_silent = True
        context.adapters.clock.sleep(SECONDS_BETWEEN_QUESTIONS)


def facts_of(
    context: RunContext, job: JobSpec, extent: Extent = "move", before: Facts | None = None
) -> Facts:
    """Return the facts now, with the rounds' files. With `before` no cluster is asked."""
    arrived = arrivals_of(context, job)
    own = as_it_runs(context, job)
    return gather(context.inquiry, own, extent, arrived, before)


def joint_start(context: RunContext) -> JointStart:
    """Return the start of the run's jobs from their standbys, as these are now. Jobs that have
    begun it have their epochs.
    """
    fixed: dict[str, int | None] = {}
    for job in context.spec.jobs:
        adopted = context.plans.adopted(job, "move", "start")
        if adopted is not None and job.takes_over is not None:
            fixed[job.name] = adopted[1].epoch
    return JointStart(context.inquiry_at_pace, fixed)


def facts_as_proposed(context: RunContext, job: JobSpec, proposed: Plan | None) -> Facts:
    """Return the facts now, if the job is still the one that this was proposed for. One that is
    followed may be in the middle of something: it is looked at more than once.
    """
    looks_left = LOOKS if job.mode == "warm" else 1
    while True:
        facts = facts_of(context, job, "round")
        if proposed is None or context.engine.identity(facts) == proposed.facts:
            return facts
        looks_left -= 1
        if looks_left == 0:
            raise stale(job, facts.source, taken_back=False)
        context.adapters.clock.sleep(SECONDS_BETWEEN_LOOKS)


def facts_behind_round(context: RunContext, job: JobSpec, facts: Facts) -> Facts:
    """Return the same facts, after a round that was made from them: its files are at the target."""
    open_storage = context.adapters.open_storage
    _, target = context.engine.survey(facts.target.location, open_storage)
    data = []
    for here, there in facts.data:
        files = tuple(sorted(open_storage(there.location).list()))
        data.append((here, replace(there, files=files)))
    now = replace(facts, target=target, data=tuple(data))
    return with_arrivals(now, arrivals_of(context, job))


def arrivals_of(context: RunContext, job: JobSpec) -> Arrivals:
    """Return the files that the job's rounds have copied to its target."""
    return arrivals(plans_while_running(context.progress, job.name), context.plans.read)


def halt_of_restarted_job(context: RunContext, halt: NumberedPlan) -> Plan | None:
    """Return the halt of a job that was started again under another id; None for any other halt."""
    number, plan = halt
    steps = tuple(plan)
    if len(steps) != 1 or not context.progress.plans[number].undone:
        return None
    step = steps[0]
    if not isinstance(step, TakeCheckpoint | TakeSavepoint):
        return None
    cluster = context.world.cluster(step.cluster)
    id = cluster.find(current_tag(cluster, step.tag_again(context.world))).id
    if id is None:
        return None
    phases = tuple(replace(phase, steps=(replace(step, job_id=id),)) for phase in plan.phases)
    return replace(plan, phases=phases)


def as_it_runs(context: RunContext, job: JobSpec) -> JobSpec:
    """Return the job by the id that it has now."""
    if not job.image_writers:
        return job
    halt = context.plans.adopted(job, "halt")
    if halt is None:
        return job
    plan = halt_of_restarted_job(context, halt) or halt[1]
    ids = [step.job_id for step in plan if isinstance(step, TakeCheckpoint | TakeSavepoint)]
    return job.written_by(tuple(ids)) if ids else job


def has_stopped(context: RunContext, jobs: Iterable[JobSpec]) -> bool:
    """Whether some of these jobs has been stopped, or may have been: the others follow it, whatever
    was to be awaited before. One that moves alone, and runs on after a stop that failed, has not.
    """
    wave = tuple(jobs)
    plans = context.progress.plans_of(tuple(job.name for job in wave))
    if not any(is_stopping(plan) for plan in plans):
        return False
    return len(wave) != 1 or not _runs_on(context, wave[0], plans)


def _runs_on(context: RunContext, job: JobSpec, plans: Iterable[PlanProgress]) -> bool:
    """Whether nothing has ended the job so far, and its cluster says that it runs."""
    for plan in filter(is_stopping, plans):
        if plan.purpose != "halt":
            return False
        ends = [step for step in context.plans.read(plan) if isinstance(step, ENDS)]
        if any(plan.finished(step.name) for step in ends):
            return False
    cluster = facts_of(context, job, "round").source_cluster
    return cluster is not None and cluster.state == "running"


def remove_leftovers(context: RunContext, plans: Iterable[PlanProgress]) -> None:
    """Remove the leftovers of files that a round was writing when it was cut short. It is never
    repeated but by other rounds, and the files go before the image can be seen.
    """
    targets: set[str] = set()
    for plan in plans:
        names = {name for name, step in plan.steps.items() if step.state == "started"}
        if names:
            steps = [step for step in context.plans.read(plan) if step.name in names]
            targets |= places_filled(steps)
    for target in sorted(targets):
        context.world.storage(target).prune()


def stale(job: JobSpec, source: Survey | None, taken_back: bool) -> StalePlan:
    """Return the error for facts that are no longer the plan's; a job restarts from `source`."""
    if source is not None and not source.images and not job.image_writers:
        return StalePlan(
            f"nothing is at {job.source} any more that a job could be started from; what was "
            f"copied to {job.destination} is kept",
            hint="bring the source back, then `stateshift resume WORKDIR`",
        )
    places = f"{job.source} and {job.destination}"
    if job.sink is not None and job.sink.location is not None:
        places = f"{job.source}, {job.destination} or in the sink {job.sink.location}"
    fact = f"what is found at {places} is no longer what the plan was made from"
    if taken_back:
        fact += "; the halt was taken back"
    return StalePlan(
        fact, hint="look at the difference with a new plan: stateshift plan WORKDIR/spec.json"
    )
