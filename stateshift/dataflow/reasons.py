"""Why each operator is part of a change, or is not, in sentences; and in which order those that are
come back.

reasons(schedule)    (operator, sentence) for those that pause and those that pruning has spared
order(component)     the steps in which its operators are through: each after all that it waits for
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.dataflow.components import Component
from stateshift.dataflow.graph import graph_of, marked
from stateshift.dataflow.operators import Operator
from stateshift.dataflow.pruning import Pruned
from stateshift.dataflow.schedulers import Schedule, fries


def reasons(schedule: Schedule) -> tuple[tuple[str, str], ...]:
    told = [
        reason for component in schedule.components for reason in _of_component(schedule, component)
    ]
    sources = ((name, _tagging(schedule.dataflow[name])) for name in schedule.tagging_only)
    spared = ((one.operator, _spared(one)) for one in schedule.pruned)
    return (*told, *sources, *spared, *_parting(schedule))


def order(component: Component) -> tuple[tuple[str, ...], ...]:
    """Heads first. Operators of one step have nothing to wait for from one another."""
    step: dict[str, int] = dict.fromkeys(component.operators, 0)
    after: dict[str, list[str]] = {name: [] for name in component.operators}
    for upstream, downstream in component.edges:
        after[upstream].append(downstream)
    for name in component.operators:  # upstream first
        for downstream in after[name]:
            step[downstream] = max(step[downstream], step[name] + 1)
    steps: list[list[str]] = [[] for _ in range(max(step.values(), default=-1) + 1)]
    for name in component.operators:
        steps[step[name]].append(name)
    return tuple(map(tuple, steps))


def _of_component(schedule: Schedule, component: Component) -> Iterator[tuple[str, str]]:
    members, targets = set(schedule.members), set(schedule.targets)
    above, changing, below = (
        _above(component, members),
        _above(component, targets),
        _below(component, targets),
    )
    needed = (
        set(fries(schedule.dataflow, schedule.targets).members) if members > targets else members
    )
    for name in component.operators:
        if name in targets:
            yield name, "a target: its function changes"
        elif schedule.scheduler == "epoch":
            yield name, "the epoch barrier goes through every operator"
        elif name in members and name not in needed:
            yield name, "one-to-many: a rule could spare it, and was told not to (--rule none)"
        elif name in members:
            yield name, _many(schedule.dataflow[name], *below[name])
        else:
            yield name, _between(above[name], changing.get(name), below[name][0])


def _many(operator: Operator, target: str, *others: str) -> str:
    """Each of several targets may be met by one of the copies only: nothing is said of a single
    one.
    """
    when = "targets before their change" if others else f"{target} before its change"
    if operator.replicate:
        return f"hands each tuple on several times: one copy may meet {when}, another after"
    return f"one-to-many: what it makes of one tuple may meet {when}, and after"


def _between(member: str, changing: str | None, target: str) -> str:
    """A target upstream is met by the same tuples; a one-to-many operator's copies of one have this
    way between them and the target, and the change comes along it in line with them.
    """
    if changing is not None:
        return f"on a way from {changing} to {target}: one tuple may meet both"
    return (
        f"on a way from {member} to {target}: the change comes along it, in line with what "
        f"{member} makes of a tuple"
    )


def _tagging(operator: Operator) -> str:
    kind = "blocking" if operator.kind == "blocking" else "a source"
    return f"{kind}: says with each tuple which function is meant"


def _parting(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """The blocking operators that keep what is above them out of a component with what is below
    (F-14): those on a way to a target from another one, or from an operator of several tuples.
    """
    if schedule.scheduler != "fries":
        return
    dataflow, graph = schedule.dataflow, graph_of(schedule.dataflow)
    starts = [
        one.name
        for one in dataflow.operators
        if one.name in schedule.targets or one.kind == "one-to-many"
    ]
    reached = marked(graph.after, graph.numbers(starts))
    below = marked(
        graph.before,
        (before for i in graph.numbers(schedule.targets) for before in graph.before[i]),
    )
    for i, one in enumerate(dataflow.operators):
        if one.kind == "blocking" and reached[i] and below[i]:
            yield (
                one.name,
                (
                    "blocking: reads all before it sends anything, so that no tuple goes "
                    "from above it to "
                    "below; the two sides need not change at one cut"
                ),
            )


def _above(component: Component, members: set[str]) -> dict[str, str]:
    """For each operator a member upstream of it, along the component's edges."""
    found: dict[str, str] = {}
    rank = {name: place for place, name in enumerate(component.operators)}
    for upstream, downstream in sorted(component.edges, key=lambda ends: rank[ends[0]]):
        above = upstream if upstream in members else found.get(upstream)
        if above is not None:
            found.setdefault(downstream, above)
    return found


def _below(component: Component, targets: set[str]) -> dict[str, tuple[str, ...]]:
    """For each operator the targets downstream of it, along the component's edges: two where
    there are more.
    """
    after: dict[str, list[str]] = {name: [] for name in component.operators}
    for upstream, downstream in component.edges:
        after[upstream].append(downstream)
    found: dict[str, tuple[str, ...]] = {}
    for name in reversed(component.operators):  # downstream first
        near = [other for other in after[name] if other in targets]
        far = [target for other in after[name] for target in found[other]]
        found[name] = tuple(dict.fromkeys((*near, *far)))[:2]
    return found


def _spared(pruned: Pruned) -> str:
    if pruned.by == pruned.operator:
        return (
            "one-to-many by its kind, but spared: as it is unique, at most one tuple comes "
            "out of it for each "
            "source tuple"
        )
    if pruned.rule == "edge-wise":
        why = f"only its edge to {pruned.by} leads to targets, with at most one tuple for each"
    elif pruned.by is None:
        why = (
            "on each way to a target there is a unique operator, though not the same: what "
            "it makes of one tuple "
            "may meet old and new (the published rule)"
        )
    else:
        why = f"{pruned.by} lets at most one tuple pass for each source tuple, before every target"
    return f"one-to-many, but spared: {why}"
