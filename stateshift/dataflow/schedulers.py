"""The ways of a change of functions to its targets: the four schedulers of the Fries paper, as
values; and whether a schedule is consistent.

    epoch barrier  markers start at all sources and go through the whole dataflow, in line with the
                   data
    naive          every target gets a control message at once, which overtakes data: fast, and not
                   consistent
    multi-version  every target is given the new function beside the old one; then the sources say
                   with each tuple which of them is meant
    fries          control messages to the heads of each component, markers inside it; everything
                   else goes on

All four are the same value with other content: a schedule says which operators get a control
message (heads), along which edges markers go and are waited for, and whether tuples carry versions.
`wiring` runs it on workers; `models` checks it and `simulation` measures it without knowing which
scheduler it came from.

A dataflow is cut at its blocking operators before Fries looks at it (F-14), and broadcasts are
operators (F-15).

A schedule is consistent if no source tuple is met by targets before their change, and by some after
it. Epoch barriers and versions always are, and so is Fries with the sound rule, or none. The
answers here are exact for a dataflow and its targets, as far as operators do the most that their
kinds allow: a test holds them against all interleavings of small dataflows.

    published  an operator that it spares beyond the sound rule can send two copies to targets;
               nothing parts them unless the operator is in a component all the same, on a way
               between others (F-13)
    naive      is what Fries does where that has nothing to synchronise (F-6); anywhere else a tuple
               meets two targets in turn, or two copies of it meet them

Each operator is told why it is part of a change, or is not; and in which order they restart:

    reasons(schedule)    (operator, sentence) for those that pause and those that pruning has spared
    order(component)     the steps in which its operators restart: each after all that it waits for
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from stateshift.dataflow.components import Component, Pruned, Rule, components, sort_out
from stateshift.specification.dataflow.graph import graph_of, reachable
from stateshift.specification.dataflow.operators import Dataflow, with_replicates

Scheduler = Literal["fries", "epoch", "multi-version", "naive"]
SCHEDULERS: tuple[Scheduler, ...] = ("fries", "epoch", "multi-version", "naive")


@dataclass(frozen=True, slots=True)
class Schedule:
    """`dataflow` is the one that was asked about, with its broadcasts as operators. `members` are
    the targets and the one-to-many operators that had to join them; `pruned` those that did not,
    and are on no way between members either. The sources of `tagging` (and blocking operators,
    whose output is new) say with each tuple which function is meant.
    """

    scheduler: Scheduler
    dataflow: Dataflow
    targets: tuple[str, ...]
    members: tuple[str, ...]
    components: tuple[Component, ...]
    pruned: tuple[Pruned, ...] = ()
    tagging: tuple[str, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(component.heads for component in self.components))

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        """The edges along which markers go and are waited for."""
        return frozenset(chain.from_iterable(component.edges for component in self.components))

    @property
    def paused(self) -> tuple[str, ...]:
        """Operators that stop for a control message, or for the last of their markers."""
        return tuple(chain.from_iterable(component.operators for component in self.components))

    @property
    def tagging_only(self) -> tuple[str, ...]:
        """Operators that say which function is meant, and have none of their own to change."""
        paused = set(self.paused)
        return tuple(name for name in self.tagging if name not in paused)

    @property
    def untouched(self) -> tuple[str, ...]:
        """Operators that go on as if nothing happened."""
        touched = {*self.paused, *self.tagging}
        return tuple(name for name in self.dataflow.names if name not in touched)

    def without(self, edge: tuple[str, str]) -> Schedule:
        """Return the same, but no marker goes along one edge: a checker has to reject it."""
        broken = []
        for component in self.components:
            edges = tuple(other for other in component.edges if other != edge)
            fed = {downstream for _, downstream in edges}
            heads = tuple(name for name in component.operators if name not in fed)
            broken.append(replace(component, edges=edges, heads=heads))
        return replace(self, components=tuple(broken))


def fries(dataflow: Dataflow, targets: Iterable[str], rule: Rule = "sound") -> Schedule:
    """Return Algorithm 1's schedule of the targets, and the one-to-many operators not pruned."""
    targets = tuple(targets)
    dataflow = with_replicates(dataflow)
    graph = graph_of(dataflow, cut=True)
    numbers = graph.numbers(targets)
    joining, pruned = sort_out(dataflow, graph, numbers, rule)
    members = tuple(dict.fromkeys((*numbers, *joining)))
    made = Schedule(
        "fries",
        dataflow,
        targets,
        members=tuple(graph.names[number] for number in members),
        components=components(graph, members),
    )
    paused = set(made.paused)
    spared = tuple(verdict for verdict in pruned if verdict.operator not in paused)
    return replace(made, pruned=spared)


