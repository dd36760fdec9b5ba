"""How a change of functions reaches its targets: the four schedulers of the Fries paper, as values.

    epoch barrier  markers start at all sources and go through the whole dataflow, in line with the
                   data
    naive          every target is told at once, by a control message that overtakes data: fast, and
                   not consistent
    multi-version  every target is given the new function beside the old one; then the sources say
                   with each tuple
                   which of them is meant
    fries          control messages to the heads of each component, markers inside it; everything
                   else goes on

All four are the same value with other content: a schedule says which operators get a control
message (heads), along which edges markers go and are waited for, and whether tuples carry versions.
`wiring` runs it on workers; `models` checks it and `simulation` measures it without knowing which
scheduler it came from.

A dataflow is cut at its blocking operators before Fries looks at it (F-14), and broadcasts are
operators (F-15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from stateshift.dataflow.components import Component, components
from stateshift.dataflow.graph import graph_of
from stateshift.dataflow.operators import Dataflow, with_replicates
from stateshift.dataflow.pruning import Pruned, Rule, sort_out

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
        return tuple(head for component in self.components for head in component.heads)

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        """Where markers go, and are waited for."""
        return frozenset(edge for component in self.components for edge in component.edges)

    @property
    def paused(self) -> tuple[str, ...]:
        """Operators that take no data for a moment: they are told, or wait for the last of their
        markers.
        """
        return tuple(name for component in self.components for name in component.operators)

    @property
    def tagging_only(self) -> tuple[str, ...]:
        """Those that say which function is meant, and have none of their own to change."""
        paused = set(self.paused)
        return tuple(name for name in self.tagging if name not in paused)

    @property
    def untouched(self) -> tuple[str, ...]:
        """Operators that go on as if nothing happened."""
        touched = {*self.paused, *self.tagging}
        return tuple(name for name in self.dataflow.names if name not in touched)

    def without(self, edge: tuple[str, str]) -> Schedule:
        """The same, but no marker goes along one edge: what a checker has to find fault with."""
        broken = tuple(_without(component, edge) for component in self.components)
        return replace(self, components=broken)


def fries(dataflow: Dataflow, targets: Iterable[str], rule: Rule = "sound") -> Schedule:
    """Algorithm 1 on the targets and the one-to-many operators above them (Algorithm 2) that no
    rule prunes (3).
    """
    dataflow = with_replicates(dataflow)
    graph = graph_of(dataflow, cut=True)
    wanted = graph.numbers(targets)
    joining, pruned = sort_out(dataflow, graph, wanted, rule)
    members = [*wanted, *(i for i in joining if i not in set(wanted))]
    found = components(graph, members)
    inside = {name for component in found for name in component.operators}
    spared = tuple(one for one in pruned if one.operator not in inside)
    return Schedule(
        "fries", dataflow, tuple(targets), tuple(graph.names[i] for i in members), found, spared
    )


def epoch_barrier(dataflow: Dataflow, targets: Iterable[str]) -> Schedule:
    """Every operator is a member: the covering sub-DAG is the dataflow itself (F-10)."""
    dataflow = with_replicates(dataflow)
    graph = graph_of(dataflow)
    found = components(graph, range(len(graph.names)))
    return Schedule("epoch", dataflow, tuple(targets), dataflow.names, found)


def naive(dataflow: Dataflow, targets: Iterable[str]) -> Schedule:
    """Each target on its own."""
    targets = tuple(targets)
    return Schedule("naive", with_replicates(dataflow), targets, targets, _alone(targets))


def multi_version(dataflow: Dataflow, targets: Iterable[str]) -> Schedule:
    """Each target on its own, and then the sources."""
    targets, dataflow = tuple(targets), with_replicates(dataflow)
    blocking = (operator.name for operator in dataflow.operators if operator.kind == "blocking")
    tagging = tuple(dict.fromkeys((*dataflow.sources, *blocking)))
    return Schedule("multi-version", dataflow, targets, targets, _alone(targets), tagging=tagging)


def schedule(
    dataflow: Dataflow, targets: Iterable[str], scheduler: Scheduler, rule: Rule = "sound"
) -> Schedule:
    """What `scheduler` does; `rule` is how Fries prunes."""
    targets = tuple(targets)
    return (
        fries(dataflow, targets, rule)
        if scheduler == "fries"
        else _OTHERS[scheduler](dataflow, targets)
    )


_OTHERS: Mapping[str, Callable[[Dataflow, tuple[str, ...]], Schedule]] = {
    "epoch": epoch_barrier,
    "naive": naive,
    "multi-version": multi_version,
}


def _alone(targets: Iterable[str]) -> tuple[Component, ...]:
    return tuple(Component((target,), (), (target,)) for target in targets)


def _without(component: Component, edge: tuple[str, str]) -> Component:
    edges = tuple(one for one in component.edges if one != edge)
    fed = {downstream for _, downstream in edges}
    return replace(
        component, edges=edges, heads=tuple(name for name in component.operators if name not in fed)
    )
