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
from itertools import chain
from typing import assert_never

from stateshift import __version__
from stateshift.cli.views.page import (
    bullets,
    chip,
    escape,
    table,
    table_of_pictures,
    tag,
    tile,
    whole_page,
)
from stateshift.cli.views.run_html_curves import axis_of
from stateshift.cli.views.run_html_drawing import closer, picture, strip, timeline
from stateshift.cli.views.run_text import (
    PHASE_HEADS,
    TONES,
    amounts,
    drill_rows,
    failover_rows,
    phase_row,
    rounds,
    same_of,
    since,
    took,
    without_rounds,
)
from stateshift.cli.views.text import Cell, Row
from stateshift.cli.views.units import dash, many, number, size, span
from stateshift.documents.run import DowntimeKind, RunFacts
from stateshift.report import FailureReport, JobReport, Report, RoundReport
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

NAMES_MAX = 4
ROUND_HEADS = (
    ">round",
    ">begun at",
    ">took",
    ">files",
    ">copied",
    ">files left",
    ">left",
    ">downtime for it",
)


def page(facts: RunFacts) -> str:
    """Return the page of a run that no process works on."""
    report = facts.report
    words = (
        "Times are counted from the begin of the run. The same numbers for programs: "
        "report.json, beside this file."
    )
    return whole_page(
        f"{_names(report)}: {facts.state}",
        *_head(facts),
        *([] if report.jobs else [tag("p", "Nothing was begun.", class_="dim")]),
        *_overview(report),
        *chain.from_iterable(_job(report, job) for job in report.jobs),
        *_steered(report),
        *_commands(report),
        *_left(report.left),
        tag("footer", tag("p", escape(f"{words} Written by stateshift {__version__}."))),
    )


# ---- the run -------------------------------------------------------------------------------------


def _head(facts: RunFacts) -> Iterator[str]:
    report = facts.report
    yield tag("p", escape(f"stateshift, run {report.run}"), class_="dim")
    yield tag("h1", escape(_names(report)), _state(facts.state))
    files = sum(job.files for job in report.jobs)
    bytes_moved = sum(job.bytes for job in report.jobs)
    tiles = (
        tile("Downtime", *_downtime(facts)),
        tile("Took", *took(report), *_from_to(report)),
        tile("Written", size(bytes_moved), many(files, "file"), *_same_and_rounds(report)),
    )
    yield tag("dl", *tiles, class_="tiles")
    yield from _failure(report.failure)


def _same_and_rounds(report: Report) -> Iterator[str]:
    """Yield the amounts compared and copied by rounds: more than moved if the job tidied up."""
    same = same_of(report.jobs)
    if same is not None:
        yield same
    all_rounds: list[RoundReport] = []
    for job in report.jobs:
        all_rounds.extend(job.rounds)
    if all_rounds:
        copied = size(sum(each.bytes for each in all_rounds))
        yield f"{copied} copied in {many(len(all_rounds), 'round')} while running"


def _downtime(facts: RunFacts) -> tuple[str, ...]:
    """Return the downtime of the run in one word, and the lines below it."""
    report, downtime = facts.report, facts.downtime
    commit = terms_of(report.engine).one
    match downtime.known:
        case DowntimeKind.LASTS:
            assert downtime.job is not None, "a downtime that lasts is a job's"
            start = downtime.job.downtime_start or 0.0
            clock = f" ({_clock(report, start)} UTC)" if report.began is not None else ""
            stopped = f"{downtime.job.job} was stopped {span(start)} after the run began{clock}"
            return "not over", stopped, f"no {commit} on the target was seen since"
        case DowntimeKind.MEASURED:
            assert downtime.job is not None, "a downtime that was measured is a job's"
            longest = [f"the longest, of {downtime.job.job}"] if len(report.jobs) > 1 else []
            return span(downtime.job.downtime_seconds or 0.0), *longest, *_counted(downtime.job)
        case DowntimeKind.UNDONE:
            return "not counted", "everything was taken back"
        case DowntimeKind.UNSEEN:
            return "not known", f"this run saw no {commit} on the target"
        case DowntimeKind.NONE:
            return "none", "this run stopped no job"
    assert_never(downtime.known)


def _counted(job: JobReport) -> Iterator[str]:
    yield f"counted from the {since(job)}"
    if job.downtime_without_rounds is not None:
        yield without_rounds(job.downtime_without_rounds)


def _from_to(report: Report) -> Iterator[str]:
    began, ended = _moment(report, 0.0), _moment(report, report.seconds)
    if began is None or ended is None:
        return
    yield f"from {began:%Y-%m-%d %H:%M:%S}"
    if ended.date() == began.date():
        yield f"to {ended:%H:%M:%S} UTC"
    else:
        yield f"to {ended:%Y-%m-%d %H:%M:%S} UTC"


def _clock(report: Report, seconds: float) -> str:
    moment = _moment(report, seconds)
    return "-" if moment is None else f"{moment:%H:%M:%S}"


