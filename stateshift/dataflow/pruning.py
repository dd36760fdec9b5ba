"""Which one-to-many operators have to be synchronised with the targets below them (Fries,
Algorithms 2 and 3).

A one-to-many operator sends descendants of one source tuple different ways, or the same way at
different times. Unless it is synchronised with what is below it, one of them may meet a target
before its change and another after. So each one-to-many operator above a target joins the members,
unless one of two rules says that it cannot do any harm:

    edge-wise   only one of its edges leads to targets, and on that edge it sends at most one tuple
                for each it reads. Whatever it sends elsewhere meets no target (F-12).
    uniqueness  behind it, and before every target, stands an operator that lets one tuple pass for
                each source tuple.

The second rule, as published, asks this of each path on its own. That is not enough: with FL -> U1
-> o1 and FL -> U2 -> o2, one source tuple passes both U1 and U2, and meets o1 and o2. The rule that
is `sound` asks for *one* unique operator on all paths from the operator to all targets below it
(F-13); `published` is kept for comparison.

    guard of an operator = the unique operator nearest to the targets that is on all paths from its
                           output to targets, itself included
                         = the guard that all its neighbours have; where they differ, itself if it
                           is unique, else none

A target ends a path: what it lets pass comes after the change was met. All of it is one walk
against the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stateshift.specification.dataflow.graph import Graph, reachable, topological
from stateshift.specification.dataflow.operators import Dataflow

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

    def is_one_to_many_above_a_target(self, number: int) -> bool:
        if not self.after[number]:
            return False
        return self.dataflow.operators[number].kind == "one-to-many"


def sort_out(
    dataflow: Dataflow, graph: Graph, targets: Iterable[int], rule: Rule
) -> tuple[list[int], tuple[Pruned, ...]]:
    """Return the one-to-many operators above targets: those that join the members, and those that
    do not have to. `graph` is that of the dataflow, cut at its blocking operators.
    """
    paths = _paths_to(dataflow, graph, frozenset(targets))
    one_to_many = [i for i in paths.after if paths.is_one_to_many_above_a_target(i)]
    if rule == "none" or not one_to_many:
        return one_to_many, ()
    verdicts = _verdicts(paths, one_to_many, rule)
    joining = [number for number in one_to_many if verdicts[number] is None]
    return joining, tuple(filter(None, verdicts.values()))


def _paths_to(dataflow: Dataflow, graph: Graph, targets: frozenset[int]) -> _Paths:
    above = reachable(graph.before, targets)
    after = {}
    for number in range(len(graph.names)):
        if above[number]:
            after[number] = [other for other in graph.after[number] if above[other]]
    return _Paths(dataflow, graph, targets, after)


def _verdicts(paths: _Paths, one_to_many: list[int], rule: Rule) -> dict[int, Pruned | None]:
    verdicts = _sound_verdicts(paths, one_to_many)
    if rule == "published":
        _add_published_verdicts(paths, verdicts)
    return verdicts


def _sound_verdicts(paths: _Paths, one_to_many: list[int]) -> dict[int, Pruned | None]:
    """Return for each of the operators why it is pruned; None for one that is not."""
    single = {edge.ends for edge in paths.dataflow.edges if edge.one_per_tuple}
    guards = _guards(paths, _same_guard)
    verdicts = {}
    for number in one_to_many:
        verdict = _edge_wise(paths, number, single)
        verdicts[number] = verdict or _uniqueness(paths.graph, number, guards[number])
    return verdicts


def _add_published_verdicts(paths: _Paths, verdicts: dict[int, Pruned | None]) -> None:
    guards = _guards(paths, _any_guard)
    for number, verdict in verdicts.items():
        if verdict is None:
            verdicts[number] = _uniqueness(paths.graph, number, guards[number])


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


def _guards(paths: _Paths, combined: Callable[[set[Guard]], Guard]) -> dict[int, Guard]:
    """Return the guard of each operator above targets; `combined` makes it of its neighbours'."""
    order = topological(paths.graph)
    assert order is not None, "a dataflow with a cycle"
    guards: dict[int, Guard] = {}
    for number in filter(paths.after.__contains__, reversed(order)):
        guard = combined(_guards_downstream(paths, number, guards))
        if guard is None and paths.dataflow.operators[number].unique:
            guard = number
        guards[number] = guard
    return guards


def _guards_downstream(paths: _Paths, number: int, guards: Mapping[int, Guard]) -> set[Guard]:
    """Return the guards of an operator's neighbours. A target has none: it ends a path."""
    return {None if other in paths.targets else guards[other] for other in paths.after[number]}


def _same_guard(downstream: set[Guard]) -> Guard:
    """Return the guard that all neighbours have: the sound rule."""
    return next(iter(downstream)) if len(downstream) == 1 else None


def _any_guard(downstream: set[Guard]) -> Guard:
    """Return SEVERAL where each neighbour has a guard, whichever: the published rule."""
    return SEVERAL if downstream and None not in downstream else None
