"""Which jobs of a spec move together, and in which order: its waves.

    in_waves(spec, together)   as the spec says; else by its strategy, and without one job after job

To a strategy, a job is what a bin of keys is elsewhere, and clusters are its workers: `optimised`
makes as few waves as there can be in which no cluster gives two jobs, nor takes two. Jobs that have
to move together are one to it; where they move between several pairs of clusters, they are a wave
of their own. Where no cluster is named, a job's cluster is the host of its storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from stateshift.dataflow.move_steps import (
    Fluid,
    Move,
    Optimised,
    Strategy,
    in_steps,
    strategy_of,
)
from stateshift.specification.location import host_of
from stateshift.specification.model import JobSpec, Spec

Wave = tuple[JobSpec, ...]


def in_waves(spec: Spec, together: Sequence[Wave]) -> tuple[Wave, ...]:
    """Return the waves, each job in one of them, as far as can be in the order of the spec.
    `together` has each job once.
    """
    if spec.waves:
        return _waves_as_written(spec)
    strategy = strategy_of(spec.strategy) if spec.strategy else Fluid()
    waves = _waves_by_strategy(strategy, together)
    return tuple(_jobs_of(wave, together) for wave in sorted(waves))


def _waves_as_written(spec: Spec) -> tuple[Wave, ...]:
    by_name = {job.name: job for job in spec.jobs}
    return tuple(tuple(map(by_name.__getitem__, wave)) for wave in spec.waves)


def _waves_by_strategy(strategy: Strategy, together: Sequence[Wave]) -> list[list[int]]:
    """Return the waves as numbers of groups of jobs."""
    alone = _between_several(together) if isinstance(strategy, Optimised) else []
    waves = [[number] for number in alone]
    sharing = [move for move in _moves(together) if move.bin not in alone]
    for step in in_steps(strategy, sharing):
        waves.append(sorted(move.bin for move in step))
    return waves


def _between_several(together: Sequence[Wave]) -> list[int]:
    """Return the groups of jobs that move between several pairs of clusters, by number."""
    return [number for number, jobs in enumerate(together) if len(_ends(jobs)) > 1]


def _jobs_of(wave: Sequence[int], together: Sequence[Wave]) -> Wave:
    return tuple(chain.from_iterable(together[number] for number in wave))


def _moves(groups: Sequence[Wave]) -> list[Move]:
    """Return one move for each group of jobs: clusters are numbered as they are first named."""
    number_of: dict[str, int] = {}
    moves = []
    for n, jobs in enumerate(groups):
        ends = _ends(jobs)[0]
        source, target = (number_of.setdefault(end, len(number_of)) for end in ends)
        moves.append(Move(n, source, target))
    return moves


def _ends(jobs: Wave) -> list[tuple[str, str]]:
    """Return the pairs of clusters between which these jobs move, each pair once."""
    pairs = []
    for job in jobs:
        source = _cluster(job.source_cluster, job.source)
        target = _cluster(job.target_cluster, job.destination)
        pairs.append((source, target))
    return list(dict.fromkeys(pairs))


def _cluster(name: str | None, location: str) -> str:
    return name or host_of(location)
