"""The picture of one query and one of its chains as SVG: what it ran when, on one axis of time.
Pure.

    version            a bar for each version that it ran; where two overlap, some tasks ran one and
                       some the other, and the later one stands below
    rows in, rows out  a second, as curves
    a task took        seconds, as a curve
    changes            a line through all of it, with the number of the change
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stateshift.cli.views.page import tag
from stateshift.cli.views.run_html_curves import PANEL, Axis, Curve, Point, place_points
from stateshift.cli.views.run_html_drawing import (
    BAR,
    BELOW,
    LANE,
    ROW,
    SPACE_FOR_NUMBER,
    TITLE,
    Mark,
    Stretch,
    bar,
    grid,
    lane,
    marks_drawn,
    panels,
)
from stateshift.cli.views.units import per_second, span
from stateshift.documents.live_rates import Sample
from stateshift.documents.live_rates import Stretch as VersionStretch
from stateshift.live.protocol.chains import Version

KINDS = ("bar", "bar round", "bar even", "bar round even")

ValueOf = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class QueryTimeline:
    """The timeline of a query and a chain. Times are in seconds since 1970; `taken_back` are the
    versions that do not hold any more.
    """

    label: str
    stretches: tuple[VersionStretch, ...]
    samples: tuple[Sample, ...]
    taken_back: frozenset[Version]


def picture(drawn: QueryTimeline, axis: Axis, zero: float, marks: Sequence[Mark]) -> str:
    """Draw a query; `zero` is the time at which the axis begins."""
    rows = _rows(drawn.stretches)
    curves = list(_curves(drawn.samples, axis, zero))
    top = 6 + ROW * bool(marks)
    lanes_end = top + LANE * len(rows)
    bottom = lanes_end + (TITLE + PANEL) * len(curves)
    lanes = (_lane(drawn, row, axis, zero, top + LANE * number) for number, row in enumerate(rows))
    parts = (
        *grid(axis, top, bottom),
        *lanes,
        *panels(curves, lanes_end),
        *marks_drawn(marks, axis, top, bottom),
    )
    label = f"{drawn.label}: which version ran when, and how fast, as in the tables"
    return tag("svg", *parts, class_="picture", height=bottom + BELOW, role="img", aria_label=label)


def curves_drawn(curves: Sequence[Curve], axis: Axis, marks: Sequence[Mark], label: str) -> str:
    """Draw curves below each other, without lanes."""
    top = 6 + ROW * bool(marks)
    bottom = top + (TITLE + PANEL) * len(curves)
    parts = (
        *grid(axis, top, bottom),
        *panels(curves, top),
        *marks_drawn(marks, axis, top, bottom),
    )
    return tag("svg", *parts, class_="picture", height=bottom + BELOW, role="img", aria_label=label)


# ------------------------------------------------------------------------------------ versions


def _rows(stretches: Sequence[VersionStretch]) -> list[list[VersionStretch]]:
    """Return the stretches in as few rows as keep them from lying on each other."""
    rows: list[list[VersionStretch]] = []
    for each in stretches:
        free = [row for row in rows if row[-1].end <= each.start]
        if free:
            free[0].append(each)
        else:
            rows.append([each])
    return rows


def _lane(
    drawn: QueryTimeline, row: Sequence[VersionStretch], axis: Axis, zero: float, top: float
) -> str:
    bars: list[str] = []
    for each in row:
        bars.extend(_version_bar(drawn, each, axis, zero, top + (LANE - BAR) / 2))
    return lane("version", top, bars)


def _version_bar(
    drawn: QueryTimeline, each: VersionStretch, axis: Axis, zero: float, y: float
) -> Iterator[str]:
    when = Stretch(each.start - zero, each.end - zero)
    words = f"version {each.version}: from {span(when.start)} on, for {span(when.end - when.start)}"
    yield bar(axis, when, y, _kind(drawn, each.version), words)
    left, right = axis.at(when.start), axis.at(when.end)
    if right - left >= SPACE_FOR_NUMBER:
        middle = f"{(left + right) / 2:.2f}%"
        yield tag("text", str(each.version), x=middle, y=y + 11, class_="mid inside")


def _kind(drawn: QueryTimeline, version: Version) -> str:
    """Return the class of a version in the drawing: neighbours differ, and one that was taken back
    stands out.
    """
    if version in drawn.taken_back:
        return "bar down"
    held = sorted({each.version for each in drawn.stretches} - drawn.taken_back)
    return KINDS[held.index(version) % len(KINDS)]


# ------------------------------------------------------------------------------------ curves


def _curves(samples: Sequence[Sample], axis: Axis, zero: float) -> Iterator[Curve]:
    wanted: tuple[tuple[str, str, ValueOf, Callable[[float], str]], ...] = (
        ("rows in, a second", "in", lambda each: each.rows_in_per_second, per_second),
        ("rows out, a second", "in", lambda each: each.rows_out_per_second, per_second),
        ("a task took, the longest of its batch", "left", lambda each: each.seconds_max, span),
    )
    for title, kind, value_of, shown in wanted:
        points = _points(samples, value_of, zero)
        if points:
            yield Curve(title, kind, place_points(points, axis), shown)


def _points(samples: Sequence[Sample], value_of: ValueOf, zero: float) -> list[Point]:
    points: list[Point] = []
    for sample in samples:
        value = value_of(sample)
        if value is not None:
            points.append((sample.at - zero, value))
    return points
