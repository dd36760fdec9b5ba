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
    from stateshift.cli.views.run_json import DamagedRunDocument, StatusDocument
    from stateshift.cli.views.run_text import Listed

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

    found = [_listed(path) for path in below(workdirs)]
    if terminal.json:
        terminal.document("runs", [_document(one) for one in found])
    else:
        terminal.show(render_run.runs(found, workdirs))
    return None


def below(root: str) -> list[str]:
    """The directories below `root`, and `root` itself, that hold a journal; by name, which
    begins with the time.
    """
    if not os.path.isdir(root):
        return []
    candidates = [
        root,
        *(entry.path for entry in sorted(os.scandir(root), key=lambda e: e.name) if entry.is_dir()),
    ]
    return [path for path in candidates if os.path.exists(os.path.join(path, "journal"))]


def _listed(path: str) -> Listed:
    from stateshift import migration
    from stateshift.cli.views.run_text import Listed
    from stateshift.errors import StateshiftError
    from stateshift.workdir import Workdir

    place = Workdir(path)
    try:
        held = place.held
        return Listed(path, migration.status(place), held, page=None if held else place.page_told)
    except StateshiftError as error:
        return Listed(path, None, False, error.fact)


def _document(one: Listed) -> StatusDocument | DamagedRunDocument:
    from stateshift.cli.views import run_json

    if one.report is None:
        return run_json.damaged_run(one.workdir, one.damage)
    return run_json.status(one.report, one.workdir, one.held, page=one.page)
