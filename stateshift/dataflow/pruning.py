"""Which one-to-many operators have to be synchronised with the targets below them (Fries,
Algorithms 2 and 3).

A one-to-many operator sends descendants of one source tuple different ways, or the same way at
different times. Unless it is synchronised with what is below it, one of them may meet a target
before its change and another after. So each one-to-many operator above a target joins the members,
but for those of which one of two rules says that they cannot do any harm:

    edge-wise   only one of its edges leads to targets, and on that edge it sends at most one tuple
                for each it reads.
                Whatever it sends elsewhere meets no target (F-12).
    uniqueness  behind it, and before every target, stands an operator that lets one tuple pass for
                each source tuple.

The second rule, as published, asks this of each way on its own. That is not enough: with FL -> U1
-> o1 and FL -> U2 -> o2, one source tuple passes both U1 and U2, and meets o1 and o2. The rule that
is `sound` asks for *one* unique operator on all ways from the operator to all targets below it
(F-13); `published` is kept for comparison.

    behind(o) = the unique operator nearest to the targets that is on all ways from o's output to
    targets, o included
              = what all neighbours agree on; where they do not, o itself if it is unique, else none

A target ends a way: what it lets pass comes after the change was met. All of it is one walk against
the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stateshift.dataflow.graph import Graph, marked, topological
from stateshift.dataflow.operators import Dataflow

Rule = Literal["sound", "published", "none"]
RULES: tuple[Rule, ...] = ("sound", "published", "none")


@dataclass(frozen=True, slots=True)
class Pruned:
    """A one-to-many operator that need not be synchronised, and why: by the edge to `by`, or by the
    unique operator `by`; None where only the published rule says so, which has counted several.
    """

    operator: str
    rule: Literal["edge-wise", "uniqueness"]
    by: str | None


def sort_out(
    dataflow: Dataflow, graph: Graph, targets: Iterable[int], rule: Rule
) -> tuple[list[int], tuple[Pruned, ...]]:
    """The one-to-many operators above targets: those that join the members, and those that do not
    have to. `graph` is that of the dataflow, cut at its blocking operators.
    """
    ends = frozenset(targets)
    above = marked(graph.before, ends)
    ways = {
        i: [other for other in graph.after[i] if above[other]]
        for i in range(len(above))
        if above[i]
    }
    many = [i for i, after in ways.items() if after and dataflow.operators[i].kind == "one-to-many"]
    if rule == "none" or not many:
        return many, ()
    single = {edge.ends for edge in dataflow.edges if edge.one_per_tuple}
    behind = _behind(dataflow, graph, ways, ends, _one)
    verdicts = {
        i: _edge_wise(graph, i, ways[i], single) or _uniqueness(graph, i, behind[i]) for i in many
    }
    if rule == "published":
        several = _behind(dataflow, graph, ways, ends, _any)
        verdicts |= {
            i: _uniqueness(graph, i, several[i])
            for i, verdict in verdicts.items()
            if verdict is None
        }
    pruned = tuple(verdict for verdict in verdicts.values() if verdict is not None)
    return [i for i, verdict in verdicts.items() if verdict is None], pruned


def _edge_wise(
    graph: Graph, here: int, after: list[int], single: set[tuple[str, str]]
) -> Pruned | None:
    name = graph.names[here]
    if len(after) != 1 or (name, graph.names[after[0]]) not in single:
        return None
    return Pruned(name, "edge-wise", graph.names[after[0]])


def _uniqueness(graph: Graph, here: int, by: int | None) -> Pruned | None:
    if by is None:
        return None
    return Pruned(graph.names[here], "uniqueness", None if by == SEVERAL else graph.names[by])


SEVERAL = -1


def _behind(
    dataflow: Dataflow,
    graph: Graph,
    ways: Mapping[int, list[int]],
    ends: frozenset[int],
    together: Callable[[set[int | None]], int | None],
) -> dict[int, int | None]:
    """What unique operator is behind each operator above targets, by what is behind its
    neighbours `together`.
    """
    order = topological(graph)
    assert order is not None, "a dataflow with a cycle"
    behind: dict[int, int | None] = {}
    for here in reversed(order):
        if here in ways:
            found = together({None if other in ends else behind[other] for other in ways[here]})
            behind[here] = here if found is None and dataflow.operators[here].unique else found
    return behind


def _one(found: set[int | None]) -> int | None:
    """The sound rule: the one that all ways have."""
    return found.pop() if len(found) == 1 else None


def _any(found: set[int | None]) -> int | None:
    """The published rule: each way has one, whichever."""
    return SEVERAL if found and None not in found else None
