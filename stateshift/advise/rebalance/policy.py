"""The numbers that decide, with their defaults: Cruise Control's, where it has them."""

from __future__ import annotations

from dataclasses import dataclass

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How jobs are spread."""

    load_max: float = 0.8  # a cluster's load after a move into it, as a part of its capacity
    trigger: float = 1.1  # a cluster is too full above so many times the mean
    aim: float = 1.05  # and even enough below so many times the mean
    idle_below: float = 0.2  # no cluster below this part of its capacity is too full
    runs: int = 2  # a cluster must have been too full in so many runs, this one counted
    # a run that follows sooner sees what the one before it has seen, and does not count as another
    runs_apart_seconds: float = 60.0
    runs_within_seconds: float = 2 * HOUR  # and one that follows later does not count as in a row
    gain_min: float = 2.0  # a move must bring so many times what it costs
    relief_min: float = 0.1  # and take at least so much load off its cluster, in slots or cores
    horizon_seconds: float = HOUR  # for how long a move's gain is counted
    cool_down_seconds: float = HOUR  # a job that was moved stays for so long
    # a move that did not bring what it promised is not repeated for so long
    remembered_seconds: float = DAY
    moves_max: int = 1  # moves in one run from one cluster to another
    exact_units: int = 20  # up to so many, the best spread is looked for among all
