"""Which jobs have to be stopped at one cut, when all of the operators of some jobs change.

    cuts(dataflow, jobs, units)  the jobs of each cut; a job that can be stopped alone is in none

A cluster stops whole jobs. So jobs share a cut where one component of operators (`components`) has
operators of both. `units` are jobs that are one application: whoever stops one of them stops all.

The order in which the jobs of a cut are listed: units that feed each other are condensed to one
ring, and rings are sorted topologically, writers before readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import chain

from stateshift.dataflow.components import Component
from stateshift.dataflow.schedulers import fries
from stateshift.specification.dataflow.graph import graph_of, reachable, strong_components
from stateshift.specification.dataflow.operators import Dataflow

Unit = tuple[str, ...]
Ring = list[Unit]  # a unit alone, or several that feed each other
Part = list[Ring]  # rings that do not wait for each other


@dataclass(frozen=True, slots=True)
class Cut:
    """Jobs that stop at one cut.

    `order` has those first that write what others read; jobs that feed each other are in one part
    of it, and in `ring`. `joints` are edges from one of its jobs to another, or to a topic of both.
    `between` are those operators of its components that are of no job that changes: they go on, and
    what they hold when the jobs stop was made by the jobs as they were before.
    """

    order: tuple[tuple[str, ...], ...]
    joints: tuple[tuple[str, str], ...]
    between: tuple[str, ...]
    ring: tuple[str, ...] = ()

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.order))


@dataclass(slots=True)
class _Group:
    """Components of operators that share a cut, since they have operators of one unit."""

    components: list[Component] = field(default_factory=list)
    units: set[Unit] = field(default_factory=set)

    def add(self, other: _Group) -> None:
        self.components += other.components
        self.units |= other.units

    def units_among(self, units: Iterable[Unit]) -> list[Unit]:
        """Return those of the units that are in the group, in their order."""
        return [unit for unit in units if unit in self.units]


def cuts(
    dataflow: Dataflow, jobs: Sequence[str], units: Iterable[Collection[str]] = ()
) -> tuple[Cut, ...]:
    """Return the cuts by which `jobs` have to be stopped, in the order of the jobs."""
    change = fries(dataflow, _names_of_operators(dataflow, jobs))
    every_unit = _every_unit(jobs, units)
    made = []
    for group in _groups(change.dataflow, change.components, every_unit):
        jobs_touched = _jobs_of(change.dataflow, group.components)
        if len(jobs_touched.intersection(jobs)) > 1:
            made.append(_cut(change.dataflow, group, every_unit))
    return tuple(sorted(made, key=lambda cut: min(map(jobs.index, cut.jobs))))


def _every_unit(jobs: Sequence[str], units: Iterable[Collection[str]]) -> list[Unit]:
    """Return units in which each job is once, in the order of the jobs."""
    unit_of: dict[str, Unit] = {job: (job,) for job in jobs}
    for unit in reversed(list(units)):
        shared = tuple(job for job in jobs if job in unit)
        unit_of |= dict.fromkeys(shared, shared)
    return list(dict.fromkeys(unit_of[job] for job in jobs))


def _groups(
    dataflow: Dataflow, components: Iterable[Component], units: Sequence[Unit]
) -> list[_Group]:
    """Return the components, those together that have operators of one unit."""
    groups: list[_Group] = []
    for component in components:
        touched = _units_of(dataflow, component, units)
        apart = []
        merged = _Group()
        for group in groups:
            if group.units.isdisjoint(touched):
                apart.append(group)
            else:
                merged.add(group)
        merged.add(_Group([component], touched))
        groups = [*apart, merged]
    return groups


def _units_of(dataflow: Dataflow, component: Component, units: Iterable[Unit]) -> set[Unit]:
    jobs = _jobs_of(dataflow, [component])
    return {unit for unit in units if not jobs.isdisjoint(unit)}


def _jobs_of(dataflow: Dataflow, components: Iterable[Component]) -> set[str | None]:
    jobs: set[str | None] = set()
    for component in components:
        jobs.update(dataflow[name].job for name in component.operators)
    return jobs


def _cut(dataflow: Dataflow, group: _Group, units: Sequence[Unit]) -> Cut:
    between = tuple(_operators_between(dataflow, group, units))
    parts = _parts_in_order(dataflow, group.units_among(units))
    return Cut(
        order=tuple(tuple(_jobs_in(part)) for part in parts),
        joints=tuple(_joints(dataflow, group, between)),
        between=between,
        ring=tuple(_jobs_in_rings(parts)),
    )


def _operators_between(dataflow: Dataflow, group: _Group, units: Iterable[Unit]) -> Iterator[str]:
    """Yield the operators of no job that changes. A replicated broadcast belongs to nobody."""
    jobs: set[str | None] = set()
    jobs.update(*units)
    for component in group.components:
        for name in component.operators:
            operator = dataflow[name]
            if operator.job not in jobs and not operator.replicate:
                yield name


def _joints(
    dataflow: Dataflow, group: _Group, between: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the edges from a job that changes to another one."""
    for component in group.components:
        for upstream, downstream in component.edges:
            both_change = upstream not in between and downstream not in between
            if both_change and dataflow[upstream].job != dataflow[downstream].job:
                yield upstream, downstream


