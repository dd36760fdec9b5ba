"""Curves of a bench: in a terminal as letters, and on the panels of a picture.

No curve hides another that lies on it: a cell of several letters has a sign of its own, which the
legend explains, and in a picture a later curve is narrower than those before it, so that all of
them are seen around it.
"""

from __future__ import annotations

import math
import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 65, 15  # odd: there is a middle
EDGE = 9  # columns for the figures at the left
SHARED = string.digits[1:] + string.punctuation

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
LINES = (
    (11.0, 17.0, "o"),
    (7.5, 12.0, "s"),
    (4.0, 8.0, "D"),
    (1.5, 4.0, "v"),
    (1.5, 4.0, "^"),
)  # and markers

Curves = Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Axis:
    """What it shows, and in which unit, where it has one."""

    what: str
    unit: str = ""
    log: bool = True

    def __str__(self) -> str:
        return f"{self.what}, {self.unit}" if self.unit else self.what

    @property
    def in_words(self) -> str:
        return f"{self} (logarithmic)" if self.log else str(self)


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to cells and back."""

    low: float
    high: float
    cells: int
    log: bool

    @classmethod
    def of(cls, values: Sequence[float], cells: int, log: bool) -> _Scale:
        placed = [math.log10(value) for value in values] if log else list(values)
        return cls(min(placed), max(placed), cells, log)

    def cell(self, value: float) -> int:
        placed = math.log10(value) if self.log else value
        return round((placed - self.low) / ((self.high - self.low) or 1.0) * (self.cells - 1))

    def told(self, cell: int) -> str:
        placed = self.low + (self.high - self.low) * cell / (self.cells - 1)
        value = 10**placed if self.log else placed
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def curve(curves: Curves, x: Axis, y: Axis) -> Iterator[str]:
    """Each curve's points as its first letter."""
    every = [point for points in curves.values() for point in points]
    across = _Scale.of([a for a, _ in every], WIDTH, x.log)
    up = _Scale.of([b for _, b in every], HEIGHT, y.log)
    letters = _letters(curves, across, up)
    several = dict.fromkeys(here for _, here in sorted(letters.items()) if len(here) > 1)
    signs = dict(zip(several, SHARED, strict=False))
    yield f"{'':{EDGE}} {y.in_words}"
    for row in reversed(range(HEIGHT)):
        line = "".join(
            signs.get(here, here) for here in (letters.get((n, row), " ") for n in range(WIDTH))
        )
        yield f"{up.told(row) if row in (0, HEIGHT // 2, HEIGHT - 1) else '':>{EDGE}} │{line}".rstrip()
    yield " " * (EDGE + 1) + "└" + "─" * WIDTH
    side = WIDTH // 4
    first, middle, last = (across.told(cell) for cell in (0, WIDTH // 2, WIDTH - 1))
    yield f"{'':{EDGE}}  {first:<{side}}{middle:^{WIDTH - 2 * side}}{last:>{side}}"
    yield f"{'':{EDGE}}  {x.in_words:^{WIDTH}}".rstrip()
    yield " " * (EDGE + 2) + ", ".join(f"{name[0]} {name}" for name in curves)
    if signs:
        yield (
            " " * (EDGE + 2)
            + "in one place: "
            + ", ".join(f"{sign} {'+'.join(of)}" for of, sign in signs.items())
        )


def _letters(curves: Curves, across: _Scale, up: _Scale) -> dict[tuple[int, int], str]:
    """Those of all curves that have a point in a cell, by column and row."""
    assert len({name[0] for name in curves}) == len(curves), "two curves of one letter"
    found: dict[tuple[int, int], str] = defaultdict(str)
    for name, points in curves.items():
        for cell in dict.fromkeys((across.cell(a), up.cell(b)) for a, b in points):
            found[cell] += name[0]
    return found


def plotted(
    panel: Any, curves: Curves, x: Axis, y: Axis, title: str, *, joined: bool = True
) -> None:
    """On a panel of matplotlib's: wide and pale lines first, thin ones on them, each with its own
    marker. Where x is not a quantity, points are not `joined`.
    """
    from matplotlib.colors import to_rgba

    for (name, points), colour, (width, size, marker) in zip(
        curves.items(), COLOURS, LINES, strict=False
    ):
        panel.plot(
            [a for a, _ in points],
            [b for _, b in points],
            label=name,
            color=to_rgba(colour, 0.45),
            linewidth=width,
            marker=marker,
            markersize=size,
            markeredgecolor=colour,
            markerfacecolor="none",
            markeredgewidth=1.4,
            linestyle="-" if joined else "none",
        )
    panel.set(title=title, xlabel=str(x), ylabel=str(y))
    panel.set(xscale="log" if x.log else "linear", yscale="log" if y.log else "linear")


def legend_on(panel: Any, *others: Any) -> None:
    """What the lines of other panels are, on one that has nothing else."""
    told = {
        label: line
        for one in others
        for line, label in zip(*one.get_legend_handles_labels(), strict=True)
    }
    panel.axis("off")
    panel.legend(
        told.values(), told.keys(), loc="center", labelspacing=1.2, handlelength=4, frameon=False
    )
