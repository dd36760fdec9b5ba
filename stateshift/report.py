"""The report of a run, for a person or a program. Nothing is in it that is not in the journal.

A field with words is a key of the documents of runs, which have shapes of their own for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, ClassVar, TypeVar

from stateshift.errors import JOB_DOWN, Interrupted, OtherRunError
from stateshift.journal import (
    CommandName,
    GivenCommand,
    PlanProgress,
    Progress,
    RunFailed,
    SourceLost,
    State,
    StepProgress,
    WaveGivenUp,
)
from stateshift.plan import COPYING, PHASES
from stateshift.purpose import WHILE_IT_RUNS
from stateshift.step.evidence import (
    FilesBrought,
    FilesKept,
    FilesSetAside,
    ImagesCompared,
    ImageTaken,
    JobConfirmed,
    JobStarted,
    JobStopped,
    PrimaryFenced,
    TargetClaimed,
)
from stateshift.step.jobs import RAN
from stateshift.storage.locations import Redacted
from stateshift.survey import PositionChange
from stateshift.terms import moment, terms_of

Evidence = TypeVar("Evidence")


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """What a phase has done so far."""

    name: Annotated[str, "the phase"]
    start: Annotated[float, "seconds since the run began"]
    seconds: Annotated[float, "how long it took, or has taken so far"]
    steps: Annotated[int, "how many steps it has"]
    done: Annotated[int, "how many of them are finished"]
    files: Annotated[int, "how many files they wrote or read"]
    bytes: Annotated[int, "their size together"]


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round of a warm move: what it copied while the job ran, and what it left."""

    schema_name: ClassVar = "Round"
    number: Annotated[int, "counted from 1"]
    start: Annotated[float, "seconds since the run began"]
    seconds: Annotated[float, "how long it took"]
    files: Annotated[int, "how many files it copied"]
    bytes: Annotated[int, "their size together"]
    left_files: Annotated[int | None, "files that were still to be copied after it"] = None
    left_bytes: Annotated[int | None, "their size together"] = None
    left_seconds: Annotated[float | None, "for how long the job would have been down for them"] = (
        None
    )


@dataclass(frozen=True, slots=True)
class SteeredReport:
    """What somebody asked of the run while it was at work."""

    schema_name: ClassVar = "Steered"
    start: Annotated[float, "seconds since the run began"]
    what: Annotated[str, "cutover, pause, throttle, ..."]
    value: Annotated[str, "what was asked for"]


@dataclass(frozen=True, slots=True)
class CommandReport:
    """A command that was given for the run, and who gave it."""

    schema_name: ClassVar = "Command"
    start: Annotated[float, "seconds since the run began"]
    what: Annotated[CommandName, "what was asked for"]
    user: Annotated[str, "the account of its process"]
    sudo_user: Annotated[str | None, "who became that account by sudo"]
    host: Annotated[str, "the machine of its process"]
    command: Annotated[Redacted, "the command line, without secrets; empty of a program's call"]
    policy: Annotated[
        str | None, "the policies it kept, each with the start of its SHA-256; who signed"
    ]

    @property
    def who(self) -> str:
        """The user and the host, for a person."""
        by_sudo = f" (sudo: {self.sudo_user})" if self.sudo_user else ""
        return f"{self.user}{by_sudo} on {self.host}"


@dataclass(frozen=True, slots=True)
class SourceLostReport:
    """A standby whose source cannot be followed."""

    schema_name: ClassVar = "SourceLost"
    since: Annotated[float, "seconds since 1970"]
    reason: Annotated[Redacted, "why, in one line"]
    epoch: Annotated[int | None, "of the image that stays at the target, where it has one"]

    @classmethod
    def of(cls, record: SourceLost) -> SourceLostReport:
        return cls(record.at, record.reason, record.epoch)

    def in_words(self, engine: str | None) -> str:
        at = "" if self.epoch is None else f" at {terms_of(engine).at} {self.epoch}"
        return (
            f"its source cannot be followed since {moment(self.since)}: {self.reason}; the "
            f"copy{at} stays, and goes on by itself once the source is back"
        )


@dataclass(frozen=True, slots=True)
class LossReport:
    """The work of a source that a failover has lost: each None where nobody could be asked."""

    schema_name: ClassVar = "Loss"
    seconds: Annotated[float | None, "from the source's last commit that was kept to the failover"]
    batches: Annotated[int | None, "batches or checkpoints that the source had made since"]
    records: Annotated[
        int | None,
        "records that the brokers have and what was kept has not read: read again, or for the "
        "first time",
    ]


