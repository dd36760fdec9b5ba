"""The report as a page that can be sent around: one file, nothing loaded, no script. Values in,
text out.

    head        the jobs, how it ended, and the numbers that everybody asks for
    failure     why it stopped, and the hint
    jobs        of several: a line each
    each job    picture (`drawing`), phases, rounds, notes, what a rollback left
    steered     what somebody asked of the run, and when

Every number of a picture is in a table as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from stateshift import __version__
from stateshift.cli.views.markup import said, tag
from stateshift.cli.views.run_html_axis import axis_of
from stateshift.cli.views.run_html_drawing import closer, picture, strip
from stateshift.cli.views.run_html_style import STYLE
from stateshift.cli.views.run_json import shown_state
from stateshift.cli.views.run_text import PHASE_HEADS, TONES, phase_row, rounds, same_of, since
from stateshift.cli.views.text import Cell
from stateshift.cli.views.units import dash, many, number, size, span
from stateshift.report import FailureReport, JobReport, Report, RoundReport
from stateshift.terms import terms_of

FIRST, LAST = 1, 10  # rows of a long table
LINES_MAX = 100
ROUND_HEADS = (
    ">round",
    ">begun at",
    ">took",
    ">files",
    ">brought",
    ">files left",
    ">left",
    ">downtime for it",
)


def page(told: Report) -> str:
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", said(f"{_names(told)}: {_state(told)}")),
        tag("style", STYLE),
    )
    body = (*_head(told), *_jobs(told), *_steered(told), *_left(told.left), _foot())
    return f"<!DOCTYPE html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


# ---- the run -------------------------------------------------------------------------------------


def _head(told: Report) -> Iterator[str]:
    state = _state(told)
    yield tag("p", said(f"stateshift, run {told.run}"), class_="dim")
    yield tag("h1", said(_names(told)), _chip(state))
    yield tag("dl", *_tiles(told), class_="tiles")
    yield from _failure(told.failure)


def _tiles(told: Report) -> Iterator[str]:
    yield from _tile("Downtime", *_downtime(told))
    yield from _tile("Took", span(told.seconds), *_when(told))
    files, count = sum(job.files for job in told.jobs), sum(job.bytes for job in told.jobs)
    same = same_of(told.jobs)
    yield from _tile(
        "Moved", size(count), many(files, "file"), *([same] if same else []), *_in_rounds(told)
    )


def _in_rounds(told: Report) -> Iterator[str]:
    """More than what was moved, where the job has replaced or tidied away some of it by the end."""
    rounds = [one for job in told.jobs for one in job.rounds]
    if rounds:
        yield (
            f"{size(sum(one.bytes for one in rounds))} brought in {many(len(rounds), 'round')} "
            "while running"
        )


def _tile(label: str, value: str, *lines: str) -> Iterator[str]:
    below = (tag("dd", said(line)) for line in lines)
    yield tag("div", tag("dt", said(label)), tag("dd", said(value), class_="value"), *below)


def _downtime(told: Report) -> tuple[str, ...]:
    """Of a job that is down still; else the longest, and what it would have been."""
    down = [
        job for job in told.jobs if job.downtime_start is not None and job.downtime_seconds is None
    ]
    if down:
        job = min(down, key=lambda job: job.downtime_start or 0.0)
        stopped = f"{job.job} was stopped {_at(told, job.downtime_start or 0.0)}"
        return "not over", stopped, f"no {terms_of(told.engine).one} on the target was seen since"
    known = [job for job in told.jobs if job.downtime_seconds is not None]
    if known:
        job = max(known, key=lambda job: job.downtime_seconds or 0.0)
        longest = (f"the longest, of {job.job}",) if len(told.jobs) > 1 else ()
        return span(job.downtime_seconds or 0.0), *longest, *_counted(job)
    if told.jobs and all(job.state == "rolled-back" for job in told.jobs):
        return "not counted", "everything was taken back"
    if any(phase.name == "halt" for job in told.jobs for phase in job.phases):
        return "not known", f"this run saw no {terms_of(told.engine).one} on the target"
    return "none", "this run stopped no job"


def _counted(job: JobReport) -> Iterator[str]:
    yield f"counted from the {since(job)}"
    if job.downtime_without_rounds is not None:
        yield (
            f"about {span(job.downtime_without_rounds)} if everything had been copied "
            "with the job down"
        )


def _when(told: Report) -> Iterator[str]:
    began, ended = _moment(told, 0.0), _moment(told, told.seconds)
    if began is not None and ended is not None:
        yield f"from {began:%Y-%m-%d %H:%M:%S}"
        yield (
            f"to {ended:%Y-%m-%d %H:%M:%S} UTC"
            if ended.date() != began.date()
            else f"to {ended:%H:%M:%S} UTC"
        )


def _at(told: Report, seconds: float) -> str:
    clock = f" ({_clock(told, seconds)} UTC)" if told.began is not None else ""
    return f"{span(seconds)} after the run began{clock}"


def _clock(told: Report, seconds: float) -> str:
    moment = _moment(told, seconds)
    return "-" if moment is None else f"{moment:%H:%M:%S}"


def _moment(told: Report, seconds: float) -> datetime | None:
    """Universal time: whoever reads this may sit elsewhere. None where the clock was no clock."""
    try:
        return None if told.began is None else datetime.fromtimestamp(told.began + seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _failure(failure: FailureReport | None) -> Iterator[str]:
    if failure is None:
        return
    step = f" in step {failure.step}" if failure.step else ""
    lines = [tag("strong", said(f"stopped by {failure.error}{step}")), said(failure.message)]
    if failure.hint:
        lines.append(f"hint: {said(failure.hint)}")
    yield tag("div", *(tag("p", line) for line in lines), class_="failed")


def _steered(told: Report) -> Iterator[str]:
    rows = [
        (str(n), span(one.start), _clock(told, one.start), one.what, one.value)
        for n, one in enumerate(told.steered, 1)
    ]
    if rows:
        yield tag("h2", "Steered")
        yield _table((">mark", ">heeded at", ">UTC", "what", "how"), rows)


def _left(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield tag("h3", "Left by the rollback")
        yield _list(lines)


def _foot() -> str:
    words = (
        "Times are counted from the begin of the run. The same numbers for programs: "
        "report.json, beside this file."
    )
    return tag("footer", tag("p", said(f"{words} Written by stateshift {__version__}.")))


# ---- jobs ----------------------------------------------------------------------------------------


def _jobs(told: Report) -> Iterator[str]:
    if not told.jobs:
        yield tag("p", "Nothing was begun.", class_="dim")
    if len(told.jobs) > 1:
        yield tag("h3", "Jobs")
        yield _overview(told)
    for job in told.jobs:
        yield from _job(told, job)


def _overview(told: Report) -> str:
    axis = axis_of(told)
    rows = [
        (
            job.job,
            Cell(job.state, TONES.get(job.state, "warn")),
            number(job.files),
            size(job.bytes),
            _down(job),
        )
        for job in told.jobs
    ]
    heads = ("job", "state", ">files", ">size", ">down for")
    return _table(heads, rows, drawn=[strip(job, axis) for job in told.jobs])


def _down(job: JobReport) -> str | Cell:
    if job.downtime_seconds is not None:
        return span(job.downtime_seconds)
    return Cell("not over", "bad") if job.downtime_start is not None else "-"


def _job(told: Report, job: JobReport) -> Iterator[str]:
    if len(told.jobs) > 1:
        yield tag("h2", said(job.job), _chip(job.state))
        yield from (tag("p", said(line)) for line in _facts(job))
    yield from _failure(job.failure)
    if job.phases:
        yield from _figures(told, job)
        yield tag("h3", "Phases")
        undone = job.state == "rolled-back"
        rows = [(*phase_row(phase, undone), _clock(told, phase.start)) for phase in job.phases]
        yield _table((*PHASE_HEADS, ">begun at (UTC)"), rows)
    if job.rounds:
        yield tag("h3", "Rounds, while the job ran")
        yield _table(ROUND_HEADS, [_round(one) for one in job.rounds])
        if job.rounds[-1].left_seconds is not None:
            yield tag("p", said(rounds(job)))
    if job.notes:
        yield tag("h3", "Notes")
        yield _list(job.notes)
    yield from _left(job.left)


def _figures(told: Report, job: JobReport) -> Iterator[str]:
    axis = axis_of(told, job)
    yield tag("figure", picture(job, axis, told.steered))
    near = closer(job, axis, told.steered)
    if near is not None:
        yield tag("figure", tag("figcaption", "The downtime, closer"), near)


def _facts(job: JobReport) -> Iterator[str]:
    same = same_of((job,))
    yield f"{many(job.files, 'file')}, {size(job.bytes)}{f', {same}' if same else ''}"
    if job.downtime_seconds is not None:
        yield "; ".join((f"down for {span(job.downtime_seconds)}", *_counted(job)))


def _round(one: RoundReport) -> tuple[str, ...]:
    return (
        number(one.number),
        span(one.start),
        span(one.seconds),
        dash(one.files, number),
        dash(one.bytes, size),
        "-" if one.left_files is None else number(one.left_files),
        "-" if one.left_bytes is None else size(one.left_bytes),
        "-" if one.left_seconds is None else span(one.left_seconds),
    )


# ---- parts ---------------------------------------------------------------------------------------


def _names(told: Report) -> str:
    names = [job.job for job in told.jobs]
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    return (", ".join(names[:3] if more else names) + more) or f"run {told.run}"


def _state(told: Report) -> str:
    return shown_state(told.state, held=False)


def _chip(state: str) -> str:
    return tag("span", said(state), class_=f"state {TONES.get(state, 'warn')}")


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str | Cell]], drawn: Sequence[str] = ()
) -> str:
    """Numbers to the right, below heads that begin with `>`; of a long one the first row and the
    last ones.
    """
    titles = [tag("th", said(head.removeprefix(">")), class_=_kind(head)) for head in heads]
    lines = [
        tag(
            "tr",
            *(_cell(cell, head) for head, cell in zip(heads, row, strict=True)),
            *(tag("td", one, class_="drawn") for one in drawn[n : n + 1]),
        )
        for n, row in enumerate(rows)
    ]
    between = len(lines) - FIRST - LAST
    if between > 1 and not drawn:
        told = tag(
            "td",
            f"{number(between)} more between, in report.json",
            class_="between",
            colspan=len(heads),
        )
        lines[FIRST:-LAST] = [tag("tr", told)]
    if drawn:
        titles.append(tag("th", "when it was moved"))
    inner = tag("thead", tag("tr", *titles)) + tag("tbody", *lines)
    return tag("div", tag("table", inner), class_="wide")


def _cell(cell: str | Cell, head: str) -> str:
    text, tone = (cell.text, cell.tone) if isinstance(cell, Cell) else (cell, "")
    return tag("td", said(text), class_=f"{_kind(head)} {tone}".strip())


def _kind(head: str) -> str:
    return "number" if head.startswith(">") else "text"


def _list(lines: Sequence[str]) -> str:
    shown = [tag("li", said(line)) for line in lines[:LINES_MAX]]
    if len(lines) > LINES_MAX:
        shown.append(tag("li", f"{number(len(lines) - LINES_MAX)} more, in report.json"))
    return tag("ul", *shown)
