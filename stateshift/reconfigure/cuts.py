"""Which jobs have to be stopped at one cut, when all of the operators of some jobs change: a job at a time is what a
cluster stops, so that jobs hang together where a component of their operators does.

    cuts(dataflow, jobs)     the jobs of each cut; a job that hangs together with no other is in none
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stateshift.reconfigure.covering import Component
from stateshift.reconfigure.dataflow import Dataflow
from stateshift.reconfigure.graph import graph_of, marked
from stateshift.reconfigure.schedulers import fries


@dataclass(frozen=True, slots=True)
class Cut:
    """`order` has those first that write what others read; jobs that feed each other are in one part of it. `joints`
    are edges from one of its jobs to another, or to a topic of both. `between` are those operators of its components
    that are of no job that changes: they go on, and what they hold when the jobs stop was made by the jobs of before.
    """

    order: tuple[tuple[str, ...], ...]
    joints: tuple[tuple[str, str], ...]
    between: tuple[str, ...]

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(job for part in self.order for job in part)


def cuts(dataflow: Dataflow, jobs: Sequence[str]) -> tuple[Cut, ...]:
    changing = fries(dataflow, [operator.name for operator in dataflow.operators if operator.job in jobs])
    whole = changing.dataflow
    gathered: list[list[Component]] = []
    for component in changing.components:
        mine = _jobs(whole, [component], jobs)
        near = [group for group in gathered if mine & _jobs(whole, group, jobs)]
        gathered = [group for group in gathered if group not in near]
        gathered.append([*(one for group in near for one in group), component])
    found = [_cut(whole, group, jobs) for group in gathered if len(_jobs(whole, group, jobs)) > 1]
    return tuple(sorted(found, key=lambda cut: min(map(jobs.index, cut.jobs))))


def _cut(dataflow: Dataflow, group: list[Component], jobs: Sequence[str]) -> Cut:
    mine = _jobs(dataflow, group, jobs)
    operators = [dataflow[name] for component in group for name in component.operators]
    between = [one.name for one in operators if one.job not in jobs and not one.replicate]
    return Cut(
        order=tuple(_in_order(dataflow, [job for job in jobs if job in mine])),
        joints=tuple((one, other) for component in group for one, other in component.edges
                     if dataflow[one].job != dataflow[other].job and one not in between and other not in between),
        between=tuple(between),
    )  # fmt: skip


def _in_order(dataflow: Dataflow, jobs: list[str]) -> Iterator[tuple[str, ...]]:
    graph = graph_of(dataflow)
    of = {job: [i for i, operator in enumerate(dataflow.operators) if operator.job == job] for job in jobs}
    below = {job: marked(graph.after, of[job]) for job in jobs}
    feeds = {job: {other for other in jobs if any(below[job][i] for i in of[other])} for job in jobs}
    while jobs:
        # Whoever is fed by one that it does not feed itself waits for that one.
        part = tuple(job for job in jobs if not any(job in feeds[other] and other not in feeds[job] for other in jobs))
        yield part
        jobs = [job for job in jobs if job not in part]


def _jobs(dataflow: Dataflow, group: Iterable[Component], jobs: Sequence[str]) -> set[str]:
    found = {dataflow[name].job for component in group for name in component.operators}
    return {job for job in jobs if job in found}
