"""A failure, written down: into the journal, and into the run's report."""

from __future__ import annotations

from contextlib import suppress
from shlex import quote
from typing import TypeVar

from stateshift.errors import Interrupted, StateshiftError, StorageError
from stateshift.journal import RunFailed
from stateshift.migration.context import RunContext

E = TypeVar("E", bound=StateshiftError)


def record_failure(context: RunContext, error: E) -> E:
    """Write a failure down, unless the journal has it. Return it with this run's own commands in
    its hint.

    Where the workdir's own disk is full the failure cannot be written down. It is raised all the
    same, and a journal that ends in the middle of a run can be resumed.
    """
    named = error.with_hint(_hint(context, error))
    if context.progress.state in ("running", "rolling-back"):
        with suppress(StorageError):
            context.record(_failed(context, named))
            context.write_report()
    return named


def _hint(context: RunContext, error: StateshiftError) -> str | None:
    if isinstance(error, Interrupted):
        return f"stateshift resume {quote(str(context.workdir.path))}"
    return context.with_workdir(error.hint)


def _failed(context: RunContext, error: StateshiftError) -> RunFailed:
    return RunFailed(
        at=context.now(),
        error=type(error).__name__,
        message=error.fact,
        hint=error.hint,
        exit_code=error.exit_code,
        step=error.where.get("step"),
    )
