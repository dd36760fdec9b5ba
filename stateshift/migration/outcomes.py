"""The fate of the jobs of a run when one of them fails. Pure: here it is only decided and said.

    outcome(on_failure, failure, committed_since) -> Outcome

    on_failure         failure      committed_since   the wave   the run
    any                INTERRUPTED  any               LEAVE      STOP
    stop               FAILED       any               LEAVE      STOP
    restart            FAILED       WAVE              LEAVE      STOP
    restart            FAILED       NOBODY, OTHERS    TAKE_BACK  STOP
    finish             FAILED       WAVE              LEAVE      GO_ON
    finish             FAILED       NOBODY, OTHERS    TAKE_BACK  GO_ON
    rollback, discard  FAILED       WAVE              LEAVE      STOP
    rollback, discard  FAILED       OTHERS            TAKE_BACK  STOP
    rollback, discard  FAILED       NOBODY            TAKE_BACK  TAKE_BACK

Carrying an outcome out may fail as well. An `Aftermath` says how far that came, and `hint_after`
makes the one hint of it that the user reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from stateshift.errors import Interrupted, StateshiftError
from stateshift.specification.model import OnFailure


class Failure(Enum):
    """How a wave ended."""

    INTERRUPTED = "interrupted"
    FAILED = "failed"


class CommittedSince(Enum):
    """The jobs whose progress on a target forbids taking the run back, unless the spec says
    `discard`. Other reasons (a later run has moved the job on) count in the same way.
    """

    NOBODY = "nobody"
    OTHERS = "others"  # jobs of other waves: the wave that failed can be taken back alone
    WAVE = "wave"  # a job of the wave that failed


class WaveFate(Enum):
    """The fate of the wave that failed."""

    LEAVE = "leave"
    TAKE_BACK = "take back"


class RunFate(Enum):
    """The fate of the other waves."""

    STOP = "stop"
    GO_ON = "go on"
    TAKE_BACK = "take back"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The fate of the wave that failed, and of the run's other waves."""

    wave: WaveFate
    run: RunFate


STOPPED = Outcome(WaveFate.LEAVE, RunFate.STOP)
RESUME = "`stateshift resume WORKDIR`"
ROLLBACK = "`stateshift rollback WORKDIR`"


def outcome(on_failure: OnFailure, failure: Failure, committed_since: CommittedSince) -> Outcome:
    """Return the fate of the wave that failed, and of the others."""
    if failure is Failure.INTERRUPTED or on_failure == "stop":
        return STOPPED
    is_forbidden = committed_since is CommittedSince.WAVE
    wave = WaveFate.LEAVE if is_forbidden else WaveFate.TAKE_BACK
    if on_failure == "finish":
        return Outcome(wave, RunFate.GO_ON)
    if committed_since is CommittedSince.NOBODY and on_failure != "restart":
        return Outcome(wave, RunFate.TAKE_BACK)
    return Outcome(wave, RunFate.STOP)


def failure_of(error: StateshiftError) -> Failure:
    """Return the end of a wave that raised this error."""
    return Failure.INTERRUPTED if isinstance(error, Interrupted) else Failure.FAILED


class Reached(Enum):
    """How far taking a wave or a run back came."""

    NOTHING = "nothing"  # it was not tried
    DONE = "done"
    FORBIDDEN = "forbidden"  # by what jobs have committed; nothing was touched
    COMMITTED = "committed"  # a job committed while it was stopped for it
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something was not taken back, and the hint."""

    fact: str
    hint: str | None = None

    @property
    def told(self) -> str:
        return f"{self.fact} ({self.hint})" if self.hint else self.fact


@dataclass(frozen=True, slots=True)
class Restart:
    """The fate of jobs that had been stopped for a rollback that was then refused."""

    jobs: tuple[str, ...]
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The reaction to a failed wave: how far taking back came, and why no further."""

    wave: tuple[str, ...]
    wave_reached: Reached = Reached.NOTHING
    wave_reason: Reason | None = None
    run_reached: Reached = Reached.NOTHING
    run_reason: Reason | None = None
    restart: Restart | None = None
    restarted: bool = False  # jobs of the wave that ran, and were started again where they were
    unsure: tuple[str, ...] = ()  # the lines of those that may have been stopped, or not
    down: tuple[str, ...] = ()  # the lines of those that ran, and that nothing has started again


def hint_after(own: str | None, after: Aftermath) -> str | None:
    """Return the hint of a failure: the fate of the jobs, and a command. `own` is the failure's."""
    mend = "mend this" if own is None or RESUME[1:-1] in own else f"mend this ({own})"
    if after.run_reached not in (Reached.NOTHING, Reached.FORBIDDEN):
        return _run_hint(after, mend)
    if after.wave_reached is Reached.NOTHING:
        return own
    hint = _wave_hint(after, mend)
    if after.run_reached is Reached.FORBIDDEN and after.run_reason is not None:
        hint += f"; the rest was not taken back: {after.run_reason.fact}"
    return hint


def _wave_hint(after: Aftermath, mend: str) -> str:
    names, reason = _names(after.wave), after.wave_reason or Reason("")
    match after.wave_reached:
        case Reached.FORBIDDEN:
            return f"{names} was not taken back: {reason.fact}; {RESUME} tries it again"
        case Reached.COMMITTED:
            not_back = f"{names} was not taken back: {reason.fact}; {reason.hint}"
            return not_back + _restart_hint(after.restart)
        case Reached.FAILED:
            failed = f"Taking {names} back failed, too: {reason.told}"
            return (
                f"{RESUME} tries again to take {names} back and to move it; {ROLLBACK} takes the "
                f"run back for good. {failed}"
            )
        case _:
            fate = " and was started again where it was" if after.restarted else ""
            if after.unsure:
                fate = f", and {'; '.join(after.unsure)}"
            if after.down:
                fate = f", and IS DOWN: {'; '.join(after.down)}"
            return f"{names} was taken back{fate}; {mend}, then {RESUME} tries it again"


def _run_hint(after: Aftermath, mend: str) -> str:
    reason = after.run_reason or Reason("")
    match after.run_reached:
        case Reached.COMMITTED:
            not_back = f"the run was not taken back: {reason.fact}; {reason.hint}"
            return not_back + _restart_hint(after.restart)
        case Reached.FAILED:
            return f"taking the run back failed, too: {reason.told}; {RESUME} goes on with that"
        case _:
            done = "the run was taken back, as `on_failure` says"
            return f"{done}: {mend}, then apply the spec again"


def _restart_hint(restart: Restart | None) -> str:
    if restart is None:
        return ""
    names = _names(restart.jobs)
    if restart.trouble is not None:
        return f"; to start {names} there again failed, too: {restart.trouble}"
    return f"; started there again: {names}"


def _names(jobs: Sequence[str]) -> str:
    return " and ".join(jobs)
