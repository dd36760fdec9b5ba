"""`stateshift status`: where a run stands. Reads its journal only, also while another process
writes it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import WorkdirOf, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.report import Report
    from stateshift.steering import Live
    from stateshift.workdir import Workdir

SECONDS_BETWEEN = 0.5

EPILOG = epilog(
    "stateshift status .stateshift/20260301-120000-orders-1f3a\n"
    "stateshift status .stateshift/20260301-120000-orders-1f3a --watch",
    2,
    8,
    130,
    e0="shown, whatever the state is",
    e130="you stopped watching; the run continues",
)


def command(
    terminal: Terminal,
    workdir: WorkdirOf,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Repeat until no process works on the run."),
    ] = False,
) -> int | None:
    """Show where a run stands, and what can be done now.

    --watch repeats it: what the run does, what is left, and how long the job would be down.
    With --json it prints one document a line.
    """
    from stateshift import migration
    from stateshift.cli.views import run_json
    from stateshift.cli.views import run_text as render_run
    from stateshift.steering import ticking
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    told, held = migration.status(place), place.held
    if watch and held:
        _watch(terminal, place)
        told, held = migration.status(place), place.held
    now = time.time()
    live = ticking(place.steering.live(), now) if held else None
    page = None if held else place.page_told
    if terminal.json:
        terminal.document("status", run_json.status(told, workdir, held, live, page))
    else:
        terminal.show(render_run.status(told, workdir, held, live, page, now))
    return None


def _watch(terminal: Terminal, place: Workdir) -> None:
    """At a terminal drawn over what was said before; elsewhere only what is new."""
    from stateshift import migration
    from stateshift.steering import ticking

    with _saying(terminal, place) as say:
        while place.held:
            say(migration.status(place), ticking(place.steering.live(), time.time()))
            time.sleep(SECONDS_BETWEEN)


@contextmanager
def _saying(terminal: Terminal, place: Workdir) -> Iterator[Callable[[Report, Live | None], None]]:
    from stateshift.cli.views import run_json
    from stateshift.cli.views import run_live_text as render_live

    if terminal.json:
        path = str(place.path)
        yield lambda told, live: terminal.document(
            "status", run_json.status(told, path, True, live)
        )
    elif terminal.colours(sys.stdout):
        with _drawing() as draw:
            yield lambda told, live: draw(render_live.watched(told, live))
    else:
        said = [""]

        def say(told: Report, live: Live | None) -> None:
            if (now := render_live.line(told, live)) != said[0]:
                said[0] = now
                terminal.say(now)

        yield say


@contextmanager
def _drawing() -> Iterator[Callable[[Iterator[object]], None]]:
    from rich.console import Console, Group
    from rich.live import Live as Drawn

    from stateshift.cli.views.text import coloured

    with Drawn(
        console=Console(highlight=False, markup=False, emoji=False), transient=True
    ) as drawn:
        yield lambda blocks: drawn.update(Group(*coloured(blocks)), refresh=True)  # type: ignore[arg-type]
