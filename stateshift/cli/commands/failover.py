"""`stateshift failover`: start a job from its standby."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import RunOptions, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift failover hdfs://b/standby/orders\n"
    "stateshift failover hdfs://b/standby/orders --primary-is-down --yes",
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    130,
    e0="the job runs at its standby; of one that does already, the primary is fenced",
    e3="the standby's state file is damaged, or of another version",
    e4="no standby is there, it cannot be started from, or its primary cannot be fenced",
    e130="interrupted: `stateshift resume WORKDIR` continues",
)


def command(
    terminal: Terminal,
    options: RunOptions,
    place: Annotated[
        str,
        typer.Argument(
            metavar="LOCATION|WORKDIR",
            help="Where the standby is, or the workdir of the run that keeps it.",
        ),
    ],
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", metavar="N", help="Refuse if the standby is not at this batch."),
    ] = None,
    primary_is_down: Annotated[
        bool,
        typer.Option(
            "--primary-is-down",
            help="Do not ask the primary: its job does not run, and cannot come back.",
        ),
    ] = False,
) -> int | None:
    """Start a job from its standby: its region is gone.

    Needs the standby's storage and nothing else.

    Claims the location, so that the process that has fed it writes nothing there any more; fences
    the primary as far as it answers; starts the job, and waits for its first commit. Tells what
    was lost. Given again once the job runs there, it fences a primary that answers by now.
    """
    from stateshift.api.failovers import fence_again, spec_of_failover, standby_at
    from stateshift.cli.shell.launch import launch
    from stateshift.cli.shell.request import Request, overridden
    from stateshift.cli.views import standby_text
    from stateshift.documents.standby import FencedDocument, FencedFacts, StandbyFacts

    adapters = terminal.adapters()
    standby = standby_at(place, adapters)
    if standby.is_taken_over:
        fenced = FencedFacts(standby, fence_again(standby, adapters))
        terminal.answer_value(
            "failover", FencedDocument, fenced, standby_text.primary_fenced(fenced)
        )
        return None
    spec = spec_of_failover(standby, epoch, primary_is_down)
    terminal.talk(standby_text.standby(StandbyFacts(standby, adapters.clock.now())))
    spec = overridden(spec, options.parallel, options.throttle)
    return launch(terminal, options, Request(spec, typed=True))
