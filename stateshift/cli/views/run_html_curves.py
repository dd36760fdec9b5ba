"""The axis of time below a picture: from when to when, in which unit, and where its ticks are; and
the changes over the time of a run, as curves below each other: bytes copied, and what was left to
copy. Pure.

A curve has as many points as can be told apart, however many rounds there were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from stateshift.cli.views.page import escape, tag
from stateshift.cli.views.units import size, span
from stateshift.plan import COPYING
from stateshift.report import JobReport, PhaseReport, Report, RoundReport

TICKS_MAX = 6
UNITS = (
    ("days", 86400.0, 3 * 86400.0),
    ("hours", 3600.0, 3 * 3600.0),
    ("minutes", 60.0, 180.0),
    ("seconds", 1.0, 0.0),
)
STEPS = {"days": (1, 2, 5), "hours": (1, 2, 3, 6, 12), "minutes": (1, 2, 5, 10, 15, 30)}


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of time: `start` and `end` in seconds of the run; the ticks count from `zero`."""

    start: float
    end: float
    zero: float = 0.0
    since: str = "since the run began"

    def at(self, seconds: float) -> float:
        """Return the position of a moment on the axis, in percent of its length."""
        share = (seconds - self.start) / (self.end - self.start)
        return 100.0 * min(1.0, max(0.0, share))

    def shows(self, start: float, end: float) -> bool:
        """Return whether a stretch of time lies on the axis, at least in part."""
        return start <= self.end and end >= self.start

    @property
    def unit(self) -> tuple[str, float]:
        """The name of the unit, and its seconds: the largest that the axis has enough of."""
        length = self.end - self.start
        return next((name, seconds) for name, seconds, least in UNITS if length >= least)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield the position and the label of each tick, in the axis' unit."""
        name, seconds = self.unit
        step = _step((self.end - self.start) / seconds / TICKS_MAX, STEPS.get(name, ()))
        first = math.ceil((self.start - self.zero) / seconds / step - 1e-9)
        last = math.floor((self.end - self.zero) / seconds / step + 1e-9)
        for number in range(first, last + 1):
            yield (
                self.at(self.zero + number * step * seconds),
                f"{number * step:,.4f}".rstrip("0").rstrip("."),
            )


def axis_of(report: Report, job: JobReport | None = None) -> Axis:
    """Return the axis of a run; of one `job` among others, of its own part of the run."""
    if job is None or len(report.jobs) == 1:
        return _axis(0.0, _end_of_run(report))
    start, end = min((phase.start for phase in job.phases), default=0.0), _end_of((job,))
    is_soon = start < (end - start) / 4
    return _axis(0.0 if is_soon else start, end)


def _axis(start: float, end: float) -> Axis:
    return Axis(start, max(end, start + 0.01))


def _end_of_run(report: Report) -> float:
    end = _end_of(report.jobs)
    undone = [job for job in report.jobs if job.state == "rolled-back"]
    if undone and len(undone) == len(report.jobs):
        return end  # what was taken back may have been so days later
    return max(end, report.seconds)


def _end_of(jobs: Iterable[JobReport]) -> float:
    end = 0.0
    for job in jobs:
        end = max([end, *(phase.start + phase.seconds for phase in job.phases)])
    return end


def _step(least: float, steps: Sequence[int]) -> float:
    """Return the next round number."""
    for step in steps:
        if step >= least:
            return float(step)
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


PANEL = 64
FINEST = 0.25  # in percents of the width

Point = tuple[float, float]
LeftOf = Callable[[RoundReport], float | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve: `points` are percents of the axis, and values; the highest is `shown` on top."""

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
    """Return the curve of what was left: each rest stays until the next round or cut-over ends."""
    known: list[Point] = []
    for round_ in job.rounds:
        left = left_of(round_)
        if left is not None:
            known.append((round_.start + round_.seconds, left))
    if not known:
        return ()
    copying = [phase for phase in job.phases if phase.name == "copy"]
    copied_at = [phase.start + phase.seconds for phase in copying if phase.done == phase.steps]
    known.append((max(copied_at), 0.0) if copied_at else (axis.end, known[-1][1]))
    points = known[:1]
    for at, left in known[1:]:
        points += [(at, points[-1][1]), (at, left)]
    return place_points(points, axis)


def place_points(points: Iterable[Point], axis: Axis) -> tuple[Point, ...]:
    """Return the points on the axis. Of those too close to tell, keep first, low, high and last."""
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
    highest = curve.highest or 1.0
    scaled = [f"{at:.2f},{PANEL * (1 - value / highest):.1f}" for at, value in curve.points]
    first, last = f"{curve.points[0][0]:.2f},{PANEL}", f"{curve.points[-1][0]:.2f},{PANEL}"
    drawing = tag(
        "svg",
        tag("polygon", points=" ".join((first, *scaled, last)), class_=f"area {curve.kind}"),
        tag("polyline", points=" ".join(scaled), class_=f"curve {curve.kind}"),
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
