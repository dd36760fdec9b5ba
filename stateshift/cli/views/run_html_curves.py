"""What changed over the time of a run, as curves below each other: bytes brought, and what was left
to bring. Pure.

A curve has as many points as can be told apart, however many rounds there were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from stateshift.cli.views.markup import said, tag
from stateshift.cli.views.run_html_axis import Axis
from stateshift.cli.views.units import size, span
from stateshift.report import COPYING, JobReport, PhaseReport, RoundReport

PANEL = 64
FINEST = 0.25  # in percents of the width

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """`points` are percents of the axis' length, and values; the highest value reaches the
    panel's top.
    """

    title: str
    kind: str
    points: tuple[Point, ...]
    told: Callable[[float], str]


def curves(job: JobReport, axis: Axis) -> Iterator[Curve]:
    brought = _added_up(job)
    if brought and brought[-1][1]:
        yield Curve(
            "bytes brought, added up",
            "brought",
            _placed([*brought, (axis.end, brought[-1][1])], axis),
            size,
        )
    bytes_left = _steps(job, lambda one: one.left_bytes, axis)
    if bytes_left:
        yield Curve("left to bring, after each round", "left", bytes_left, size)
    seconds_left = _steps(job, lambda one: one.left_seconds, axis)
    if seconds_left:
        yield Curve("downtime that this would take", "left", seconds_left, span)


def _added_up(job: JobReport) -> list[Point]:
    """Evenly within each round and phase."""
    moved: list[RoundReport | PhaseReport] = [
        *job.rounds,
        *(p for p in job.phases if p.name in COPYING),
    ]
    changes = []
    for one in moved:
        seconds = max(one.seconds, 0.001)
        changes += [(one.start, one.bytes / seconds), (one.start + seconds, -one.bytes / seconds)]
    found: list[Point] = []
    brought = rate = 0.0
    for at, change in sorted(changes):
        brought += rate * (at - found[-1][0]) if found else 0.0
        rate += change
        found.append((at, brought))
    return found


def _steps(
    job: JobReport, left_of: Callable[[RoundReport], float | None], axis: Axis
) -> tuple[Point, ...]:
    """What a round has left stays until the next one's end; the last of it, until it was brought
    with the job down.
    """
    known = [
        (one.start + one.seconds, left) for one in job.rounds if (left := left_of(one)) is not None
    ]
    if not known:
        return ()
    copies = [p.start + p.seconds for p in job.phases if p.name == "copy" and p.done == p.steps]
    known.append((max(copies), 0.0) if copies else (axis.end, known[-1][1]))
    points = known[:1]
    for at, left in known[1:]:
        points += [(at, points[-1][1]), (at, left)]
    return _placed(points, axis)


def _placed(points: Iterable[Point], axis: Axis) -> tuple[Point, ...]:
    """On the axis, and of those that nobody could tell apart the first, the lowest, the highest
    and the last.
    """
    placed = [(axis.at(at), value) for at, value in points]
    found: list[Point] = []
    for _, group in groupby(placed, lambda point: int(point[0] / FINEST)):
        near = list(group)
        by_value = sorted(range(len(near)), key=lambda n: near[n][1])
        found += [near[n] for n in sorted({0, by_value[0], by_value[-1], len(near) - 1})]
    return tuple(found)


def panel(curve: Curve, top: float) -> str:
    highest = max(value for _, value in curve.points)
    scaled = [
        f"{at:.2f},{PANEL * (1 - value / (highest or 1.0)):.1f}" for at, value in curve.points
    ]
    first, last = (f"{curve.points[n][0]:.2f},{PANEL}" for n in (0, -1))
    drawn = (
        tag("polygon", points=" ".join((first, *scaled, last)), class_=f"area {curve.kind}"),
        tag("polyline", points=" ".join(scaled), class_=f"curve {curve.kind}"),
    )
    bottom = top + PANEL
    return tag(
        "g",
        *(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid") for y in (top, bottom)),
        tag("text", said(curve.title), x="0%", y=top - 9, class_="title"),
        tag("text", curve.told(highest), x=-8, y=top + 5, class_="end small"),
        tag("text", "0", x=-8, y=bottom + 3, class_="end small"),
        tag(
            "svg",
            *drawn,
            x="0",
            y=top,
            width="100%",
            height=PANEL,
            viewBox=f"0 0 100 {PANEL}",
            preserveAspectRatio="none",
        ),
    )
