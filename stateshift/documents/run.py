"""The state of a run, from its report and from whoever works on it: the facts that all views
share, and its documents. Pure.

RunFacts     where a run stands, with
  state        its journal's, unless nobody works on it any more
  downtime     of the job that is down, or was down the longest
  still_down   the jobs that were stopped, and that nobody has seen going on
ListedRun       a workdir of `runs`: a run, or the damage that keeps it from being read
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict, cast

from stateshift.documents.problems import ErrorDocument, error_document
from stateshift.documents.shape import At, OrNone, document_of
from stateshift.documents.standby import StandbyLag, StandbyLagDocument
from stateshift.documents.survey import NewPositionDocument, NewPositionOf, new_positions_of
from stateshift.journal import State
from stateshift.report import (
    CommandReport,
    Compared,
    DrillReport,
    FailoverReport,
    FailureReport,
    JobReport,
    KeptReport,
    PhaseReport,
    Report,
    RoundReport,
    SourceLostReport,
    SteeredReport,
)
from stateshift.storage.locations import Redacted, redact

if TYPE_CHECKING:
    from stateshift.errors import StateshiftError
    from stateshift.migration import Verdict
    from stateshift.steering import Live


class DowntimeKind(Enum):
    """The kinds of knowledge that a run has of its downtime."""

    LASTS = auto()  # a job was stopped, and nobody has seen it going on
    MEASURED = auto()
    UNDONE = auto()  # everything was taken back: nothing is counted
    UNSEEN = auto()  # a job was stopped, and its first commit was not seen
    NONE = auto()  # no job was stopped


@dataclass(frozen=True, slots=True)
class Downtime:
    """The downtime of a run as far as it is known, and the job that was down."""

    known: DowntimeKind
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
        down = [job for job in self.report.jobs if job.is_down]
        if down:
            first = min(down, key=lambda job: job.downtime_start or 0.0)
            return Downtime(DowntimeKind.LASTS, first)
        measured = [job for job in self.report.jobs if job.downtime_seconds is not None]
        if measured:
            longest = max(measured, key=lambda job: job.downtime_seconds or 0.0)
            return Downtime(DowntimeKind.MEASURED, longest)
        if {job.state for job in self.report.jobs} == {"rolled-back"}:
            return Downtime(DowntimeKind.UNDONE)
        was_halted = any(job.was_halted for job in self.report.jobs)
        return Downtime(DowntimeKind.UNSEEN if was_halted else DowntimeKind.NONE)

    @property
    def sources(self) -> tuple[NewPositionOf, ...]:
        """The sources that read on from elsewhere."""
        return tuple(new_positions_of(self.report.jobs))

    @property
    def still_down(self) -> tuple[JobReport, ...]:
        """The jobs that were stopped, and that nobody has seen going on."""
        return tuple(job for job in self.report.jobs if job.is_down)

    @property
    def may_be_down(self) -> str:
        """Jobs of which nobody knows whether they run. A process at work stops its own."""
        return "" if self.held else self.report.may_be_down

    @property
    def standbys(self) -> tuple[StandbyLag, ...]:
        """How far each standby is behind its source, while the run keeps one."""
        if self.now is None or self.report.state in ("finished", "rolling-back", "rolled-back"):
            return ()
        lags = [lag_of(job, self.held, self.now) for job in self.report.jobs]
        return tuple(lag for lag in lags if lag is not None)


def lag_of(job: JobReport, held: bool, now: float) -> StandbyLag | None:
    """Return the lag of a job's standby; None without an image. Its source is asked every
    few seconds while a process is at work and does not say that it is lost.
    """
    kept = job.standby
    if kept is None:
        return None
    batches = None
    is_asked = held and job.source_lost is None
    if is_asked and kept.epoch is not None and kept.source_epoch is not None:
        batches = max(0, kept.source_epoch - kept.epoch)
    return StandbyLag(
        job=job.job,
        epoch=kept.epoch,
        committed_at=kept.committed_at,
        as_of=kept.as_of,
        batches=batches,
        bound=kept.rpo_bound_seconds,
        now=now,
    )


@dataclass(frozen=True, slots=True)
class VerdictFacts:
    """Whether what a run did still holds."""

    verdict: Verdict
    report: Report
    workdir: str

    @property
    def holds(self) -> bool:
        """Whether all evidence still holds: none does of a run that was taken back."""
        is_taken_back = self.report.state in ("rolling-back", "rolled-back")
        return not self.verdict.broken and not is_taken_back

    @property
    def restartable(self) -> bool:
        """Whether a job could restart from what the run finished."""
        return self.verdict.finished and self.holds

    @property
    def epoch(self) -> int | None:
        """The epoch of the image that was moved; None of several jobs."""
        epochs = list(self.verdict.epochs.values())
        return epochs[0] if len(epochs) == 1 else None


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A workdir of `runs`, and its name there; without facts where its journal cannot be read."""

    name: str
    workdir: str
    facts: RunFacts | None
    damage: str | None = None


