"""`stateshift live status`, `history` and `abort`: a group as it runs, as it ran, and what is under
way.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from stateshift.cli.shell.options import Command, epilog
from stateshift.cli.shell.terminal import Terminal
from stateshift.live.cli import GroupOf, argument, option

CLEAR = "\x1b[H\x1b[2J"
SECONDS_BETWEEN_LOOKS = 1.0


def status(
    terminal: Terminal,
    group: GroupOf,
    html: Annotated[
        str | None,
        option(
            "--html FILE",
            "Write a page: which version ran when, how fast; where bins "
            "were and went. It replaces the file.",
        ),
    ] = None,
    watch: Annotated[bool, option("--watch", "Show it again every second, until Ctrl-C.")] = False,
) -> int | None:
    """Show what runs, and what is under way.

    Shows the functions of each chain with their numbers, the queries that run them, their recent
    rates, and the change that is not decided yet. Shows where bins are, how far and how fast each
    worker is, and which bins are on their way. Only reads. The page of --html also has all changes
    and moves, a timeline of each query over its last 500 batches, and one of each worker over its
    last 40 commits or more.
    """
    from stateshift.documents.live import LiveStatusDocument
    from stateshift.live import survey
    from stateshift.live.cli import chains_text

    if watch:
        with suppress(KeyboardInterrupt):
            _watch(terminal, group)
        return None
    found = survey.look(group, is_whole=html is not None)
    if html is not None:
        from stateshift.live.cli import page

        Path(html).write_text(page.page(found), "utf-8")
    terminal.answer_value(
        "live-status", LiveStatusDocument, found, chains_text.status(found, html), page=html
    )
    return None


def _watch(terminal: Terminal, group: str) -> None:
    """Show a group again and again. A document stands on a line of its own."""
    from stateshift.documents.live import LiveStatusDocument
    from stateshift.documents.shape import document_of
    from stateshift.live import survey
    from stateshift.live.cli import chains_text

    while True:
        found = survey.look(group)
        if terminal.json:
            terminal.document("live-status", document_of(LiveStatusDocument, found, page=None))
        else:
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            terminal.show(chains_text.status(found))
        sys.stdout.flush()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def history(
    terminal: Terminal,
    group: GroupOf,
    chain: Annotated[str | None, argument("CHAIN", "Only changes of this chain.")] = None,
) -> int | None:
    """Show every change, and what became of it.

    The number of a change is the version of its chains: `stateshift live revert --to` takes it.
    Seconds are counted from the proposal until the first and until the last worker ran the change.
    The last moves of bins follow, one line for each proposal; older ones are removed. A step that
    was proposed again has several.
    Only reads.
    """
    from stateshift.documents.live import history as document
    from stateshift.live import survey
    from stateshift.live.cli import chains_text

    found = survey.history(group, chain)
    moves = () if chain else survey.moves_of_bins(group)
    terminal.answer(
        "live-history",
        lambda: document(found.location, found.changes, moves),
        chains_text.history(found.location, found.changes, moves),
    )
    return None


def abort(terminal: Terminal, group: GroupOf) -> int | None:
    """Abort the change, or the move of bins, that is under way.

    A change that is applied cannot be aborted: take it back with `stateshift live revert`. Of a
    move, steps that are decided are carried out, and no other begins. To undo them, move the bins
    back.
    """
    from stateshift.documents.bins import aborted_move
    from stateshift.documents.live import LiveAbortDocument
    from stateshift.live import acts
    from stateshift.live.bins.controller import Controller, has_bins
    from stateshift.live.cli import bins_text, chains_text

    controller = Controller(group) if has_bins(group) else None
    if controller is not None and controller.is_at_work:
        proposal = controller.abort()
        terminal.answer(
            "live-change", lambda: aborted_move(proposal), bins_text.show_aborted(proposal)
        )
        return None
    known = acts.abort(group)
    blocks = chains_text.show_aborted(known)
    terminal.answer_value("live-change", LiveAbortDocument, known.change, blocks, state="aborted")
    return None


COMMANDS = {
    "history": Command(
        history,
        epilog(
            "stateshift live history s3://live/orders\n"
            "stateshift live history s3://live/orders score",
            *(2, 3, 4, 6),
            e0="shown",
            e4="there is no group at this location, or no such chain",
        ),
    ),
    "status": Command(
        status,
        epilog(
            "stateshift live status s3://live/orders\n"
            "stateshift live status s3://live/orders --watch\n"
            "stateshift live status s3://live/orders --html orders.html",
            *(2, 3, 4, 6),
            e0="shown, whatever is under way",
            e4="there is no group at this location",
        ),
    ),
    "abort": Command(
        abort,
        epilog(
            "stateshift live abort s3://live/orders",
            *(2, 3, 4, 6),
            e0="aborted; all workers run on as before",
            e4="nothing is under way, or it has just been applied",
        ),
    ),
}
