"""`stateshift fork`: a copy with an identity of its own."""

from __future__ import annotations

from stateshift.cli.shell.options import NoSync, RunOptions, Source, To, Waive
from stateshift.cli.shell.shortcut import fork_keys, one_job, run_epilog, run_jobs
from stateshift.cli.shell.terminal import Terminal

EPILOG = run_epilog("stateshift fork /data/orders --to /test/orders")


def command(
    terminal: Terminal,
    options: RunOptions,
    source: Source,
    to: To,
    waive: Waive = None,
    no_sync: NoSync = False,
) -> int:
    """Copy a checkpoint for another job; its own job runs on.

    The copy gets a query id of its own, so that idempotent sinks do not take it for the
    original.
    """
    return run_jobs(terminal, options, [one_job(source, to, [], waive, fork_keys(True, no_sync))])