def shown_state(state: State, held: bool) -> State:
    """Return the state of a run as it is shown.

    A run that its journal leaves at work, and no process works on, was killed: it can be resumed.
    """
    return "interrupted" if state == "running" and not held else state


def count_compared(jobs: Iterable[JobReport]) -> Counter[str]:
    """Return the numbers of entries, files and key groups that were compared and are the same."""
    counts = Counter[str]()
    for job in jobs:
        counts.update(asdict(job.compared))
    return counts


def copied_while_down(job: JobReport) -> PhaseReport | None:
    """Return the phase that copied what the rounds of a warm move had left."""
    for phase in job.phases:
        if phase.name == "copy" and phase.files:
            return phase
    return None


# ---- documents -----------------------------------------------------------------------------------


class JobReportDocument(TypedDict):
    """What has been done with one job."""

    job: Annotated[str, "its name"]
    state: Annotated[str, "not begun, unfinished, finished or rolled-back"]
    files: Annotated[int, "how many files were moved"]
    bytes: Annotated[int, "their size together"]
    downtime_seconds: Annotated[float | None, "null while it is down, or where it never was"]
    down: Annotated[
        bool | None,
        "whether the run has left it stopped; null: a stop was begun, and nobody knows its end",
    ]
    downtime_from: Annotated[str | None, "what the downtime is counted from"]
    entries: Annotated[int | None, "entries that were compared on both sides"]
    compared: Annotated[Compared, "what was found to be the same on both sides"]
    idle: Annotated[bool, "whether it restored its state and had nothing to read"]
    notes: Annotated[list[Redacted], "what else to know"]
    left: Annotated[list[Redacted], "what a rollback had to leave"]
    failure: Annotated[FailureReport | None, "why it was given up"]
    phases: Annotated[list[PhaseReport], "its phases, in order"]
    rounds: Annotated[list[RoundReport], "the rounds of a warm move"]
    downtime_without_rounds: Annotated[
        float | None, "an estimate of the downtime, had nothing been copied before"
    ]
    source_lost: Annotated[
        SourceLostReport | None, "since when a standby cannot follow its source; null: it can"
    ]
    standby: Annotated[KeptReport | None, "the image that a standby has; null: none yet"]
    failover: Annotated[FailoverReport | None, "of a job that was started from its standby"]
    drill: Annotated[DrillReport | None, "of a rehearsal of a standby's start"]
    set_aside: Annotated[Redacted | None, "where what was at the target before is kept"]


class ReportDocument(TypedDict):
    """What a run has done so far."""

    downtime_seconds: Annotated[float | None, "the longest downtime of its jobs"]
    seconds: Annotated[float, "from its beginning to its end, or until now"]
    idle_seconds: Annotated[
        float,
        "of these, those in which it was interrupted or paused: nothing is known to be done",
    ]
    phases: Annotated[list[PhaseReport], "of all jobs together"]
    jobs: Annotated[list[JobReportDocument], "each job"]
    left: Annotated[list[Redacted], "what a rollback had to leave"]
    steered: Annotated[list[SteeredReport], "what somebody asked of it meanwhile"]
    commands: Annotated[list[CommandReport], "who began it, went on with it, or took it back"]


