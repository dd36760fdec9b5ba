"""`stateshift diff`: two images compared by their entries. Reads only."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import FleetOf, Parallel, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift diff hdfs://old:8020/checkpoints/orders s3://new/checkpoints/orders\n"
    "stateshift diff orders moved/orders --show 5",
    2,
    3,
    4,
    5,
    6,
    7,
    e0="both hold the same entries",
    e4="not an image, or state that cannot be compared",
    e5="they differ",
    e7="the fleet failed",
)


def command(
    terminal: Terminal,
    a: Annotated[str, typer.Argument(metavar="A", help="An image: a URL or a local path.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another image.")],
    show: Annotated[
        int,
        typer.Option("--show", metavar="N", min=0, help="Show up to N differences for each store."),
    ] = 0,
    fleet: FleetOf = None,
    parallel: Parallel = None,
) -> int | None:
    """Compare two images, entry by entry.

    `added` is what only B has, `removed` what only A has. Two images are equal if their entries
    are. Shards, files, codecs and state store providers may differ.
    """
    from stateshift import look
    from stateshift.cli.shell.fleet import readers_for
    from stateshift.cli.views import diff_text as render_diff
    from stateshift.documents.diff import DiffDocument, Outcome, diff_facts
    from stateshift.errors import PlanError, VerifyError

    with readers_for(terminal, fleet, [a, b], parallel) as readers:
        facts = diff_facts(look.diff(a, b, terminal.opening(), show, readers))
    terminal.answer_value(
        "diff", DiffDocument, facts, render_diff.differences(facts, a, b, terminal.verbose)
    )
    match facts.outcome:
        case Outcome.EQUAL:
            return 0
        case Outcome.DIFFERENT:
            return VerifyError.exit_code
    return PlanError.exit_code
