"""`stateshift live status`: what runs in a group, and what is under way."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.documents.live import StatusFacts

CLEAR = "\x1b[H\x1b[2J"
SECONDS_BETWEEN_LOOKS = 1.0

EPILOG = epilog(
    "stateshift live status s3://live/orders\n"
    "stateshift live status s3://live/orders --watch\n"
    "stateshift live status s3://live/orders --html orders.html",
    2,
    3,
    4,
    6,
    e0="shown, whatever is under way",
    e4="there is no group at this location",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write a page: which version ran when, how fast; where bins were and went.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")
    ] = False,
) -> int | None:
    """Show what runs, and what is under way.

    Shows the functions of each chain with their numbers, the queries that run them, their recent
    rates, and the change that is not decided yet. Shows where bins are, how far and how fast each
    worker is, and which bins are on their way. Only reads. The page of --html also has all changes
    and moves, a timeline of each query over its last 500 batches, and one of each worker over its
    last 40 commits or more.
    """
    from stateshift.cli.views import live_text
    from stateshift.documents.live import LiveStatusDocument, StatusFacts
    from stateshift.live import survey

    if watch:
        with suppress(KeyboardInterrupt):
            _watch(terminal, group)
        return None
    facts = StatusFacts(survey.look(group, is_whole=html is not None))
    if html is not None:
        _write_page(facts, html)
    terminal.answer_value(
        "live-status", LiveStatusDocument, facts, live_text.status(facts, html), page=html
    )
    return None


def _watch(terminal: Terminal, group: str) -> None:
    """Show a group again and again. A document stands on a line of its own."""
    import sys
    import time

    from stateshift.cli.views import live_text
    from stateshift.documents.live import LiveStatusDocument, StatusFacts
    from stateshift.documents.shape import document_of
    from stateshift.live import survey

    while True:
        facts = StatusFacts(survey.look(group))
        if terminal.json:
            terminal.document("live-status", document_of(LiveStatusDocument, facts, page=None))
        else:
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            terminal.show(live_text.status(facts))
        sys.stdout.flush()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _write_page(facts: StatusFacts, path: str) -> None:
    from pathlib import Path

    from stateshift.cli.views import live_html
    from stateshift.documents.live import PastFacts

    changes = [PastFacts(told) for told in facts.survey.told]
    Path(path).write_text(live_html.page(facts, changes), "utf-8")