def _jobs_in(part: Part) -> Iterator[str]:
    for ring in part:
        for unit in ring:
            yield from unit


def _jobs_in_rings(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the jobs of units that feed each other."""
    for part in parts:
        yield from _jobs_in([ring for ring in part if len(ring) > 1])


def _parts_in_order(dataflow: Dataflow, units: Sequence[Unit]) -> list[Part]:
    """Return the units, writers first: condensed to rings, and the rings in topological order."""
    feeds = _feeds(dataflow, units)
    rings = strong_components(feeds)
    ring_of: dict[int, int] = {}
    for number, ring in enumerate(rings):
        ring_of |= dict.fromkeys(ring, number)
    sorter = TopologicalSorter[int](dict.fromkeys(range(len(rings)), ()))
    for upstream, downstream in _edges_between_rings(feeds, ring_of):
        sorter.add(downstream, upstream)
    return [_rings_of_units(units, map(rings.__getitem__, ready)) for ready in _ready(sorter)]


def _edges_between_rings(
    feeds: Iterable[list[int]], ring_of: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield the numbers of two rings where a unit of the first feeds one of the second."""
    for unit, fed in enumerate(feeds):
        for other in fed:
            if ring_of[unit] != ring_of[other]:
                yield ring_of[unit], ring_of[other]


def _ready(sorter: TopologicalSorter[int]) -> Iterator[list[int]]:
    """Yield the nodes in topological order, those together that do not wait for each other."""
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        sorter.done(*ready)
        yield ready


def _rings_of_units(units: Sequence[Unit], rings: Iterable[list[int]]) -> Part:
    """Return rings of numbers as rings of the units themselves."""
    return [list(map(units.__getitem__, ring)) for ring in rings]


def _feeds(dataflow: Dataflow, units: Sequence[Unit]) -> list[list[int]]:
    """Return for each unit those that have an operator downstream of one of its own."""
    graph = graph_of(dataflow)
    operators = [_operators_of(dataflow, unit) for unit in units]
    return [_reached(reachable(graph.after, own), operators) for own in operators]


def _reached(downstream: bytearray, operators: Sequence[list[int]]) -> list[int]:
    """Return the units of whose operators one is downstream."""
    return [unit for unit, own in enumerate(operators) if any(downstream[o] for o in own)]


def _names_of_operators(dataflow: Dataflow, jobs: Collection[str]) -> list[str]:
    return [operator.name for operator in dataflow.operators if operator.job in jobs]


def _operators_of(dataflow: Dataflow, unit: Unit) -> list[int]:
    return [i for i, operator in enumerate(dataflow.operators) if operator.job in unit]
