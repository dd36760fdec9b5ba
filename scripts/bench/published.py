"""What a page about downtime stands beside: the figures of "On-the-fly Reconfiguration of Query
Plans for Stateful Stream Processing Engines" (BTW 2018), measured there on a cluster of several
machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PUBLISHED = (
    ("published: a stateful map", 7.5, 7.1, "2 s of it waiting, 2.4 s moving state"),
    ("published: NEXMark Q8, 13.5 GB of state", 191.0, 81.8, "2.7 GB of it moved"),
)


def beside(ours: Iterable[tuple[str, float, float]]) -> Iterator[str]:
    """A table of (what, the gap of a job stopped and brought over, that of one brought over
    while it runs).
    """
    yield "## Beside what was published"
    yield ""
    yield (
        "Seconds; theirs is another system on other machines: only the factors can be held "
        "against each other."
    )
    yield ""
    yield "| what | cancel and restore, or a move | migration, or warm | factor | |"
    yield "|---|---|---|---|---|"
    for what, stopped, moved, note in (*PUBLISHED, *((*one, "") for one in ours)):
        yield f"| {what} | {stopped:.1f} | {moved:.1f} | {stopped / moved:.2f} | {note} |"
    yield ""
