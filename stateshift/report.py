"""The run, told to a person or a program. Nothing is in a report that is not in the journal.

Report
  state, jobs
    job        phases as a timeline, downtime, what a rollback had to leave
    rounds           of a job that was brought over while it ran, and what each of them left
  steered            what somebody outside asked of the run
  failure
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stateshift.journal import PlanProgress, Progress, RunFailed, State, StepProgress, WaveGivenUp
from stateshift.plan import PHASES, WHILE_IT_RUNS
from stateshift.step.evidence import (
    FilesBrought,
    FilesKept,
    ImagesCompared,
    ImageTaken,
    JobConfirmed,
    JobStopped,
    OperatorFold,
)

MAY_HAVE_RUN = ("running", "queued", "unknown")  # before it was stopped
BROUGHT = ("copy", "transform", "publish")  # the phases that write the image


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """`start` is in seconds since the run began."""

    name: str
    start: float
    seconds: float
    steps: int
    done: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What a round has brought, and what was left to bring when it was over: for how long the job
    would have been down for that.
    """

    number: int
    start: float
    seconds: float
    files: int
    bytes: int
    left_files: int | None = None
    left_bytes: int | None = None
    left_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SteeredReport:
    """`start` is in seconds since the run began."""

    start: float
    what: str
    value: str


@dataclass(frozen=True, slots=True)
class FailureReport:
    error: str
    message: str
    hint: str | None
    exit_code: int
    step: str | None


@dataclass(frozen=True, slots=True)
class JobReport:
    job: str
    state: str
    phases: tuple[PhaseReport, ...]
    files: int
    bytes: int
    downtime_seconds: float | None
    downtime_from: str | None
    entries: (
        int | None
    )  # compared on both sides; None where nothing was, or where there is no state
    idle: bool
    notes: tuple[str, ...]
    left: tuple[str, ...]
    failure: FailureReport | None = None
    rounds: tuple[RoundReport, ...] = ()
    downtime_without_rounds: float | None = (
        None  # what the first round brought, brought with the job down, reckoned
    )
    downtime_start: float | None = (
        None  # in seconds since the run began; known also while there is no end to it
    )
    files_compared: int = 0  # whole, byte for byte
    key_groups_compared: int = 0  # whole, in a backend's own format
    engine: str = ""

    @property
    def compared(self) -> dict[str, int]:
        """What was found to be the same on both sides, each in its own unit."""
        return {
            "entries": self.entries or 0,
            "files": self.files_compared,
            "key_groups": self.key_groups_compared,
        }


@dataclass(frozen=True, slots=True)
class Report:
    run: str
    state: State
    seconds: float
    downtime_seconds: float | None
    phases: tuple[PhaseReport, ...]
    jobs: tuple[JobReport, ...]
    left: tuple[str, ...]
    failure: FailureReport | None
    steered: tuple[SteeredReport, ...] = ()
    began: float | None = None  # in seconds since 1970

    @property
    def engine(self) -> str:
        """The engine of its jobs; empty where the journal is of a version that did not say."""
        return next((job.engine for job in self.jobs if job.engine), "")


def summarize(progress: Progress) -> Report:
    """Everything worth telling of a run, at any point of it."""
    jobs = tuple(
        _job(progress, name)
        for name in progress.jobs
        if _plans(progress, name) or _failure_of(progress, name)
    )
    downtimes = [job.downtime_seconds for job in jobs if job.downtime_seconds is not None]
    failure = progress.failure
    return Report(
        run=progress.run,
        state=progress.state,
        seconds=_between(progress.began, progress.ended),
        downtime_seconds=max(downtimes) if downtimes else None,
        phases=_phases(progress, list(progress.plans)),
        jobs=jobs,
        left=tuple(line for plan in progress.plans for line in plan.left),
        failure=None if failure is None else _told(failure),
        steered=tuple(
            SteeredReport(_between(progress.began, one.at), one.what, one.value)
            for one in progress.steered
        ),
        began=progress.began,
    )


def _plans(progress: Progress, job: str) -> list[PlanProgress]:
    """What the job's way was made of. What was taken back and then tried again counts no more."""
    plans = progress.plans_of((job,))
    kept = [plan for plan in plans if not plan.undone]
    return kept if any(plan.purpose not in ("halt", *WHILE_IT_RUNS) for plan in kept) else plans


def _halts_of(progress: Progress, plans: list[PlanProgress]) -> list[PlanProgress]:
    """Of another job, with which this one shares a source: it was stopped once for both."""
    sources = {plan.source for plan in plans if plan.source}
    if any(plan.purpose == "halt" for plan in plans):
        return []
    return [
        plan
        for plan in progress.plans
        if plan.purpose == "halt" and plan.source in sources and not plan.undone
    ]