class RunDocument(TypedDict):
    """Return the state of a run as a document."""

    run: Annotated[str, "its name", At("report.run")]
    state: Annotated[State, "interrupted is a run that no process works on any more"]
    report: Annotated[ReportDocument, "what it has done so far"]
    workdir: Annotated[str, "where its journal is"]
    sources: NotRequired[
        Annotated[
            list[NewPositionDocument],
            "the sources that read on from elsewhere",
            At(lambda facts: facts.sources or None),
        ]
    ]


class EndedRunDocument(RunDocument):
    """A run that has ended."""

    report_html: Annotated[
        str | None, "the report as a page, where it could be written", At("page")
    ]


class FailedRunDocument(EndedRunDocument, ErrorDocument):
    """A run that stopped on the way: where it stands, and why."""


class LeftDocument(TypedDict):
    """What is still to be copied of a job that runs."""

    round: Annotated[int, "the round after which this was counted"]
    epoch: Annotated[int | None, "the number of the job's newest image at that moment"]
    files: Annotated[int, "how many files"]
    bytes: Annotated[int, "their size together"]
    seconds: Annotated[float, "for how long the job would be down for them"]
    written_per_second: Annotated[float | None, "bytes a second that the job writes"]
    brought_per_second: Annotated[float | None, "bytes a second that we copy"]


class LiveDocument(TypedDict):
    """What the process at work is at."""

    at: Annotated[float, "when it said so, in seconds since 1970"]
    job: Annotated[str, "the job it works on"]
    phase: Annotated[str, "the phase it is in"]
    began: Annotated[float, "when that phase began, in seconds since 1970"]
    files: Annotated[int, "files of that phase"]
    bytes: Annotated[int, "their size together"]
    files_done: Annotated[int, "those of them that are done"]
    bytes_done: Annotated[int, "the size of those"]
    waiting: Annotated[str | None, "what it waits for", OrNone("waiting")]
    paused: Annotated[bool, "whether somebody paused it"]
    left: Annotated[dict[str, LeftDocument], "what is still to be copied of each job"]
    down_since: Annotated[float | None, "when the job was stopped, in seconds since 1970"]
    downtime_seconds: Annotated[
        float | None,
        "for how long a job would be down if it were stopped now",
        At(lambda live: max((rest.seconds for rest in live.left.values()), default=None)),
    ]


class StatusDocument(EndedRunDocument):
    """What `status` tells of a run, also while it is at work."""

    at_work: Annotated[bool, "whether a process is at work on it", At("held")]
    failure: Annotated[FailureReport | None, "why it stopped", At("report.failure")]
    standbys: Annotated[
        list[StandbyLagDocument], "how far each standby is behind, while the run keeps one"
    ]
    live: Annotated[LiveDocument | None, "what the process at work is at"]


class DamageDocument(TypedDict):
    """Why a run cannot be listed."""

    message: Annotated[str | None, "what is wrong with its journal"]


class DamagedRunDocument(TypedDict):
    """A workdir of `runs` whose journal cannot be read."""

    run: Annotated[str, "the name of its workdir"]
    state: Annotated[Literal["damaged"], "tells it from the others"]
    report: None
    workdir: Annotated[str, "where its journal is"]
    failure: Annotated[DamageDocument, "what is wrong"]


class BrokenDocument(TypedDict):
    """A finding of `verify WORKDIR`: a step whose evidence does not hold, or a note."""

    level: Annotated[Literal["refuse", "note"], "refuse: something does not hold"]
    message: Annotated[str, "what was expected, and what was found"]
    path: Annotated[str | None, "where"]
    offset: None
    hint: None
    plan: NotRequired[Annotated[int, "the number of the plan that the step is of"]]
    step: NotRequired[Annotated[str, "the step whose evidence does not hold"]]


