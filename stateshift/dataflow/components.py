"""The minimal covering sub-DAG of some operators, and what it consists of (Fries, section 4).

    members    operators that have to change together wherever one tuple may meet two of them
    Component  all operators and edges on ways from one member to another, as far as they hang
               together;
               its heads are those that none of its own edges lead to

It is unique: an edge belongs to it exactly when its upstream end is a member or below one, and its
downstream end is a member or above one. Both sets are two walks over the dataflow, so all of it
takes O(V+E). Within a component, markers that start at the heads and wait for each other at every
meeting of edges part the tuples of before from those of after; components need not know of each
other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stateshift.dataflow.graph import Graph, groups, in_turn, marked


@dataclass(frozen=True, slots=True)
class Component:
    """Operators upstream first."""

    operators: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    heads: tuple[str, ...]


def covered(graph: Graph, members: Iterable[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """The operators and edges of the minimal covering sub-DAG, in the dataflow's order."""
    members = list(members)
    below, above = marked(graph.after, members), marked(graph.before, members)
    inside = [i for i in range(len(graph.names)) if below[i] and above[i]]
    # An edge between two operators inside is on a way between members itself.
    return inside, [(one, other) for one in inside for other in graph.after[one] if above[other]]


def components(graph: Graph, members: Iterable[int]) -> tuple[Component, ...]:
    """The components of the members' minimal covering sub-DAG, the one whose operator is named
    first first.
    """
    inside, ends = covered(graph, members)
    rank = {here: place for place, here in enumerate(_upstream_first(inside, ends))}
    fed = {other for _, other in ends}
    gathered = groups(inside, ends)
    group_of = {here: i for i, group in enumerate(gathered) for here in group}
    edges: list[list[tuple[int, int]]] = [[] for _ in gathered]
    for end in ends:
        edges[group_of[end[0]]].append(end)
    return tuple(
        _named(graph, sorted(group, key=rank.__getitem__), mine, fed)
        for group, mine in zip(gathered, edges, strict=True)
    )


def _upstream_first(inside: Iterable[int], ends: Iterable[tuple[int, int]]) -> list[int]:
    after: dict[int, list[int]] = {here: [] for here in inside}
    waiting_for = dict.fromkeys(after, 0)
    for one, other in ends:
        after[one].append(other)
        waiting_for[other] += 1
    order = in_turn([here for here, count in waiting_for.items() if not count], waiting_for, after)
    assert len(order) == len(after), "a dataflow with a cycle"
    return order


def _named(
    graph: Graph, group: list[int], edges: list[tuple[int, int]], fed: set[int]
) -> Component:
    names = graph.names
    return Component(
        operators=tuple(names[i] for i in group),
        edges=tuple((names[one], names[other]) for one, other in edges),
        heads=tuple(names[i] for i in group if i not in fed),
    )
