"""The minimal covering sub-DAG of some operators, and its components (Fries, section 4).

    members    operators that have to change together wherever one tuple may meet two of them
    Component  the operators and edges between members that are connected; none of its own edges
               leads to its heads

The sub-DAG is unique: an edge belongs to it exactly when its upstream end is a member or below one,
and its downstream end is a member or above one. Both sets are two walks over the dataflow, so all
of it takes O(V+E). Markers start at the heads of a component and wait for each other where edges
meet: they separate the tuples before the change from those after it. Components do not wait for
each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import and_

from stateshift.specification.dataflow.graph import (
    Graph,
    reachable,
    upstream_first,
    weak_components,
)

Ends = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Component:
    """Operators that change at one cut, upstream first."""

    operators: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    heads: tuple[str, ...]


def covering_subgraph(graph: Graph, members: Iterable[int]) -> tuple[list[int], list[Ends]]:
    """Return the operators and edges of the minimal covering sub-DAG, in the dataflow's order."""
    members = list(members)
    below = reachable(graph.after, members)
    above = reachable(graph.before, members)
    on_a_path = bytearray(map(and_, below, above))
    inside = list(compress(range(len(on_a_path)), on_a_path))
    edges = []  # each is itself on a path between members
    for upstream in inside:
        for downstream in graph.after[upstream]:
            if on_a_path[downstream]:
                edges.append((upstream, downstream))
    return inside, edges


def components(graph: Graph, members: Iterable[int]) -> tuple[Component, ...]:
    """Return the components of the members' minimal covering sub-DAG, in the dataflow's order."""
    inside, edges = covering_subgraph(graph, members)
    order = _upstream_first(inside, edges)
    rank = {operator: place for place, operator in enumerate(order)}
    groups = weak_components(inside, edges)
    group_of: dict[int, int] = {}
    for number, group in enumerate(groups):
        group_of |= dict.fromkeys(group, number)
    edges_of: list[list[Ends]] = [[] for _ in groups]
    for edge in edges:  # none leads from one group to another
        edges_of[group_of[edge[0]]].append(edge)
    names, made = graph.names, []
    for group, own in zip(groups, edges_of, strict=True):
        operators = sorted(group, key=rank.__getitem__)
        own_edges = tuple((names[upstream], names[downstream]) for upstream, downstream in own)
        heads = tuple(names[i] for i in _heads(operators, own))
        made.append(Component(tuple(names[i] for i in operators), own_edges, heads))
    return tuple(made)


def _upstream_first(inside: Sequence[int], edges: Sequence[Ends]) -> list[int]:
    after: dict[int, list[int]] = {operator: [] for operator in inside}
    inputs_left = dict.fromkeys(after, 0)
    for upstream, downstream in edges:
        after[upstream].append(downstream)
        inputs_left[downstream] += 1
    order = upstream_first(_heads(inside, edges), inputs_left, after)
    assert len(order) == len(after), "a dataflow with a cycle"
    return order


def _heads(operators: Iterable[int], edges: Iterable[Ends]) -> list[int]:
    """Return the operators that none of the edges leads to."""
    fed = {downstream for _, downstream in edges}
    return [operator for operator in operators if operator not in fed]