@dataclass(frozen=True, slots=True)
class FailoverReport:
    """A job that was started from its standby."""

    schema_name: ClassVar = "Failover"
    generation: Annotated[int, "the number of the claim at the location"]
    epoch: Annotated[int | None, "of the image that the job was started from"]
    rpo: Annotated[LossReport, "what was lost"]
    rto_seconds: Annotated[float | None, "until the job has gone on; null: it has not yet"]
    fenced: Annotated[bool, "whether the primary cannot go on"]
    unfenced: Annotated[Redacted | None, "why it could, as far as anybody knows"]
    committed_at: Annotated[float | None, "when the source had written that image"]
    published_at: Annotated[float | None, "when the round that copied it was published"]
    claimed_at: Annotated[float, "when the standby was claimed"]


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage of a drill."""

    schema_name: ClassVar = "Stage"
    name: Annotated[str, "plan, or a phase"]
    seconds: Annotated[float, "how long it took"]


@dataclass(frozen=True, slots=True)
class DrillReport:
    """A rehearsal of a standby's start, whose copy is thrown away."""

    schema_name: ClassVar = "Drill"
    epoch: Annotated[int | None, "of the image that the job was started from"]
    good: Annotated[bool, "whether the job has gone on from it"]
    failure: Annotated[Redacted | None, "why it has not"]
    seconds: Annotated[float, "from the plan to the job's first batch or checkpoint"]
    stages: Annotated[tuple[StageReport, ...], "the parts of that"]


@dataclass(frozen=True, slots=True)
class KeptReport:
    """The image that a standby has at its target."""

    schema_name: ClassVar = "Kept"
    epoch: Annotated[int | None, "the batch or checkpoint that a job can be started from"]
    at: Annotated[float, "when it was published, in seconds since 1970"]
    committed_at: Annotated[float | None, "when the source had written it"]
    as_of: Annotated[float | None, "when the source was seen to have nothing newer"] = None
    source_epoch: Annotated[int | None, "the source's newest one, when it was last asked"] = None
    rpo_bound_seconds: Annotated[float | None, "how much of its work may be lost at most"] = None


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Why a run, or one of its jobs, stopped."""

    schema_name: ClassVar = "Failure"
    error: Annotated[str, "the class of the error, such as StorageError"]
    message: Annotated[Redacted, "the fact, in one line"]
    hint: Annotated[Redacted | None, "the way out"]
    exit_code: Annotated[int, "the exit code of the process that failed"]
    step: Annotated[str | None, "the step of the plan it happened in"]


@dataclass(frozen=True, slots=True)
class Compared:
    """What was compared and is the same on both sides, each in its own unit."""

    entries: Annotated[int, "entries"] = 0
    files: Annotated[int, "files that were compared whole"] = 0
    key_groups: Annotated[int, "key groups that were compared whole"] = 0


@dataclass(frozen=True, slots=True)
class JobReport:
    """The work that was done for one job, and its downtime."""

    job: str
    state: str
    phases: tuple[PhaseReport, ...]
    files: int
    bytes: int
    downtime_seconds: float | None
    downtime_from: str | None
    # Compared on both sides; None where nothing was, or where there is no state.
    entries: int | None
    idle: bool
    notes: tuple[str, ...]
    left: tuple[str, ...]
    failure: FailureReport | None = None
    rounds: tuple[RoundReport, ...] = ()
    # Reckoned: the downtime if the files of the first round had been copied with the job down.
    downtime_without_rounds: float | None = None
    # In seconds since the run began; known also while there is no end to it.
    downtime_start: float | None = None
    files_compared: int = 0  # whole, byte for byte
    key_groups_compared: int = 0  # whole, in a backend's own format
    engine: str = ""
    source_lost: SourceLostReport | None = None
    standby: KeptReport | None = None
    failover: FailoverReport | None = None
    drill: DrillReport | None = None
    set_aside: str | None = None
    positions: tuple[PositionChange, ...] = ()
    stop_begun: float | None = None  # as `downtime_start`: a stop that has no known end

    @property
    def down(self) -> bool | None:
        """Whether the run has left the job stopped; None where nobody knows."""
        return None if self.may_be_down else self.is_down

    @property
    def may_be_down(self) -> bool:
        """Whether the run has begun to stop the job, and nobody knows if it did."""
        return self.stop_begun is not None and not self.is_down and self.drill is None

    @property
    def is_down(self) -> bool:
        """Whether the run has stopped the job, and nobody has seen it going on. That of a drill is
        thrown away.
        """
        is_stopped = self.downtime_start is not None and self.downtime_seconds is None
        return is_stopped and self.drill is None

    @property
    def was_halted(self) -> bool:
        """Whether the run has begun to stop the job."""
        return any(phase.name == "halt" for phase in self.phases)

    @property
    def compared(self) -> Compared:
        """The amounts that are the same on both sides."""
        return Compared(self.entries or 0, self.files_compared, self.key_groups_compared)


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a whole run, job by job."""

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
    commands: tuple[CommandReport, ...] = ()
    idle_seconds: float = 0.0  # of `seconds`: it was interrupted, paused, or over before a rollback

    @property
    def worked_seconds(self) -> float:
        """How long a process worked on it."""
        return max(0.0, self.seconds - self.idle_seconds)

    @property
    def down(self) -> str:
        """Jobs that the run stopped and nobody has seen going on or taken over; since when."""
        if self.failure is not None and self.failure.error == OtherRunError.__name__:
            return ""
        down = [job for job in self.jobs if job.is_down]
        if not down or self.began is None:
            return ""
        since = self.began + min(job.downtime_start or 0.0 for job in down)
        return f"down since {moment(since)}: {', '.join(job.job for job in down)}"

    @property
    def may_be_down(self) -> str:
        """Jobs of which nobody knows whether the run has stopped them; since when. It says nothing
        of a run at work, whose stop is under way.
        """
        unsure = [job for job in self.jobs if job.may_be_down]
        if not unsure or self.began is None:
            return ""
        since = self.began + min(job.stop_begun or 0.0 for job in unsure)
        names = ", ".join(job.job for job in unsure)
        return f"may have been stopped or not, at {moment(since)}: {names}"

    @property
    def engine(self) -> str:
        """The engine of its jobs; empty where the journal is of a version that did not say."""
        return next((job.engine for job in self.jobs if job.engine), "")


