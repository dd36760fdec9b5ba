"""`stateshift rebalance`: which jobs to move between clusters; moves them with --yes."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.measuring import (
    SAMPLE,
    Changed,
    Sample,
    refuse_beside_replay,
    require_argument,
    seconds_in,
    settings_in,
)
from stateshift.cli.shell.options import UNBOUNDED, WORKDIRS, Workdirs, epilog, refuse_no_file
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Collection

    from stateshift.advise.rebalance.outcome import Rebalance
    from stateshift.api.rebalancing.request import Acting
    from stateshift.errors import Interrupted, StorageError

EPILOG = epilog(
    "stateshift rebalance clusters.json --once\n"
    "stateshift rebalance clusters.json --once --yes --json\n"
    "stateshift rebalance clusters.json --once --drain west --yes --wait && ./switch-off west\n"
    "stateshift rebalance clusters.json --once --uncordon west\n"
    "stateshift rebalance --replay .stateshift/rebalance-clusters/decisions/0007.json",
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    130,
    e0='decided, and moved with --yes; "nothing to move" and "cannot tell" are decisions, and so '
    "is another run at work. With --drain: the cluster says that nothing runs there any more",
    e4="a move was refused when its turn came; with --drain: a cluster is not empty, and why",
    e8="the folder of earlier runs, or the journal of a move, is damaged",
    e130="interrupted: the same command goes on",
)


def command(
    terminal: Terminal,
    spec: Annotated[
        str | None,
        typer.Argument(metavar="[SPEC]", help="A spec with the section `rebalance`."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One run, as cron repeats it. There is no other way.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Make the moves. Without it, nothing is moved.")
    ] = False,
    drain: Annotated[
        list[str] | None,
        typer.Option(
            "--drain",
            metavar="CLUSTER",
            help="Move all of its jobs elsewhere, whatever it costs. With --yes, nothing moves "
            "there any more until --uncordon. Repeatable.",
        ),
    ] = None,
    uncordon: Annotated[
        list[str] | None,
        typer.Option(
            "--uncordon", metavar="CLUSTER", help="Let jobs move there again. Repeatable."
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait",
            metavar="[TIME]",
            help="Wait for a run that is at work: so long, or until it has ended.",
        ),
    ] = None,
    sample: Sample = SAMPLE,
    history: Annotated[
        str | None,
        typer.Option(
            "--history", metavar="DIR", help="Keep samples here, such as where advise keeps its."
        ),
    ] = None,
    setting: Changed = None,
    workdir: Annotated[
        str | None,
        typer.Option(
            "--workdir",
            metavar="D",
            help="Keep what runs know here, not in WORKDIRS/rebalance-<spec>.",
        ),
    ] = None,
    workdirs: Workdirs = WORKDIRS,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="FILE", help="Decide again what a file has; look at nothing."
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page with bars, too.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what each move costs and brings.")
    ] = False,
) -> int | None:
    """Move jobs between clusters, where that evens them out.

    Measures jobs and clusters, and decides which jobs to move: only what brings more than it costs,
    within the limits of the spec. Shows it; --yes makes the moves, one ordinary run each. Made for
    cron: a cluster must be too full in two runs in a row, and only one run is at work at a time.
    """
    from stateshift.api.rebalancing.folder import usual_folder
    from stateshift.api.rebalancing.once import rebalance_once, replay_decision
    from stateshift.api.rebalancing.request import RebalanceRequest
    from stateshift.api.requests import spec_of
    from stateshift.cli.shell.failing import describe_error

    if replay is not None:
        refuse_beside_replay(
            spec is not None or yes, "decides again what a file has, and looks at no clusters"
        )
        _show(terminal, replay_decision(replay), html, explain)
        return None
    path = require_argument(spec, "SPEC", "stateshift rebalance clusters.json --once")
    if html is not None:
        _refuse_page(html)  # before anything is moved
    wait_seconds = 0.0  # for another run: not at all, for a time, or until it has ended
    if wait is not None:
        wait_seconds = float("inf") if wait == UNBOUNDED else seconds_in(wait, "--wait")
    request = RebalanceRequest(
        spec=spec_of(path),
        folder=workdir or usual_folder(workdirs, path),
        acting=_acting(terminal) if yes else None,
        draining=tuple(dict.fromkeys(drain or ())),
        uncordoned=tuple(uncordon or ()),
        wait_seconds=wait_seconds,
        say=terminal.say,
        settings=settings_in(setting or ()),
        sample_seconds=seconds_in(sample),
        history=history,
    )
    try:
        run = rebalance_once(request, terminal.adapters())
    except KeyboardInterrupt:
        raise _interrupted(request.draining) from None
    try:
        _show(terminal, run.outcome, html, explain)
    finally:  # a page that fails does not hide what has become of a move
        for error in run.errors:
            terminal.talk(describe_error(error))
    return run.errors[0].exit_code if run.errors else None


def _interrupted(draining: Collection[str]) -> Interrupted:
    """Return that somebody has ended a run, whatever it has moved by then."""
    from stateshift.errors import Interrupted

    names = ", ".join(draining)
    unasked = f"; it was not asked whether {names} is empty" if draining else ""
    return Interrupted(f"interrupted{unasked}", hint="the same command goes on with what is begun")


def _show(terminal: Terminal, outcome: Rebalance, html: str | None, explain: bool) -> None:
    from stateshift.api.local_files import write_whole
    from stateshift.cli.views import rebalance_html, rebalance_text
    from stateshift.documents.rebalance import RebalanceDocument

    if html is not None:
        # Whole or not at all, before the answer is printed: a page that fails leaves an error, and
        # no half of an answer. The decision is kept.
        page = rebalance_html.page(outcome)
        try:
            write_whole(html, page)
        except OSError as error:
            hint = "name another file with --html"
            if outcome.file is not None:
                hint = f"stateshift rebalance --replay {quote(outcome.file)} --html OTHER"
            raise _unwritable(html, error, hint) from error
    terminal.answer_value(
        "rebalance", RebalanceDocument, outcome, rebalance_text.blocks(outcome, explain)
    )


def _refuse_page(html: str) -> None:
    """Refuse a page that cannot be written where it is to be: it is tried."""
    from stateshift.api.local_files import try_writing

    refuse_no_file("--html", html, "a page", "rebalance.html")
    try:
        try_writing(html)
    except OSError as error:
        raise _unwritable(html, error, "name another file with --html") from error


def _unwritable(html: str, error: OSError, hint: str) -> StorageError:
    from stateshift.errors import StorageError

    fact = f"the page {html} cannot be written: {error.strerror}"
    return StorageError(fact, location=html, hint=hint)


def _acting(terminal: Terminal) -> Acting:
    """Return the watch over moves, which lets Ctrl-C stop them."""
    import threading
    from collections.abc import Iterator
    from contextlib import contextmanager

    from stateshift.cli.shell.progress import watching
    from stateshift.cli.shell.work import stoppable_before
    from stateshift.migration import Adapters

    @contextmanager
    def acting() -> Iterator[Adapters]:
        stop = threading.Event()
        with watching(terminal) as meter, stoppable_before(stop, terminal.again()):
            yield terminal.adapters(meter, stop)

    return acting
