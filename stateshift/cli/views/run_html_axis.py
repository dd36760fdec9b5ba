"""The axis of time below a picture: from when to when, in which unit, and where its ticks are.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    """`start`, `end` and `zero` are in seconds since the run began; what is written at the ticks
    counts from `zero`.
    """

    start: float
    end: float
    zero: float = 0.0
    since: str = "since the run began"

    def at(self, seconds: float) -> float:
        """Where on the axis, in percent of its length."""
        return 100.0 * min(1.0, max(0.0, (seconds - self.start) / (self.end - self.start)))

    @property
    def unit(self) -> tuple[str, float]:
        return next(
            (name, seconds) for name, seconds, least in UNITS if self.end - self.start >= least
        )

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Where, and what is written there, in the axis' unit."""
        name, seconds = self.unit
        step = _step((self.end - self.start) / seconds / TICKS_MAX, STEPS.get(name, ()))
        first = math.ceil((self.start - self.zero) / seconds / step - 1e-9)
        last = math.floor((self.end - self.zero) / seconds / step + 1e-9)
        for n in range(first, last + 1):
            yield self.at(self.zero + n * step * seconds), _decimal(n * step)


def axis_of(told: Report, job: JobReport | None = None) -> Axis:
    """Of the run; of one `job` among others, its own part of it."""
    jobs = told.jobs if job is None else (job,)
    phases = [phase for one in jobs for phase in one.phases]
    end = max((phase.start + phase.seconds for phase in phases), default=0.0)
    undone = bool(jobs) and all(one.state == "rolled-back" for one in jobs)
    start = 0.0
    if job is not None and len(told.jobs) > 1:
        start = min((phase.start for phase in phases), default=0.0)
        start = 0.0 if start < (end - start) / 4 else start
    elif not undone:  # what was taken back may have been so days later
        end = max(end, told.seconds)
    return Axis(start, max(end, start + 0.01))


def _step(least: float, steps: Sequence[int]) -> float:
    """The next round number."""
    found = next((float(step) for step in steps if step >= least), None)
    if found is not None:
        return found
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _decimal(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".")
