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
    from stateshift.cli.views.text import Block
    from stateshift.documents.run import RunFacts
    from stateshift.report import Report
    from stateshift.steering import Live
    from stateshift.workdir import Workdir

SECONDS_BETWEEN = 0.5

Show = Callable[["Report", "Live | None"], None]

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

    By its location, a standby is shown: what it can be started from, and how old that is.

    --watch repeats it: what the run does, what is left, and how long the job would be down.
    With --json it prints one document a line.
    """
    from stateshift import migration
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import StatusDocument
    from stateshift.steering import ticking
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    if not place.exists and _is_standby(terminal, workdir):
        return None
    if watch and place.held:
        place.require()
        with _shown(terminal, place) as show:
            while place.held:
                show(migration.status(place), ticking(place.steering.live(), time.time()))
                time.sleep(SECONDS_BETWEEN)
    facts = _facts(place, workdir)
    terminal.answer_value("status", StatusDocument, facts, render_run.status(facts))
    return None


def _is_standby(terminal: Terminal, location: str) -> bool:
    """Show the standby at a location; whether there is one."""
    from stateshift.api.failovers import standby_at
    from stateshift.cli.views import standby_text
    from stateshift.documents.standby import StandbyDocument, StandbyFacts
    from stateshift.errors import PlanError

    adapters = terminal.adapters()
    try:
        facts = StandbyFacts(standby_at(location, adapters), adapters.clock.now())
    except PlanError:
        return False
    terminal.answer_value("standby", StandbyDocument, facts, standby_text.standby(facts))
    return True


def _facts(place: Workdir, path: str) -> RunFacts:
    from stateshift import migration
    from stateshift.documents.run import RunFacts
    from stateshift.steering import ticking

    report, held, now = migration.status(place), place.held, time.time()
    if held:
        return RunFacts(report, path, held, ticking(place.steering.live(), now), now=now)
    return RunFacts(report, path, held, page=place.page_told, now=now)


@contextmanager
def _shown(terminal: Terminal, place: Workdir) -> Iterator[Show]:
    """Show each state: at a terminal over the last one; elsewhere only what is new."""
    from stateshift.cli.views import run_live_text as render_live
    from stateshift.documents.run import RunFacts, StatusDocument
    from stateshift.documents.shape import document_of

    if terminal.json:
        path = str(place.path)
        yield lambda report, live: terminal.document(
            "status", document_of(StatusDocument, RunFacts(report, path, held=True, live=live))
        )
    elif terminal.colours(sys.stdout):
        with _drawing() as draw:
            yield lambda report, live: draw(render_live.watch(report, live))
    else:
        last = ""

        def say(report: Report, live: Live | None) -> None:
            nonlocal last
            line = render_live.line(report, live)
            if line != last:
                last = line
                terminal.say(line)

        yield say


@contextmanager
def _drawing() -> Iterator[Callable[[Iterator[Block]], None]]:
    from rich.console import Console, Group
    from rich.live import Live as Drawn

    from stateshift.cli.views.text import rich_blocks

    console = Console(highlight=False, markup=False, emoji=False)
    with Drawn(console=console, transient=True) as drawn:
        yield lambda blocks: drawn.update(Group(*rich_blocks(blocks)), refresh=True)