def summarize(progress: Progress, given_commands: Iterable[GivenCommand] = ()) -> Report:
    """Return everything worth reporting of a run, at any point of it."""
    jobs = []
    for name in progress.jobs:
        if _plans(progress, name) or _failure_of(progress, name) is not None:
            jobs.append(_job(progress, name))
    steered = []
    for request in progress.steered:
        seconds = _between(progress.began, request.at)
        steered.append(SteeredReport(seconds, request.what, request.value))
    commands = []
    for given in given_commands:
        seconds, by = _between(progress.began, given.at), given.by
        sudo_user, policy = by.sudo_user or None, by.policy or None
        told = CommandReport(
            seconds, given.what, by.user, sudo_user, by.host, command=by.command, policy=policy
        )
        commands.append(told)
    failure = progress.failure
    downtimes = [job.downtime_seconds for job in jobs if job.downtime_seconds is not None]
    report = Report(
        run=progress.run,
        state=progress.state,
        seconds=_between(progress.began, progress.ended),
        downtime_seconds=max(downtimes, default=None),
        phases=_phases(progress, list(progress.plans)),
        jobs=tuple(jobs),
        left=_all_left(progress.plans),
        failure=None if failure is None else _failure_report(failure),
        steered=tuple(steered),
        began=progress.began,
        commands=tuple(commands),
        idle_seconds=_idle(progress),
    )
    if report.failure is None or not report.down:
        return report
    # The jobs that it leaves down come before all else. An interruption keeps its exit code.
    was_interrupted = report.failure.exit_code == Interrupted.exit_code
    exit_code = report.failure.exit_code if was_interrupted else JOB_DOWN
    message = f"{report.down}: {report.failure.message}"
    return replace(report, failure=replace(report.failure, message=message, exit_code=exit_code))


def _all_left(parts: Iterable[PlanProgress | StepProgress]) -> tuple[str, ...]:
    """Return the lines on what plans, or steps, had to leave."""
    return tuple(chain.from_iterable(part.left for part in parts))


def _plans(progress: Progress, job: str) -> list[PlanProgress]:
    """Return the plans of a job. A plan that was taken back and tried again does not count."""
    plans = progress.plans_of((job,))
    kept = [plan for plan in plans if not plan.undone]
    moving = [plan for plan in kept if plan.purpose not in ("halt", *WHILE_IT_RUNS)]
    return kept if moving else plans


