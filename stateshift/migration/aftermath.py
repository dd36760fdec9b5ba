"""The reaction to a wave that has failed: what `outcomes.outcome` decides is carried out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.errors import Interrupted, StateshiftError, StorageError
from stateshift.journal import (
    PlanProgress,
    RollbackStarted,
    RunResumed,
    StepProgress,
    WaveGivenUp,
)
from stateshift.migration import outcomes
from stateshift.migration.context import RunContext
from stateshift.migration.halts import has_stopped_running_job
from stateshift.migration.history import has_moved
from stateshift.migration.last_copy import refuse_last_copy
from stateshift.migration.outcomes import Aftermath, Outcome, Reached, Reason, Restart
from stateshift.migration.rollback_checks import CommittedSince, may_have_started, refuse_rollback
from stateshift.migration.stages import run_wave
from stateshift.migration.wave_order import waves
from stateshift.migration.way_back import roll_back_run, take_wave_back
from stateshift.specification import JobSpec
from stateshift.step.evidence import ImageTaken, JobStopped


@dataclass(frozen=True, slots=True)
class Reaction:
    """The failure, with the hint of what was done about it, and whether the run goes on."""

    error: StateshiftError
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The jobs that forbid taking others back, and the reasons for the run and for the wave."""

    by: outcomes.CommittedSince
    wave_reason: Reason | None = None
    run_reason: Reason | None = None


def react(context: RunContext, wave: Sequence[JobSpec], error: StateshiftError) -> Reaction:
    """Do what the spec says for a failed wave. Raise the failure if nothing is to be done."""
    failure, on_failure = outcomes.failure_of(error), context.spec.on_failure
    if on_failure == "restart" and not has_stopped_running_job(context, wave):
        raise error  # every job is as it was: so a resume may go on with what was done
    if outcomes.outcome(on_failure, failure, outcomes.CommittedSince.NOBODY) == outcomes.STOPPED:
        raise error  # whatever jobs have committed: so none is asked
    forbidden = _forbidden(context, wave)
    decided = outcomes.outcome(on_failure, failure, forbidden.by)
    if decided.run is outcomes.RunFate.TAKE_BACK:
        # Take the whole run back. Raise the failure where that came to nothing.
        names = _names(wave)
        every = waves(context.spec, context.progress.jobs)
        moved = [
            each for each in every if all(has_moved(context.progress, job.name) for job in each)
        ]
        context.record_failure(error)
        discard = context.spec.on_failure == "discard"
        context.record(RollbackStarted(context.now(), discard, automatic=True))
        try:
            roll_back_run(context)
        except Interrupted:
            raise
        except CommittedSince as since:
            reason = Reason(since.fact, since.hint)
            restart = _start_again(context, moved)
            after = Aftermath(
                names, run_reached=Reached.COMMITTED, run_reason=reason, restart=restart
            )
            raise error.with_hint(outcomes.hint_after(error.hint, after)) from since
        except StateshiftError as worse:
            after = Aftermath(
                names, run_reached=Reached.FAILED, run_reason=Reason(worse.fact, worse.hint)
            )
            raise error.with_hint(outcomes.hint_after(error.hint, after)) from worse
        after = Aftermath(names, run_reached=Reached.DONE)
        return Reaction(error.with_hint(outcomes.hint_after(error.hint, after)), goes_on=False)
    after = _give_wave_up(context, wave, error, decided, forbidden)
    if forbidden.run_reason is not None:
        after = replace(after, run_reached=Reached.FORBIDDEN, run_reason=forbidden.run_reason)
    hinted = error.with_hint(outcomes.hint_after(error.hint, after))
    return Reaction(hinted, goes_on=decided.run is outcomes.RunFate.GO_ON)


