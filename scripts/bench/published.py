"""What pages stand beside: the figures of "On-the-fly Reconfiguration of Query Plans for Stateful
Stream Processing Engines" (BTW 2018), and what the text of Megaphone (PVLDB 12(9), 2019) says, both
measured on clusters of several machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PUBLISHED = (
    ("published: a stateful map", 7.5, 7.1, "2 s of it waiting, 2.4 s moving state"),
    ("published: NEXMark Q8, 13.5 GB of state", 191.0, 81.8, "2.7 GB of it moved"),
)

# What, theirs, and by which figure of ours it stands.
MEGAPHONE = (
    (
        "latency while state moves, beside naive ways (abstract)",
        "orders of magnitude lower",
        "excess",
    ),
    ("the same at rates up to 16 M records/s (figure 19)", "10 to 100 times lower", "load"),
    (
        "steady overhead by the number of bins",
        "noticeable from 2^16 bins on, up to 2^12 recommended",
        "bins",
    ),
    (
        "extra memory of one of four processes, 16,000 M keys",
        "all-at-once about 30 GiB; optimised and fluid no large variance",
        "memory",
    ),
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
