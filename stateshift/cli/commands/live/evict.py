"""`stateshift live evict`: the name of a worker that never comes back, free for another."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import GroupOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift live evict s3://live/orders west",
    2,
    3,
    4,
    6,
    e0="whoever starts under the name goes on from its last commit",
    e4="there is no such worker, or it lives",
)


def command(
    terminal: Terminal,
    group: GroupOf,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="The name of a worker.")],
) -> int | None:
    """Free the name of a worker that never comes back.

    Then start an application under the same name, anywhere. It has to read from the time that is
    printed behind `reads from`, or from before. Move its bins where you want them. If the old
    worker is alive after all, it ends at its next batch.
    """
    from stateshift.cli.views import live_state_text
    from stateshift.documents.live_state import LiveEvictedDocument
    from stateshift.documents.shape import documents_of
    from stateshift.live.bins import state_acts

    evicted = state_acts.evict_worker(group, worker, terminal.say)
    terminal.answer(
        "live-evict",
        lambda: {"evicted": documents_of(LiveEvictedDocument, evicted)},
        live_state_text.show_eviction(evicted),
    )
    return None