def _forbidden(context: RunContext, wave: Sequence[JobSpec]) -> Forbidden:
    """Ask all of the run's jobs, if all would be taken back; else those of the wave."""
    by, run_reason = outcomes.CommittedSince, None
    if context.spec.on_failure not in ("finish", "restart"):
        run_reason = _reason_against(context, context.progress.known)
        if run_reason is None:
            return Forbidden(by.NOBODY)
    wave_reason = _reason_against(context, context.progress.plans_of(_names(wave)))
    if wave_reason is not None:
        return Forbidden(by.WAVE, wave_reason, run_reason)
    return Forbidden(by.NOBODY if run_reason is None else by.OTHERS, None, run_reason)


def _reason_against(context: RunContext, plans: Sequence[PlanProgress]) -> Reason | None:
    visible = [plan for plan in plans if may_have_started(context, plan)]
    # If nothing has started, the target may be what has failed: its job runs again all the same.
    passed = () if visible else (StorageError,)
    try:
        with suppress(*passed):
            refuse_last_copy(context, plans)
        refuse_rollback(context, visible, discard=context.spec.on_failure == "discard")
    except StateshiftError as refusal:
        return Reason(refusal.fact, refusal.hint)
    return None


def _give_wave_up(
    context: RunContext,
    wave: Sequence[JobSpec],
    error: StateshiftError,
    decided: Outcome,
    forbidden: Forbidden,
) -> Aftermath:
    """Take the failed wave back, unless that is forbidden. The other waves do not depend on it."""
    names = _names(wave)
    if decided.wave is outcomes.WaveFate.LEAVE:
        after = Aftermath(names, Reached.FORBIDDEN, forbidden.wave_reason)
        _record_given_up(context, error, after)
        return after
    has_stopped = has_stopped_running_job(context, wave)
    after = Aftermath(names, Reached.DONE)
    _record_given_up(context, error, after)  # before it is done: a resume finishes it
    try:
        take_wave_back(context, wave)
    except Interrupted:
        raise
    except CommittedSince as since:
        reason = Reason(since.fact, since.hint)
        restart = _start_again(context, [wave])
        after = Aftermath(names, Reached.COMMITTED, reason, restart=restart)
    except StateshiftError as worse:
        after = Aftermath(names, Reached.FAILED, Reason(worse.fact, worse.hint))
    else:
        if not has_stopped:
            return after
        stops = list(_stops_taken_back(context, wave))
        down: list[str] = []
        unsure: list[str] = []
        for step in stops:
            (unsure if step.evidence is None else down).extend(step.left)
        is_restarted = not (down or unsure)
        after = replace(after, restarted=is_restarted, unsure=tuple(unsure), down=tuple(down))
    _record_given_up(context, error, after)
    return after


def _stops_taken_back(context: RunContext, wave: Sequence[JobSpec]) -> Iterator[StepProgress]:
    """Yield the steps that stopped jobs, or may have: without evidence, nobody knows. Those that
    have left something have not started the job again.
    """
    for plan in context.progress.plans_of(_names(wave)):
        for step in plan.steps.values():
            is_stop = step.evidence is None or isinstance(step.evidence, JobStopped | ImageTaken)
            if step.state == "undone" and step.phase == "halt" and is_stop:
                yield step


def _record_given_up(context: RunContext, error: StateshiftError, after: Aftermath) -> None:
    context.record(
        WaveGivenUp(
            at=context.now(),
            jobs=after.wave,
            back=after.wave_reached in (Reached.DONE, Reached.FAILED),
            error=type(error).__name__,
            message=error.fact,
            hint=context.with_workdir(outcomes.hint_after(error.hint, after)),
            exit_code=error.exit_code,
            step=error.where.get("step"),
        )
    )


def _start_again(context: RunContext, waves: Sequence[Sequence[JobSpec]]) -> Restart | None:
    """Start jobs again that were stopped on their targets in vain: nobody may resume the run."""
    if not waves:
        return None
    names = _names(tuple(chain.from_iterable(waves)))
    context.record(RunResumed(context.now()))
    try:
        for wave in waves:
            run_wave(context, wave)
    except Interrupted:
        raise
    except StateshiftError as worse:
        return Restart(names, worse.fact)
    return Restart(names)


def _names(wave: Sequence[JobSpec]) -> tuple[str, ...]:
    return tuple(job.name for job in wave)