def _halts_of(progress: Progress, plans: list[PlanProgress]) -> list[PlanProgress]:
    """Return the halts of another job, which shares its source: it was stopped once for both."""
    if any(plan.purpose == "halt" for plan in plans):
        return []
    sources = {plan.source for plan in plans if plan.source}
    halts = [plan for plan in progress.plans if plan.purpose == "halt"]
    shared = [plan for plan in halts if plan.source in sources]
    return [plan for plan in shared if not plan.undone]


def _failure_of(progress: Progress, job: str) -> FailureReport | None:
    """Return the failure for which the job's wave was given up while the run continued."""
    for given_up in progress.given_up:
        if job in given_up.jobs:
            return _failure_report(given_up)
    return None


def _failure_report(failed: RunFailed | WaveGivenUp) -> FailureReport:
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
    copied = [phase for phase in phases if phase.name in COPYING]
    # Files that belong to the image and were there before the job was stopped.
    finished = [step for step in steps if step.state == "finished"]
    kept: list[int] = []
    for evidence in _evidence(finished, FilesKept):
        kept += [file.size for file in evidence.files]
    if all(brought.read_back for brought in _evidence(steps, FilesBrought)):
        compared["files"] += len(kept)
    rounds = _rounds(progress, name, plans)
    idle = any(confirmed.idle for confirmed in _evidence(steps, JobConfirmed))
    notes = [warning.message for warning in progress.warned if warning.job == name]
    if idle:
        notes.append("the job restored its state and had nothing to read: no batch yet")
    images = _evidence([*_steps_of(halts), *steps], ImageTaken)
    notes += [image.failed for image in images if image.failed is not None]
    moments = [progress.ended, *(step.at for step in steps)]
    if min(moments) < progress.began:
        notes.append(
            "the clock went back while this ran: times that span that moment are too short"
        )
    if entries == 0:
        notes.append("the state that was copied here holds no entries")
    engine = next((plan.engine for plan in plans if plan.engine), "")
    lost = None
    record = progress.lost.get(name)
    if record is not None and progress.state != "rolled-back":
        lost = SourceLostReport.of(record)
        notes.append(lost.in_words(engine))
    downtime_without_rounds = None  # if the first round had been copied then
    if down.seconds is not None and rounds:
        downtime_without_rounds = round(down.seconds + rounds[0].seconds, 3)
    downtime_start = None
    if down.start is not None:
        downtime_start = _between(progress.began, down.start)
    return JobReport(
        job=name,
        state=_state(plans),
        phases=phases,
        files=sum(phase.files for phase in copied) + len(kept),
        bytes=sum(phase.bytes for phase in copied) + sum(kept),
        downtime_seconds=down.seconds,
        downtime_from=down.since,
        entries=entries,
        idle=idle,
        notes=tuple(notes),
        left=_all_left(steps),
        failure=_failure_of(progress, name),
        rounds=rounds,
        downtime_without_rounds=downtime_without_rounds,
        downtime_start=downtime_start,
        files_compared=compared["files"],
        key_groups_compared=compared["key_groups"],
        engine=engine,
        source_lost=lost,
        standby=_kept(progress, name),
        failover=_failover(progress, steps),
        drill=_drill(progress, name),
        set_aside=_set_aside(steps),
        positions=next((plan.positions for plan in reversed(plans) if plan.positions), ()),
        stop_begun=_stop_begun(progress, [*halts, *plans]),
    )


def _stop_begun(progress: Progress, plans: Iterable[PlanProgress]) -> float | None:
    stops = [plan.stop for plan in plans if plan.stop is not None]
    if not stops or not stops[-1].has_no_known_end:
        return None
    begun = stops[-1].at
    return _between(progress.began, begun)


def _drill(progress: Progress, job: str) -> DrillReport | None:
    ended = progress.rehearsed
    if ended is None or ended.job != job:
        return None
    names = [name for name in ("plan", *PHASES) if name in ended.seconds]
    stages = tuple(StageReport(name, ended.seconds[name]) for name in names)
    seconds = round(sum(ended.seconds.values()), 3)
    good = not ended.failure
    return DrillReport(ended.epoch, good, ended.failure or None, seconds, stages)


