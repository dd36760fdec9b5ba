"""Curves over two logarithmic axes: in a terminal as letters, and as a picture where matplotlib is there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stateshift.strategies.sweeps import Point

WIDTH, HEIGHT = 64, 14
TITLES = {"bins": "more bins (figure 16)", "keys": "more keys (figure 17)", "both": "more of both (figure 18)"}

Curves = Mapping[str, Sequence[tuple[float, float]]]


def curve(curves: Curves, x: str, y: str) -> Iterator[str]:
    """Each curve's points as its first letter; where several lie, the last one is seen."""
    xs, ys = ([math.log10(point[n]) for points in curves.values() for point in points] for n in (0, 1))
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for name, points in curves.items():
        for a, b in points:
            grid[HEIGHT - 1 - _at(math.log10(b), ys, HEIGHT)][_at(math.log10(a), xs, WIDTH)] = name[0]
    marks = {0: f"{10 ** max(ys):9.3g}", HEIGHT - 1: f"{10 ** min(ys):9.3g}", HEIGHT // 2: f"{y:>9.9}"}
    for row, line in enumerate(grid):
        yield f"{marks.get(row, ''):>9} │{''.join(line)}".rstrip()
    yield " " * 10 + "└" + "─" * WIDTH
    yield f"{'':10} {10 ** min(xs):<9.3g}{x:^{WIDTH - 18}}{10 ** max(xs):>9.3g}"
    yield " " * 11 + ", ".join(f"{name[0]} {name}" for name in curves)


def _at(value: float, values: Sequence[float], cells: int) -> int:
    low, high = min(values), max(values)
    return round((value - low) / ((high - low) or 1.0) * (cells - 1))


Points = Mapping[str, Sequence[Point]]


def drawn(sweeps: Mapping[str, Points], rates: Points, place: Path) -> None:
    """Three panels of latency over duration, as the paper has them, and one of latency over the rate."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    figure, panels = pyplot.subplots(1, 4, figsize=(16, 4), sharey=True)
    for panel, (name, by_strategy) in zip(panels, sweeps.items(), strict=False):
        for strategy, points in by_strategy.items():
            told = [point.prediction for point in points]
            panel.loglog([p.seconds for p in told], [p.latency_seconds_max for p in told], "o-", label=strategy)
        panel.set(title=TITLES[name], xlabel="duration [s]", xlim=(0.1, 1000))
    for strategy, points in rates.items():
        kept = [point for point in points if math.isfinite(point.prediction.latency_seconds_max)]
        panels[3].loglog([p.value / 1e6 for p in kept], [p.prediction.latency_seconds_max for p in kept], "o-",
                         label=strategy)  # fmt: skip
    panels[3].set(title="more records (figure 19)", xlabel="M records/s, without end from 32 on")
    panels[0].set(ylabel="longest wait [s]")
    panels[3].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(place, dpi=110, metadata={"Software": None})
