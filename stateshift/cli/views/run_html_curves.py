"""The changes over the time of a run, as curves below each other: bytes copied, and what was left
to copy. Pure.

A curve has as many points as can be told apart, however many rounds there were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from stateshift.cli.views.markup import escape, tag
from stateshift.cli.views.run_html_axis import Axis
from stateshift.cli.views.units import size, span
from stateshift.report import COPYING, JobReport, PhaseReport, RoundReport

PANEL = 64
FINEST = 0.25  # in percents of the width

Point = tuple[float, float]
LeftOf = Callable[[RoundReport], float | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve: `points` are percents of the axis' length, and values; the highest value reaches
    the panel's top, where it is `shown`.
    """

    title: str
    kind: str
    points: tuple[Point, ...]
    shown: Callable[[float], str]

    @property
    def highest(self) -> float:
        """The highest value."""
        return max(value for _, value in self.points)


def curves(job: JobReport, axis: Axis) -> Iterator[Curve]:
    """Yield the curves of a job; those that would show nothing are left out."""
    copied = _added_up(job)
    if copied and copied[-1][1]:
        points = place_points([*copied, (axis.end, copied[-1][1])], axis)
        yield Curve("bytes copied, added up", "copied", points, size)
    bytes_left = _steps(job, lambda round_: round_.left_bytes, axis)
    if bytes_left:
        yield Curve("left to copy, after each round", "left", bytes_left, size)
    seconds_left = _steps(job, lambda round_: round_.left_seconds, axis)
    if seconds_left:
        yield Curve("downtime that this would take", "left", seconds_left, span)


def _added_up(job: JobReport) -> list[Point]:
    """Return the curve of copied bytes: even within each round and phase."""
    parts: list[RoundReport | PhaseReport] = list(job.rounds)
    parts += [phase for phase in job.phases if phase.name in COPYING]
    changes: list[Point] = []  # of the rate, in bytes a second
    for part in parts:
        seconds = max(part.seconds, 0.001)
        rate = part.bytes / seconds
        changes += [(part.start, rate), (part.start + seconds, -rate)]
    points: list[Point] = []
    copied = rate = last = 0.0
    for at, change in sorted(changes):
        copied += rate * (at - last)
        rate += change
        last = at
        points.append((at, copied))
    return points


def _steps(job: JobReport, left_of: LeftOf, axis: Axis) -> tuple[Point, ...]:
    """Return the curve of what was left. The rest after a round stays until the end of the next
    one; the last of it, until it was copied with the job down.
    """
    known = list(_known(job.rounds, left_of))
    if not known:
        return ()
    known.append(_nothing_left(job) or (axis.end, known[-1][1]))
    points = known[:1]
    for at, left in known[1:]:
        points += [(at, points[-1][1]), (at, left)]
    return place_points(points, axis)


def _known(rounds: Iterable[RoundReport], left_of: LeftOf) -> Iterator[Point]:
    for round_ in rounds:
        left = left_of(round_)
        if left is not None:
            yield round_.start + round_.seconds, left


def _nothing_left(job: JobReport) -> Point | None:
    """Return the time at which all was copied; None if it is not known to be."""
    ends = []
    for phase in job.phases:
        if phase.name == "copy" and phase.done == phase.steps:
            ends.append(phase.start + phase.seconds)
    return (max(ends), 0.0) if ends else None


def place_points(points: Iterable[Point], axis: Axis) -> tuple[Point, ...]:
    """Return the points on the axis, and of those that nobody could tell apart the first, the
    lowest, the highest and the last.
    """
    placed = [(axis.at(at), value) for at, value in points]
    kept: list[Point] = []
    for _, group in groupby(placed, lambda point: int(point[0] / FINEST)):
        near = list(group)
        by_value = sorted(range(len(near)), key=lambda place: near[place][1])
        places = {0, by_value[0], by_value[-1], len(near) - 1}
        kept += [near[place] for place in sorted(places)]
    return tuple(kept)


def panel(curve: Curve, top: float) -> str:
    """Draw a curve between two lines, with its title above and its highest value beside it."""
    bottom = top + PANEL
    lines = [tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid") for y in (top, bottom)]
    drawing = tag(
        "svg",
        *_drawn(curve),
        x="0",
        y=top,
        width="100%",
        height=PANEL,
        viewBox=f"0 0 100 {PANEL}",
        preserveAspectRatio="none",
    )
    return tag(
        "g",
        *lines,
        tag("text", escape(curve.title), x="0%", y=top - 9, class_="title"),
        tag("text", curve.shown(curve.highest), x=-8, y=top + 5, class_="end small"),
        tag("text", "0", x=-8, y=bottom + 3, class_="end small"),
        drawing,
    )


def _drawn(curve: Curve) -> tuple[str, str]:
    """Return the curve, and the area below it."""
    highest = curve.highest or 1.0
    scaled = [f"{at:.2f},{PANEL * (1 - value / highest):.1f}" for at, value in curve.points]
    first = f"{curve.points[0][0]:.2f},{PANEL}"
    last = f"{curve.points[-1][0]:.2f},{PANEL}"
    return (
        tag("polygon", points=" ".join((first, *scaled, last)), class_=f"area {curve.kind}"),
        tag("polyline", points=" ".join(scaled), class_=f"curve {curve.kind}"),
    )
