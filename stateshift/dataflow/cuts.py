"""Which jobs have to be stopped at one cut, when all of the operators of some jobs change: a job at
a time is what a cluster stops, so that jobs hang together where a component of their operators
does.

    cuts(dataflow, jobs, units)  the jobs of each cut; a job that hangs together with no other is in
                                 none

`units` are jobs that are one application: whoever stops one of them stops all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from stateshift.dataflow.components import Component
from stateshift.dataflow.graph import graph_of, marked
from stateshift.dataflow.operators import Dataflow
from stateshift.dataflow.schedulers import fries

Unit = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """`order` has those first that write what others read; jobs that feed each other are in one
    part of it, and in `ring`. `joints` are edges from one of its jobs to another, or to a topic of
    both. `between` are those operators of its components that are of no job that changes: they go
    on, and what they hold when the jobs stop was made by the jobs of before.
    """

    order: tuple[tuple[str, ...], ...]
    joints: tuple[tuple[str, str], ...]
    between: tuple[str, ...]
    ring: tuple[str, ...] = ()

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(job for part in self.order for job in part)


def cuts(
    dataflow: Dataflow, jobs: Sequence[str], units: Iterable[Collection[str]] = ()
) -> tuple[Cut, ...]:
    changing = fries(
        dataflow, [operator.name for operator in dataflow.operators if operator.job in jobs]
    )
    whole, units = changing.dataflow, _units(jobs, units)
    gathered: list[list[Component]] = []
    for component in changing.components:
        mine = _jobs(whole, [component], units)
        near = [group for group in gathered if mine & _jobs(whole, group, units)]
        gathered = [group for group in gathered if group not in near]
        gathered.append([*(one for group in near for one in group), component])
    found = [
        _cut(whole, group, units) for group in gathered if len(_touched(whole, group) & {*jobs}) > 1
    ]
    return tuple(sorted(found, key=lambda cut: min(map(jobs.index, cut.jobs))))


def _units(jobs: Sequence[str], units: Iterable[Collection[str]]) -> list[Unit]:
    """Each job in one, in the order of the jobs."""
    shared = [tuple(job for job in jobs if job in unit) for unit in units]
    return list(
        dict.fromkeys(next((unit for unit in shared if job in unit), (job,)) for job in jobs)
    )


def _cut(dataflow: Dataflow, group: list[Component], units: Sequence[Unit]) -> Cut:
    mine = _jobs(dataflow, group, units)
    jobs = {job for unit in units for job in unit}
    operators = [dataflow[name] for component in group for name in component.operators]
    between = [one.name for one in operators if one.job not in jobs and not one.replicate]
    parts = _in_order(dataflow, [unit for unit in units if unit in mine])
    return Cut(
        order=tuple(tuple(job for ring in part for unit in ring for job in unit) for part in parts),
        joints=tuple(
            (one, other)
            for component in group
            for one, other in component.edges
            if dataflow[one].job != dataflow[other].job
            and one not in between
            and other not in between
        ),
        between=tuple(between),
        ring=tuple(
            job for part in parts for ring in part if len(ring) > 1 for unit in ring for job in unit
        ),
    )


def _in_order(dataflow: Dataflow, units: Sequence[Unit]) -> list[list[list[Unit]]]:
    """Parts, of rings: a unit alone, or some that feed each other by way of any of them."""
    graph = graph_of(dataflow)
    of = {
        unit: [i for i, operator in enumerate(dataflow.operators) if operator.job in unit]
        for unit in units
    }
    below = {unit: marked(graph.after, of[unit]) for unit in units}
    feeds = {
        unit: {other for other in units if any(below[unit][i] for i in of[other])} for unit in units
    }
    for via in units:
        for unit in units:
            if via in feeds[unit]:
                feeds[unit] |= feeds[via]
    rings = {
        unit: [
            other
            for other in units
            if other is unit or (other in feeds[unit] and unit in feeds[other])
        ]
        for unit in units
    }
    left, parts = list(units), []
    while left:
        # Whoever is fed by one that it does not feed itself waits for that one.
        part = [
            unit
            for unit in left
            if all(other in rings[unit] for other in left if unit in feeds[other])
        ]
        parts.append([rings[unit] for unit in part if unit is rings[unit][0]])
        left = [unit for unit in left if unit not in part]
    return parts


def _jobs(dataflow: Dataflow, group: Iterable[Component], units: Iterable[Unit]) -> set[Unit]:
    touched = _touched(dataflow, group)
    return {unit for unit in units if not touched.isdisjoint(unit)}


def _touched(dataflow: Dataflow, group: Iterable[Component]) -> set[str | None]:
    return {dataflow[name].job for component in group for name in component.operators}