def _moment(report: Report, seconds: float) -> datetime | None:
    """Return a moment in universal time, for readers elsewhere. None if the clock was no clock."""
    if report.began is None:
        return None
    try:
        return datetime.fromtimestamp(report.began + seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _failure(failure: FailureReport | None) -> Iterator[str]:
    if failure is None:
        return
    step = f" in step {failure.step}" if failure.step else ""
    lines = [tag("strong", escape(f"stopped by {failure.error}{step}")), escape(failure.message)]
    if failure.hint:
        lines.append(f"hint: {escape(failure.hint)}")
    yield tag("div", *(tag("p", line) for line in lines), class_="failed")


def _steered(report: Report) -> Iterator[str]:
    if not report.steered:
        return
    rows = []
    for number_, mark in enumerate(report.steered, start=1):
        clock = _clock(report, mark.start)
        rows.append((str(number_), span(mark.start), clock, mark.what, mark.value))
    yield tag("h2", "Steered")
    yield _table((">mark", ">heeded at", ">UTC", "what", "how"), rows)


def _commands(report: Report) -> Iterator[str]:
    if not report.commands:
        return
    rows = []
    for given in report.commands:
        clock = _clock(report, given.start)
        rows.append((clock, given.what, given.who, given.command, given.policy or "-"))
    yield tag("h2", "Commands")
    yield _table((">UTC", "what", "who", "command line", "policy"), rows)


def _left(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield tag("h3", "Left by the rollback")
        yield bullets(lines)


# ---- jobs ----------------------------------------------------------------------------------------


def _overview(report: Report) -> Iterator[str]:
    """Yield a line for each of several jobs."""
    if len(report.jobs) < 2:
        return
    axis = axis_of(report)
    heads = ("job", "state", ">files", ">size", ">down for")
    rows: list[Row] = []
    for job in report.jobs:
        state = Cell(job.state, TONES.get(job.state, "warn"))
        down: str | Cell = "-" if job.downtime_seconds is None else span(job.downtime_seconds)
        if job.is_down:
            down = Cell("not over", "bad")
        rows.append((job.job, state, number(job.files), size(job.bytes), down))
    pictures = [strip(job, axis) for job in report.jobs]
    yield tag("h3", "Jobs")
    yield table_of_pictures(heads, rows, "when it was moved", pictures)


def _job(report: Report, job: JobReport) -> Iterator[str]:
    if len(report.jobs) > 1:
        yield tag("h2", escape(job.job), _state(job.state))
        yield tag("p", escape(amounts(job)))
        if job.downtime_seconds is not None:
            down = "; ".join((f"down for {span(job.downtime_seconds)}", *_counted(job)))
            yield tag("p", escape(down))
    yield from _failure(job.failure)
    if job.phases:
        axis = axis_of(report, job)
        yield tag("figure", picture(job, axis, report.steered))
        near = closer(job, axis, report.steered)
        if near is not None:
            yield tag("figure", tag("figcaption", "The downtime, closer"), near)
        yield tag("h3", "Phases")
        undone = job.state == "rolled-back"
        rows = [(*phase_row(phase, undone), _clock(report, phase.start)) for phase in job.phases]
        yield _table((*PHASE_HEADS, ">begun at (UTC)"), rows)
    if job.rounds:
        yield tag("h3", "Rounds, while the job ran")
        yield _table(ROUND_HEADS, [_round_row(each) for each in job.rounds])
        if job.rounds[-1].left_seconds is not None:
            yield tag("p", escape(rounds(job)))
    if job.set_aside is not None:
        yield tag("h3", "Set aside")
        yield tag("p", escape(redact(job.set_aside)))
    yield from _failover(report, job)
    if job.drill is not None:
        yield tag("h3", "Drill")
        yield _table(("", ""), [*drill_rows(job.drill, terms_of(job.engine))])
    if job.notes:
        yield tag("h3", "Notes")
        yield bullets(job.notes)
    yield from _left(job.left)


def _failover(report: Report, job: JobReport) -> Iterator[str]:
    """Yield the losses of a failover, and its course from the standby's last round on."""
    if job.failover is None:
        return
    terms = terms_of(job.engine)
    yield tag("h3", "Failover")
    yield _table(("", ""), [*failover_rows(job.failover, terms)])
    drawn = timeline(job, report.began)
    if drawn is not None:
        words = f"From the source's last {terms.one} that was kept to the job's first one"
        yield tag("figure", tag("figcaption", words), drawn)


def _round_row(copied: RoundReport) -> Row:
    return (
        number(copied.number),
        span(copied.start),
        span(copied.seconds),
        dash(copied.files, number),
        dash(copied.bytes, size),
        "-" if copied.left_files is None else number(copied.left_files),
        "-" if copied.left_bytes is None else size(copied.left_bytes),
        "-" if copied.left_seconds is None else span(copied.left_seconds),
    )


# ---- parts ---------------------------------------------------------------------------------------


def _names(report: Report) -> str:
    """Return the names of the jobs; of many, the first ones."""
    names = [job.job for job in report.jobs]
    if not names:
        return f"run {report.run}"
    if len(names) <= NAMES_MAX:
        return ", ".join(names)
    first = names[: NAMES_MAX - 1]
    return f"{', '.join(first)} and {len(names) - len(first)} more"


def _state(state: str) -> str:
    return chip(state, TONES.get(state, "warn"))


def _table(heads: Sequence[str], rows: Sequence[Row]) -> str:
    return table(heads, rows, kept_in="report.json")
