"""`stateshift live import`, `export` and `evict`: the state of an operator's keys as a file, and a
worker that never comes back.
"""

from __future__ import annotations

from typing import Annotated

from stateshift.cli.shell.options import Command, Overwrite, epilog, refuse_replacing
from stateshift.cli.shell.terminal import Terminal
from stateshift.live.cli import GroupOf, argument, option, search_working_directory

OperatorOf = Annotated[
    str, argument("OPERATOR", "MODULE:OPERATOR, found from the working directory on.")
]


def bring(
    terminal: Terminal,
    group: GroupOf,
    operator: OperatorOf,
    file: Annotated[str, argument("FILE", "What `stateshift export` wrote.")],
    worker: Annotated[
        list[str], option("--worker NAME", "A worker that the bins begin at. Repeatable.")
    ],
    make_state: Annotated[
        str | None,
        option(
            "--with FUNCTION",
            "MODULE:FUNCTION of a key and a value, which returns the state; all forms but "
            "columns need it.",
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        option(
            "--map THEIRS=OURS",
            "The operator's name of a column of the file; of one inside another, key.user. "
            "Repeatable.",
        ),
    ] = None,
    timers: Annotated[
        str | None,
        option(
            "--timers FILE",
            "What `stateshift export --store` wrote of timers by their key. The function is "
            "given their times as well, in milliseconds.",
        ),
    ] = None,
) -> int | None:
    """Bring state into a group that has none.

    The operator has not run yet. The job then begins to read where the exported one had stopped.
    Nothing is written unless all rows have become state. With --timers the function is called with
    a key, a value and a list of times: it returns live.Folded(state, later=((TIME, VALUE), …)).
    """
    from stateshift.documents.live_state import LiveImportDocument
    from stateshift.errors import Complaint, SpecError
    from stateshift.live.bins import state_acts
    from stateshift.live.cli import bins_text
    from stateshift.migration import keep_policies_of_group

    pairs = {}
    for word in names or ():
        theirs, _, ours = word.partition("=")
        if not theirs or not ours:
            complaint = Complaint("--map", f"{word!r} is not THEIRS=OURS", word)
            raise SpecError((complaint,), hint="--map word=user")
        pairs[theirs] = ours
    keep_policies_of_group(group, terminal.adapters())
    exported = state_acts.ExportFiles(file, timers, pairs)
    with search_working_directory():
        came = state_acts.import_state(group, operator, exported, worker, make_state)
    terminal.answer_value("live-import", LiveImportDocument, came, bins_text.show_import(came))
    return None


def export(
    terminal: Terminal,
    group: GroupOf,
    operator: OperatorOf,
    to: Annotated[str, option("--to FILE", "A file: .parquet, .arrow or .jsonl.")],
    show: Annotated[
        str | None,
        option(
            "--with FUNCTION",
            "MODULE:FUNCTION of a state, which returns what is written; JSON without it.",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> int | None:
    """Write every key of an operator with its state.

    Each row names its worker, and how far that worker had come. Running workers have come to
    different times: stop them first if all keys must be of one time.
    """
    from stateshift.live.bins import state_acts
    from stateshift.live.cli import bins_text

    refuse_replacing(terminal, "--to", to, overwrite)
    with search_working_directory():
        keys, size = state_acts.export_state(group, operator, to, show)
    terminal.answer(
        "live-export",
        lambda: {"to": to, "keys": keys, "bytes": size},
        bins_text.show_export(to, keys, size),
    )
    return None


def evict(
    terminal: Terminal,
    group: GroupOf,
    worker: Annotated[str, argument("WORKER", "The name of a worker.")],
) -> int | None:
    """Free the name of a worker that never comes back.

    Then start an application under the same name, anywhere. It has to read from the time that is
    printed behind `reads from`, or from before. Move its bins where you want them. If the old
    worker is alive after all, it ends at its next batch.
    """
    from stateshift.documents.live_state import LiveEvictedDocument
    from stateshift.documents.shape import documents_of
    from stateshift.live.bins import state_acts
    from stateshift.live.cli import bins_text

    evicted = state_acts.evict_worker(group, worker, terminal.say)
    terminal.answer(
        "live-evict",
        lambda: {"evicted": documents_of(LiveEvictedDocument, evicted)},
        bins_text.show_eviction(evicted),
    )
    return None


COMMANDS = {
    "import": Command(
        bring,
        epilog(
            "stateshift live import s3://live/orders jobs:visits orders.parquet "
            "--with jobs:from_row --worker west\n"
            "stateshift live import s3://live/orders jobs:visits orders.parquet "
            "--with jobs:from_row --worker west --map word=user --timers timers.parquet",
            *(2, 3, 4, 6),
            e0="brought in; the workers begin with it",
            e4="the operator has a state already, the group has other bins or begins at other "
            "workers, or the function raises; nothing was brought in",
        ),
    ),
    "export": Command(
        export,
        epilog(
            "stateshift live export s3://live/orders jobs:visits --to visits.parquet\n"
            "stateshift live export s3://live/orders jobs:visits --to visits.jsonl "
            "--with jobs:as_row",
            *(2, 3, 4, 6),
            e0="written",
        ),
    ),
    "evict": Command(
        evict,
        epilog(
            "stateshift live evict s3://live/orders west",
            *(2, 3, 4, 6),
            e0="whoever starts under the name goes on from its last commit",
            e4="there is no such worker, or it lives",
        ),
    ),
}