def epoch_barrier(dataflow: Dataflow, targets: Iterable[str]) -> Schedule:
    """Return the schedule of which every operator is a member (F-10)."""
    dataflow = with_replicates(dataflow)
    graph = graph_of(dataflow)
    everything = components(graph, range(len(graph.names)))
    return Schedule("epoch", dataflow, tuple(targets), dataflow.names, everything)


def naive(dataflow: Dataflow, targets: Iterable[str]) -> Schedule:
    """Return the schedule that changes each target on its own."""
    targets = tuple(targets)
    return Schedule("naive", with_replicates(dataflow), targets, targets, _alone(targets))


def multi_version(dataflow: Dataflow, targets: Iterable[str]) -> Schedule:
    """Return the schedule that changes each target on its own, and then the sources."""
    targets, dataflow = tuple(targets), with_replicates(dataflow)
    blocking = (operator.name for operator in dataflow.operators if operator.kind == "blocking")
    tagging = tuple(dict.fromkeys((*dataflow.sources, *blocking)))
    return Schedule("multi-version", dataflow, targets, targets, _alone(targets), tagging=tagging)


def schedule(
    dataflow: Dataflow, targets: Iterable[str], scheduler: Scheduler, rule: Rule = "sound"
) -> Schedule:
    """Return the schedule of `scheduler`. `rule` is how Fries prunes."""
    match scheduler:
        case "fries":
            return fries(dataflow, targets, rule)
        case "epoch":
            return epoch_barrier(dataflow, targets)
        case "multi-version":
            return multi_version(dataflow, targets)
        case "naive":
            return naive(dataflow, targets)


def _alone(targets: Iterable[str]) -> tuple[Component, ...]:
    return tuple(Component((target,), (), (target,)) for target in targets)


def is_consistent(schedule: Schedule) -> bool:
    """Whether no source tuple can meet some targets before their change and others after it."""
    match schedule.scheduler:
        case "fries":
            return not unguarded_operators(schedule)
        case "naive":
            return not fries(schedule.dataflow, schedule.targets).edges
        case "epoch" | "multi-version":
            return True


def unguarded_operators(schedule: Schedule) -> tuple[str, ...]:
    """Return operators that the published rule alone spares: targets may meet mixed copies."""
    return tuple(pruned.operator for pruned in schedule.pruned if pruned.by is None)


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
            near[name] = _Surroundings(
                members_above.get(name), targets_above.get(name), below[name]
            )
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
        # Each of several targets may be met by one of the copies only, and nothing is said of a
        # single one.
        operator = schedule.dataflow[name]
        changed = (
            f"{near.targets_below[0]} before its change"
            if len(near.targets_below) == 1
            else "targets before their change"
        )
        if operator.replicate:
            return f"hands each tuple on several times: one copy may meet {changed}, another after"
        return f"one-to-many: what it makes of one tuple may meet {changed}, and after"
    return "one-to-many: a rule could spare it, and was told not to (--rule none)"


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
            "on each way to a target there is a unique operator, though not the same: what it "
            "makes of one tuple may meet old and new (the published rule)"
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
