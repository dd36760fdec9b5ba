"""What happened: records, one a line, and their fold.

    Record      one thing that happened, at one time
    Progress    everything a journal says so far; `advance(progress, record)` is the whole state machine
    Journal     appends records so that each is on disk before the next effect begins

    line  =  crc32 of the JSON, 8 hex digits | blank | JSON | newline

A last line that is cut short is what a kill leaves behind: it is dropped, its effect is repeated. A damaged line
anywhere else is refused. Plans are too long for a line: a record names the file and the plan's fingerprint.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

from stateshift import plain
from stateshift.errors import JournalError

State = Literal["new", "running", "failed", "interrupted", "finished", "rolling-back", "rolled-back"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    kind: ClassVar[str] = "run-started"
    at: float
    run: str
    stateshift: str
    spec: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunResumed:
    kind: ClassVar[str] = "run-resumed"
    at: float


@dataclass(frozen=True, slots=True)
class LockTaken:
    """Written before the lock is taken, so that whoever takes the run back knows of a lock that may be there."""

    kind: ClassVar[str] = "lock-taken"
    at: float
    location: str


@dataclass(frozen=True, slots=True)
class LockReleased:
    kind: ClassVar[str] = "lock-released"
    at: float
    location: str


@dataclass(frozen=True, slots=True)
class PlanAdopted:
    """From here on this plan is carried out. `plan` is its number in the run and names its file."""

    kind: ClassVar[str] = "plan-adopted"
    at: float
    plan: int
    job: str
    purpose: str
    fingerprint: str
    steps: int


@dataclass(frozen=True, slots=True)
class StepStarted:
    kind: ClassVar[str] = "step-started"
    at: float
    plan: int
    phase: str
    step: str


@dataclass(frozen=True, slots=True)
class StepFinished:
    kind: ClassVar[str] = "step-finished"
    at: float
    plan: int
    step: str
    seconds: float
    files: int
    bytes: int
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepUndone:
    kind: ClassVar[str] = "step-undone"
    at: float
    plan: int
    step: str
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanFinished:
    kind: ClassVar[str] = "plan-finished"
    at: float
    plan: int


@dataclass(frozen=True, slots=True)
class PlanUndone:
    kind: ClassVar[str] = "plan-undone"
    at: float
    plan: int
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFailed:
    kind: ClassVar[str] = "run-failed"
    at: float
    error: str
    message: str
    hint: str | None
    exit_code: int
    step: str | None = None


@dataclass(frozen=True, slots=True)
class RunFinished:
    kind: ClassVar[str] = "run-finished"
    at: float


@dataclass(frozen=True, slots=True)
class RollbackStarted:
    kind: ClassVar[str] = "rollback-started"
    at: float


@dataclass(frozen=True, slots=True)
class RunRolledBack:
    kind: ClassVar[str] = "run-rolled-back"
    at: float


Record = (
    RunStarted
    | RunResumed
    | LockTaken
    | LockReleased
    | PlanAdopted
    | StepStarted
    | StepFinished
    | StepUndone
    | PlanFinished
    | PlanUndone
    | RunFailed
    | RunFinished
    | RollbackStarted
    | RunRolledBack
)


@dataclass(frozen=True, slots=True)
class StepProgress:
    phase: str
    state: Literal["started", "finished", "undone"]
    at: float
    seconds: float = 0.0
    files: int = 0
    bytes: int = 0
    evidence: Mapping[str, Any] | None = None
    left: tuple[str, ...] = ()
    repeated: bool = False  # an earlier attempt was cut short: `at` is when that one began


@dataclass(frozen=True, slots=True)
class PlanProgress:
    plan: int
    job: str
    purpose: str
    fingerprint: str
    total: int
    at: float
    steps: Mapping[str, StepProgress] = field(default_factory=dict)
    finished_at: float | None = None
    undone: bool = False
    left: tuple[str, ...] = ()  # in the places it wrote to, when it was undone

    def finished(self, step: str) -> bool:
        found = self.steps.get(step)
        return found is not None and found.state == "finished"


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
    records: int = 0

    @property
    def open(self) -> bool:
        """Whether there is something to resume or to roll back."""
        return self.state not in ("new", "finished", "rolled-back")


def advance(progress: Progress, record: Record) -> Progress:
    """One record further. A record that cannot follow is a damaged or foreign journal."""
    after = replace(progress, records=progress.records + 1, ended=record.at)
    match record:
        case RunStarted():
            _expect(progress.state == "new", progress, record)
            return replace(
                after, state="running", run=record.run, stateshift=record.stateshift, spec=record.spec,
                jobs=record.jobs, began=record.at,
            )  # fmt: skip
        case RunResumed():
            _expect(progress.state in ("running", "failed", "interrupted"), progress, record)
            return replace(after, state="running", failure=None)
        case LockTaken():
            _expect(progress.state in ("running", "rolling-back"), progress, record)
            return replace(after, locks=(*(x for x in progress.locks if x != record.location), record.location))
        case LockReleased():
            return replace(after, locks=tuple(x for x in progress.locks if x != record.location))
        case PlanAdopted():
            _expect(progress.state == "running" and record.plan == len(progress.plans), progress, record)
            adopted = PlanProgress(
                record.plan, record.job, record.purpose, record.fingerprint, record.steps, record.at
            )
            return replace(after, plans=(*progress.plans, adopted))
        case StepStarted():
            _expect(progress.state == "running" and record.plan < len(progress.plans), progress, record)
            return _with_started(after, record)
        case StepFinished():
            before = _step(progress, record.plan, record.step, record)
            seconds = max(record.seconds, record.at - before.at) if before.repeated else record.seconds
            return _with_step(after, record.plan, record.step, replace(
                before, state="finished", seconds=seconds, files=record.files, bytes=record.bytes,
                evidence=record.evidence,
            ))  # fmt: skip
        case StepUndone():
            before = _step(progress, record.plan, record.step, record)
            return _with_step(
                after, record.plan, record.step, replace(before, state="undone", left=record.left)
            )
        case PlanFinished():
            _expect(record.plan < len(progress.plans), progress, record)
            return _with_plan(after, replace(progress.plans[record.plan], finished_at=record.at))
        case PlanUndone():
            _expect(record.plan < len(progress.plans), progress, record)
            return _with_plan(after, replace(progress.plans[record.plan], undone=True, left=record.left))
        case RunFailed():
            _expect(progress.state in ("running", "rolling-back"), progress, record)
            if progress.state == "rolling-back":
                return replace(after, failure=record)
            return replace(after, state="interrupted" if record.exit_code == 130 else "failed", failure=record)
        case RunFinished():
            _expect(progress.state == "running", progress, record)
            return replace(after, state="finished")
        case RollbackStarted():
            _expect(progress.state not in ("new", "rolled-back"), progress, record)
            return replace(after, state="rolling-back", failure=None)
        case RunRolledBack():
            _expect(progress.state == "rolling-back", progress, record)
            return replace(after, state="rolled-back")


def fold(records: Iterator[Record]) -> Progress:
    progress = Progress()
    for record in records:
        progress = advance(progress, record)
    return progress


def encode_record(record: Record) -> bytes:
    text = plain.canonical(record).encode("utf-8", "surrogatepass")
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_records(content: bytes) -> tuple[list[Record], int]:
    """The records, and how many bytes of `content` hold them: what lies behind is a line a kill cut short."""
    records: list[Record] = []
    good = 0
    while good < len(content):
        end = content.find(b"\n", good)
        if end < 0:
            break
        record = _decode_line(content[good:end])
        if record is None:
            if end + 1 == len(content):
                break
            raise JournalError(
                f"record {len(records)} of the journal is damaged (at byte {good})",
                record=len(records),
                hint="nothing was changed; restore the workdir's `journal` from a copy, or look at the target with "
                "`stateshift verify LOCATION` and remove it by hand",
            )
        records.append(record)
        good = end + 1
    return records, good


class Lines(Protocol):
    """Where the journal's bytes are kept."""

    def read(self) -> bytes: ...

    def append(self, line: bytes) -> None:
        """Durable when it returns."""
        ...

    def cut(self, size: int) -> None:
        """Drop what lies behind `size`."""
        ...


