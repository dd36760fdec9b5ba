"""The axis of time below a picture: from when to when, in which unit, and where its ticks are.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stateshift.report import JobReport, Report

TICKS_MAX = 6
UNITS = (
    ("days", 86400.0, 3 * 86400.0),
    ("hours", 3600.0, 3 * 3600.0),
    ("minutes", 60.0, 180.0),
    ("seconds", 1.0, 0.0),
)
STEPS = {"days": (1, 2, 5), "hours": (1, 2, 3, 6, 12), "minutes": (1, 2, 5, 10, 15, 30)}


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of time. `start`, `end` and `zero` are in seconds since the run began; what is
    written at the ticks counts from `zero`.
    """

    start: float
    end: float
    zero: float = 0.0
    since: str = "since the run began"

    def at(self, seconds: float) -> float:
        """Return the position of a moment on the axis, in percent of its length."""
        share = (seconds - self.start) / (self.end - self.start)
        return 100.0 * min(1.0, max(0.0, share))

    def shows(self, start: float, end: float) -> bool:
        """Return whether a stretch of time lies on the axis, at least in part."""
        return start <= self.end and end >= self.start

    @property
    def unit(self) -> tuple[str, float]:
        """The name of the unit, and its seconds: the largest that the axis has enough of."""
        length = self.end - self.start
        return next((name, seconds) for name, seconds, least in UNITS if length >= least)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield the position and the label of each tick, in the axis' unit."""
        name, seconds = self.unit
        step = _step((self.end - self.start) / seconds / TICKS_MAX, STEPS.get(name, ()))
        first = math.ceil((self.start - self.zero) / seconds / step - 1e-9)
        last = math.floor((self.end - self.zero) / seconds / step + 1e-9)
        for number in range(first, last + 1):
            yield self.at(self.zero + number * step * seconds), _decimal(number * step)


def axis_of(report: Report, job: JobReport | None = None) -> Axis:
    """Return the axis of a run; of one `job` among others, of its own part of the run."""
    if job is None or len(report.jobs) == 1:
        return _axis(0.0, _end_of_run(report))
    start, end = min((phase.start for phase in job.phases), default=0.0), _end_of((job,))
    is_soon = start < (end - start) / 4
    return _axis(0.0 if is_soon else start, end)


def _axis(start: float, end: float) -> Axis:
    return Axis(start, max(end, start + 0.01))


def _end_of_run(report: Report) -> float:
    end = _end_of(report.jobs)
    undone = [job for job in report.jobs if job.state == "rolled-back"]
    if undone and len(undone) == len(report.jobs):
        return end  # what was taken back may have been so days later
    return max(end, report.seconds)


def _end_of(jobs: Iterable[JobReport]) -> float:
    end = 0.0
    for job in jobs:
        end = max([end, *(phase.start + phase.seconds for phase in job.phases)])
    return end


def _step(least: float, steps: Sequence[int]) -> float:
    """Return the next round number."""
    for step in steps:
        if step >= least:
            return float(step)
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _decimal(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".")
