"""What is drawn of the experiments: in the terminal and on the page as letters, and as panels of
a picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curves import COLOURS, Axis, Curves, curve, legend_on, plotted
from experiments import REPLACED_SECONDS, SURGE_SECONDS, SWEEPS, latencies
from measuring import Measured
from pages import drawing
from paper import DELAYS_MS, TABLE_3

from stateshift.dataflow.schedulers import SCHEDULERS

DELAY = Axis("delay", "s")
ROW = Axis("row of table 3; at 0 theirs, the least and the most of all rows", log=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """`theirs` are points of the paper: at an x where none of ours is."""

    title: str
    x: Axis
    y: Axis
    ours: Curves
    theirs: Curves


def figures(found: Measured) -> list[Figure]:
    rows: Curves = {
        by: [(float(n), delay) for n, delay in enumerate(found.joins[by], 1)] for by in SCHEDULERS
    }
    least_and_most = {
        f"{by.capitalize()} (theirs)": [(0.0, ms / 1000) for ms in both]
        for by, both in DELAYS_MS.items()
    }
    sweeps = [
        Figure(
            f"delay over {what}",
            Axis(what, unit, log=False),
            DELAY,
            _over(xs, found.sweeps[name]),
            {},
        )
        for name, (what, unit, xs, _) in SWEEPS.items()
    ]
    surges: Curves = {by: latencies(run) for by, run in found.surges.items()}
    second, longest = (
        Axis("time since the start", "s", log=False),
        Axis("longest latency of a second", "s", log=False),
    )
    return [
        Figure("delay of joins, one behind another (table 3)", ROW, DELAY, rows, least_and_most),
        *sweeps,
        Figure("a surge, and a cheaper function", second, longest, surges, {}),
    ]


def _over(xs: tuple[float, ...], delays: Any) -> Curves:
    return {by: list(zip(xs, delays[by], strict=True)) for by in SCHEDULERS}


def in_letters(figure: Figure) -> Iterator[str]:
    yield "```"
    yield from curve({**figure.ours, **figure.theirs}, figure.x, figure.y)
    yield "```"
    yield ""


def picture(figures: list[Figure], place: Path) -> None:
    pyplot = drawing()
    canvas, grid = pyplot.subplots(2, 3, figsize=(15, 9))
    panels = [grid[0][0], *grid[1], grid[0][1]]
    for panel in grid[1][1:]:
        panel.sharey(grid[1][0])
    for panel, figure in zip(panels, figures, strict=True):
        plotted(panel, figure.ours, figure.x, figure.y, figure.title, joined=figure.x != ROW)
    _table_3(panels[0])
    _surge(panels[-1])
    legend_on(grid[0][2], panels[0], panels[-1])
    canvas.tight_layout()
    canvas.savefig(place, dpi=110, metadata={"Software": None})


def _table_3(panel: Any) -> None:
    """The paper's least and most as bands, and its targets as names of the rows."""
    for by, (least, most) in DELAYS_MS.items():
        colour = COLOURS[SCHEDULERS.index(by)]
        panel.axhspan(
            least / 1000,
            most / 1000,
            color=colour,
            alpha=0.13,
            label=f"{by}, theirs: from least to most",
        )
    panel.set_xticks(
        range(1, len(TABLE_3) + 1), [targets for _, targets, _ in TABLE_3], rotation=40, ha="right"
    )
    panel.set_xlabel("targets, the rows of table 3")
    panel.tick_params(axis="x", labelsize=8)


def _surge(panel: Any) -> None:
    panel.axvline(SURGE_SECONDS, color="black", linestyle=":", label="the rate doubles")
    panel.axvline(REPLACED_SECONDS, color="black", linestyle="--", label="the function is replaced")
