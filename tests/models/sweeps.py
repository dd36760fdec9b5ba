"""The experiments of Megaphone's section 5.3 on the cost model: one thing varied, everything else
held.

    over_bins       4,096 M keys, 16 to 16,384 bins                  (figure 16)
    over_keys       4,096 bins, 256 M to 32,768 M keys               (figure 17)
    over_both       4 M keys a bin, 64 to 8,192 bins                 (figure 18)
    over_rates      16,384 M keys, 4,096 bins, 0.25 M to 32 M records a second   (figure 19)

Half of what every second worker has is away, and what is reported is the way back: a quarter of the
state. Bytes of a key, bins, workers and rates are the paper's; bandwidth and capacity it does not
tell: they are assumed, and named here. Only over bins it is 8 workers and not 16. One bin each, of
which half should move, moves whole: at 16 bins of 16 workers another migration is measured, of
twice as much from one worker (all at once, that tilts the slope to -0.07).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from stateshift.dataflow.move_steps import AllAtOnce, Batched, Fluid, Optimised, Strategy, in_steps
from stateshift.live.protocol.configuration import moves_between
from tests.models.cost import Ground, Prediction, even_state, predict

KEY_BYTES = 8.0  # a u64 in a dense array
M = 1e6


@dataclass(frozen=True, slots=True)
class Setting:
    """What is held. Assumed are 10 Gbit/s shared by the four workers of a machine, and twice what a
    worker has to do at 16 M records a second, up to which the paper sees no change.
    """

    workers: int = 16
    rate: float = 4 * M
    bandwidth: float = 10e9 / 8 / 4
    capacity: float = 2 * M
    step_seconds: float = 0.0001


PAPER = Setting()
PAPER_BINS = replace(PAPER, workers=8)

STRATEGIES: tuple[Strategy, ...] = (AllAtOnce(), Batched(4), Optimised(), Fluid())
BINS = tuple(4**n for n in range(2, 8))
KEYS = tuple(256 * M * 2**n for n in range(8))
BOTH = tuple(2**n for n in range(6, 14))
RATES = tuple(0.25 * M * 2**n for n in range(8))


@dataclass(frozen=True, slots=True)
class Point:
    """What came of one value of what was varied."""

    value: float
    prediction: Prediction


def over_bins(
    strategy: Strategy, gap: float = math.inf, setting: Setting = PAPER_BINS
) -> list[Point]:
    """Return a point for each number of bins, 16 to 16,384 (figure 16); `gap` is seconds."""
    return [Point(bins, rebalanced(strategy, bins, 4096 * M, gap, setting)) for bins in BINS]


def over_keys(strategy: Strategy, gap: float = math.inf, setting: Setting = PAPER) -> list[Point]:
    """Return a point for each number of keys, 256 M to 32,768 M (figure 17); `gap` is seconds."""
    return [Point(keys, rebalanced(strategy, 4096, keys, gap, setting)) for keys in KEYS]


def over_both(strategy: Strategy, gap: float = math.inf, setting: Setting = PAPER) -> list[Point]:
    """Return a point for each number of bins, 64 to 8,192 of 4 M keys each (figure 18); `gap` is
    seconds.
    """
    return [Point(bins, rebalanced(strategy, bins, 4 * M * bins, gap, setting)) for bins in BOTH]


def over_rates(
    strategy: Strategy | None, gap: float = math.inf, setting: Setting = PAPER
) -> list[Point]:
    """Return a point for each rate; nothing moves if there is no strategy."""
    points = []
    for rate in RATES:
        at = replace(setting, rate=rate)
        points.append(Point(rate, rebalanced(strategy, 4096, 16384 * M, gap, at)))
    return points


def rebalanced(
    strategy: Strategy | None,
    bins: int,
    keys: float,
    gap: float = math.inf,
    setting: Setting = PAPER,
) -> Prediction:
    """Move a quarter of the state back to where it was. `gap` is the longest between two steps, in
    seconds.
    """
    before, after = skewed(bins, setting.workers), [bin % setting.workers for bin in range(bins)]
    steps = in_steps(strategy, moves_between(before, after)) if strategy else ()
    ground = Ground(
        assigned=tuple(before if strategy else after),
        state_bytes=even_state(bins, keys, KEY_BYTES),
        rate=setting.rate,
        bandwidth=setting.bandwidth,
        capacity=setting.capacity,
        step_seconds=setting.step_seconds,
    )
    return predict(steps, ground, gap)


def skewed(bins: int, workers: int) -> list[int]:
    """Return bins of which every second one of the first half is away, at a worker that is half of
    them further on.
    """
    return [_away(bin, workers) if bin < bins // 2 else bin % workers for bin in range(bins)]


def _away(bin: int, workers: int) -> int:
    return (bin // 2 * 2 + bin % 2 * workers // 2) % workers


def slope(points: Sequence[Point]) -> float:
    """Return the slope of the maximum latency over what was varied, both as logarithms: by least
    squares.
    """
    xs, ys = _logs(p.value for p in points), _logs(p.prediction.latency_seconds_max for p in points)
    x, y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    across = math.fsum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return across / math.fsum((a - x) ** 2 for a in xs)


def _logs(values: Iterable[float]) -> list[float]:
    return [math.log10(value) for value in values]


def flat_up_to(points: Sequence[Point], times: float = 2.0) -> float:
    """Return the last value before the latency is so many times what it was at first."""
    return max(_flat(points, times))


def _flat(points: Sequence[Point], times: float) -> Iterator[float]:
    bound = times * points[0].prediction.latency_seconds_max
    for point in points:
        if point.prediction.latency_seconds_max > bound:
            return
        yield point.value