class VerdictDocument(TypedDict):
    """What `verify WORKDIR` finds: does what the run did still hold?"""

    holds: Annotated[bool, "whether all evidence still holds"]
    restartable: Annotated[bool, "whether a job could restart from what the run finished"]
    epoch: Annotated[int | None, "the number of the image that was moved, of a single job"]
    epochs: Annotated[dict[str, int | None], "the number of each job's image", At("verdict.epochs")]
    findings: Annotated[
        list[BrokenDocument],
        "what does not hold, and what could not be asked",
        At(broken_documents),
    ]
    run: Annotated[str, "its name", At("report.run")]
    state: Annotated[State, "where the run stands", At("report.state")]
    workdir: Annotated[str, "where its journal is"]


class SteeringDocument(TypedDict):
    """What `cutover`, `pause` and `throttle` asked of a run."""

    state: Annotated[str, "asked, paused, throttled or running"]
    at_work: Annotated[bool, "whether a process is there to heed it at once"]
    workdir: Annotated[str, "where the run's journal is"]
    left: Annotated[dict[str, LeftDocument], "what is still to be copied of each job"]
    now: NotRequired[Annotated[bool, "cutover: whether at once, however much is left"]]
    bytes_per_second: NotRequired[Annotated[float | None, "throttle: null is no limit"]]
    operations_per_second: NotRequired[Annotated[float | None, "throttle: null is no limit"]]


def failed_run(facts: RunFacts, caught: StateshiftError) -> FailedRunDocument:
    """Return the document of a run that stopped on the way, and of the reason."""
    return {**error_document(caught), **document_of(EndedRunDocument, facts)}


def workdir_document(entry: ListedRun) -> StatusDocument | DamagedRunDocument:
    """Return the document of one workdir of `runs`."""
    if entry.facts is not None:
        return document_of(StatusDocument, entry.facts)
    return {
        "run": entry.name,
        "state": "damaged",
        "report": None,
        "workdir": entry.workdir,
        "failure": {"message": entry.damage},
    }


def run_row(entry: ListedRun) -> dict[str, object]:
    """Return the cells of a run as a row of a table."""
    row: dict[str, object] = {"run": entry.name, "state": "damaged", "jobs": ""}
    if entry.facts is None:
        return {**row, "workdir": entry.workdir, "failure": entry.damage}
    done = entry.facts.report
    return {
        **row,
        "state": entry.facts.state,
        "jobs": ", ".join(job.job for job in done.jobs),
        "took_seconds": done.worked_seconds,
        "downtime_seconds": done.downtime_seconds,
        "down": done.down or entry.facts.may_be_down,
        "workdir": entry.workdir,
        "failure": "" if done.failure is None else redact(done.failure.message),
    }


def steering(
    state: str, held: bool, workdir: str, live: Live | None, more: Mapping[str, object]
) -> SteeringDocument:
    """Return the document of a request to a run; `more` is what the command says besides."""
    left = {} if live is None else live.left
    asked: SteeringDocument = {
        "state": state,
        "at_work": held,
        "workdir": workdir,
        "left": {job: document_of(LeftDocument, rest) for job, rest in left.items()},
    }
    return cast("SteeringDocument", {**asked, **more})


def broken_documents(facts: VerdictFacts) -> Iterator[BrokenDocument]:
    """Yield the steps whose evidence does not hold, then the notes."""
    for step in facts.verdict.broken:
        expected, found = step.discrepancy.expected, step.discrepancy.found
        yield {
            "level": "refuse",
            "message": redact(f"expected {expected}, found {found}"),
            "path": redact(step.discrepancy.place),
            "offset": None,
            "hint": None,
            "plan": step.plan,
            "step": step.step,
        }
    for note in facts.verdict.notes:
        message = redact(note)
        yield {"level": "note", "message": message, "path": None, "offset": None, "hint": None}
