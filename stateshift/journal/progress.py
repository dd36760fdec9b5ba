"""The progress of a run: the fold of its records. `advance` is the whole state machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stateshift.errors import JournalError
from stateshift.journal import records
from stateshift.journal.records import (
    ImageKept,
    Record,
    Rehearsed,
    RunFailed,
    SourceLost,
    StepStarted,
)
from stateshift.purpose import Purpose
from stateshift.step.evidence import Evidence
from stateshift.survey import PositionChange

State = Literal[
    "new", "running", "failed", "interrupted", "finished", "rolling-back", "rolled-back"
]


# The beginnings of the names of steps that stop a job.
STOPS = ("halt/stop", "halt/savepoint", "halt/checkpoint")


@dataclass(frozen=True, slots=True)
class StepProgress:
    """One step so far, by the journal."""

    phase: str
    state: Literal["started", "finished", "undone"]
    at: float
    seconds: float = 0.0
    files: int = 0
    bytes: int = 0
    evidence: Evidence | None = None
    left: tuple[str, ...] = ()
    repeated: bool = False  # an earlier attempt was cut short: `at` is when that one began
    stopped: bool = False  # we stopped what an earlier one had started
    undone_at: float = 0.0
    earlier: StepProgress | None = None  # an attempt that was undone, but for what is `left` of it

    @property
    def has_no_known_end(self) -> bool:
        """Whether nobody knows if it has done anything: it was cut short, or is undone but for what
        is `left` of it.
        """
        return self.evidence is None and (self.state == "started" or bool(self.left))


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """One plan so far, by the journal, and the steps that were begun."""

    plan: int
    job: str
    purpose: Purpose
    fingerprint: str
    total: int
    at: float
    steps: Mapping[str, StepProgress] = field(default_factory=dict)
    finished_at: float | None = None
    undone: bool = False
    left: tuple[str, ...] = ()  # in the places it wrote to, when it was undone
    source: str = ""
    engine: str = ""
    positions: tuple[PositionChange, ...] = ()

    def finished(self, step: str) -> bool:
        progress = self.steps.get(step)
        return progress is not None and progress.state == "finished"

    def has_effect(self, step: str) -> bool:
        """Whether a step was begun, and not undone."""
        progress = self.steps.get(step)
        return progress is not None and progress.state != "undone"

    @property
    def stop(self) -> StepProgress | None:
        """The last step that was to stop the job."""
        stops = [step for name, step in self.steps.items() if name.startswith(STOPS)]
        return stops[-1] if stops else None


FORGOTTEN_MAX = 10_000_000
FORGOTTEN = PlanProgress(
    -1, "", "warm", "", 0, 0.0, undone=True
)  # keeps a number, and nothing else


@dataclass(frozen=True, slots=True)
class Progress:
    """The fold of a journal."""

    state: State = "new"
    run: str = ""
    stateshift: str = ""
    spec: str = ""
    jobs: tuple[str, ...] = ()
    began: float = 0.0
    ended: float = 0.0
    locks: tuple[str, ...] = ()
    plans: tuple[PlanProgress, ...] = ()
    failure: RunFailed | None = None
    reason: RunFailed | None = None  # why it is taken back by itself
    given_up: tuple[records.WaveGivenUp, ...] = ()
    discard: bool = False
    last_copy: bool = False  # the rollback may delete it
    kept: Mapping[str, ImageKept] = field(default_factory=dict)  # by job, the newest of a standby
    lost: Mapping[str, SourceLost] = field(default_factory=dict)  # by job, while it lasts
    rpo_passed: Mapping[str, float] = field(default_factory=dict)  # by job, since when
    seen: tuple[records.RoundSeen, ...] = ()
    steered: tuple[records.Steered, ...] = ()
    warned: tuple[records.Warned, ...] = ()
    records: int = 0
    forgotten: Mapping[str, int] = field(default_factory=dict)  # rounds of each job
    rehearses: bool = False  # it is a drill
    rehearsed: Rehearsed | None = None  # how the drill has ended
    boot: str = ""  # which start of the machine it copies in, where it does not sync
    idle: tuple[tuple[float, float], ...] = ()  # from when to when it was interrupted or paused

    @property
    def known(self) -> list[PlanProgress]:
        """Its plans, without those that were forgotten."""
        return [plan for plan in self.plans if plan is not FORGOTTEN]

    def plans_of(self, jobs: Collection[str]) -> list[PlanProgress]:
        return [plan for plan in self.plans if plan.job in jobs]

    def half_back(self, jobs: Collection[str]) -> bool:
        """Whether the wave of these jobs is on its way back."""
        waves = [wave for wave in self.given_up if set(wave.jobs) == set(jobs)]
        if not any(wave.back for wave in waves):
            return False
        return any(plan.steps and not plan.undone for plan in self.plans_of(jobs))

    @property
    def open(self) -> bool:
        """Whether there is something to resume or to roll back."""
        return self.state not in ("new", "finished", "rolled-back")


def advance(progress: Progress, record: Record) -> Progress:
    """Return the progress after a record; refuse one that cannot follow: the journal is damaged."""
    after = replace(progress, records=progress.records + 1, ended=record.at)
    # If a process was killed, only what it has recorded is known to be work.
    rested = (*progress.idle, (progress.ended, record.at))
    match record:
        case records.RunStarted():
            _expect(progress.state == "new", progress, record)
            return replace(
                after,
                state="running",
                run=record.run,
                stateshift=record.stateshift,
                spec=record.spec,
                jobs=record.jobs,
                began=record.at,
                rehearses=record.rehearses,
            )
        case records.RunResumed():
            _expect(progress.state in ("running", "failed", "interrupted"), progress, record)
            left = tuple(wave for wave in progress.given_up if progress.half_back(wave.jobs))
            return replace(after, state="running", failure=None, given_up=left, idle=rested)
        case records.BootNoted():
            _expect(progress.state == "running", progress, record)
            return replace(after, boot=record.boot)
        case records.LockTaken():
            _expect(progress.state in ("running", "rolling-back"), progress, record)
            return replace(after, locks=(*_other_locks(progress, record.location), record.location))
        case records.LockReleased():
            return replace(after, locks=_other_locks(progress, record.location))
        case records.PlanAdopted():
            is_next = record.plan == len(progress.plans)
            _expect(progress.state == "running" and is_next, progress, record)
            adopted = PlanProgress(
                record.plan,
                record.job,
                record.purpose,
                record.fingerprint,
                record.steps,
                record.at,
                source=record.source,
                engine=record.engine,
                positions=record.positions,
            )
            return replace(after, plans=(*progress.plans, adopted))
        case records.PlansForgotten():
            _expect(0 < record.count <= FORGOTTEN_MAX, progress, record)
            counts = Counter(progress.forgotten) + Counter(record.rounds)
            plans = (*progress.plans, *(FORGOTTEN,) * record.count)
            return replace(after, plans=plans, forgotten=dict(counts))
        case StepStarted():
            is_known = record.plan < len(progress.plans)
            _expect(progress.state == "running" and is_known, progress, record)
            return _with_started(after, record)
        case records.StepFinished():
            before = _step(progress, record.plan, record.step, record)
            seconds = record.seconds
            if before.repeated:  # it took time before, too
                seconds = max(seconds, record.at - before.at)
            finished = replace(
                before,
                state="finished",
                seconds=seconds,
                files=record.files,
                bytes=record.bytes,
                evidence=record.evidence,
            )
            return _with_step(after, record.plan, record.step, finished)
        case records.StepUndone():
            before = _step(progress, record.plan, record.step, record)
            if progress.state == "rolled-back":  # somebody has started its job since
                after = replace(after, idle=rested)
            begun = _with_plan(after, replace(progress.plans[record.plan], finished_at=None))
            undone = replace(before, state="undone", left=record.left, undone_at=record.at)
            return _with_step(begun, record.plan, record.step, undone)
        case records.PlanFinished():
            _expect(record.plan < len(progress.plans), progress, record)
            return _with_plan(after, replace(progress.plans[record.plan], finished_at=record.at))
        case records.PlanUndone():
            _expect(record.plan < len(progress.plans), progress, record)
            plan = replace(progress.plans[record.plan], undone=True, left=record.left)
            return _with_plan(after, plan)
        case records.RoundSeen():
            _expect(progress.state == "running", progress, record)
            return replace(after, seen=(*progress.seen, record))
        case ImageKept():
            _expect(progress.state == "running", progress, record)
            return replace(after, kept={**progress.kept, record.job: record})
        case SourceLost():
            _expect(progress.state == "running", progress, record)
            return replace(after, lost=_lost_after(progress.lost, record))
        case records.RpoJudged():
            _expect(progress.state == "running", progress, record)
            passed = {job: at for job, at in progress.rpo_passed.items() if job != record.job}
            if not record.kept:
                passed[record.job] = record.at
            return replace(after, rpo_passed=passed)
        case records.OriginNoted():
            _expect(progress.state == "running", progress, record)
            return after
        case records.Warned():
            _expect(progress.state == "running", progress, record)
            return replace(after, warned=(*progress.warned, record))
        case records.Steered():
            _expect(progress.state in ("running", "rolling-back"), progress, record)
            idle = rested if record.what == "go on" else progress.idle
            return replace(after, steered=(*progress.steered, record), idle=idle)
        case RunFailed():
            _expect(progress.state in ("running", "rolling-back"), progress, record)
            if progress.state == "rolling-back":
                return replace(after, failure=record)
            state: State = "interrupted" if record.exit_code == 130 else "failed"
            return replace(after, state=state, failure=record)
        case records.WaveGivenUp():
            _expect(progress.state == "running", progress, record)
            jobs = set(record.jobs)
            others = [wave for wave in progress.given_up if set(wave.jobs) != jobs]
            return replace(after, given_up=(*others, record))
        case Rehearsed():
            _expect(progress.state == "running", progress, record)
            return replace(after, rehearsed=record)
        case records.RunFinished():
            _expect(progress.state == "running", progress, record)
            return replace(after, state="finished")
        case records.RollbackStarted():
            _expect(progress.state not in ("new", "rolled-back"), progress, record)
            failure = progress.failure if record.automatic else None
            return replace(
                after,
                state="rolling-back",
                failure=failure,
                reason=failure,
                discard=record.discard,
                last_copy=record.last_copy,
                idle=progress.idle if record.automatic else rested,
            )
        case records.RollbackRefused():
            _expect(progress.state == "rolling-back", progress, record)
            # It names what the run was to be taken back for, if it has decided that itself.
            failure = RunFailed(
                record.at, record.error, record.message, record.hint, record.exit_code
            )
            if progress.reason is not None:
                hint = f"not taken back: {record.message}; {record.hint}"
                failure = replace(progress.reason, hint=hint)
            return replace(
                after, state="failed", failure=failure, reason=None, discard=False, last_copy=False
            )
        case records.RunRolledBack():
            _expect(progress.state == "rolling-back", progress, record)
            return replace(after, state="rolled-back")


def _lost_after(lost: Mapping[str, SourceLost], record: SourceLost) -> Mapping[str, SourceLost]:
    """Return the sources that are lost after this record, each since the first look."""
    others = {job: earlier for job, earlier in lost.items() if job != record.job}
    if not record.reason:
        return others
    since = lost[record.job].at if record.job in lost else record.at
    return {**others, record.job: replace(record, at=since)}


def _other_locks(progress: Progress, location: str) -> tuple[str, ...]:
    return tuple(lock for lock in progress.locks if lock != location)


def fold(records: Iterator[Record]) -> Progress:
    """Return the progress by these records."""
    progress = Progress()
    for record in records:
        progress = advance(progress, record)
    return progress


def _expect(right: bool, progress: Progress, record: Record) -> None:
    if not right:
        raise JournalError(
            f"record {progress.records} ({record.kind}) cannot follow a run that is "
            f"{progress.state}",
            record=progress.records,
            hint="this journal is not one that stateshift wrote; nothing was changed",
        )


def _step(progress: Progress, plan: int, step: str, record: Record) -> StepProgress:
    _expect(plan < len(progress.plans) and step in progress.plans[plan].steps, progress, record)
    return progress.plans[plan].steps[step]


def _with_plan(progress: Progress, plan: PlanProgress) -> Progress:
    number, plans = plan.plan, progress.plans
    return replace(progress, plans=(*plans[:number], plan, *plans[number + 1 :]))


def _with_started(progress: Progress, record: StepStarted) -> Progress:
    """Begin a step, also again. A plan that is carried out once more is not undone nor finished."""
    plan = progress.plans[record.plan]
    before = plan.steps.get(record.step)
    if before is not None and before.state == "started":
        stopped = before.stopped or record.stopped
        step = StepProgress(
            record.phase,
            "started",
            before.at,
            repeated=True,
            stopped=stopped,
            earlier=before.earlier,
        )
    else:
        earlier = before if before is not None and before.left else None
        step = StepProgress(
            record.phase, "started", record.at, stopped=record.stopped, earlier=earlier
        )
    begun = _with_plan(progress, replace(plan, finished_at=None, undone=False, left=()))
    return _with_step(begun, record.plan, record.step, step)


def _with_step(progress: Progress, plan: int, name: str, step: StepProgress) -> Progress:
    before = progress.plans[plan]
    return _with_plan(progress, replace(before, steps={**before.steps, name: step}))
