"""A drill: the start of a standby is rehearsed, and what was made for it is thrown away.

    start       copy the image to a scratch place, start the job there, wait for its first batch
    note        how that ended, in the journal and beside the standby
    throw away  stop the job and remove the copy: the run's own rollback

A run that is resumed goes on with the first of these that its journal does not show. Whoever feeds
the standby goes on meanwhile, and may replace what is being read: then it is planned again.
"""

from __future__ import annotations

from itertools import chain

from stateshift.errors import (
    FormatError,
    Interrupted,
    JournalError,
    LastCopyError,
    MissingFile,
    PlanError,
    StateshiftError,
    StorageError,
    VerifyError,
)
from stateshift.formats.standby import Drill
from stateshift.journal import Rehearsed, RollbackStarted
from stateshift.migration.context import RunContext
from stateshift.migration.last_copy import refuse_last_copy
from stateshift.migration.stages import run_wave
from stateshift.migration.way_back import roll_back_run, stop_started_jobs, take_last_plan_back
from stateshift.plan import PHASES
from stateshift.report import Report
from stateshift.specification import JobSpec
from stateshift.step.claims import add_drill

ATTEMPTS = 5
SECONDS_BETWEEN = 2.0  # in which a round publishes its image
# Errors of whoever reads files that are replaced meanwhile.
REPLACED = (PlanError, MissingFile, FormatError, VerifyError)


def rehearse(context: RunContext) -> Report:
    """Carry out a drill, from wherever its journal says that it stands.

    Raises:
        JournalError: another drill is at work at the scratch place.
        StateshiftError: the job did not start. The copy is gone by then.
    """
    (job,) = [context.job(name) for name in context.progress.jobs]
    failure: StateshiftError | None = None
    if context.progress.rehearsed is None:
        try:
            _start(context, job)
        except (Interrupted, JournalError):
            raise
        except StateshiftError as error:
            failure = error
        context.record(_outcome(context, job, failure))
        if failure is not None:
            hint = f"mend this, then: stateshift drill {job.source}"
            if failure.hint and "WORKDIR" not in failure.hint:
                hint = f"{failure.hint}; then: stateshift drill {job.source}"
            failure = context.record_failure(failure.with_hint(hint))
    _note(context, job)
    try:
        refuse_last_copy(context, context.progress.known)
    except LastCopyError:
        stop_started_jobs(context)
        raise
    context.record(RollbackStarted(context.now(), discard=True, automatic=True))
    report = roll_back_run(context)
    if failure is not None:
        raise failure
    return report


def _start(context: RunContext, job: JobSpec) -> None:
    """Copy the image and start the job; plan it again where the standby was fed meanwhile."""
    attempts_left = ATTEMPTS
    while True:
        try:
            run_wave(context, (job,))
            return
        except REPLACED as error:
            attempts_left -= 1
            plans = [plan for plan in context.progress.plans_of((job.name,)) if not plan.undone]
            steps = chain.from_iterable(plan.steps.values() for plan in plans)
            is_started = any(step.phase == "submit" for step in steps)
            if attempts_left == 0 or is_started:
                raise
            context.say(f"{job.name} is planned again: {error.fact}")
        take_last_plan_back(context, job)
        context.adapters.clock.sleep(SECONDS_BETWEEN)


def _outcome(context: RunContext, job: JobSpec, failure: StateshiftError | None) -> Rehearsed:
    plans = [plan for plan in context.progress.plans_of((job.name,)) if not plan.undone]
    epoch, seconds = None, dict[str, float]()
    if plans:
        newest = plans[-1]
        epoch = context.plans.read(newest).epoch
        before = plans[0].at  # rounds of copying come before the plan that starts the job
        seconds["plan"] = round(max(0.0, before - context.progress.began), 3)
        for phase in PHASES:
            steps = [step for step in newest.steps.values() if step.phase == phase]
            if steps:
                end = max(step.at + step.seconds for step in steps)
                seconds[phase] = round(max(0.0, end - before), 3)
                before = max(before, end)
    fact = "" if failure is None else failure.fact
    return Rehearsed(context.now(), job.name, epoch, fact, seconds)


def _note(context: RunContext, job: JobSpec) -> None:
    """Write the drill into the standby's history. A history that cannot be read is left alone."""
    ended = context.progress.rehearsed
    assert ended is not None, "it has ended"
    drill = Drill(
        run=context.world.run,
        at=ended.at,
        epoch=ended.epoch,
        failure=ended.failure,
        seconds=ended.seconds,
        host=context.adapters.host,
        workdir=str(context.workdir.path.absolute()),
    )
    try:
        add_drill(context.world.storage(job.source), drill)
    except (StorageError, FormatError) as error:
        context.say(f"{job.name}: this drill is not in the history of its standby: {error}")
