"""A dataflow as numbers: who is next to whom, found without recursion and in O(V+E).

    Graph            neighbours by index; an edge is its place in `ends`
    topological      every operator behind all that are upstream of it; None where there is a cycle
    cycles           one of each knot, as names, to be told to a person
    marked           what is reached from some operators, following edges one way
    groups           weakly connected parts of some of the edges

Nothing here knows what operators do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stateshift.dataflow.operators import Dataflow

Neighbours = list[list[int]]


@dataclass(frozen=True, slots=True)
class Graph:
    """`before[i]` and `after[i]` are the neighbours of operator i."""

    names: tuple[str, ...]
    before: Neighbours
    after: Neighbours
    number: dict[str, int]

    def numbers(self, names: Iterable[str]) -> list[int]:
        return [self.number[name] for name in names]


def graph_of(dataflow: Dataflow, *, cut: bool = False) -> Graph:
    """`cut` leaves out what blocking operators send: on its far side are other source tuples
    (F-14).
    """
    number = {operator.name: i for i, operator in enumerate(dataflow.operators)}
    before: Neighbours = [[] for _ in number]
    after: Neighbours = [[] for _ in number]
    silent = (
        {operator.name for operator in dataflow.operators if operator.kind == "blocking"}
        if cut
        else frozenset()
    )
    edges = (
        [edge for edge in dataflow.edges if edge.upstream not in silent]
        if silent
        else dataflow.edges
    )
    ones, others = (
        [number[edge.upstream] for edge in edges],
        [number[edge.downstream] for edge in edges],
    )
    for one, other in zip(ones, others, strict=True):
        after[one].append(other)
    for one, other in zip(ones, others, strict=True):
        before[other].append(one)
    return Graph(tuple(number), before, after, number)


def topological(graph: Graph) -> list[int] | None:
    """Upstream first; among those that could be next, the one that was named first."""
    waiting_for = [len(before) for before in graph.before]
    order = in_turn(
        [i for i, count in enumerate(waiting_for) if not count], waiting_for, graph.after
    )
    return order if len(order) == len(graph.names) else None


def in_turn(
    first: list[int],
    waiting_for: dict[int, int] | list[int],
    after: Mapping[int, Sequence[int]] | Neighbours,
) -> list[int]:
    """Whoever waits for nobody any more, behind all that it has waited for; `waiting_for` is
    used up.
    """
    order = [*first]
    for here in order:  # grows while it is walked
        for other in after[here]:
            waiting_for[other] -= 1
            if not waiting_for[other]:
                order.append(other)
    return order


def cycles(graph: Graph) -> list[tuple[str, ...]]:
    """One cycle of each knot (strongly connected component) that has any: the names along it, the
    first again at the end.
    """
    knot = _knots(graph)
    members: dict[int, list[int]] = {}
    for here, root in enumerate(knot):
        members.setdefault(root, []).append(here)
    tied = [one for one in members.values() if len(one) > 1 or one[0] in graph.after[one[0]]]
    return [_around(graph, knot, one[0]) for one in tied]


def _around(graph: Graph, knot: list[int], start: int) -> tuple[str, ...]:
    """From each operator of a knot an edge leads to another: whoever goes on comes by where he
    has been.
    """
    way, place = [start], {start: 0}
    while True:
        here = next(other for other in graph.after[way[-1]] if knot[other] == knot[start])
        if here in place:
            return tuple(graph.names[i] for i in [*way[place[here] :], here])
        place[here] = len(way)
        way.append(here)


def _knots(graph: Graph) -> list[int]:
    """For each operator the number of its knot: who reaches whom against the edges, those that were
    left last first (Kosaraju).
    """
    knot = [-1] * len(graph.names)
    for start in reversed(_as_left(graph)):
        if knot[start] < 0:
            knot[start], waiting = start, [start]
            while waiting:
                for other in graph.before[waiting.pop()]:
                    if knot[other] < 0:
                        knot[other] = start
                        waiting.append(other)
    return knot


def _as_left(graph: Graph) -> list[int]:
    """The operators in the order in which a walk in depth leaves them."""
    seen, left = bytearray(len(graph.names)), []
    for start in range(len(graph.names)):
        if seen[start]:
            continue
        seen[start], way = 1, [(start, iter(graph.after[start]))]
        while way:
            here, onwards = way[-1]
            other = next((one for one in onwards if not seen[one]), None)
            if other is None:
                left.append(here)
                way.pop()
            else:
                seen[other] = 1
                way.append((other, iter(graph.after[other])))
    return left


def marked(neighbours: Sequence[Sequence[int]], start: Iterable[int]) -> bytearray:
    """1 for each operator in `start` and each that is reached from there."""
    found = bytearray(len(neighbours))
    waiting = list(start)
    for here in waiting:
        found[here] = 1
    while waiting:
        for other in neighbours[waiting.pop()]:
            if not found[other]:
                found[other] = 1
                waiting.append(other)
    return found


def groups(members: Sequence[int], ends: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The members, those together that edges connect in whatever direction; in the members'
    order.
    """
    beside: dict[int, list[int]] = {member: [] for member in members}
    for one, other in ends:
        beside[one].append(other)
        beside[other].append(one)
    group_of: dict[int, int] = {}
    made: list[list[int]] = []
    for member in members:
        if member not in group_of:
            group_of[member] = len(made)
            made.append([])
            waiting = [member]
            while waiting:
                for other in beside[waiting.pop()]:
                    if other not in group_of:
                        group_of[other] = group_of[member]
                        waiting.append(other)
        made[group_of[member]].append(member)
    return made
