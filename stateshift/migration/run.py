"""A run at work: its waves in order, and what becomes of them when one fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stateshift.errors import StateshiftError
from stateshift.journal import RunFinished
from stateshift.migration.aftermath import react
from stateshift.migration.context import RunContext
from stateshift.migration.failure_record import record_failure
from stateshift.migration.stages import run_wave
from stateshift.migration.target_locks import release_untouched
from stateshift.migration.wave_order import waves
from stateshift.report import Report
from stateshift.specification import JobSpec


def carry_out(context: RunContext) -> Report:
    """Carry out all waves, as far as they go. Raise the first failure, once everything was done
    that the spec says for it.
    """
    with context.control.listening():
        return _carry_out(context)


def _carry_out(context: RunContext) -> Report:
    try:
        failure = _run_waves(context, waves(context.spec, context.progress.jobs))
        if failure is None:
            context.record(RunFinished(context.now()))
    except StateshiftError as error:
        recorded = record_failure(context, error)
        release_untouched(context)
        raise recorded from error
    if failure is not None:
        raise record_failure(context, failure) from failure
    return context.write_report()


def _run_waves(
    context: RunContext, ordered_waves: Iterable[Sequence[JobSpec]]
) -> StateshiftError | None:
    """Return the first failure behind which the run went on, or was taken back."""
    first: StateshiftError | None = None
    for wave in ordered_waves:
        try:
            run_wave(context, wave)
        except StateshiftError as error:
            reaction = react(context, wave, error)
            first = first or reaction.error
            if not reaction.goes_on:
                break
    return first
