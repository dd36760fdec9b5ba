"""Pictures of a run as SVG: what happened when, on one axis of time. Pure.

    strip      one line: when a job was at work, and when it was down
    closer     the lanes of one job around its downtime, where that is a small part of the run
    timeline   a failover: the last round of its standby, what is lost, and its phases
    picture    of one job
                 a lane for each phase, and one for all rounds
                 bytes copied                                      what came, added up
                 left to copy, and the downtime for it             what each round left, as steps
               the downtime is a band through all of it, what somebody steered a line

Across, places are percents of a width that the page decides; down, they are pixels. Text keeps its
size on every screen by that. However many rounds there were, what is drawn is bounded: bars that
nobody could tell apart become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from stateshift.cli.views.page import escape, percent, tag
from stateshift.cli.views.run_html_curves import PANEL, Axis, Curve, curves, panel
from stateshift.cli.views.units import many, size, span
from stateshift.plan import PHASES
from stateshift.report import JobReport, PhaseReport, RoundReport, SteeredReport

LANE, BAR, ROW, BELOW = 24, 14, 18, 40
TITLE = 34  # above a panel
# In percents of the width: what is narrower is drawn together with its neighbours, and where a text
# has enough space.
FINEST, SPACE_FOR_NUMBER, SPACE_FOR_SPAN, SPACE_FOR_MARK = 0.5, 5.0, 27.0, 6.0
THINNEST = 0.15  # what happened is never invisible
SMALL = 0.25  # of the run's time: a downtime that is looked at closer
MARKS_TOLD = 9  # of one line, what is said of it

T = TypeVar("T")
Mark = tuple[int, SteeredReport]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time, in seconds since the run began."""

    start: float
    end: float


# ---- pictures ------------------------------------------------------------------------------------


def strip(job: JobReport, axis: Axis) -> str:
    """Draw when a job was at work, and when it was down."""
    if not job.phases:
        return ""
    start = min(phase.start for phase in job.phases)
    end = max(phase.start + phase.seconds for phase in job.phases)
    at_work = Stretch(start, end)
    bars = [bar(axis, at_work, 2, "bar", f"at work for {span(end - start)}")]
    down = _down(job, axis)
    if down is not None:
        bars.append(bar(axis, down, 2, "bar down", _down_words(job)))
    label = f"when {job.job} was moved"
    return tag("svg", *bars, class_="strip", height=BAR + 4, role="img", aria_label=label)


def picture(job: JobReport, axis: Axis, steered: Sequence[SteeredReport] = ()) -> str:
    """Draw a job's run, without what lies outside of the axis. `steered` is numbered in order."""
    return _drawn(job, axis, steered, list(curves(job, axis)))


def closer(job: JobReport, axis: Axis, steered: Sequence[SteeredReport] = ()) -> str | None:
    """Draw the downtime closer; None where the whole picture shows as much."""
    down = _down(job, axis)
    if down is None:
        return None
    length = down.end - down.start
    if length > SMALL * (axis.end - axis.start):
        return None
    margin = max(length / 10, 0.01)
    start, end = max(axis.start, down.start - margin), min(axis.end, down.end + margin)
    if end <= start:
        return None
    near = Axis(start, end, down.start, "since the job was down")
    return _drawn(job, near, steered, [])


def timeline(job: JobReport, began: float | None) -> str | None:
    """Draw a failover of a run that `began` then: from the source's last epoch that was kept to the
    job's first one. None where its standby does not tell the former.
    """
    done, ends = job.failover, [phase.start + phase.seconds for phase in job.phases]
    if done is None or began is None or not ends:
        return None
    if done.committed_at is None or done.published_at is None:
        return None
    committed, claimed = done.committed_at - began, done.claimed_at - began
    published = max(committed, done.published_at - began)
    axis = Axis(committed, max(claimed, *ends), claimed, "since the standby was claimed")
    y, inset = 6, (LANE - BAR) / 2
    copied, lost = Stretch(committed, published), Stretch(committed, claimed)
    words = f"published {span(published - committed)} after the source had written it"
    lanes = [lane("last round", y, [bar(axis, copied, y + inset, "bar round", words)])]
    words = f"lost: {span(claimed - committed)} of the source's work"
    drawn = [bar(axis, lost, y + LANE + inset, "bar down", words)]
    lanes.append(lane("lost", y + LANE, drawn))
    lanes += _lanes(replace(job, rounds=()), axis, y + 2 * LANE)
    bottom = y + LANE * len(lanes)
    label = f"{job.job}: its last round, what is lost, and the phases of the failover"
    height, parts = bottom + BELOW, (*grid(axis, y, bottom), *lanes)
    return tag("svg", *parts, class_="picture", height=height, role="img", aria_label=label)