def _kept(progress: Progress, job: str) -> KeptReport | None:
    kept = progress.kept.get(job)
    if kept is None or progress.state == "rolled-back":
        return None
    moments = [kept.as_of]
    if job in progress.lost:
        moments.append(progress.lost[job].as_of)
    seen = [look.left.epoch for look in progress.seen if look.job == job]
    return KeptReport(
        epoch=kept.epoch,
        at=kept.at,
        committed_at=kept.committed_at,
        as_of=max((at for at in moments if at is not None), default=None),
        source_epoch=seen[-1] if seen else None,
        rpo_bound_seconds=kept.rpo_seconds_max,
    )


def _set_aside(steps: Iterable[StepProgress]) -> str | None:
    """Return the place to which files were set aside that were at the target before."""
    finished = [step for step in steps if step.state == "finished"]
    evidence = _evidence(finished, FilesSetAside)
    if not evidence:
        return None
    return evidence[-1].aside


def _failover(progress: Progress, steps: Iterable[StepProgress]) -> FailoverReport | None:
    steps = [step for step in steps if step.state != "undone"]
    claimed = next(iter(_evidence(steps, TargetClaimed)), None)
    if claimed is None:
        return None
    fences = _evidence(steps, PrimaryFenced)
    is_fenced = any(fence.cannot_go_on for fence in fences)
    whys = [fence.why for fence in fences if fence.why]
    lost_seconds = lost_batches = None
    if claimed.committed_at is not None:
        lost_seconds = round(max(0.0, claimed.at - claimed.committed_at), 3)
    newest = [claimed.newest, *(fence.epoch for fence in fences)]
    known = [epoch for epoch in newest if epoch is not None]
    if known and claimed.epoch is not None:
        lost_batches = max(0, max(known) - claimed.epoch)
    ends = [confirmed.at for confirmed in _evidence(steps, JobConfirmed)]
    return FailoverReport(
        generation=claimed.generation,
        epoch=claimed.epoch,
        rpo=LossReport(lost_seconds, lost_batches, claimed.records_unread),
        rto_seconds=_between(progress.began, max(ends)) if ends else None,
        fenced=is_fenced,
        unfenced=None if is_fenced else "; ".join(whys) or "it was said to be down",
        committed_at=claimed.committed_at,
        published_at=claimed.published_at,
        claimed_at=claimed.at,
    )


def _steps_of(plans: Iterable[PlanProgress]) -> list[StepProgress]:
    steps: list[StepProgress] = []
    for plan in plans:
        steps += plan.steps.values()
    return steps


def _evidence(steps: Iterable[StepProgress], kind: type[Evidence]) -> list[Evidence]:
    """Return the evidence of this kind that steps have produced."""
    return [step.evidence for step in steps if isinstance(step.evidence, kind)]


def _rounds(progress: Progress, job: str, plans: list[PlanProgress]) -> tuple[RoundReport, ...]:
    """Return the rounds of a job. A look after a round says what that has left."""
    left = {look.left.round: look.left for look in reversed(progress.seen) if look.job == job}
    forgotten = progress.forgotten.get(job, 0)
    reports = []
    for number, plan in enumerate(_warm(plans), 1):
        if number > 1:  # the first is kept, and the second stands for the forgotten ones
            number += forgotten
        phase = _phase("", list(plan.steps.values()), progress.began)
        report = RoundReport(number, phase.start, phase.seconds, phase.files, phase.bytes)
        after = left.get(number)
        if after is not None:
            report = replace(
                report, left_files=after.files, left_bytes=after.bytes, left_seconds=after.seconds
            )
        reports.append(report)
    return tuple(reports)


def _warm(plans: Iterable[PlanProgress]) -> list[PlanProgress]:
    """Return the plans of rounds that had something to copy."""
    rounds = [plan for plan in plans if plan.purpose == "warm"]
    return [plan for plan in rounds if plan.steps]


def _compared(steps: Iterable[StepProgress]) -> dict[str, int]:
    """Return the equal amounts by unit; "state" is all of state. No operator, no "entries"."""
    counts = {"files": 0, "key_groups": 0, "state": 0}
    for step in steps:
        if step.state == "finished" and isinstance(step.evidence, ImagesCompared):
            counts["files"] += step.evidence.paths
            for operator in step.evidence.operators.values():
                counts["entries"] = counts.get("entries", 0) + operator.entries
                counts["files"] += operator.files
                counts["key_groups"] += operator.key_groups
                counts["state"] += operator.entries + operator.files + operator.key_groups
    return counts


