"""The jobs that have to be stopped at one cut, when all of the operators of some jobs change; and
the waves in which the jobs of a spec move.

    cuts(dataflow, jobs, units)  the jobs of each cut; a job that can be stopped alone is in none
    in_waves(spec, together)     the waves as the spec says; else by its strategy, and without one
                                 job after job

A cluster stops whole jobs. Two jobs share a cut where one component of operators (`components`) has
operators of both. `units` are jobs that are one application: to stop one of them stops all.

The order in which the jobs of a cut are listed: units that feed each other are condensed to one
ring, and rings are sorted topologically, writers before readers.

To a strategy, a job is like a bin of keys, and clusters are its workers: `optimised` makes as few
waves as there can be in which no cluster gives two jobs, nor takes two. Jobs that have to move
together are one to it; where they move between several pairs of clusters, they are a wave of their
own. If no cluster is named, a job's cluster is the host of its storage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import chain

from stateshift.dataflow.components import Component
from stateshift.dataflow.move_steps import (
    BinMove,
    Fluid,
    Optimised,
    Strategy,
    in_steps,
    strategy_of,
)
from stateshift.dataflow.schedulers import fries
from stateshift.specification.dataflow.graph import graph_of, reachable, strong_components
from stateshift.specification.dataflow.operators import Dataflow
from stateshift.specification.location import host_of
from stateshift.specification.model import JobSpec, Spec

Wave = tuple[JobSpec, ...]
Unit = tuple[str, ...]
Ring = list[Unit]  # a unit alone, or several that feed each other
Part = list[Ring]  # rings that do not wait for each other


@dataclass(frozen=True, slots=True)
class Cut:
    """Jobs that stop at one cut, writers first in `order`; those that feed each other are one part
    of it, and in `ring`. `joints`: edges between jobs, or to a topic of both. `between`: operators
    that go on, and hold what the jobs before the stop have made.
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

    units: set[Unit]
    components: list[Component] = field(default_factory=list)


def cuts(
    dataflow: Dataflow, jobs: Sequence[str], units: Iterable[Collection[str]] = ()
) -> tuple[Cut, ...]:
    """Return the cuts by which `jobs` have to be stopped, in the order of the jobs."""
    changing = [operator.name for operator in dataflow.operators if operator.job in jobs]
    change = fries(dataflow, changing)
    # units in which each job is once, in the order of the jobs
    unit_of: dict[str, Unit] = {job: (job,) for job in jobs}
    for unit in reversed(list(units)):
        shared = tuple(job for job in jobs if job in unit)
        unit_of |= dict.fromkeys(shared, shared)
    every_unit = list(dict.fromkeys(unit_of[job] for job in jobs))
    made = []
    for group in _groups(change.dataflow, change.components, every_unit):
        touched: set[str | None] = set()
        for component in group.components:
            touched |= _jobs_of(change.dataflow, component)
        if len(touched.intersection(jobs)) > 1:
            made.append(_cut(change.dataflow, group, every_unit))
    return tuple(sorted(made, key=lambda cut: min(map(jobs.index, cut.jobs))))


def _groups(
    dataflow: Dataflow, components: Iterable[Component], units: Sequence[Unit]
) -> list[_Group]:
    """Return the components, those together that have operators of one unit."""
    groups: list[_Group] = []
    for component in components:
        jobs = _jobs_of(dataflow, component)
        touched = {unit for unit in units if not jobs.isdisjoint(unit)}
        apart, merged = [], _Group(touched)
        for group in groups:
            if group.units.isdisjoint(touched):
                apart.append(group)
            else:
                merged.components += group.components
                merged.units = merged.units | group.units
        merged.components.append(component)
        groups = [*apart, merged]
    return groups


def _jobs_of(dataflow: Dataflow, component: Component) -> set[str | None]:
    return {dataflow[name].job for name in component.operators}


