"""`stateshift live status`: what runs in a group, and what is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.cli.views.live_facts import StatusFacts

EPILOG = epilog(
    "stateshift live status s3://live/orders\n"
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
            help="Write a page: which version ran when, rows a second, how long tasks took.",
        ),
    ] = None,
) -> int | None:
    """Show what runs, and what is under way.

    Shows the functions of each chain with their numbers, the queries that run them, how fast they
    are of late, and the change that is not decided yet. Only reads. The page of --html holds all
    changes, and a timeline of each query as far back as its batches are kept: the last 500.
    """
    from stateshift.cli.views import live_json, live_text
    from stateshift.cli.views.live_facts import StatusFacts
    from stateshift.live import survey

    facts = StatusFacts(survey.look(group, is_whole=html is not None))
    if html is not None:
        _write_page(facts, html)
    terminal.answer(
        "live-status", lambda: live_json.status(facts, html), lambda: live_text.status(facts, html)
    )
    return None


def _write_page(facts: StatusFacts, path: str) -> None:
    from pathlib import Path

    from stateshift.cli.views import live_html
    from stateshift.cli.views.live_facts import PastFacts

    changes = [PastFacts(told) for told in facts.survey.told]
    Path(path).write_text(live_html.page(facts, changes), "utf-8")
