"""Which jobs of a spec move together, and in which order: its waves.

    in_waves(spec, together)   as the spec says; else by its strategy, and without one job after job

To a strategy, a job is what a bin of keys is elsewhere, and clusters are its workers: `optimised`
makes as few waves as there can be in which no cluster gives two jobs, nor takes two. Jobs that have
to move together are one to it; where they move between several pairs of clusters, they are a wave
of their own. Where no cluster is named, a job's cluster is the host of its storage.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateshift.dataflow.move_steps import Fluid, Move, Optimised, in_steps, strategy_of
from stateshift.specification.location import host_of
from stateshift.specification.model import JobSpec, Spec

Wave = tuple[JobSpec, ...]


def in_waves(spec: Spec, together: Sequence[Wave]) -> tuple[Wave, ...]:
    """Every job in one, as far as can be in the order of the spec; `together` has each job once."""
    if spec.waves:
        by_name = {job.name: job for job in spec.jobs}
        return tuple(tuple(by_name[name] for name in wave) for wave in spec.waves)
    strategy = strategy_of(spec.strategy) if spec.strategy else Fluid()
    moves = _moves(together)
    apart = {
        n
        for n, jobs in enumerate(together)
        if isinstance(strategy, Optimised) and len(_places(jobs)) > 1
    }
    steps = in_steps(strategy, [move for move in moves if move.bin not in apart])
    waves = sorted([*(sorted(move.bin for move in step) for step in steps), *([n] for n in apart)])
    return tuple(tuple(job for number in wave for job in together[number]) for wave in waves)


def _moves(groups: Sequence[Wave]) -> list[Move]:
    places = [_places(jobs)[0] for jobs in groups]
    number = {
        place: n
        for n, place in enumerate(dict.fromkeys(place for pair in places for place in pair))
    }
    return [Move(n, number[source], number[target]) for n, (source, target) in enumerate(places)]


def _places(jobs: Wave) -> list[tuple[str, str]]:
    """From where to where these jobs move."""
    return list(
        dict.fromkeys(
            (_place(job.source_cluster, job.source), _place(job.target_cluster, job.destination))
            for job in jobs
        )
    )


def _place(cluster: str | None, location: str) -> str:
    return cluster or host_of(location)
