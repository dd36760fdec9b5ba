"""The minimal covering sub-DAG of some operators, and its components (Fries, section 4).

    members    operators that have to change together wherever one tuple may meet two of them
    Component  the operators and edges between members that are connected; none of its own edges
               leads to its heads

The sub-DAG is unique: an edge belongs to it exactly when its upstream end is a member or below one,
and its downstream end is a member or above one. Both sets are two walks over the dataflow, so all
of it takes O(V+E). Markers start at the heads of a component and wait for each other where edges
meet: they separate the tuples before the change from those after it. Components do not wait for
each other.

Pruning (Algorithms 2 and 3): a one-to-many operator sends descendants of one source tuple different
ways, or the same way at different times. Unless it is synchronised with the operators below it, one
of them may meet a target before its change and another after. Each one-to-many operator above a
target joins the members, unless one of two rules says that it cannot do any harm:

    edge-wise   only one of its edges leads to targets, and on that edge it sends at most one tuple
                for each it reads. Whatever it sends elsewhere meets no target (F-12).
    uniqueness  after it, and before every target, an operator lets one tuple pass for each source
                tuple.

The second rule, as published, asks this of each path on its own. That is not enough: with FL -> U1
-> o1 and FL -> U2 -> o2, one source tuple passes both U1 and U2, and meets o1 and o2. The rule that
is `sound` asks for *one* unique operator on all paths from the operator to all targets below it
(F-13); `published` is kept for comparison.

    guard of an operator = the unique operator nearest to the targets that is on all paths from its
                           output to targets, itself included
                         = the guard that all its neighbours have; where they differ, itself if it
                           is unique, else none

A target ends a path: a tuple that it lets pass has met the change. All of it is one walk against
the edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from operator import and_
from typing import Literal

from stateshift.specification.dataflow.graph import (
    Graph,
    reachable,
    topological,
    upstream_first,
    weak_components,
)
from stateshift.specification.dataflow.operators import Dataflow

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
    after: dict[int, list[int]] = {operator: [] for operator in inside}
    inputs_left = dict.fromkeys(after, 0)
    for upstream, downstream in edges:
        after[upstream].append(downstream)
        inputs_left[downstream] += 1
    order = upstream_first(_heads(inside, edges), inputs_left, after)
    assert len(order) == len(after), "a dataflow with a cycle"
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


def _heads(operators: Iterable[int], edges: Iterable[Ends]) -> list[int]:
    """Return the operators that none of the edges leads to."""
    fed = {downstream for _, downstream in edges}
    return [operator for operator in operators if operator not in fed]


Rule = Literal["sound", "published", "none"]
RULES: tuple[Rule, ...] = ("sound", "published", "none")

SEVERAL = -1  # the guard of an operator whose paths have one each, but not the same
Guard = int | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """A one-to-many operator that need not be synchronised, and why: by the edge to `by`, or by the
    unique operator `by`; None where only the published rule says so, which has counted several.
    """

    operator: str
    rule: Literal["edge-wise", "uniqueness"]
    by: str | None


@dataclass(frozen=True, slots=True)
class _Paths:
    """The part of a dataflow that leads to targets: `after` has the neighbours on such a path."""

    dataflow: Dataflow
    graph: Graph
    targets: frozenset[int]
    after: Mapping[int, list[int]]


def sort_out(
    dataflow: Dataflow, graph: Graph, targets: Iterable[int], rule: Rule
) -> tuple[list[int], tuple[Pruned, ...]]:
    """Return the one-to-many operators above targets: those that join the members, and those that
    do not have to. `graph` is that of the dataflow, cut at its blocking operators.
    """
    ends = frozenset(targets)
    above = reachable(graph.before, ends)
    after: dict[int, list[int]] = {}
    one_to_many = []
    for number, operator in enumerate(dataflow.operators):
        if above[number]:
            after[number] = [other for other in graph.after[number] if above[other]]
            if after[number] and operator.kind == "one-to-many":
                one_to_many.append(number)
    if rule == "none" or not one_to_many:
        return one_to_many, ()
    paths = _Paths(dataflow, graph, ends, after)
    guards = [_guards(paths, is_sound=True)]
    if rule == "published":
        guards.append(_guards(paths, is_sound=False))
    single = {edge.ends for edge in dataflow.edges if edge.one_per_tuple}
    joining, pruned = [], []
    for number in one_to_many:
        verdict = _edge_wise(paths, number, single)
        for guard_of in guards:
            verdict = verdict or _uniqueness(graph, number, guard_of[number])
        if verdict is None:
            joining.append(number)
        else:
            pruned.append(verdict)
    return joining, tuple(pruned)


def _edge_wise(paths: _Paths, number: int, single: set[tuple[str, str]]) -> Pruned | None:
    names = paths.graph.names
    after = paths.after[number]
    if len(after) != 1:
        return None
    edge = (names[number], names[after[0]])
    if edge not in single:
        return None
    return Pruned(names[number], "edge-wise", names[after[0]])


def _uniqueness(graph: Graph, number: int, guard: Guard) -> Pruned | None:
    if guard is None:
        return None
    by = None if guard == SEVERAL else graph.names[guard]
    return Pruned(graph.names[number], "uniqueness", by)


def _guards(paths: _Paths, *, is_sound: bool) -> dict[int, Guard]:
    """Return the guard of each operator above targets, made of its neighbours'. By the sound rule
    that is the guard that all of them have; by the published one, SEVERAL where each has one.
    """
    order = topological(paths.graph)
    assert order is not None, "a dataflow with a cycle"
    guards: dict[int, Guard] = {}
    for number in filter(paths.after.__contains__, reversed(order)):
        # A target has none: it ends a path.
        near = {None if o in paths.targets else guards[o] for o in paths.after[number]}
        guard: Guard = None
        if is_sound and len(near) == 1:
            guard = near.pop()
        elif not is_sound and near and None not in near:
            guard = SEVERAL
        if guard is None and paths.dataflow.operators[number].unique:
            guard = number
        guards[number] = guard
    return guards