class Journal:
    """The journal of one run, held by one process, written by several threads. Reading it changes nothing: a line
    that was cut short is dropped just before the next one is written."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self._lock = lines, threading.Lock()
        content = lines.read()
        records, self._good = decode_records(content)
        self._torn = self._good < len(content)
        if self._torn:
            _expect_ours(content[self._good :])
        self.progress = fold(iter(records))

    def append(self, record: Record) -> Progress:
        with self._lock:
            progress, line = advance(self.progress, record), encode_record(record)
            if self._torn:
                self._lines.cut(self._good)
            self._torn = True  # if this one fails, a part of it may be there
            self._lines.append(line)
            self._torn = False
            self._good += len(line)
            self.progress = progress
            return progress


def _expect_ours(tail: bytes) -> None:
    """What a kill, or a crash of the machine, leaves behind the last whole line begins as a line of ours does, or is
    zeros. Anything else is somebody else's file, which is not ours to cut."""
    head, _, text = tail[:10].partition(b" ")
    ours = len(head) <= 8 and all(c in b"0123456789abcdef" for c in head) and text[:1] in (b"", b"{")
    if not ours and tail.strip(b"\0\n"):
        raise JournalError(
            "the journal does not end as one that stateshift wrote",
            hint="nothing was changed; look at the end of the workdir's `journal`, and restore it from a copy",
        )


def _decode_line(line: bytes) -> Record | None:
    head, _, text = line.partition(b" ")
    try:
        if len(head) != 8 or int(head, 16) != zlib.crc32(text):
            return None
        record: Record = plain.from_plain(Record, json.loads(text))
    except ValueError:
        return None
    return record


def _expect(right: bool, progress: Progress, record: Record) -> None:
    if not right:
        raise JournalError(
            f"record {progress.records} ({record.kind}) cannot follow a run that is {progress.state}",
            record=progress.records,
            hint="this journal is not one that stateshift wrote; nothing was changed",
        )


def _step(progress: Progress, plan: int, step: str, record: Record) -> StepProgress:
    _expect(plan < len(progress.plans) and step in progress.plans[plan].steps, progress, record)
    return progress.plans[plan].steps[step]


def _with_plan(progress: Progress, plan: PlanProgress) -> Progress:
    return replace(progress, plans=tuple(plan if p.plan == plan.plan else p for p in progress.plans))


def _with_started(progress: Progress, record: StepStarted) -> Progress:
    """A step that was begun before and not finished is begun again. A plan that was taken back and is carried out once
    more is no longer taken back, nor finished."""
    plan = progress.plans[record.plan]
    before = plan.steps.get(record.step)
    if before is not None and before.state == "started":
        step = StepProgress(record.phase, "started", before.at, repeated=True)
    else:
        step = StepProgress(record.phase, "started", record.at)
    begun = _with_plan(progress, replace(plan, finished_at=None, undone=False, left=()))
    return _with_step(begun, record.plan, record.step, step)


def _with_step(progress: Progress, plan: int, name: str, step: StepProgress) -> Progress:
    before = progress.plans[plan]
    return _with_plan(progress, replace(before, steps={**before.steps, name: step}))