def _state(plans: Sequence[PlanProgress]) -> str:
    if not plans:
        return "not begun"
    if all(plan.undone for plan in plans):
        return "rolled-back"
    unfinished = [plan for plan in _moving(plans) if plan.finished_at is None]
    return "finished" if _moving(plans) and not unfinished else "unfinished"


def _phases(progress: Progress, plans: list[PlanProgress]) -> tuple[PhaseReport, ...]:
    rounds = _warm(plans)
    forgotten = sum(progress.forgotten.get(job, 0) for job in {plan.job for plan in rounds})
    # The first round copies most of it; the number of others depends on how long the job ran.
    bundles: list[tuple[str, list[StepProgress]]] = []
    if rounds:
        bundles.append(("round 1", _steps_of(rounds[:1])))
    if len(rounds) > 1:
        name = "round 2" if len(rounds) == 2 else f"rounds 2-{len(rounds) + forgotten}"
        bundles.append((name, _steps_of(rounds[1:])))
    moving = _steps_of(_moving(plans))
    for phase in PHASES:
        of_phase = [step for step in moving if step.phase == phase]
        if of_phase:
            bundles.append((phase, of_phase))
    return tuple(_phase(name, steps, progress.began) for name, steps in bundles)


def _moving(plans: Iterable[PlanProgress]) -> list[PlanProgress]:
    """Return the plans that need the job to be down."""
    return [plan for plan in plans if plan.purpose not in WHILE_IT_RUNS]


def _phase(name: str, steps: list[StepProgress], began: float) -> PhaseReport:
    start = min(step.at for step in steps)
    end = max(step.at + step.seconds for step in steps)
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
    """The downtime of a job, its start and the reason. Without a batch on the target there is only
    a start. All are None if nothing has stopped the job, or that was taken back.
    """

    seconds: float | None = None
    since: str | None = None
    start: float | None = None


def _downtime(plans: Sequence[PlanProgress]) -> Downtime:
    """Return the time from the halt to the target job's first committed batch. If the job was
    stopped before the run, only the part that this run took is known, and it is said so.
    """
    steps = [step for step in _steps_of(plans) if step.evidence is not None]
    undone = [step for step in steps if step.state == "undone"]
    for step in undone:
        # A job that it has stopped runs again where it was, unless something had to be left.
        if isinstance(step.evidence, JobStopped | ImageTaken) and not step.left:
            return Downtime()
    start = min(_moments_of_stopping(steps), default=None)
    confirmed = _evidence(steps, JobConfirmed)
    committed = max((evidence.at for evidence in confirmed), default=None)
    starts = [step for step in undone if step.phase == "submit"]
    ended = [step.undone_at for step in starts if isinstance(step.evidence, JobStarted)]
    if committed is not None and ended:  # it ran there, and was stopped to be taken back
        return Downtime(start=max(ended))
    if committed is None or undone:
        ending: list[StepProgress] = []
        for step in steps:
            if not isinstance(step.evidence, ImageTaken) or step.evidence.ended:
                ending.append(step)  # else its job runs on beside the new one
        return Downtime(start=min(_moments_of_stopping(ending), default=None))
    if start is None:
        start = min(step.at for step in steps if step.phase != "prepare")
        since = "start of the run: the job was stopped before"
        return Downtime(_between(start, committed), since, start)
    return Downtime(_between(start, committed), "halt", start)


def _moments_of_stopping(steps: Iterable[StepProgress]) -> Iterator[float]:
    """Yield the times at which steps have stopped their jobs. An attempt that was cut short may
    have stopped it already: then it is down since that one began. One that was taken back without
    a start of the job leaves it down.
    """
    for step in steps:
        evidence = step.evidence
        if not isinstance(evidence, JobStopped | ImageTaken):
            continue
        # Only a job that runs is asked for an image, by savepoint or last checkpoint.
        if step.repeated:
            yield step.at
        elif isinstance(evidence, ImageTaken) or evidence.state_before in RAN:
            yield evidence.at
        elif step.earlier is not None:
            yield from _moments_of_stopping([step.earlier])


def _idle(progress: Progress) -> float:
    """Return the seconds in which the run was interrupted or paused. Where the clock went back,
    some of them come twice, and count once.
    """
    idle, last = 0.0, progress.began
    for since, to in sorted(progress.idle):
        idle += _between(max(since, last), min(to, progress.ended))
        last = max(last, to)
    return round(idle, 3)


def _between(start: float, end: float) -> float:
    """Return the seconds between two moments; none where the clock went back in between."""
    return round(max(0.0, end - start), 3)
