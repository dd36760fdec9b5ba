"""Dataflows of the Fries paper (rows F-5 ... F-24), drawn as text.

    drawn("A -> B, C; B -> D", many="A", unique="D")

Each part between semicolons is a way along `->`; where a step names several operators, all of one
lead to all of the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product

from stateshift.dataflow.schedulers import Schedule
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge, Way


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def drawn(
    text: str,
    *,
    many: str = "",
    unique: str = "",
    blocking: str = "",
    one_per_tuple: str = "",
    broadcast: str = "",
    workers: dict[str, int] | None = None,
) -> Dataflow:
    """`one_per_tuple` and `broadcast` name operators: all their edges are so."""
    ends = list(_ends(text))
    operators = dict.fromkeys(
        name for part in text.split(";") for step in part.split("->") for name in names(step)
    )
    kinds = dict.fromkeys(names(many), "one-to-many") | dict.fromkeys(names(blocking), "blocking")
    return Dataflow(
        tuple(
            DataflowOperator(
                name,
                kinds.get(name, "one-to-one"),
                name in names(unique),
                (workers or {}).get(name, 1),
            )  # type: ignore[arg-type]
            for name in operators
        ),
        tuple(
            Edge(one, other, _way(one, broadcast), one in names(one_per_tuple))
            for one, other in ends
        ),
    )


def _way(upstream: str, broadcast: str) -> Way:
    return "broadcast" if upstream in names(broadcast) else "forward"


def _ends(text: str) -> Iterable[tuple[str, str]]:
    for part in text.split(";"):
        for before, after in pairwise(names(step) for step in part.split("->")):
            yield from product(before, after)


def sets(schedule: Schedule) -> list[set[str]]:
    """The components as sets of names."""
    return [set(component.operators) for component in schedule.components]


# F-5: S1 ... S3 have FC, FM and MC on one tuple.
FIGURE_4 = drawn("FC -> FM -> MC")
# F-8, F-9.
FIGURE_6 = drawn("A -> B -> C, G; C -> D, E -> F")
# F-11: a join that makes several tuples of one, which are split, computed and united again.
FIGURE_8 = drawn("FC -> J -> SP -> FMX, FMY -> U", many="J")
# F-12.
FIGURE_9_I = drawn("A -> R -> B, C; B -> T", many="R", one_per_tuple="R")
FIGURE_9_III = drawn("A -> R -> B, C -> T", many="R", one_per_tuple="R")
# F-13: each way has a unique operator of its own, and one source tuple meets both targets.
UNSOUND = drawn("FL -> U1 -> o1; FL -> U2 -> o2", many="FL", unique="U1, U2")
# F-22, F-23.
W2 = drawn("J1 -> J2 -> J3 -> J4")
W3 = drawn("J5, J6, J7 -> U1 -> J8 -> J9")
W4 = drawn("F1 -> U2 -> FD1, FD2 -> F2", many="U2")
# F-24: RE replicates, SJ joins the replicas on the key.
W5 = drawn(
    "RE -> FD3 -> S1 -> F3 -> SJ -> E1; RE -> F4 -> FD4 -> SJ",
    many="RE",
    unique="SJ",
    one_per_tuple="RE",
)