def _failure_of(progress: Progress, job: str) -> FailureReport | None:
    """Why the job's wave was given up, where the run went on without it."""
    return next((_told(one) for one in progress.given_up if job in one.jobs), None)


def _told(failed: RunFailed | WaveGivenUp) -> FailureReport:
    return FailureReport(failed.error, failed.message, failed.hint, failed.exit_code, failed.step)


def _job(progress: Progress, name: str) -> JobReport:
    plans = _plans(progress, name)
    phases = _phases(progress, plans)
    halts = _halts_of(progress, plans)
    down = _downtime([*halts, *plans])
    steps = _steps_of(plans)
    compared = _compared(steps)
    entries = compared.get("entries")
    if entries == 0 and compared["state"]:
        entries = None  # all of it was compared whole: no entries were told apart
    moved = [phase for phase in phases if phase.name in BROUGHT]
    kept = _sizes_kept(steps)
    if _were_read_back(steps):
        compared["files"] += len(kept)
    rounds = _rounds(progress, name, plans)
    idle = _is_idle(steps)
    notes = ["the job restored its state and had nothing to read: no batch yet"] if idle else []
    notes += _failures_told([*_steps_of(halts), *steps])
    if _clock_went_back(progress, steps):
        notes.append(
            "the clock went back while this ran: times that span that moment are too short"
        )
    if entries == 0:
        notes.append("the state that was brought here holds no entries")
    return JobReport(
        job=name,
        state=_state(plans),
        phases=phases,
        files=sum(phase.files for phase in moved) + len(kept),
        bytes=sum(phase.bytes for phase in moved) + sum(kept),
        downtime_seconds=down.seconds,
        downtime_from=down.since,
        entries=entries,
        idle=idle,
        notes=tuple(notes),
        left=tuple(line for step in steps for line in step.left),
        failure=_failure_of(progress, name),
        rounds=rounds,
        downtime_without_rounds=_without_rounds(down.seconds, rounds),
        downtime_start=None if down.start is None else _between(progress.began, down.start),
        files_compared=compared["files"],
        key_groups_compared=compared["key_groups"],
        engine=next((plan.engine for plan in plans if plan.engine), ""),
    )


def _clock_went_back(progress: Progress, steps: Iterable[StepProgress]) -> bool:
    """Whether the run has ended, or a step has begun, before the run began."""
    moments = [progress.ended, *(step.at for step in steps)]
    return any(moment < progress.began for moment in moments)


def _steps_of(plans: Iterable[PlanProgress]) -> list[StepProgress]:
    steps: list[StepProgress] = []
    for plan in plans:
        steps += plan.steps.values()
    return steps


def _without_rounds(down: float | None, rounds: Sequence[RoundReport]) -> float | None:
    """Return how long the job would have been down, had the first round been brought then."""
    if down is None or not rounds:
        return None
    return round(down + rounds[0].seconds, 3)


def _is_idle(steps: Iterable[StepProgress]) -> bool:
    """Return whether a query of the job had nothing to read when it was restored."""
    confirmed = [step.evidence for step in steps if isinstance(step.evidence, JobConfirmed)]
    return any(evidence.idle for evidence in confirmed)


def _failures_told(steps: Iterable[StepProgress]) -> list[str]:
    """Return what was told of jobs that failed while they were stopped."""
    images = [step.evidence for step in steps if isinstance(step.evidence, ImageTaken)]
    return [image.failed for image in images if image.failed is not None]


def _were_read_back(steps: Iterable[StepProgress]) -> bool:
    """Whether every file that a round has brought was read once more at the target."""
    brought = [step.evidence for step in steps if isinstance(step.evidence, FilesBrought)]
    return all(evidence.read_back for evidence in brought)


def _sizes_kept(steps: Iterable[StepProgress]) -> list[int]:
    """Return the sizes of files that belong to the image and were there before the job was
    stopped.
    """
    sizes: list[int] = []
    for step in steps:
        if step.state == "finished" and isinstance(step.evidence, FilesKept):
            sizes += [file.size for file in step.evidence.files]
    return sizes


def _rounds(progress: Progress, job: str, plans: list[PlanProgress]) -> tuple[RoundReport, ...]:
    """A look behind a round tells what that has left."""
    left = {seen.left.round: seen.left for seen in reversed(progress.seen) if seen.job == job}
    found, forgotten = [], progress.forgotten.get(job, 0)
    for number, plan in enumerate(
        (plan for plan in plans if plan.purpose == "warm" and plan.steps), 1
    ):
        number += (
            forgotten if number > 1 else 0
        )  # the first is kept, and the second stands for them
        phase, after = _phase("", list(plan.steps.values()), progress.began), left.get(number)
        rest = (
            (after.files, after.bytes, after.seconds) if after is not None else (None, None, None)
        )
        found.append(
            RoundReport(number, phase.start, phase.seconds, phase.files, phase.bytes, *rest)
        )
    return tuple(found)


