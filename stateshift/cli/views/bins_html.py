"""The bins of a group on its page: where they are, what each worker did over time, and every move.
Values in, text out.

    tiles      the numbers that everybody asks for
    section    the workers as a table, a picture of each, and the moves

A picture has, of one worker's part in one operator, as far back as its commits are kept

    bins                        how many it has
    behind the furthest worker  seconds since the first worker had come as far; its frontier
    a batch took                seconds
    rows that wait              for their bins, which are on their way

and a line through all of it for each move that was made, with its number. All pictures have one
axis of time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from stateshift.cli.views.bins_text import MOVE_HEADS, PART_HEADS, part_row, past_rows, whys
from stateshift.cli.views.live_html_drawing import curves_drawn
from stateshift.cli.views.page import bullets, escape, table, tag, tile
from stateshift.cli.views.run_html_curves import Axis, Curve, Point, place_points
from stateshift.cli.views.run_html_drawing import Mark
from stateshift.cli.views.text import Row
from stateshift.cli.views.units import clock, many, number, span
from stateshift.documents.bins import BinsFacts, PastMoveFacts
from stateshift.live.bins.times import Moment
from stateshift.live.survey import CommitPast, PartPast
from stateshift.report import SteeredReport

Reached = list[tuple[Moment, float]]  # how far the furthest worker had come when, in order


def tiles(facts: BinsFacts, moves: Sequence[PastMoveFacts]) -> Iterator[str]:
    """Yield the numbers of bins and of moves."""
    counts = [f"{name}: {facts.bins.counts[index]}" for index, name in enumerate(facts.bins.names)]
    yield tile("Bins", str(facts.count), *counts)
    applied = [each for each in moves if each.became == "applied"]
    made = [each for each in applied if each.went]
    aborted = sum(each.became == "aborted" for each in moves)
    words = [f"{aborted} aborted"] if aborted else []
    yield tile("Moves", str(len(made)), *words)


def section(
    facts: BinsFacts, moves: Sequence[PastMoveFacts], parts: Sequence[PartPast]
) -> Iterator[str]:
    """Yield the bins of a group: where they are, and their past."""
    yield tag("h2", "Bins")
    yield table(PART_HEADS, [part_row(each) for each in facts.parts])
    yield from _pictures(moves, [part for part in parts if len(part.commits) > 1])
    if moves:
        yield tag("h3", "Moves")
        rows: list[Row] = []
        lines: list[str] = []
        for each in moves:
            rows.extend(past_rows(each))
            lines.extend(line.text for line in whys(each))
        yield table(MOVE_HEADS, rows)
        if lines:
            yield bullets(lines, "stateshift live history")


# ------------------------------------------------------------------------------------ pictures


def _pictures(moves: Sequence[PastMoveFacts], parts: Sequence[PartPast]) -> Iterator[str]:
    if not parts:
        return
    zero = min(part.commits[0].commit.at for part in parts)
    end = max(part.commits[-1].commit.at for part in parts)
    axis = Axis(0.0, max(end - zero, 0.01), 0.0, f"since {clock(zero)} UTC")
    marks = list(_marks(moves, axis, zero))
    for part in parts:
        others = [each for each in parts if each.operator == part.operator]
        curves = list(_curves(part, _reached(others), axis, zero))
        name = f"{part.operator} at {part.worker}"
        label = f"{name}: its bins over time, how far behind it was, and how long its batches took"
        yield tag("h3", escape(name))
        yield tag("figure", curves_drawn(curves, axis, marks, label))


def _marks(moves: Sequence[PastMoveFacts], axis: Axis, zero: float) -> Iterator[Mark]:
    """Yield the moves that were made, by their numbers."""
    for each in moves:
        decided = each.move.decided
        if decided is None or each.became != "applied" or not each.went:
            continue
        at = decided.at - zero
        if axis.shows(at, at):
            count = many(sum(len(went.bins) for went in each.went), "bin")
            targets = ", ".join(sorted({went.target for went in each.went}))
            yield each.number, SteeredReport(at, f"move {each.number}", f"{count} to {targets}")


def _curves(part: PartPast, reached: Reached, axis: Axis, zero: float) -> Iterator[Curve]:
    """Yield the curves over time; one that was 0 all the while is left out."""
    batches = [each for each in part.commits if each.commit.counts.came]
    held = _points(part.commits, lambda past: past.commit.counts.held, zero)
    took = _points(batches, lambda past: max(0.0, past.commit.at - past.commit.began), zero)
    wanted = (
        Curve("bins", "in", _points(part.commits, lambda past: past.bins, zero), _count),
        Curve("behind the furthest worker", "left", _behind(part.commits, reached, zero), span),
        Curve("a batch took", "left", took, span),
        Curve("rows that wait for their bins", "in", held, _count),
    )
    for curve in wanted:
        if any(value for _, value in curve.points):
            yield replace(curve, points=place_points(curve.points, axis))


def _points(
    commits: Sequence[CommitPast], value_of: Callable[[CommitPast], float], zero: float
) -> tuple[Point, ...]:
    return tuple((each.commit.at - zero, value_of(each)) for each in commits)


def _count(value: float) -> str:
    return number(round(value))


def _behind(commits: Sequence[CommitPast], reached: Reached, zero: float) -> tuple[Point, ...]:
    """Return the seconds by which each commit is behind the first worker's."""
    moments = [moment for moment, _ in reached]
    points: list[Point] = []
    for each in commits:
        at, frontier = each.commit.at, each.commit.frontier
        if frontier is not None:
            first = reached[bisect_left(moments, frontier)][1]
            points.append((at - zero, max(0.0, at - first)))
    return tuple(points)


def _reached(parts: Sequence[PartPast]) -> Reached:
    """Return the times at which the first worker had come to each logical time."""
    found: Reached = []
    kept = chain.from_iterable(part.commits for part in parts)
    commits = [each.commit for each in kept]
    for commit in sorted(commits, key=lambda each: each.at):
        if commit.frontier is not None and (not found or commit.frontier > found[-1][0]):
            found.append((commit.frontier, commit.at))
    return found
