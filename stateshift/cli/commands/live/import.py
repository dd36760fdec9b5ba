"""`stateshift live import`: state of a checkpoint or a savepoint as a live operator's first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from stateshift.cli.shell.options import GroupOf, OperatorOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live import s3://live/orders jobs:visits orders.parquet --with jobs:from_row "
    "--worker west\n"
    "stateshift live import s3://live/orders jobs:visits orders.parquet --with jobs:from_row "
    "--worker west --map word=user --timers timers.parquet",
    2,
    3,
    4,
    6,
    e0="brought in; the workers begin with it",
    e4="the operator has a state already, the group has other bins or begins at other workers, or "
    "the function raises; nothing was brought in",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    operator: OperatorOf,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `stateshift export` wrote.")],
    worker: Annotated[
        list[str],
        typer.Option(
            "--worker", metavar="NAME", help="A worker that the bins begin at. Repeatable."
        ),
    ],
    make_state: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="FUNCTION",
            help="MODULE:FUNCTION of a key and a value, which returns the state; all forms but "
            "columns need it.",
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="THEIRS=OURS",
            help="The operator's name of a column of the file; of one inside another, key.user. "
            "Repeatable.",
        ),
    ] = None,
    timers: Annotated[
        str | None,
        typer.Option(
            "--timers",
            metavar="FILE",
            help="What `stateshift export --store` wrote of timers by their key. The function is "
            "given their times as well, in milliseconds.",
        ),
    ] = None,
) -> int | None:
    """Bring state into a group that has none.

    The operator has not run yet. The job then begins to read where the exported one had stopped.
    Nothing is written unless all rows have become state. With --timers the function is called with
    a key, a value and a list of times: it returns live.Folded(state, later=((TIME, VALUE), …)).
    """
    from stateshift.cli.shell.change import search_working_directory
    from stateshift.cli.views import live_state_text
    from stateshift.documents.live_state import LiveImportDocument
    from stateshift.live.bins import state_acts

    exported = state_acts.ExportFiles(file, timers, _pairs(names or ()))
    with search_working_directory():
        came = state_acts.import_state(group, operator, exported, worker, make_state)
    terminal.answer_value(
        "live-import", LiveImportDocument, came, live_state_text.show_import(came)
    )
    return None


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """Return names of columns as they were typed, the file's own first."""
    from stateshift.errors import Complaint, SpecError

    pairs = {}
    for word in words:
        theirs, _, ours = word.partition("=")
        if not theirs or not ours:
            complaint = Complaint("--map", f"{word!r} is not THEIRS=OURS", word)
            raise SpecError((complaint,), hint="--map word=user")
        pairs[theirs] = ours
    return pairs
