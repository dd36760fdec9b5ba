"""What all views of a run say, computed once from its report and from whoever works on it. Pure.

RunFacts     where a run stands, with
  state        its journal's, unless nobody works on it any more
  downtime     of the job that is down, or was down the longest
  still_down   the jobs that were stopped, and that nobody has seen going on
Listed       a workdir of `runs`: a run, or the damage that keeps it from being read
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateshift.journal import State
    from stateshift.migration import Verdict
    from stateshift.report import JobReport, PhaseReport, Report
    from stateshift.steering import Live


class Known(Enum):
    """What a run knows of its downtime."""

    LASTS = auto()  # a job was stopped, and nobody has seen it going on
    MEASURED = auto()
    UNDONE = auto()  # everything was taken back: nothing is counted
    UNSEEN = auto()  # a job was stopped, and its first commit was not seen
    NONE = auto()  # no job was stopped


@dataclass(frozen=True, slots=True)
class Downtime:
    """What a run knows of its downtime, and the job it is about, if it is of one."""

    known: Known
    job: JobReport | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The state of a run.

    `held` says whether a process works on it, `live` what that is at; `page` is where the report's
    page is, and `now` when somebody asked.
    """

    report: Report
    workdir: str
    held: bool = False
    live: Live | None = None
    page: str | None = None
    now: float | None = None

    @property
    def state(self) -> State:
        """The state of the run as it is shown."""
        return shown_state(self.report.state, self.held)

    @property
    def downtime(self) -> Downtime:
        """The downtime of the run."""
        return downtime_of(self.report)

    @property
    def still_down(self) -> tuple[JobReport, ...]:
        """The jobs that were stopped, and that nobody has seen going on."""
        return tuple(job for job in self.report.jobs if job.is_down)


@dataclass(frozen=True, slots=True)
class VerdictFacts:
    """Whether what a run did still holds."""

    verdict: Verdict
    report: Report
    workdir: str

    @property
    def epoch(self) -> int | None:
        """The epoch of the image that was moved; None of several jobs."""
        epochs = list(self.verdict.epochs.values())
        return epochs[0] if len(epochs) == 1 else None


@dataclass(frozen=True, slots=True)
class Listed:
    """A workdir of `runs`; without facts where its journal cannot be read."""

    workdir: str
    facts: RunFacts | None
    damage: str | None = None


def shown_state(state: State, held: bool) -> State:
    """Return the state of a run as it is shown.

    A run that its journal leaves at work, and no process works on, was killed: it can be resumed.
    """
    return "interrupted" if state == "running" and not held else state


def downtime_of(report: Report) -> Downtime:
    """Return what a run knows of its downtime: of the job that was stopped first among those that
    are down, else of the one that was down the longest.
    """
    down = [job for job in report.jobs if job.is_down]
    if down:
        return Downtime(Known.LASTS, min(down, key=_stopped_at))
    measured = [job for job in report.jobs if job.downtime_seconds is not None]
    if measured:
        return Downtime(Known.MEASURED, max(measured, key=_seconds_down))
    return Downtime(_known_without_figure(report))


def _known_without_figure(report: Report) -> Known:
    states = {job.state for job in report.jobs}
    if states == {"rolled-back"}:
        return Known.UNDONE
    was_halted = any(_was_halted(job) for job in report.jobs)
    return Known.UNSEEN if was_halted else Known.NONE


def _stopped_at(job: JobReport) -> float:
    return job.downtime_start or 0.0


def _seconds_down(job: JobReport) -> float:
    return job.downtime_seconds or 0.0


def _was_halted(job: JobReport) -> bool:
    return any(phase.name == "halt" for phase in job.phases)


def compared_of(jobs: Iterable[JobReport]) -> Counter[str]:
    """Return what of some jobs was found to be the same on both sides, each in its own unit."""
    counts = Counter[str]()
    for job in jobs:
        counts.update(job.compared)
    return counts


def copied_while_down(job: JobReport) -> PhaseReport | None:
    """Return the phase that copied what the rounds of a warm move had left."""
    for phase in job.phases:
        if phase.name == "copy" and phase.files:
            return phase
    return None
