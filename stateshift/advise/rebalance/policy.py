"""The numbers that decide, with their defaults: Cruise Control's, where it has them."""

from __future__ import annotations

from dataclasses import dataclass

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How jobs are spread.

    Args:
        load_max: a cluster's load after a move into it, as a part of its capacity.
        trigger: a cluster is too full above so many times the mean.
        aim: and even enough below so many times the mean.
        idle_below: no cluster below this part of its capacity is too full.
        runs: a cluster must have been too full in so many runs, this one counted.
        runs_apart_seconds: a run that follows sooner sees what the one before it has seen, and does
            not count as another.
        runs_within_seconds: and one that follows later does not count as in a row.
        gain_min: a move must bring so many times what it costs.
        relief_min: and take at least so much load off its cluster, in slots or cores.
        horizon_seconds: for how long a move's gain is counted.
        cool_down_seconds: a job that was moved stays for so long.
        remembered_seconds: a move that did not bring what it promised is not repeated for so long.
        moves_max: moves in one run from one cluster to another.
        exact_units: up to so many, the best spread is looked for among all.
    """

    load_max: float = 0.8
    trigger: float = 1.1
    aim: float = 1.05
    idle_below: float = 0.2
    runs: int = 2
    runs_apart_seconds: float = 60.0
    runs_within_seconds: float = 2 * HOUR
    gain_min: float = 2.0
    relief_min: float = 0.1
    horizon_seconds: float = HOUR
    cool_down_seconds: float = HOUR
    remembered_seconds: float = DAY
    moves_max: int = 1
    exact_units: int = 20
