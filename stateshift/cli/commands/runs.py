"""`stateshift runs`: the runs below a directory, oldest first. One that cannot be read does not
hide the others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import WORKDIRS, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.documents.run import ListedRun

EPILOG = epilog("stateshift runs --json", 2, 6, e0="listed")


def command(
    terminal: Terminal,
    workdirs: Annotated[
        str,
        typer.Argument(
            metavar="[DIR]", envvar="STATESHIFT_WORKDIRS", help="Where to look for workdirs."
        ),
    ] = WORKDIRS,
) -> int | None:
    """List all runs, and where each of them stands."""
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import workdir_document

    entries = [_listed(path) for path in below(workdirs)]
    terminal.answer(
        "runs",
        lambda: [workdir_document(entry) for entry in entries],
        render_run.runs(entries, workdirs),
    )
    return None


def below(root: str) -> list[str]:
    """Return the directories below `root`, and `root` itself, that hold a journal; by name, which
    begins with the time. Moves that `rebalance` made lie one folder deeper.
    """
    candidates = [root]
    for path in _directories(root):
        candidates.append(path)
        if os.path.isdir(os.path.join(path, "moves")):
            candidates += _directories(os.path.join(path, "runs"))
    return [path for path in candidates if os.path.exists(os.path.join(path, "journal"))]


def _directories(root: str) -> list[str]:
    """Return the directories in a directory, by name; none where it is not there."""
    if not os.path.isdir(root):
        return []
    with os.scandir(root) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir())


def _listed(path: str) -> ListedRun:
    from stateshift import migration
    from stateshift.documents.run import ListedRun, RunFacts
    from stateshift.errors import StateshiftError
    from stateshift.workdir import Workdir

    workdir = Workdir(path)
    try:
        held = workdir.held
        page = None if held else workdir.page_told
        return ListedRun(path, RunFacts(migration.status(workdir), path, held, page=page))
    except StateshiftError as error:
        return ListedRun(path, None, error.fact)
