"""A run at work, for a person who watches it: what it is at, what is left, and for how long the job
would be down if it were stopped now. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Line, Table, pairs
from stateshift.cli.views.units import many, number, size, span
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.report import Report
    from stateshift.steering import Live


def live(at_work: Live, engine: str) -> Iterator[Block]:
    """Show what a process is at. It stands behind the report of what is over."""
    yield Line(at(at_work), "strong")
    if at_work.left:
        yield _left(at_work, engine)
        down = f"{downtime(at_work)} if stopped now, plus stopping and starting the job"
        yield pairs(("downtime", down))
    if at_work.down_since is not None:
        yield pairs(("downtime", f"{down_for(at_work.down_since, at_work.at)} so far"))


def watch(report: Report, at_work: Live | None) -> Iterator[Block]:
    """Show all that is drawn over and over."""
    names = ", ".join(job.job for job in report.jobs)
    jobs = f" ({names})" if names else ""
    yield Line(f"run {report.run}: {report.state}{jobs}", "strong")
    if at_work is None:
        yield Line("a process is at work on it now", indent=2)
        return
    yield from live(at_work, report.engine)
    yield pairs(("to steer", "stateshift cutover | pause | throttle | rollback WORKDIR"))


def line(report: Report, at_work: Live | None) -> str:
    """Return the same on one line, for a log."""
    if at_work is None:
        return f"run {report.run}: {report.state}"
    now = at(at_work)
    if at_work.left:
        lines = []
        for job, rest in at_work.left.items():
            lines.append(f"{job}: {many(rest.files, 'file')}, {size(rest.bytes)} left")
        left = "; ".join(lines)
        return f"{now}; {left}, downtime {downtime(at_work)} if stopped now"
    if at_work.down_since is not None:
        return f"{now}; down for {down_for(at_work.down_since, at_work.at)} so far"
    return now


def at(at_work: Live) -> str:
    """Return the activity of a process."""
    where = f"{redact(at_work.job)}: {at_work.phase}" if at_work.phase else "looking"
    if at_work.paused:
        return f"{where}, paused (`pause --off` lets it go on)"
    if at_work.waiting:
        return f"{redact(at_work.job)}: waiting {at_work.waiting}"
    return ", ".join([where, *_progress(at_work)])


def _progress(at_work: Live) -> Iterator[str]:
    """Yield the progress, the rate and the time left of the phase."""
    if at_work.files:
        yield f"{number(at_work.files_done)} of {many(at_work.files, 'file')}"
    if not at_work.bytes:
        return
    rate = at_work.bytes_done / max(at_work.at - at_work.began, 1e-3)
    yield f"{size(at_work.bytes_done)} of {size(at_work.bytes)}"
    yield f"{size(rate)}/s"
    if 0 < at_work.bytes_done < at_work.bytes:
        yield f"{span((at_work.bytes - at_work.bytes_done) / rate)} left"


def down_for(since: float, now: float) -> str:
    """Return the seconds for which a job has been down: no less than nothing, if the clock went
    back.
    """
    return span(max(0.0, now - since))


def downtime(at_work: Live) -> str:
    """Return the downtime of a job if it stopped now. Nobody knows it before the first copy."""
    rests = at_work.left.values()
    if any(rest.files and not rest.brought_per_second for rest in rests):
        return "not known yet"
    return f"about {span(max(rest.seconds for rest in rests))}"


def _left(at_work: Live, engine: str) -> Table:
    heads = (
        "job",
        ">rounds",
        f">{terms_of(engine).at}",
        ">files left",
        ">size",
        ">would take",
        ">job writes",
        ">we copy",
    )
    rows = []
    for job, rest in at_work.left.items():
        row = (
            redact(job),
            number(rest.round),
            "-" if rest.epoch is None else number(rest.epoch),
            number(rest.files),
            size(rest.bytes),
            span(rest.seconds),
            _rate(rest.written_per_second),
            _rate(rest.brought_per_second),
        )
        rows.append(row)
    return Table(heads, tuple(rows))


def _rate(bytes_per_second: float | None) -> str:
    return "-" if bytes_per_second is None else f"{size(bytes_per_second)}/s"
