"""Pictures of a run as SVG: what happened when, on one axis of time. Pure.

    strip      one line: when a job was at work, and when it was down
    closer     the lanes of one job around its downtime, where that is a small part of the run
    picture    of one job
                 a lane for each phase, and one for all rounds
                 bytes brought                                     what came, added up
                 left to bring, and the downtime for it            what each round left, as steps
               the downtime is a band through all of it, what somebody steered a line

Across, places are percents of a width that the page decides; down, they are pixels. So text keeps
its size on every screen. However many rounds there were, what is drawn is bounded: bars that nobody
could tell apart become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from stateshift.cli.views.markup import percent, said, tag
from stateshift.cli.views.run_html_axis import Axis
from stateshift.cli.views.run_html_curves import PANEL, Curve, curves, panel
from stateshift.cli.views.units import many, size, span
from stateshift.plan import PHASES
from stateshift.report import JobReport, PhaseReport, RoundReport, SteeredReport

LANE, BAR, ROW, BELOW = 24, 14, 18, 40
TITLE = 34  # above a panel
# In percents of the width: what is narrower is drawn together with its neighbours, and where a text
# finds room.
FINEST, ROOM_FOR_NUMBER, ROOM_FOR_SPAN, ROOM_FOR_MARK = 0.5, 5.0, 27.0, 6.0
THINNEST = 0.15  # what happened is never invisible
SMALL = 0.25  # of the run's time: a downtime that is looked at closer

Stretch = tuple[float, float]
T = TypeVar("T")


# ---- pictures ------------------------------------------------------------------------------------


def strip(job: JobReport, axis: Axis) -> str:
    """When a job was at work, and when it was down."""
    if not job.phases:
        return ""
    start, end = min(p.start for p in job.phases), max(p.start + p.seconds for p in job.phases)
    bars = [_bar(axis, start, end, 2, "bar", f"at work for {span(end - start)}")]
    down = _down(job, axis)
    if down is not None:
        bars.append(_bar(axis, *down, 2, "bar down", _down_told(job)))
    return tag(
        "svg",
        *bars,
        class_="strip",
        height=BAR + 4,
        role="img",
        aria_label=f"when {job.job} was moved",
    )


def picture(job: JobReport, axis: Axis, steered: Sequence[SteeredReport] = ()) -> str:
    """`steered` is numbered as it comes; what lies outside of the axis is left out."""
    return _drawn(job, axis, steered, list(curves(job, axis)))


def closer(job: JobReport, axis: Axis, steered: Sequence[SteeredReport] = ()) -> str | None:
    """None where the whole picture shows as much."""
    down = _down(job, axis)
    if down is None or down[1] - down[0] > SMALL * (axis.end - axis.start):
        return None
    margin = max((down[1] - down[0]) / 10, 0.01)
    near = Axis(
        max(axis.start, down[0] - margin),
        min(axis.end, down[1] + margin),
        down[0],
        "since the job was down",
    )
    return _drawn(job, near, steered, []) if near.end > near.start else None


def _drawn(
    job: JobReport, axis: Axis, steered: Sequence[SteeredReport], below: Sequence[Curve]
) -> str:
    marks = [(n, one) for n, one in enumerate(steered, 1) if axis.start <= one.start <= axis.end]
    top = 6 + ROW * (bool(marks) + (_down(job, axis) is not None))
    lanes = list(_lanes(job, axis, top))
    lanes_end = top + LANE * len(lanes)
    bottom = lanes_end + (TITLE + PANEL) * len(below)
    parts = (
        *_grid(axis, top, bottom),
        *_band(job, axis, bottom),
        *lanes,
        *(panel(curve, lanes_end + TITLE + n * (TITLE + PANEL)) for n, curve in enumerate(below)),
        *_marks(marks, axis, top, bottom),
    )
    label = (
        f"{job.job}: when its phases were at work, what they brought, and when it was down, "
        "as in the tables"
    )
    return tag("svg", *parts, class_="picture", height=bottom + BELOW, role="img", aria_label=label)


def _grid(axis: Axis, top: float, bottom: float) -> Iterator[str]:
    for at, told in axis.ticks():
        yield tag("line", x1=percent(at), x2=percent(at), y1=top, y2=bottom + 4, class_="grid")
        yield tag("text", told, x=percent(at), y=bottom + 18, class_="tick")
    yield tag("line", x1="0%", x2="100%", y1=bottom, y2=bottom, class_="axis")
    yield tag("text", f"{axis.unit[0]} {axis.since}", x="50%", y=bottom + 35, class_="tick")


def _band(job: JobReport, axis: Axis, bottom: float) -> Iterator[str]:
    down = _down(job, axis)
    if down is None:
        return
    start, end = (axis.at(seconds) for seconds in down)
    right = (start + end) / 2 > 50
    yield tag(
        "rect",
        x=percent(start),
        y=ROW,
        width=percent(end - start),
        height=bottom - ROW,
        class_="band",
    )
    yield tag(
        "text",
        _down_told(job),
        x=percent(end if right else start),
        y=ROW - 5,
        class_="alarm end" if right else "alarm",
    )


def _down(job: JobReport, axis: Axis) -> tuple[float, float] | None:
    """From when to when, as far as the run knows."""
    if job.downtime_start is None:
        return None
    return (
        job.downtime_start,
        axis.end if job.downtime_seconds is None else job.downtime_start + job.downtime_seconds,
    )


def _down_told(job: JobReport) -> str:
    return (
        "down since then"
        if job.downtime_seconds is None
        else f"down for {span(job.downtime_seconds)}"
    )


def _marks(
    marks: list[tuple[int, SteeredReport]], axis: Axis, top: float, bottom: float
) -> Iterator[str]:
    """A line where somebody steered, with its number in the table."""
    for group in _neighbours(marks, axis, lambda mark: (mark[1].start, mark[1].start), FINEST):
        at = percent(axis.at(group[0][1].start))
        told = said(
            "; ".join(f"{span(one.start)}: {one.what} {one.value}".strip() for _, one in group[:9])
        )
        yield tag("line", tag("title", told), x1=at, x2=at, y1=top - 4, y2=bottom, class_="mark")
    for group in _neighbours(
        marks, axis, lambda mark: (mark[1].start, mark[1].start), ROOM_FOR_MARK
    ):
        (first, one), (last, _) = group[0], group[-1]
        told = str(first) if first == last else f"{first}–{last}"
        yield tag("text", told, x=percent(axis.at(one.start)), y=top - 8, class_="mid steer")


# ---- lanes ---------------------------------------------------------------------------------------


def _lanes(job: JobReport, axis: Axis, top: float) -> Iterator[str]:
    """What lies on the axis, at least in part."""
    undone = job.state == "rolled-back"
    rounds = [one for one in job.rounds if _touches(axis, one)]
    if rounds:
        yield _lane("rounds", top, _round_bars(rounds, undone, axis, top + (LANE - BAR) / 2))
        top += LANE
    for phase in (phase for phase in job.phases if phase.name in PHASES and _touches(axis, phase)):
        yield _lane(phase.name, top, _phase_bar(phase, undone, axis, top + (LANE - BAR) / 2))
        top += LANE


def _touches(axis: Axis, one: PhaseReport | RoundReport) -> bool:
    return one.start <= axis.end and one.start + one.seconds >= axis.start


def _lane(name: str, top: float, drawn: Iterable[str]) -> str:
    return tag("g", tag("text", said(name), x=-8, y=top + 16, class_="end"), *drawn)


def _round_bars(rounds: Sequence[RoundReport], undone: bool, axis: Axis, y: float) -> Iterator[str]:
    for group in _neighbours(
        rounds, axis, lambda one: (one.start, one.start + one.seconds), FINEST
    ):
        first, last = group[0], group[-1]
        end = last.start + last.seconds
        files, count = sum(one.files for one in group), sum(one.bytes for one in group)
        name = f"round {first.number}" if first is last else f"rounds {first.number}-{last.number}"
        told = f"{name}: {_when(first.start, end)}, {many(files, 'file')}, {size(count)}"
        kind = "bar undone" if undone else "bar round" if first.number % 2 else "bar round even"
        yield _bar(axis, first.start, end, y, kind, told)
        if first is last and axis.at(end) - axis.at(first.start) >= ROOM_FOR_NUMBER:
            middle = (axis.at(end) + axis.at(first.start)) / 2
            yield tag(
                "text",
                str(first.number),
                x=percent(middle),
                y=y + 11,
                class_="mid" if undone else "mid inside",
            )


def _phase_bar(phase: PhaseReport, undone: bool, axis: Axis, y: float) -> Iterator[str]:
    whole, end = phase.done == phase.steps, phase.start + phase.seconds
    kind = "bar undone" if undone else "bar" if whole else "bar torn"
    told = f"{phase.name}: {_when(phase.start, end)}, {phase.done} of {phase.steps} steps"
    yield _bar(axis, phase.start, end, y, kind, told)
    left, right = axis.at(phase.start), axis.at(end)
    if 100 - right >= ROOM_FOR_SPAN:
        place, where = right, "beside"
    elif left >= ROOM_FOR_SPAN:
        place, where = left, "end before"
    else:
        place, where = right, "end before inside" if kind == "bar" else "end before"
    words = (
        "undone" if undone else span(phase.seconds) if whole else f"{phase.done} of {phase.steps}"
    )
    yield tag("text", words, x=percent(place), y=y + 11, class_=where)


def _when(start: float, end: float) -> str:
    return f"begun at {span(start)}, took {span(end - start)}"


def _bar(axis: Axis, start: float, end: float, y: float, kind: str, told: str) -> str:
    left, right = axis.at(start), axis.at(end)
    width = max(THINNEST, right - left)
    return tag(
        "rect",
        tag("title", said(told)),
        x=percent(min(left, 100 - width)),
        y=y,
        width=percent(width),
        height=BAR,
        class_=kind,
    )


def _neighbours(
    ones: Iterable[T], axis: Axis, stretch: Callable[[T], Stretch], least: float
) -> Iterator[list[T]]:
    """Those that lie within a part of the axis that is narrower than `least`, together."""
    group: list[T] = []
    for one in ones:
        if group and axis.at(stretch(one)[1]) - axis.at(stretch(group[0])[0]) >= least:
            yield group
            group = []
        group.append(one)
    if group:
        yield group
