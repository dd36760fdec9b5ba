"""The reasons for which each operator is part of a change, or is not, in sentences; and the order
in which those that are restart.

    reasons(schedule)    (operator, sentence) for those that pause and those that pruning has spared
    order(component)     the steps in which its operators restart: each after all that it waits for
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from stateshift.dataflow.components import Component, Pruned
from stateshift.dataflow.schedulers import Schedule, fries
from stateshift.specification.dataflow.graph import graph_of, reachable
from stateshift.specification.dataflow.operators import DataflowOperator

Reason = tuple[str, str]

BLOCKING = (
    "blocking: reads all before it sends anything, so that no tuple goes from above it to below; "
    "the two sides need not change at one cut"
)
UNIQUE = (
    "one-to-many by its kind, but spared: as it is unique, at most one tuple comes out of it for "
    "each source tuple"
)


def reasons(schedule: Schedule) -> tuple[Reason, ...]:
    """Return a sentence for each operator that is paused, tags tuples, was spared or blocks."""
    given: list[Reason] = []
    needed = set(schedule.members)  # by any sound rule
    if not needed <= set(schedule.targets):
        needed = set(fries(schedule.dataflow, schedule.targets).members)
    for component in schedule.components:
        near = _surroundings(schedule, component)
        for name in component.operators:
            given.append((name, _reason(schedule, name, near[name], name in needed)))
    for name in schedule.tagging_only:
        kind = "blocking" if schedule.dataflow[name].kind == "blocking" else "a source"
        given.append((name, f"{kind}: says with each tuple which function is meant"))
    for pruned in schedule.pruned:
        given.append((pruned.operator, _spared(pruned)))
    if schedule.scheduler == "fries":
        given += [(name, BLOCKING) for name in _separating(schedule)]
    return tuple(given)


def order(component: Component) -> tuple[tuple[str, ...], ...]:
    """Return the operators in steps, heads first. Those of one step do not wait for each other."""
    after = _downstream(component)
    # The step of each operator is one more than the last of those that it waits for.
    step_of = dict.fromkeys(component.operators, 0)
    for name in component.operators:  # upstream first
        for downstream in after[name]:
            step_of[downstream] = max(step_of[downstream], step_of[name] + 1)
    steps: dict[int, list[str]] = {}
    for name in component.operators:
        steps.setdefault(step_of[name], []).append(name)
    return tuple(tuple(steps[number]) for number in sorted(steps))


def _downstream(component: Component) -> dict[str, list[str]]:
    after: dict[str, list[str]] = {name: [] for name in component.operators}
    for upstream, downstream in component.edges:
        after[upstream].append(downstream)
    return after


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """The neighbours of an operator of a component: a member and a target above, targets below."""

    member_above: str | None
    target_above: str | None
    targets_below: tuple[str, ...]


def _reason(schedule: Schedule, name: str, near: _Surroundings, is_needed: bool) -> str:
    """Return the reason for which an operator of a component is part of the change."""
    if name in schedule.targets:
        return "a target: its function changes"
    if schedule.scheduler == "epoch":
        return "the epoch barrier goes through every operator"
    if name not in schedule.members:
        return _between(near)
    if is_needed:
        return _one_to_many(schedule.dataflow[name], near.targets_below)
    return "one-to-many: a rule could spare it, and was told not to (--rule none)"


def _surroundings(schedule: Schedule, component: Component) -> dict[str, _Surroundings]:
    targets = set(schedule.targets)
    members_above = _first_above(component, set(schedule.members))
    targets_above = _first_above(component, targets)
    after = _downstream(component)
    below: dict[str, tuple[str, ...]] = {}
    near = {}
    for name in reversed(component.operators):  # downstream first
        beside = [other for other in after[name] if other in targets]
        farther = chain.from_iterable(below[other] for other in after[name])
        below[name] = tuple(dict.fromkeys((*beside, *farther)))[:2]  # the nearest first
        near[name] = _Surroundings(members_above.get(name), targets_above.get(name), below[name])
    return near


def _one_to_many(operator: DataflowOperator, targets: tuple[str, ...]) -> str:
    """Return the reason for which it has to be synchronised. Each of several targets may be met by
    one of the copies only, and nothing is said of a single one.
    """
    changed = (
        f"{targets[0]} before its change" if len(targets) == 1 else "targets before their change"
    )
    if operator.replicate:
        return f"hands each tuple on several times: one copy may meet {changed}, another after"
    return f"one-to-many: what it makes of one tuple may meet {changed}, and after"


def _between(near: _Surroundings) -> str:
    """Return the reason of an operator between members: its tuples meet a target above; or a
    one-to-many operator's outputs, and the change, take this path.
    """
    target = near.targets_below[0]
    if near.target_above is not None:
        return f"on a way from {near.target_above} to {target}: one tuple may meet both"
    member = near.member_above
    return (
        f"on a way from {member} to {target}: the change comes along it, in line with what "
        f"{member} makes of a tuple"
    )


def _spared(pruned: Pruned) -> str:
    if pruned.by == pruned.operator:
        return UNIQUE
    if pruned.rule == "edge-wise":
        why = f"only its edge to {pruned.by} leads to targets, with at most one tuple for each"
    elif pruned.by is None:
        why = (
            "on each way to a target there is a unique operator, though not the same: "
            "what it makes of one tuple may meet old and new (the published rule)"
        )
    else:
        why = f"{pruned.by} lets at most one tuple pass for each source tuple, before every target"
    return f"one-to-many, but spared: {why}"


def _separating(schedule: Schedule) -> Iterator[str]:
    """Yield the blocking operators that keep the operators above them out of a component with those
    below (F-14): they are on a path to a target from another one, or from a one-to-many operator.
    """
    graph = graph_of(schedule.dataflow)
    targets = graph.numbers(schedule.targets)
    by_kind: dict[str, list[str]] = {"one-to-many": [], "blocking": []}
    for operator in schedule.dataflow.operators:
        by_kind.setdefault(operator.kind, []).append(operator.name)
    inputs_of_targets = chain.from_iterable(map(graph.before.__getitem__, targets))
    starts = [*targets, *graph.numbers(by_kind["one-to-many"])]
    below_a_start = reachable(graph.after, starts)
    above_a_target = reachable(graph.before, inputs_of_targets)
    for name in by_kind["blocking"]:
        number = graph.number[name]
        if below_a_start[number] and above_a_target[number]:
            yield name


def _first_above(component: Component, wanted: set[str]) -> dict[str, str]:
    """Return for each operator one of `wanted` upstream of it, along the component's edges."""
    nearest: dict[str, str] = {}
    rank = {name: place for place, name in enumerate(component.operators)}
    for upstream, downstream in sorted(component.edges, key=lambda ends: rank[ends[0]]):
        above = upstream if upstream in wanted else nearest.get(upstream)
        if above is not None:
            nearest.setdefault(downstream, above)
    return nearest