def _cut(dataflow: Dataflow, group: _Group, units: Sequence[Unit]) -> Cut:
    jobs = set(chain.from_iterable(units))
    between: list[str] = []
    joints: list[tuple[str, str]] = []
    for component in group.components:
        for name in component.operators:
            operator = dataflow[name]
            if operator.job not in jobs and not operator.replicate:  # that belongs to nobody
                between.append(name)
        for upstream, downstream in component.edges:
            both_change = upstream not in between and downstream not in between
            if both_change and dataflow[upstream].job != dataflow[downstream].job:
                joints.append((upstream, downstream))
    parts = _parts_in_order(dataflow, [unit for unit in units if unit in group.units])
    rings = [ring for ring in chain.from_iterable(parts) if len(ring) > 1]
    return Cut(
        order=tuple(_jobs_in(part) for part in parts),
        joints=tuple(joints),
        between=tuple(between),
        ring=_jobs_in(rings),
    )


def _jobs_in(rings: Iterable[Ring]) -> tuple[str, ...]:
    return tuple(chain.from_iterable(chain.from_iterable(rings)))


def _parts_in_order(dataflow: Dataflow, units: Sequence[Unit]) -> list[Part]:
    """Return the units, writers first: condensed to rings, and the rings in topological order."""
    feeds = _feeds(dataflow, units)
    rings = strong_components(feeds)
    ring_of: dict[int, int] = {}
    for number, ring in enumerate(rings):
        ring_of |= dict.fromkeys(ring, number)
    sorter = TopologicalSorter[int](dict.fromkeys(range(len(rings)), ()))
    for unit, fed in enumerate(feeds):
        for other in fed:
            if ring_of[unit] != ring_of[other]:
                sorter.add(ring_of[other], ring_of[unit])
    sorter.prepare()
    parts = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        sorter.done(*ready)
        parts.append([[units[number] for number in rings[ring]] for ring in ready])
    return parts


def _feeds(dataflow: Dataflow, units: Sequence[Unit]) -> list[list[int]]:
    """Return for each unit those that have an operator downstream of one of its own."""
    graph = graph_of(dataflow)
    operators = []
    for unit in units:
        operators.append([i for i, one in enumerate(dataflow.operators) if one.job in unit])
    feeds = []
    for own in operators:
        downstream = reachable(graph.after, own)
        fed = [i for i, others in enumerate(operators) if any(downstream[o] for o in others)]
        feeds.append(fed)
    return feeds


def writers_for(dataflow: Dataflow, job: str, others: Collection[str]) -> tuple[str, ...]:
    """Return those of the others whose output a job reads with none of them in between."""
    before, operators = graph_of(dataflow).before, dataflow.operators
    pending = [number for number, operator in enumerate(operators) if operator.job == job]
    seen, writers = set(pending), dict[str, None]()
    while pending:
        for number in before[pending.pop()]:
            writer = operators[number].job
            if writer is not None and writer in others:
                writers[writer] = None
            elif number not in seen:
                seen.add(number)
                pending.append(number)
    return tuple(writers)


# ----------------------------------------------------------------------------- waves


def in_waves(spec: Spec, together: Sequence[Wave]) -> tuple[Wave, ...]:
    """Return waves in the spec's order, as far as can be. `together` has each job once."""
    if spec.waves:
        by_name = {job.name: job for job in spec.jobs}
        return tuple(tuple(by_name[name] for name in wave) for wave in spec.waves)
    strategy = strategy_of(spec.strategy) if spec.strategy else Fluid()
    waves = sorted(_waves_by_strategy(strategy, together))
    return tuple(tuple(chain.from_iterable(together[n] for n in wave)) for wave in waves)


def _waves_by_strategy(strategy: Strategy, together: Sequence[Wave]) -> list[list[int]]:
    """Return the waves as numbers of groups of jobs."""
    number_of: dict[str, int] = {}  # of clusters, as they are first named
    waves, moves = [], []
    for group, jobs in enumerate(together):
        ends = []
        for job in jobs:
            source_place = job.source_cluster or host_of(job.source)
            ends.append((source_place, job.target_cluster or host_of(job.destination)))
        source, target = (number_of.setdefault(end, len(number_of)) for end in ends[0])
        if len(set(ends)) > 1 and isinstance(strategy, Optimised):
            waves.append([group])
        else:
            moves.append(BinMove(group, source, target))
    for step in in_steps(strategy, moves):
        waves.append(sorted(move.bin for move in step))
    return waves
