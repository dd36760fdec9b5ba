"""`stateshift live`: functions of running jobs, changed without a restart, and state that moves in
bins.

    chains, bins, states, group, buffer   the commands, as the parser reads them
    change, bin_moves                     what they do: check, propose, wait, say what came of it
    chains_text, bins_text                what they show, as text. Pure
    page, page_drawing                    the same as a page. Pure

The table of commands in `stateshift.cli.commands` names this package, and nothing else there knows
it. What all commands share is `stateshift.cli`'s. `buffer` changes nothing: it stands before a job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from stateshift.cli.shell.options import epilog

# In the order of the help: the module of each.
MODULES = {
    "replace": "chains",
    "introduce": "chains",
    "remove": "chains",
    "revert": "chains",
    "move": "bins",
    "bins": "bins",
    "pause": "bins",
    "resume": "bins",
    "throttle": "bins",
    "history": "group",
    "status": "group",
    "abort": "group",
    "import": "states",
    "export": "states",
    "evict": "states",
    "buffer": "buffer",
}

EPILOG = """\b
In a job, functions stand in a chain, which names its group's folder:
  from stateshift import live
  score = live.chain("score", "s3://live/orders", "id long, k long", add_score)
  orders.mapInArrow(score, "id long, k long")

""" + epilog(
    "stateshift live status s3://live/orders\n"
    "stateshift live replace s3://live/orders score model_v2:score --check\n"
    "stateshift live replace s3://live/orders score model_v2:score\n"
    "stateshift live revert s3://live/orders score\n"
    "stateshift live move s3://live/orders --to east --bins 0-127",
    *(2, 3, 4, 6, 7, 9, 130),
    e7="the workers did not take the change or the move: it was aborted",
    e9="decided, and not seen to be complete within --wait: running jobs carry it out",
    e130="interrupted; the message says whether the change is applied",
)


def command() -> None:
    """Change functions of running jobs, and move their state."""


def option(usage: str, help: str, min: float | None = None) -> object:
    """Return an option, `--check`, or one with a value, `--to WORKER`, as the parser reads it."""
    flag, _, metavar = usage.partition(" ")
    return typer.Option(flag, metavar=metavar or None, help=help, min=min)


def argument(metavar: str, help: str) -> object:
    """Return an argument, as the parser reads it."""
    return typer.Argument(metavar=metavar, help=help)


GroupOf = Annotated[str, argument("GROUP", "The group's folder: a URL or a local path.")]
CheckOnly = Annotated[
    bool, option("--check", "Check only. Nothing is proposed, and nothing changes.")
]


@contextmanager
def search_working_directory() -> Iterator[None]:
    """Look for modules in the working directory as well, as `python -m` does."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
