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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from stateshift.dataflow.components import Component, Pruned, Rule, components, sort_out
from stateshift.specification.dataflow.graph import graph_of
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
