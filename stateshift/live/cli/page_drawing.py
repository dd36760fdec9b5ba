"""The pictures of a group's page as SVG, all of one kind on one axis of time. Pure.

    query_picture    a query and one of its chains:
        version            a bar for each version that it ran; where two overlap, some tasks ran one
                           and some the other, and the later one stands below
        rows in, rows out  a second, as curves
        a task took        seconds, as a curve
    part_picture     a worker's part in an operator, as far back as its commits are kept:
        bins                        how many it has
        behind the furthest worker  seconds since the first worker had come as far; its frontier
        a batch took                seconds
        rows that wait              for their bins, which are on their way

A line goes through all of a picture for each change, or move of bins, with its number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

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
from stateshift.cli.views.units import clock, number, per_second, span
from stateshift.documents.live_rates import Sample
from stateshift.documents.live_rates import Stretch as VersionStretch
from stateshift.live.bins.times import Moment
from stateshift.live.protocol.chains import Version
from stateshift.live.survey import PartPast

KINDS = ("bar", "bar round", "bar even", "bar round even")

# A curve: its title, its kind, its points in seconds since 1970, and how its values are said.
Wanted = tuple[str, str, Sequence[Point], Callable[[float], str]]


@dataclass(frozen=True)
class Timeline:
    """The axis of some pictures, in seconds since `zero`, and the marks on it."""

    zero: float
    axis: Axis
    marks: Sequence[Mark]

    @classmethod
    def of(cls, zero: float, end: float) -> Timeline:
        """Return the timeline from one time to another, without marks."""
        axis = Axis(0.0, max(end - zero, 0.01), 0.0, f"since {clock(zero)} UTC")
        return cls(zero, axis, ())


@dataclass(frozen=True, slots=True)
class QueryPast:
    """A query and a chain; times since 1970. `taken_back` versions do not hold any more."""

    label: str
    stretches: tuple[VersionStretch, ...]
    samples: tuple[Sample, ...]
    taken_back: frozenset[Version]


def query_picture(past: QueryPast, timeline: Timeline) -> str:
    """Draw a query."""

    def points(value_of: Callable[[Sample], float | None]) -> list[Point]:
        values = [(each.at, value_of(each)) for each in past.samples]
        return [(at, value) for at, value in values if value is not None]

    longest = points(lambda each: each.seconds_max)
    curves = _curves(
        [
            ("rows in, a second", "in", points(lambda each: each.rows_in_per_second), per_second),
            ("rows out, a second", "in", points(lambda each: each.rows_out_per_second), per_second),
            ("a task took, the longest of its batch", "left", longest, span),
        ],
        timeline,
    )
    label = f"{past.label}: which version ran when, and how fast, as in the tables"
    return _picture(curves, timeline, label, list(_lanes(past, timeline)))


def part_picture(part: PartPast, others: Sequence[PartPast], timeline: Timeline) -> str:
    """Draw a worker's part in an operator of all parts `others`; curves of 0 are left out."""
    commits = [each.commit for each in part.commits]
    took = [(each.at, max(0.0, each.at - each.began)) for each in commits if each.counts.came]
    wanted: list[Wanted] = [
        ("bins", "in", [(each.commit.at, each.bins) for each in part.commits], _count),
        ("behind the furthest worker", "left", _behind(part, others), span),
        ("a batch took", "left", took, span),
        ("rows that wait for their bins", "in", [(e.at, e.counts.held) for e in commits], _count),
    ]
    moving = [each for each in wanted if any(value for _, value in each[2])]
    name = f"{part.operator} at {part.worker}"
    label = f"{name}: its bins over time, how far behind it was, and how long its batches took"
    return _picture(_curves(moving, timeline), timeline, label)


def _picture(
    curves: Sequence[Curve], timeline: Timeline, label: str, lanes: Sequence[str] = ()
) -> str:
    """Draw curves below each other, below lanes of bars."""
    axis, marks = timeline.axis, timeline.marks
    top = 6 + ROW * bool(marks)
    lanes_end = top + LANE * len(lanes)
    bottom = lanes_end + (TITLE + PANEL) * len(curves)
    parts = (
        *grid(axis, top, bottom),
        *lanes,
        *panels(curves, lanes_end),
        *marks_drawn(marks, axis, top, bottom),
    )
    return tag("svg", *parts, class_="picture", height=bottom + BELOW, role="img", aria_label=label)


def _lanes(past: QueryPast, timeline: Timeline) -> Iterator[str]:
    """Yield the bars of versions in as few rows as keep them from lying on each other."""
    rows: list[list[VersionStretch]] = []
    for each in past.stretches:
        free = [row for row in rows if row[-1].end <= each.start]
        if free:
            free[0].append(each)
        else:
            rows.append([each])
    # Neighbours differ, and a version that was taken back stands out.
    held = sorted({each.version for each in past.stretches} - past.taken_back)
    kinds = {version: KINDS[place % len(KINDS)] for place, version in enumerate(held)}
    top = 6 + ROW * bool(timeline.marks)
    for row in rows:
        bars: list[str] = []
        for each in row:
            kind = kinds.get(each.version, "bar down")
            bars.extend(_version_bar(each, kind, timeline, top + (LANE - BAR) / 2))
        yield lane("version", top, bars)
        top += LANE


def _version_bar(each: VersionStretch, kind: str, timeline: Timeline, y: float) -> Iterator[str]:
    axis, when = timeline.axis, Stretch(each.start - timeline.zero, each.end - timeline.zero)
    words = f"version {each.version}: from {span(when.start)} on, for {span(when.end - when.start)}"
    yield bar(axis, when, y, kind, words)
    left, right = axis.at(when.start), axis.at(when.end)
    if right - left >= SPACE_FOR_NUMBER:
        middle = f"{(left + right) / 2:.2f}%"
        yield tag("text", str(each.version), x=middle, y=y + 11, class_="mid inside")


def _curves(wanted: Sequence[Wanted], timeline: Timeline) -> list[Curve]:
    """Return the curves that have points, placed on the axis."""
    curves = []
    for title, kind, points, shown in wanted:
        if points:
            since = [(at - timeline.zero, value) for at, value in points]
            curves.append(Curve(title, kind, place_points(since, timeline.axis), shown))
    return curves


def _count(value: float) -> str:
    return number(round(value))


def _behind(part: PartPast, others: Sequence[PartPast]) -> list[Point]:
    """Return the seconds by which each commit is behind the first worker's."""
    reached: list[tuple[Moment, float]] = []  # how far the furthest worker had come when, in order
    all_commits = [each.commit for each in chain.from_iterable(one.commits for one in others)]
    for commit in sorted(all_commits, key=lambda each: each.at):
        if commit.frontier is not None and (not reached or commit.frontier > reached[-1][0]):
            reached.append((commit.frontier, commit.at))
    moments = [moment for moment, _ in reached]
    points: list[Point] = []
    for each in part.commits:
        at, frontier = each.commit.at, each.commit.frontier
        if frontier is not None:
            first = reached[bisect_left(moments, frontier)][1]
            points.append((at, max(0.0, at - first)))
    return points
