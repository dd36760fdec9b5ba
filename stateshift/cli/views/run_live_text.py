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
    from stateshift.survey import Left


def live(told: Live, engine: str) -> Iterator[Block]:
    """Behind the report of what is over."""
    yield Line(at(told), "strong")
    if told.left:
        yield _left(told, engine)
        yield pairs(
            ("downtime", f"{downtime(told)} if stopped now, plus stopping and starting the job")
        )
    if told.down_since is not None:
        yield pairs(("downtime", f"{down_for(told.down_since, told.at)} so far"))


def watched(report: Report, told: Live | None) -> Iterator[Block]:
    """All of what is drawn over and over."""
    names = ", ".join(job.job for job in report.jobs)
    yield Line(f"run {report.run}: {report.state}" + (f" ({names})" if names else ""), "strong")
    if told is None:
        yield Line("a process is at work on it now", indent=2)
        return
    yield from live(told, report.engine)
    yield pairs(("to steer", "stateshift cutover | pause | throttle | rollback WORKDIR"))


def line(report: Report, told: Live | None) -> str:
    """The same on one line, for a log."""
    if told is None:
        return f"run {report.run}: {report.state}"
    rest = "; ".join(f"{job}: {_told(one)} left" for job, one in told.left.items())
    down = f", downtime {downtime(told)} if stopped now" if told.left else ""
    gone = (
        f"; down for {down_for(told.down_since, told.at)} so far"
        if told.down_since is not None
        else ""
    )
    return at(told) + (f"; {rest}{down}" if rest else gone)


def at(told: Live) -> str:
    """What it is at."""
    where = f"{redact(told.job)}: {told.phase}" if told.phase else "looking"
    if told.paused:
        return f"{where}, paused (`pause --off` lets it go on)"
    if told.waiting:
        return f"{redact(told.job)}: waiting {told.waiting}"
    parts = [f"{number(told.files_done)} of {many(told.files, 'file')}"] if told.files else []
    if told.bytes:
        rate = told.bytes_done / max(told.at - told.began, 1e-3)
        parts += [f"{size(told.bytes_done)} of {size(told.bytes)}", f"{size(rate)}/s"]
        if 0 < told.bytes_done < told.bytes:
            parts.append(f"{span((told.bytes - told.bytes_done) / rate)} left")
    return f"{where}" + (f", {', '.join(parts)}" if parts else "")


def down_for(since: float, now: float) -> str:
    """No less than nothing, where the clock went back."""
    return span(max(0.0, now - since))


def downtime(told: Live) -> str:
    """Nobody knows before something has been brought."""
    if any(one.files and not one.brought_per_second for one in told.left.values()):
        return "not known yet"
    return f"about {span(max(one.seconds for one in told.left.values()))}"


def _told(one: Left) -> str:
    return f"{many(one.files, 'file')}, {size(one.bytes)}"


def _left(told: Live, engine: str) -> Table:
    rows = tuple(
        (
            redact(job),
            number(one.round),
            "-" if one.epoch is None else number(one.epoch),
            number(one.files),
            size(one.bytes),
            span(one.seconds),
            _rate(one.written_per_second),
            _rate(one.brought_per_second),
        )
        for job, one in told.left.items()
    )
    at = f">{terms_of(engine).at}"
    heads = (
        "job",
        ">rounds",
        at,
        ">files left",
        ">size",
        ">would take",
        ">job writes",
        ">we bring",
    )
    return Table(heads, rows)


def _rate(bytes_per_second: float | None) -> str:
    return "-" if bytes_per_second is None else f"{size(bytes_per_second)}/s"
