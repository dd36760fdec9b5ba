"""Why each operator is part of a change, or is not, in sentences; and in which order those that are
restart.

    reasons(schedule)    (operator, sentence) for those that pause and those that pruning has spared
    order(component)     the steps in which its operators restart: each after all that it waits for
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from stateshift.dataflow.components import Component
from stateshift.dataflow.pruning import Pruned
from stateshift.dataflow.schedulers import Schedule, fries
from stateshift.specification.dataflow.graph import graph_of, reachable
from stateshift.specification.dataflow.operators import Dataflow, Kind, Operator

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
    for component in schedule.components:
        given += _component_reasons(schedule, component)
    for name in schedule.tagging_only:
        given.append((name, _tagging(schedule.dataflow[name])))
    for pruned in schedule.pruned:
        given.append((pruned.operator, _spared(pruned)))
    if schedule.scheduler == "fries":
        given += [(name, BLOCKING) for name in _separating(schedule)]
    return tuple(given)


def order(component: Component) -> tuple[tuple[str, ...], ...]:
    """Return the operators in steps, heads first. Those of one step do not wait for each other."""
    step_of = _step_of(component)
    steps: dict[int, list[str]] = {}
    for name in component.operators:
        steps.setdefault(step_of[name], []).append(name)
    return tuple(tuple(steps[number]) for number in sorted(steps))


def _step_of(component: Component) -> dict[str, int]:
    """Return the step of each operator: one more than the last of those that it waits for."""
    after = _downstream(component)
    step_of = dict.fromkeys(component.operators, 0)
    for name in component.operators:  # upstream first
        for downstream in after[name]:
            step_of[downstream] = max(step_of[downstream], step_of[name] + 1)
    return step_of


def _downstream(component: Component) -> dict[str, list[str]]:
    after: dict[str, list[str]] = {name: [] for name in component.operators}
    for upstream, downstream in component.edges:
        after[upstream].append(downstream)
    return after


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What is near an operator of a component: a member and a target upstream of it, and targets
    downstream (two where there are more).
    """

    member_above: str | None
    target_above: str | None
    targets_below: tuple[str, ...]


def _component_reasons(schedule: Schedule, component: Component) -> Iterator[Reason]:
    needed = _needed_members(schedule)
    near = _surroundings(schedule, component)
    for name in component.operators:
        if name in schedule.targets:
            yield name, "a target: its function changes"
        elif schedule.scheduler == "epoch":
            yield name, "the epoch barrier goes through every operator"
        elif name not in schedule.members:
            yield name, _between(near[name])
        elif name in needed:
            yield name, _one_to_many(schedule.dataflow[name], near[name].targets_below)
        else:
            yield name, "one-to-many: a rule could spare it, and was told not to (--rule none)"


def _needed_members(schedule: Schedule) -> set[str]:
    """Return the members that no sound rule can spare."""
    members = set(schedule.members)
    if members <= set(schedule.targets):
        return members
    return set(fries(schedule.dataflow, schedule.targets).members)


def _surroundings(schedule: Schedule, component: Component) -> dict[str, _Surroundings]:
    members_above = _first_above(component, set(schedule.members))
    targets_above = _first_above(component, set(schedule.targets))
    targets_below = _targets_below(component, set(schedule.targets))
    near = {}
    for name in component.operators:
        near[name] = _Surroundings(
            members_above.get(name), targets_above.get(name), targets_below[name]
        )
    return near


def _one_to_many(operator: Operator, targets: tuple[str, ...]) -> str:
    """Say why it has to be synchronised. Each of several targets may be met by one of the copies
    only, so that nothing is said of a single one.
    """
    changed = (
        f"{targets[0]} before its change" if len(targets) == 1 else "targets before their change"
    )
    if operator.replicate:
        return f"hands each tuple on several times: one copy may meet {changed}, another after"
    return f"one-to-many: what it makes of one tuple may meet {changed}, and after"


def _between(near: _Surroundings) -> str:
    """Say why an operator between members waits. A target upstream is met by the same tuples. What
    a one-to-many operator makes of one tuple takes this path to the target, and so does the change.
    """
    target = near.targets_below[0]
    if near.target_above is not None:
        return f"on a way from {near.target_above} to {target}: one tuple may meet both"
    member = near.member_above
    return (
        f"on a way from {member} to {target}: the change comes along it, in line with what "
        f"{member} makes of a tuple"
    )


def _tagging(operator: Operator) -> str:
    kind = "blocking" if operator.kind == "blocking" else "a source"
    return f"{kind}: says with each tuple which function is meant"


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
    """Yield the blocking operators that keep what is above them out of a component with what is
    below (F-14): those on a path to a target from another one, or from a one-to-many operator.
    """
    dataflow = schedule.dataflow
    graph = graph_of(dataflow)
    targets = graph.numbers(schedule.targets)
    one_to_many = graph.numbers(_names_of_kind(dataflow, "one-to-many"))
    inputs_of_targets = chain.from_iterable(map(graph.before.__getitem__, targets))
    below_a_start = reachable(graph.after, [*targets, *one_to_many])
    above_a_target = reachable(graph.before, inputs_of_targets)
    for name in _names_of_kind(dataflow, "blocking"):
        number = graph.number[name]
        if below_a_start[number] and above_a_target[number]:
            yield name


def _names_of_kind(dataflow: Dataflow, kind: Kind) -> list[str]:
    return [operator.name for operator in dataflow.operators if operator.kind == kind]


def _first_above(component: Component, wanted: set[str]) -> dict[str, str]:
    """Return for each operator one of `wanted` upstream of it, along the component's edges."""
    nearest: dict[str, str] = {}
    rank = {name: place for place, name in enumerate(component.operators)}
    for upstream, downstream in sorted(component.edges, key=lambda ends: rank[ends[0]]):
        above = upstream if upstream in wanted else nearest.get(upstream)
        if above is not None:
            nearest.setdefault(downstream, above)
    return nearest


def _targets_below(component: Component, targets: set[str]) -> dict[str, tuple[str, ...]]:
    """Return for each operator the targets downstream of it, along the component's edges, the
    nearest first: two where there are more.
    """
    after = _downstream(component)
    below: dict[str, tuple[str, ...]] = {}
    for name in reversed(component.operators):  # downstream first
        beside = [other for other in after[name] if other in targets]
        farther = chain.from_iterable(below[other] for other in after[name])
        below[name] = tuple(dict.fromkeys((*beside, *farther)))[:2]
    return below
