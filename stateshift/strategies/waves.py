"""Which jobs of a spec move together, and in which order: its waves.

    in_waves(spec, together)   as the spec says; else by its strategy, and without one job after job

To a strategy, a job is what a bin of keys is elsewhere, and clusters are its workers: `optimised` makes as few waves as
there can be in which no cluster gives two jobs, nor takes two. Jobs that have to move together are one to it, and go
with the first of them. Where no cluster is named, a job's cluster is the host of its storage.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateshift.spec.location import host_of
from stateshift.spec.model import JobSpec, Spec
from stateshift.strategies.moves import Move
from stateshift.strategies.steps import Fluid, in_steps, strategy_of

Wave = tuple[JobSpec, ...]


def in_waves(spec: Spec, together: Sequence[Wave]) -> tuple[Wave, ...]:
    """Every job in one, as far as can be in the order of the spec; `together` has each job once."""
    if spec.waves:
        by_name = {job.name: job for job in spec.jobs}
        return tuple(tuple(by_name[name] for name in wave) for wave in spec.waves)
    strategy = strategy_of(spec.strategy) if spec.strategy else Fluid()
    waves = sorted(sorted(move.bin for move in step) for step in in_steps(strategy, _moves(together)))
    return tuple(tuple(job for number in wave for job in together[number]) for wave in waves)


def _moves(groups: Sequence[Wave]) -> list[Move]:
    places = [(_place(jobs[0].source_cluster, jobs[0].source), _place(jobs[0].target_cluster, jobs[0].destination))
              for jobs in groups]  # fmt: skip
    number = {place: n for n, place in enumerate(dict.fromkeys(place for pair in places for place in pair))}
    return [Move(n, number[source], number[target]) for n, (source, target) in enumerate(places)]


def _place(cluster: str | None, location: str) -> str:
    return cluster or host_of(location)
