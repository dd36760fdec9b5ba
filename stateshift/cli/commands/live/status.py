"""`stateshift live status`: what runs in a group, and what is under way."""

from __future__ import annotations

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live status s3://live/orders\nstateshift live status s3://live/orders --json",
    2,
    3,
    4,
    6,
    e0="shown, whatever is under way",
    e4="there is no group at this location",
)


def command(terminal: Terminal, group: GroupOf) -> int | None:
    """Show what runs, and what is under way.

    Shows the functions of each chain with their numbers, the queries that run them, how fast they
    are of late, and the change that is not decided yet. Only reads.
    """
    from stateshift.cli.views import live_json, live_text
    from stateshift.cli.views.live_facts import StatusFacts
    from stateshift.live import survey

    facts = StatusFacts(survey.look(group))
    terminal.answer("live-status", lambda: live_json.status(facts), lambda: live_text.status(facts))
    return None