def _compared(steps: Iterable[StepProgress]) -> dict[str, int]:
    """Return what was found to be the same on both sides, each in its own unit. "state" is how much
    of it holds state, whatever its unit. There are no "entries" where no operator was compared.
    """
    counts = {"files": 0, "key_groups": 0, "state": 0}
    for step in steps:
        if step.state == "finished" and isinstance(step.evidence, ImagesCompared):
            counts["files"] += step.evidence.paths
            for operator in step.evidence.operators.values():
                _count(counts, operator)
    return counts


def _count(counts: dict[str, int], operator: OperatorFold) -> None:
    """Add what one operator holds."""
    counts["entries"] = counts.get("entries", 0) + operator.entries
    counts["files"] += operator.files
    counts["key_groups"] += operator.key_groups
    counts["state"] += operator.entries + operator.files + operator.key_groups


def _state(plans: Iterable[PlanProgress]) -> str:
    plans = list(plans)
    if not plans:
        return "not begun"
    if all(plan.undone for plan in plans):
        return "rolled-back"
    steps = [plan for plan in plans if plan.purpose not in WHILE_IT_RUNS]
    return (
        "finished"
        if steps and all(plan.finished_at is not None for plan in steps)
        else "unfinished"
    )


def _phases(progress: Progress, plans: list[PlanProgress]) -> tuple[PhaseReport, ...]:
    warm = [plan for plan in plans if plan.purpose == "warm" and plan.steps]
    forgotten = sum(progress.forgotten.get(job, 0) for job in {plan.job for plan in warm})
    found = [_phase(name, steps, progress.began) for name, steps in _bundled(warm, forgotten)]
    for name in PHASES:
        others = (plan for plan in plans if plan.purpose not in WHILE_IT_RUNS)
        steps = [step for plan in others for step in plan.steps.values() if step.phase == name]
        if steps:
            found.append(_phase(name, steps, progress.began))
    return tuple(found)


def _bundled(
    rounds: list[PlanProgress], forgotten: int
) -> Iterator[tuple[str, list[StepProgress]]]:
    """The first round brings most of it; how many there are behind it depends on how long the
    job was not stopped.
    """
    if rounds:
        yield "round 1", list(rounds[0].steps.values())
    if len(rounds) > 1:
        name = "round 2" if len(rounds) == 2 else f"rounds 2-{len(rounds) + forgotten}"
        yield name, [step for plan in rounds[1:] for step in plan.steps.values()]


def _phase(name: str, steps: list[StepProgress], began: float) -> PhaseReport:
    start, end = min(step.at for step in steps), max(step.at + step.seconds for step in steps)
    done = [step for step in steps if step.state == "finished"]
    return PhaseReport(
        name=name,
        start=_between(began, start),
        seconds=_between(start, end),
        steps=len(steps),
        done=len(done),
        files=sum(step.files for step in done),
        bytes=sum(step.bytes for step in done),
    )


@dataclass(frozen=True, slots=True)
class Downtime:
    """How long a job was down, since what, and when that was. Without a batch on the target there
    is only a start. All three are None where nothing is known to have stopped the job, or where
    that was taken back.
    """

    seconds: float | None = None
    since: str | None = None
    start: float | None = None


def _downtime(plans: Sequence[PlanProgress]) -> Downtime:
    """Return the time from the halt to the target job's first committed batch. Where the job was
    stopped before the run, only the part that this run took is known, and it is said so.
    """
    steps = [step for step in _steps_of(plans) if step.evidence is not None]
    if any(step.state == "undone" for step in steps):
        return Downtime()
    moments = [_stopped_at(step) for step in steps]
    stops = [moment for moment in moments if moment is not None]
    ends = [step.evidence.at for step in steps if isinstance(step.evidence, JobConfirmed)]
    if not ends:
        return Downtime(start=min(stops, default=None))
    if stops:
        return Downtime(_between(min(stops), max(ends)), "halt", min(stops))
    start = min(step.at for step in steps if step.phase != "prepare")
    since = "start of the run: the job was stopped before"
    return Downtime(_between(start, max(ends)), since, start)


def _stopped_at(step: StepProgress) -> float | None:
    """Return when a step has stopped its job; None if it has not. An attempt that was cut short
    may have stopped it already: then it is down since that one began.
    """
    match step.evidence:
        case JobStopped(state_before=before, at=at):
            if step.repeated:
                return step.at
            return at if before in MAY_HAVE_RUN else None
        case ImageTaken(at=at):
            # Only a job that runs is asked for an image, by savepoint or last checkpoint.
            return step.at if step.repeated else at
        case _:
            return None


def _between(start: float, end: float) -> float:
    """Seconds from one moment to the other; none where the clock went back in between."""
    return round(max(0.0, end - start), 3)
