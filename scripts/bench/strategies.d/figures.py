"""What is drawn of the sweeps: in the terminal and on the page as letters, and as panels of a
picture.

first row   latency over duration, as the paper's figures 16 to 18 have it, and over the rate
            (figure 19)
second row  the same latency over what is varied, beside the slopes that the paper tells
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from curves import Axis, Curves, curve, legend_on, plotted
from pages import drawing
from paper import FLAT_UP_TO, LOWER_BY, SLOPES

from tests.models.sweeps import Point

WAIT, DURATION = Axis("longest wait", "s"), Axis("duration", "s")
RATE = Axis("rate", "M records/s")
VARIED = {"bins": Axis("bins"), "keys": Axis("keys", "M"), "both": Axis("bins of 4 M keys")}
TITLES = {
    "bins": "more bins (figure 16)",
    "keys": "more keys (figure 17)",
    "both": "more of both (figure 18)",
}
M = 1e6

Points = Mapping[str, Sequence[Point]]


def over_duration(points: Points) -> Curves:
    return {
        strategy: [(p.prediction.seconds, p.prediction.latency_seconds_max) for p in every]
        for strategy, every in points.items()
    }


def over_values(points: Points, unit: float = 1.0) -> Curves:
    """As far as anything comes to an end."""
    return {
        strategy: [
            (p.value / unit, p.prediction.latency_seconds_max)
            for p in every
            if math.isfinite(p.prediction.latency_seconds_max)
        ]
        for strategy, every in points.items()
    }


def in_letters(curves: Curves, x: Axis) -> Iterator[str]:
    yield "```"
    yield from curve(curves, x, WAIT)
    yield "```"


def picture(sweeps: Mapping[str, Points], rates: Points, place: Path) -> None:
    pyplot = drawing()
    canvas, (first, second) = pyplot.subplots(2, 4, figsize=(18, 9))
    for panel in (*first[1:3], *second[:3]):
        panel.sharey(first[0])
    for (name, points), above, below in zip(sweeps.items(), first, second, strict=False):
        plotted(above, over_duration(points), DURATION, WAIT, TITLES[name])
        above.set(xlim=(0.1, 1000))
        curves = over_values(points, M if name == "keys" else 1.0)
        plotted(below, curves, VARIED[name], WAIT, f"{TITLES[name]}, over what is varied")
        _slopes(below, name, curves)
    plotted(first[3], over_values(rates, M), RATE, WAIT, "more records (figure 19)")
    first[3].set(xlabel=f"{RATE}; without end from 32 on")
    _load(first[3], over_values(rates, M))
    legend_on(second[3], first[3], *second[:3])
    canvas.tight_layout()
    canvas.savefig(place, dpi=110, metadata={"Software": None})


def _slopes(panel: Any, name: str, curves: Curves) -> None:
    """The paper's, each from where our curve begins; those of several curves may be one."""
    ends = (
        (SLOPES[name][strategy], points[0], points[-1][0]) for strategy, points in curves.items()
    )
    for slope, (x, y), end in dict.fromkeys(ends):
        panel.plot(
            [x, end],
            [y, y * (end / x) ** slope],
            color="black",
            linestyle=":",
            linewidth=2,
            label="theirs: the slope, from where ours begins",
        )


def _load(panel: Any, curves: Curves) -> None:
    flat = f"theirs: flat up to {FLAT_UP_TO / M:g} M records/s"
    panel.axvline(FLAT_UP_TO / M, color="black", linestyle="--", label=flat)
    once = curves["all-at-once"][0][1]
    less, more = LOWER_BY
    panel.axhspan(
        once / more,
        once / less,
        color="tab:blue",
        alpha=0.13,
        label=f"theirs: batched, {less} to {more} times below all-at-once (ours)",
    )
