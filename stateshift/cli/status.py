"""`stateshift status`: where a run stands. Reads its journal only, also while another process writes it."""

from __future__ import annotations

import typer

from stateshift.cli.options import Json, Verbose, WorkdirOf, epilog
from stateshift.cli.terminal import Terminal

EPILOG = epilog("stateshift status .stateshift/20260301-120000-orders-1f3a", 2, 8, e0="told, whatever the state is")


def command(context: typer.Context, workdir: WorkdirOf, json: Json = False, verbose: Verbose = False) -> int | None:
    """Where a run stands, and what can be done now."""
    from stateshift import migration
    from stateshift.cli import as_json_run, render_run
    from stateshift.workdir import Workdir

    terminal, place = Terminal.of(context, json, verbose), Workdir(workdir)
    told, held = migration.status(place), place.held
    if json:
        terminal.document(as_json_run.status(told, workdir, held))
    else:
        terminal.show(render_run.status(told, workdir, held))
    return None
