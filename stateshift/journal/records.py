"""One thing that happened, at one time: the kinds of records there are. A plan is too long for a
record; it names the file and the plan's fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from stateshift import plain
from stateshift.purpose import Purpose
from stateshift.step.evidence import Evidence
from stateshift.survey import Left, PositionChange

CommandName = Literal["apply", "resume", "rollback", "cutover", "pause", "throttle"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command, without its secrets, and who gave it where; a program's call has no words."""

    user: str
    host: str
    command: str
    sudo_user: str = ""  # who became `user` by sudo
    policy: str = ""  # the files whose rules it kept, each with the beginning of its digest


@dataclass(frozen=True, slots=True)
class GivenCommand:
    """A command that was given for a run, and who gave it. It is no record: an earlier version
    takes a journal with one it does not know for damaged. The workdir has a file of these.
    """

    what: CommandName
    at: float
    by: Invocation


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first record of a journal: what is run, by which version, for which jobs."""

    kind: ClassVar[str] = "run-started"
    at: float
    run: str
    stateshift: str
    spec: str
    jobs: tuple[str, ...]
    rehearses: bool = plain.later(False)  # it is a drill, and is thrown away


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A run that was cut short, or failed, goes on from here."""

    kind: ClassVar[str] = "run-resumed"
    at: float


@dataclass(frozen=True, slots=True)
class BootNoted:
    """Files are copied without a sync from here on, in this start of the machine; empty where the
    system does not say which it is. A run that syncs all it copies has no such record.
    """

    kind: ClassVar[str] = "boot-noted"
    at: float
    boot: str


@dataclass(frozen=True, slots=True)
class LockTaken:
    """Written before the lock is taken: a rollback then knows of a lock that may be there."""

    kind: ClassVar[str] = "lock-taken"
    at: float
    location: str


@dataclass(frozen=True, slots=True)
class LockReleased:
    """The lock on a location is ours no longer."""

    kind: ClassVar[str] = "lock-released"
    at: float
    location: str


@dataclass(frozen=True, slots=True)
class PlanAdopted:
    """A plan is carried out from here on. `plan` is its number in the run and names its file."""

    kind: ClassVar[str] = "plan-adopted"
    at: float
    plan: int
    job: str
    purpose: Purpose
    fingerprint: str
    steps: int
    source: str = ""
    engine: str = ""  # earlier versions wrote none
    positions: tuple[PositionChange, ...] = plain.later(())


@dataclass(frozen=True, slots=True)
class PlansForgotten:
    """The number of plans that were here, in a row, and each job's `rounds` among them. A later
    plan answers for their copies, and counts as one of them.
    """

    kind: ClassVar[str] = "plans-forgotten"
    at: float
    count: int
    rounds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """Written before a step begins, so that a step cut short is known to have an effect."""

    kind: ClassVar[str] = "step-started"
    at: float
    plan: int
    phase: str
    step: str
    stopped: bool = False  # it starts again what we had stopped


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step is done; its evidence says what a later look has to find."""

    kind: ClassVar[str] = "step-finished"
    at: float
    plan: int
    step: str
    seconds: float
    files: int
    bytes: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class StepUndone:
    """The effect of a step is taken back, but for what is `left`."""

    kind: ClassVar[str] = "step-undone"
    at: float
    plan: int
    step: str
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanFinished:
    """Every step of a plan is done."""

    kind: ClassVar[str] = "plan-finished"
    at: float
    plan: int


@dataclass(frozen=True, slots=True)
class OriginNoted:
    """A cluster has told how its job was started. `told` has no credentials."""

    kind: ClassVar[str] = "origin-noted"
    at: float
    job: str
    cluster: str
    told: str


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """A look at a job that runs, before its next round, or before it was stopped."""

    kind: ClassVar[str] = "round-seen"
    at: float
    job: str
    left: Left


@dataclass(frozen=True, slots=True)
class ImageKept:
    """A standby published an image; `committed_at` is when the source wrote it. `as_of` is when the
    source had nothing newer; `rpo_seconds_max` is the bound of the spec.
    """

    kind: ClassVar[str] = "image-kept"
    at: float
    job: str
    epoch: int | None = None
    committed_at: float | None = None
    as_of: float | None = plain.later(None)
    rpo_seconds_max: float | None = plain.later(None)


@dataclass(frozen=True, slots=True)
class SourceLost:
    """A standby lost its source; without a `reason` it is back. `epoch`: of the kept image; `as_of`
    is when the source had nothing newer.
    """

    kind: ClassVar[str] = "source-lost"
    at: float
    job: str
    reason: str
    epoch: int | None = None
    as_of: float | None = plain.later(None)


@dataclass(frozen=True, slots=True)
class RpoJudged:
    """A standby would lose more than its spec allows, or no longer would. Both were told."""

    kind: ClassVar[str] = "rpo-judged"
    at: float
    job: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that a run came upon after its plan was shown."""

    kind: ClassVar[str] = "warned"
    at: float
    job: str
    message: str


