"""A group as a page that can be sent around: which version ran when in each query, how fast, where
its bins are, every change and every move. Values in, text out.

    head        the group, and the numbers that everybody asks for
    bins        where they are, of each worker a picture, and their moves
    queries     of each a picture, and what was measured
    chains      their functions now
    changes     every one that there ever was, and why some do not hold

The pictures are SVG, all of one kind on one axis of time:

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
from dataclasses import dataclass, replace
from itertools import chain

from stateshift import __version__
from stateshift.cli.views.page import bullets, chip, escape, table, tag, tile, whole_page
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
from stateshift.cli.views.text import Row
from stateshift.cli.views.units import clock, many, number, per_second, span
from stateshift.live.bins.times import Moment
from stateshift.live.cli import bins_text, chains_text
from stateshift.live.protocol.chains import Version
from stateshift.live.rates import Sample, stretches
from stateshift.live.rates import Stretch as VersionStretch
from stateshift.live.survey import BinsSurvey, ChainQuery, GroupSurvey, PartPast, PastMove
from stateshift.report import SteeredReport

SAMPLE_HEADS = (
    *(">batch", ">begun at (UTC)", ">versions", ">rows in/s"),
    *(">rows out/s", ">a task took", ">the longest"),
)
TASKS_FOOT = (
    "Tasks write down what they did every few seconds, and always near a change. The other "
    "tasks of such a batch are taken to be like them. Rows a second are counted from the begin "
    "of a batch to that of the next."
)
BINS_FOOT = "Of each worker's commits the last ones are kept: pictures of bins begin with them."


def page(facts: GroupSurvey) -> str:
    """Return the page of a group, with all of its changes."""
    parts = [*_head(facts)]
    if facts.bins is not None:
        parts += _bins(facts.bins)
    if facts.has_chains:
        if facts.samples:
            timeline = _timeline(facts)
            for query in facts.queries:
                parts += _query(facts, query, timeline)
        else:
            parts.append(tag("p", "No task was measured yet.", class_="dim"))
        parts += _tables(facts)
    words = []
    if facts.bins is not None:
        words.append(BINS_FOOT)
    if facts.has_chains:
        words.append(TASKS_FOOT)
    words.append(f"As of {clock(facts.at)} UTC. Written by stateshift {__version__}.")
    foot = tag("footer", tag("p", escape(" ".join(words))))
    return whole_page(f"{facts.shown_location}: live", *parts, foot)


def _timeline(facts: GroupSurvey) -> Timeline:
    """Return the time from the first task that was measured to the last, or to the last change."""
    ended = [task.ended for task in facts.measures]
    decided = [each.known.change.at for each in facts.changes]
    timeline = Timeline.of(min(task.began for task in facts.measures), max(*ended, *decided))
    marks: list[Mark] = []
    for each in facts.changes:
        change = each.known.change
        start = change.at - timeline.zero
        if timeline.axis.shows(start, start):
            what = f"{change.act} {', '.join(change.chains)}"
            marks.append((change.number, SteeredReport(start, what, each.outcome)))
    return replace(timeline, marks=marks)


def _head(facts: GroupSurvey) -> Iterator[str]:
    is_moving = facts.bins is not None and facts.bins.is_moving
    is_idle = facts.under_way is None and not is_moving
    state = chip("idle", "good") if is_idle else chip("under way", "warn")
    yield tag("p", "stateshift live", class_="dim")
    yield tag("h1", escape(facts.shown_location), state)
    tiles: list[str] = []
    if facts.bins is not None:
        tiles += _bin_tiles(facts.bins)
    if facts.has_chains:
        tiles += _chain_tiles(facts)
    yield tag("dl", *tiles, class_="tiles")


def _chain_tiles(facts: GroupSurvey) -> Iterator[str]:
    counts = []
    words = {"applied": "applied", "aborted": "aborted", "reverted": "taken back by an error"}
    for outcome, word in words.items():
        count = sum(each.outcome == outcome for each in facts.changes)
        if count:
            counts.append(f"{count} {word}")
    yield tile("Changes", str(len(facts.changes)), *counts)
    versions = [f"{name}: version {version}" for name, version in facts.versions.items()]
    yield tile("Chains", str(len(versions)), *versions)
    living = [each for each in facts.queries if each.living]
    workers = many(sum(each.workers for each in living), "worker")
    yield tile("Queries", str(len({each.query for each in living})), f"{workers} run a chain")
    last = facts.last
    if last is not None and last.first_seconds is not None and last.last_seconds is not None:
        number = f"change {last.known.number}, from the proposal to the last worker"
        yield tile("Delay", span(last.last_seconds), number, f"first {span(last.first_seconds)}")


def _bin_tiles(facts: BinsSurvey) -> Iterator[str]:
    counts = [f"{name}: {facts.bins.counts[index]}" for index, name in enumerate(facts.bins.names)]
    yield tile("Bins", str(facts.bins.count), *counts)
    made = [move for move in facts.moves if _is_made(move)]
    aborted = sum(move.outcome == "aborted" for move in facts.moves)
    words = [f"{aborted} aborted"] if aborted else []
    yield tile("Moves", str(len(made)), *words)


def _is_made(move: PastMove) -> bool:
    return move.outcome == "applied" and bool(move.went)


def _bins(facts: BinsSurvey) -> Iterator[str]:
    """Yield the bins of a group: where they are, and their past."""
    yield tag("h2", "Bins")
    yield table(bins_text.PART_HEADS, [bins_text.part_row(each) for each in facts.parts])
    with_past = [part for part in facts.commits if len(part.commits) > 1]
    yield from _part_pictures(facts.moves, with_past)
    if facts.moves:
        yield tag("h3", "Moves")
        rows: list[Row] = []
        lines: list[str] = []
        for move in facts.moves:
            rows.extend(bins_text.past_rows(move))
            lines.extend(line.text for line in bins_text.whys(move))
        yield table(bins_text.MOVE_HEADS, rows)
        if lines:
            yield bullets(lines, "stateshift live history")


def _part_pictures(moves: Sequence[PastMove], parts: Sequence[PartPast]) -> Iterator[str]:
    if not parts:
        return
    timeline = Timeline.of(
        min(part.commits[0].commit.at for part in parts),
        max(part.commits[-1].commit.at for part in parts),
    )
    marks: list[Mark] = []
    for move in moves:
        decided = move.decided
        if decided is None or not _is_made(move):
            continue
        at = decided.at - timeline.zero
        if timeline.axis.shows(at, at):
            count = many(sum(len(went.bins) for went in move.went), "bin")
            targets = ", ".join(sorted({went.target for went in move.went}))
            proposed = move.proposal.number
            report = SteeredReport(at, f"move {proposed}", f"{count} to {targets}")
            marks.append((proposed, report))
    timeline = replace(timeline, marks=marks)
    for part in parts:
        others = [each for each in parts if each.operator == part.operator]
        yield tag("h3", escape(f"{part.operator} at {part.worker}"))
        yield tag("figure", part_picture(part, others, timeline))


def _query(facts: GroupSurvey, query: ChainQuery, timeline: Timeline) -> Iterator[str]:
    chain_and_query = (query.chain, query.query)
    samples = [each for each in facts.samples if (each.chain, each.query) == chain_and_query]
    if not samples:
        return
    taken_back = [each.known.number for each in facts.changes if each.outcome == "reverted"]
    past = QueryPast(
        label=f"{query.chain} in {query.query}",
        stretches=stretches(facts, query.chain, query.query),
        samples=tuple(samples),
        taken_back=frozenset(taken_back),
    )
    yield tag("h2", escape(f"{query.chain}, in query {query.query}"))
    yield tag("figure", query_picture(past, timeline))
    yield tag("h3", "Batches that were measured")
    yield table(SAMPLE_HEADS, [_sample_row(each) for each in samples])


def _sample_row(sample: Sample) -> Row:
    return (
        str(sample.batch),
        clock(sample.at),
        ", ".join(map(str, sample.versions)),
        per_second(sample.rows_in_per_second),
        per_second(sample.rows_out_per_second),
        span(sample.seconds_mean),
        span(sample.seconds_max),
    )


def _tables(facts: GroupSurvey) -> Iterator[str]:
    rows: list[Row] = []
    for declaration in facts.declarations:
        rows.extend(chains_text.chain_rows(facts, declaration.name))
    yield tag("h2", "Chains")
    yield table(chains_text.CHAIN_HEADS, rows)
    if facts.queries:
        yield tag("h3", "Queries")
        yield table(
            chains_text.QUERY_HEADS, [chains_text.query_row(each) for each in facts.queries]
        )
    if not facts.changes:
        return
    yield tag("h2", "Changes")
    yield table(chains_text.PAST_HEADS, [chains_text.past_row(each) for each in facts.changes])
    lines: list[str] = []
    for past in facts.changes:
        lines.extend(line.text for line in chains_text.whys(past))
    if lines:
        yield bullets(lines, "stateshift live history")


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
    wanted: list[Wanted] = [
        ("bins", "in", [(each.commit.at, each.bins) for each in part.commits], _count),
        ("behind the furthest worker", "left", points, span),
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