def _drawn(
    job: JobReport, axis: Axis, steered: Sequence[SteeredReport], below: Sequence[Curve]
) -> str:
    marks = [
        mark for mark in enumerate(steered, start=1) if axis.shows(mark[1].start, mark[1].start)
    ]
    rows_above = bool(marks) + (_down(job, axis) is not None)
    top = 6 + ROW * rows_above
    lanes = list(_lanes(job, axis, top))
    lanes_end = top + LANE * len(lanes)
    bottom = lanes_end + (TITLE + PANEL) * len(below)
    parts = (
        *grid(axis, top, bottom),
        *_band(job, axis, bottom),
        *lanes,
        *panels(below, lanes_end),
        *marks_drawn(marks, axis, top, bottom),
    )
    label = (
        f"{job.job}: when its phases were at work, what they copied, and when it was down, "
        "as in the tables"
    )
    return tag("svg", *parts, class_="picture", height=bottom + BELOW, role="img", aria_label=label)


def panels(below: Sequence[Curve], top: float) -> Iterator[str]:
    """Draw curves below each other."""
    for place, curve in enumerate(below):
        yield panel(curve, top + TITLE + place * (TITLE + PANEL))


def grid(axis: Axis, top: float, bottom: float) -> Iterator[str]:
    """Draw the axis of time, and a line up from each of its ticks."""
    for at, words in axis.ticks():
        yield tag("line", x1=percent(at), x2=percent(at), y1=top, y2=bottom + 4, class_="grid")
        yield tag("text", words, x=percent(at), y=bottom + 18, class_="tick")
    yield tag("line", x1="0%", x2="100%", y1=bottom, y2=bottom, class_="axis")
    yield tag("text", f"{axis.unit[0]} {axis.since}", x="50%", y=bottom + 35, class_="tick")


def _band(job: JobReport, axis: Axis, bottom: float) -> Iterator[str]:
    """Draw the downtime through all of a picture, with its words on the side that has space."""
    down = _down(job, axis)
    if down is None:
        return
    start, end = axis.at(down.start), axis.at(down.end)
    height = bottom - ROW
    yield tag(
        "rect", x=percent(start), y=ROW, width=percent(end - start), height=height, class_="band"
    )
    if (start + end) / 2 > 50:
        yield tag("text", _down_words(job), x=percent(end), y=ROW - 5, class_="alarm end")
    else:
        yield tag("text", _down_words(job), x=percent(start), y=ROW - 5, class_="alarm")


def _down(job: JobReport, axis: Axis) -> Stretch | None:
    """Return the stretch in which the job was down, as far as the run knows."""
    if job.downtime_start is None:
        return None
    if job.downtime_seconds is None:
        return Stretch(job.downtime_start, axis.end)
    return Stretch(job.downtime_start, job.downtime_start + job.downtime_seconds)


def _down_words(job: JobReport) -> str:
    if job.downtime_seconds is None:
        return "down since then"
    return f"down for {span(job.downtime_seconds)}"


def marks_drawn(marks: Sequence[Mark], axis: Axis, top: float, bottom: float) -> Iterator[str]:
    """Draw a line where somebody steered, with its number in the table."""
    for group in neighbours(marks, axis, _moment_of, FINEST):
        at = percent(axis.at(group[0][1].start))
        told = [mark for _, mark in group[:MARKS_TOLD]]
        lines = [f"{span(mark.start)}: {mark.what} {mark.value}".strip() for mark in told]
        words = escape("; ".join(lines))
        yield tag("line", tag("title", words), x1=at, x2=at, y1=top - 4, y2=bottom, class_="mark")
    for group in neighbours(marks, axis, _moment_of, SPACE_FOR_MARK):
        (first, mark), (last, _) = group[0], group[-1]
        numbers = str(first) if first == last else f"{first}–{last}"
        yield tag("text", numbers, x=percent(axis.at(mark.start)), y=top - 8, class_="mid steer")


# ---- lanes ---------------------------------------------------------------------------------------


