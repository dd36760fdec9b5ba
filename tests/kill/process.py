"""A verb of the product, carried out in a process of its own, which can be killed at a moment."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from stateshift import migration
from stateshift.errors import StateshiftError
from stateshift.report import Report
from stateshift.workdir import Workdir
from tests.kill.moments import Moment, Moments, die, watch
from tests.kill.scenario import RUN, Scenario


@dataclass(frozen=True)
class Outcome:
    """How the process ended. `killed` is where it was; else it has either a report or an error."""

    killed: Moment | None = None
    report: Report | None = None
    error: str | None = None
    exit_code: int = 0
    seen: tuple[Moment, ...] = ()

    def __str__(self) -> str:
        return (
            f"killed at {self.killed}"
            if self.killed
            else self.error or f"{self.report and self.report.state}"
        )


def apply(scenario: Scenario, at: Moment | int | None = None) -> Outcome:
    return in_process(scenario, "apply", at)


def resume(scenario: Scenario, at: Moment | int | None = None) -> Outcome:
    """Go on as a person would: a run that never began is applied again."""
    begun = (
        Workdir(scenario.workdir).exists
        and migration.status(Workdir(scenario.workdir)).state != "new"
    )
    return in_process(scenario, "resume" if begun else "apply", at)


def correct(scenario: Scenario, at: Moment | int | None = None) -> Outcome:
    """Go on with the corrected spec."""
    return in_process(scenario, "correct", at)


def rollback(scenario: Scenario, at: Moment | int | None = None) -> Outcome:
    """Take back as a person would: where nothing began there is nothing to take back."""
    return in_process(scenario, "rollback", at) if Workdir(scenario.workdir).exists else Outcome()


def in_process(scenario: Scenario, verb: str, at: Moment | int | str | None = None) -> Outcome:
    """`at` a moment, or how many there are before it, or a place in the cluster's own submit."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_the_child(scenario, verb, at, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    outcome = pickle.loads(told) if told else Outcome(killed=Moment("somewhere in the cluster", 1))
    dead = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert dead == (outcome.killed is not None), f"{verb} ended with status {status}: {outcome}"
    return outcome


def _be_the_child(scenario: Scenario, verb: str, at: Moment | int | str | None, pipe: int) -> None:
    def tell(outcome: Outcome) -> None:
        with os.fdopen(pipe, "wb") as file:
            pickle.dump(outcome, file)

    def tell_and_die(moment: Moment) -> None:
        tell(Outcome(killed=moment))
        die(moment)

    moments = Moments(at if not isinstance(at, str) else None, tell_and_die)
    code = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(at, str):
            scenario.kill_in_submit(at, os.getpid())
        work = _work(scenario, verb, moments)
        watch(moments, str(scenario.root) + "/")
        try:
            outcome = Outcome(report=work())
        except StateshiftError as error:
            outcome = Outcome(
                error=f"{type(error).__name__}: {error.fact}", exit_code=error.exit_code
            )
        seen, moments.at = tuple(moments.seen), None
        tell(Outcome(outcome.killed, outcome.report, outcome.error, outcome.exit_code, seen))
        code = 0
    except Exception:  # a fault of the product or of the test: the parent finds nothing in the pipe
        traceback.print_exc()
    finally:
        os._exit(code)


def _work(scenario: Scenario, verb: str, moments: Moments) -> Callable[[], Report]:
    workdir, adapters = scenario.open_workdir(moments), scenario.adapters(moments)
    match verb:
        case "apply":
            return lambda: migration.apply(scenario.proposal, RUN, workdir, adapters)
        case "resume":
            return lambda: migration.resume(workdir, adapters)
        case "correct":
            return lambda: migration.resume(workdir, adapters, scenario.corrected)
        case "rollback":
            return lambda: migration.rollback(workdir, adapters, discard_progress=True)
    raise AssertionError(verb)