@dataclass(frozen=True, slots=True)
class Steered:
    """A request is heeded from here on: cutover, pause, go on, throttle."""

    kind: ClassVar[str] = "steered"
    at: float
    what: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class PlanUndone:
    """Every step of a plan is taken back; `left` is what others wrote to its places."""

    kind: ClassVar[str] = "plan-undone"
    at: float
    plan: int
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ends here with an error; it can be resumed or rolled back."""

    kind: ClassVar[str] = "run-failed"
    at: float
    error: str
    message: str
    hint: str | None
    exit_code: int
    step: str | None = None


@dataclass(frozen=True, slots=True)
class WaveGivenUp:
    """A wave failed, and the run goes on. With `back` it is taken back; a resume tries it again."""

    kind: ClassVar[str] = "wave-given-up"
    at: float
    jobs: tuple[str, ...]
    back: bool
    error: str
    message: str
    hint: str | None
    exit_code: int
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A drill has ended, with a `failure` or well, and is thrown away from here on. `seconds` is
    how long each stage took.
    """

    kind: ClassVar[str] = "rehearsed"
    at: float
    job: str
    epoch: int | None
    failure: str
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunFinished:
    """Every plan of the run is done."""

    kind: ClassVar[str] = "run-finished"
    at: float


@dataclass(frozen=True, slots=True)
class RollbackStarted:
    """The run is taken back from here on."""

    kind: ClassVar[str] = "rollback-started"
    at: float
    discard: bool = False  # what the job itself wrote to the target goes, too
    automatic: bool = False  # because a job failed, and the spec says so
    last_copy: bool = plain.later(False)  # also where the source has no such image


@dataclass(frozen=True, slots=True)
class RollbackRefused:
    """A job committed something while it was being stopped for the rollback: nothing else of it was
    taken back. The run has failed, as one whose job has to be started once more.
    """

    kind: ClassVar[str] = "rollback-refused"
    at: float
    error: str
    message: str
    hint: str | None
    exit_code: int


@dataclass(frozen=True, slots=True)
class RunRolledBack:
    """Everything that the run did is taken back."""

    kind: ClassVar[str] = "run-rolled-back"
    at: float


Record = (
    RunStarted
    | RunResumed
    | BootNoted
    | LockTaken
    | LockReleased
    | PlanAdopted
    | PlansForgotten
    | StepStarted
    | StepFinished
    | StepUndone
    | PlanFinished
    | PlanUndone
    | OriginNoted
    | RoundSeen
    | ImageKept
    | SourceLost
    | RpoJudged
    | Steered
    | Warned
    | RunFailed
    | WaveGivenUp
    | Rehearsed
    | RunFinished
    | RollbackStarted
    | RollbackRefused
    | RunRolledBack
)