def _lanes(job: JobReport, axis: Axis, top: float) -> Iterator[str]:
    """Draw a lane for all rounds, and one for each phase that is on the axis, at least in part."""
    undone = job.state == "rolled-back"
    inset = (LANE - BAR) / 2
    rounds = [round_ for round_ in job.rounds if _is_on(axis, round_)]
    if rounds:
        yield lane("rounds", top, _round_bars(rounds, undone, axis, top + inset))
        top += LANE
    for phase in job.phases:  # of the plan: the rounds have a lane of their own
        if phase.name in PHASES and _is_on(axis, phase):
            yield lane(phase.name, top, _phase_bar(phase, undone, axis, top + inset))
            top += LANE


def _is_on(axis: Axis, part: PhaseReport | RoundReport) -> bool:
    return axis.shows(part.start, part.start + part.seconds)


def lane(name: str, top: float, bars: Iterable[str]) -> str:
    """Draw a lane: its name beside its bars."""
    return tag("g", tag("text", escape(name), x=-8, y=top + 16, class_="end"), *bars)


def _round_bars(rounds: Sequence[RoundReport], undone: bool, axis: Axis, y: float) -> Iterator[str]:
    for group in neighbours(rounds, axis, _stretch_of, FINEST):
        whole = Stretch(group[0].start, _stretch_of(group[-1]).end)
        kind = "bar round" if group[0].number % 2 else "bar round even"
        yield bar(axis, whole, y, "bar undone" if undone else kind, _round_words(group, whole))
        left, right = axis.at(whole.start), axis.at(whole.end)
        if len(group) == 1 and right - left >= SPACE_FOR_NUMBER:
            number, middle = str(group[0].number), percent((right + left) / 2)
            yield tag("text", number, x=middle, y=y + 11, class_="mid" if undone else "mid inside")


def _round_words(group: Sequence[RoundReport], whole: Stretch) -> str:
    first, last = group[0].number, group[-1].number
    name = f"round {first}" if len(group) == 1 else f"rounds {first}-{last}"
    files = many(sum(round_.files for round_ in group), "file")
    return f"{name}: {_when(whole)}, {files}, {size(sum(round_.bytes for round_ in group))}"


def _phase_bar(phase: PhaseReport, undone: bool, axis: Axis, y: float) -> Iterator[str]:
    when = _stretch_of(phase)
    kind, beside = "bar torn", f"{phase.done} of {phase.steps}"
    if undone:
        kind, beside = "bar undone", "undone"
    elif phase.done == phase.steps:
        kind, beside = "bar", span(phase.seconds)
    words = f"{phase.name}: {_when(when)}, {phase.done} of {phase.steps} steps"
    yield bar(axis, when, y, kind, words)
    place, side = _beside(axis, when, kind)
    yield tag("text", beside, x=percent(place), y=y + 11, class_=side)


def _beside(axis: Axis, when: Stretch, kind: str) -> tuple[float, str]:
    """Return the place where a bar's words have space: behind it, before it, or else inside."""
    left, right = axis.at(when.start), axis.at(when.end)
    if 100 - right >= SPACE_FOR_SPAN:
        return right, "beside"
    if left >= SPACE_FOR_SPAN:
        return left, "end before"
    return right, "end before inside" if kind == "bar" else "end before"


def _when(when: Stretch) -> str:
    return f"begun at {span(when.start)}, took {span(when.end - when.start)}"


def bar(axis: Axis, when: Stretch, y: float, kind: str, words: str) -> str:
    """Draw a stretch of time; `words` are shown where somebody points at it."""
    left, right = axis.at(when.start), axis.at(when.end)
    width = max(THINNEST, right - left)
    x = percent(min(left, 100 - width))
    title = tag("title", escape(words))
    return tag("rect", title, x=x, y=y, width=percent(width), height=BAR, class_=kind)


def _stretch_of(part: PhaseReport | RoundReport) -> Stretch:
    return Stretch(part.start, part.start + part.seconds)


def _moment_of(mark: Mark) -> Stretch:
    return Stretch(mark[1].start, mark[1].start)


def neighbours(
    parts: Iterable[T], axis: Axis, when: Callable[[T], Stretch], narrower: float
) -> Iterator[list[T]]:
    """Yield those together that lie within a part of the axis that is `narrower`."""
    group: list[T] = []
    for part in parts:
        if group and axis.at(when(part).end) - axis.at(when(group[0]).start) >= narrower:
            yield group
            group = []
        group.append(part)
    if group:
        yield group
