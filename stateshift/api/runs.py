"""Runs from a program: plan, apply, resume, rollback, status."""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from stateshift.api.profiles import policies_in_use
from stateshift.api.values import PlannedMove, RunResult, RunStatus

if TYPE_CHECKING:
    from stateshift.api.requests import SpecLike
    from stateshift.errors import StateshiftError
    from stateshift.journal import Progress as RunProgress
    from stateshift.migration import Adapters
    from stateshift.migration.adapters import Gauge
    from stateshift.workdir import Workdir

WORKDIRS = ".stateshift"
AGAIN = "the same command again"
WORKDIR = r"\bWORKDIR\b"

PathLike = str | os.PathLike[str]


def plan(
    spec: SpecLike,
    *,
    jobs: Sequence[str] = (),
    deep: bool = False,
    adapters: Adapters | None = None,
) -> PlannedMove:
    """Plan the moves of a spec: the steps, their duration, and the findings. Reads only.

    Args:
        spec: a spec as a dictionary, as a `Spec` or as the path of a file; or a saved plan's path.
        jobs: only these jobs of the spec.
        deep: read all that a restart needs to its end.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        The plan. `refusals` says why it could not be applied; `to_dict()` is the document of
        `stateshift plan --json`.

    Raises:
        SpecError: the spec is not valid; `complaints` has a JSON pointer each.
        PlanError: what was asked does not fit what is there.
        FormatError: bytes are not what their format says.
        StorageError, ClusterError: the outside could not be asked.
    """
    from stateshift import migration
    from stateshift.api.requests import move_of
    from stateshift.workdir import Workdir

    request = move_of(spec)
    if isinstance(request, migration.Proposal):
        return PlannedMove(request.of_jobs(jobs))
    reached = _reached(adapters, None, None)
    place = Workdir(os.path.join(WORKDIRS, "plan"))
    proposal = migration.propose(request, reached, place, jobs, deep)
    return PlannedMove(proposal, migration.with_breach(proposal, reached))


def sign(
    plan: PathLike | PlannedMove,
    key: PathLike,
    *,
    seconds: float = 24 * 3600.0,
    adapters: Adapters | None = None,
) -> PlannedMove:
    """Sign a plan that you have reviewed: who trusts your key may begin a run by it. Its `save`
    writes the signed plan.

    Args:
        plan: the path of a saved plan, or what `plan` returned.
        key: the file of a private key (Ed25519), which nobody else may use.
        seconds: for how long a run may begin by it.
        adapters: what tells the time, where a test has its own.

    Returns:
        The plan with its signature.

    Raises:
        SpecError: it is no saved plan, or no such key.
        PlanError: a finding refuses the plan: it is not signed as it stands.
    """
    from stateshift import migration
    from stateshift.api.requests import move_of
    from stateshift.errors import PlanError, SpecError

    proposal = plan.proposal if isinstance(plan, PlannedMove) else move_of(os.fspath(plan))
    if not isinstance(proposal, migration.Proposal):
        fact = f"{os.fspath(cast(PathLike, plan))} is a spec, and a saved plan is signed"
        raise SpecError.of("plan", fact, hint="plan(spec).save(FILE) saves one to review")
    if proposal.refusals:
        raise PlanError("the plan is refused as it stands, and was not signed")
    reached, document = _reached(adapters, None, None), migration.encode_proposal(proposal)
    signed = migration.sign_plan(document, os.fspath(key), seconds, reached)
    proposal = replace(proposal, signed=signed)
    return PlannedMove(proposal, migration.with_breach(proposal, reached))


def apply(
    spec: SpecLike | PlannedMove,
    *,
    workdir: PathLike | None = None,
    jobs: Sequence[str] = (),
    fleet: str | None = None,
    signed_by: Sequence[PathLike] = (),
    progress: Watch | None = None,
    stop: threading.Event | None = None,
    adapters: Adapters | None = None,
) -> RunResult:
    """Carry out a spec or a plan. Nobody is asked: what was planned is done.

    Args:
        spec: as `plan` takes it, or what `plan` returned.
        workdir: where journal, log and report are kept; `.stateshift/<run>` where none is given.
        jobs: only these jobs of the spec.
        fleet: a Spark master whose executors share the work.
        signed_by: files of public keys (Ed25519); one of them has signed the plan, or nothing is
            begun.
        progress: called with what is done, from several threads.
        stop: set it to interrupt the run after the current write; it can be resumed.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        How the run ended; `to_dict()` is the document of `stateshift apply --json`.

    Raises:
        PlanError: a finding refuses the plan, or the plan is stale.
        PolicyError: it breaks a rule, or is not signed as `signed_by` asks.
        JournalError: the workdir is another run's, or another run holds the target.
        Interrupted: `stop` was set; `resume` goes on.
        StateshiftError: what else went wrong, with a hint; the run can be resumed or rolled back.
    """
    from stateshift import migration
    from stateshift.api.requests import move_of
    from stateshift.workdir import Workdir

    request = spec.proposal if isinstance(spec, PlannedMove) else move_of(spec)
    reached = _reached(adapters, progress, stop)
    reached = replace(reached, signed_by=tuple(os.fspath(key) for key in signed_by))
    if isinstance(request, migration.Proposal):
        names = [job.name for job in request.jobs(jobs)]
    else:
        names = [job.name for job in migration.jobs_of(request, jobs)]
    run = run_name(names, time.time(), os.urandom(2))
    place = Workdir(os.fspath(workdir or os.path.join(WORKDIRS, run)))
    refuse_another(place)
    with _hints(place):
        if isinstance(request, migration.Proposal):
            proposal = request.of_jobs(jobs)
        else:
            proposal = migration.propose(request, reached, place, jobs)
        with migration.open_fleet(reached, fleet, proposal.spec, place) as manned:
            report = migration.apply(proposal, run, place, manned)
    return RunResult(report, str(place.path))


def resume(
    workdir: PathLike,
    *,
    spec: SpecLike | None = None,
    fleet: str | None = None,
    progress: Watch | None = None,
    stop: threading.Event | None = None,
    adapters: Adapters | None = None,
) -> RunResult:
    """Go on with a run where it stopped; a finished one has nothing left to do.

    Args:
        workdir: the run's.
        spec: the same spec with another `submit`: jobs start as it says.
        fleet: a Spark master whose executors share the work.
        progress: called with what is done, from several threads.
        stop: set it to interrupt the run after the current write.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        How the run ended; `to_dict()` is the document of `stateshift resume --json`.

    Raises:
        JournalError: there is no run, another process holds it, or its journal is damaged.
        StateshiftError: what else went wrong, as `apply` has it.
    """
    from stateshift import migration
    from stateshift.api.requests import spec_of
    from stateshift.workdir import Workdir

    place = Workdir(os.fspath(workdir))
    place.require()
    corrected = spec_of(spec) if spec is not None else None
    with _hints(place):
        asked = migration.spec_of(place)
        with migration.open_fleet(
            _reached(adapters, progress, stop), fleet, asked, place
        ) as manned:
            report = migration.resume(place, manned, corrected)
    return RunResult(report, str(place.path), place.page_told)


def rollback(
    workdir: PathLike,
    *,
    discard_progress: bool = False,
    discard_last_copy: bool = False,
    runs_again: bool = False,
    progress: Watch | None = None,
    stop: threading.Event | None = None,
    adapters: Adapters | None = None,
) -> RunResult:
    """Take a run back: everything it wrote, and nothing else.

    Args:
        workdir: the run's.
        discard_progress: throw away what the job has committed on the target since.
        discard_last_copy: delete the copy also where the source holds no image any more that could
            take its place.
        runs_again: somebody has started the job where it was: it is not started.
        progress: called with what is done, from several threads.
        stop: set it to interrupt the rollback after the current write; `resume` goes on with it.
        adapters: how storages and clusters are reached, where a test has its own.

    Returns:
        How it ended; what could not be taken back is in the report, as `left`.

    Raises:
        PlanError: the job has committed on the target since, and `discard_progress` is not set; or
            the copy may be the last one, and `discard_last_copy` is not set.
        JournalError: there is no run, another process holds it, or its journal is damaged.
        StateshiftError: what else went wrong, as `apply` has it.
    """
    from stateshift import migration
    from stateshift.workdir import Workdir

    place = Workdir(os.fspath(workdir))
    with _hints(place):
        reached = _reached(adapters, progress, stop)
        if runs_again:
            migration.check_rollback(place, reached, discard_progress, discard_last_copy)
            migration.note_running(place, reached)
        report = migration.rollback(
            place, reached, discard_progress, discard_last_copy=discard_last_copy
        )
    return RunResult(report, str(place.path), place.page_told)


def status(workdir: PathLike) -> RunStatus:
    """Return the status of a run, also while another process works on it. Reads only.

    Args:
        workdir: the run's.

    Returns:
        The status; `to_dict()` is the document of `stateshift status --json`.

    Raises:
        JournalError: there is no run, or its journal is damaged.
    """
    from stateshift import migration
    from stateshift.steering import ticking
    from stateshift.workdir import Workdir

    place = Workdir(os.fspath(workdir))
    report, held, now = migration.status(place), place.held, time.time()
    live = ticking(place.steering.live(), now) if held else None
    return RunStatus(report, str(place.path), held, live, None if held else place.page_told, now)


# ---- how a run is watched: one function is called with all that was done


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing that happened.

    phase    a phase of `job` begins: its `name`, and the files and bytes that it takes
    step     a step begins: its `name`, and in `text` what it does
    done     so many files and bytes more are done
    message  a line for a person, in `text`
    """

    event: Literal["phase", "step", "done", "message"]
    job: str = ""
    name: str = ""
    text: str = ""
    files: int = 0
    bytes: int = 0


Watch = Callable[[Progress], None]


class CallbackMeter:
    """Calls a function with everything that a run tells, from whichever thread tells it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def phase(self, job: str, name: str, files: int, bytes: int) -> None:
        """Tell that a phase begins."""
        self._watch(Progress("phase", job=job, name=name, files=files, bytes=bytes))

    def step(self, name: str, description: str) -> None:
        """Tell that a step begins."""
        self._watch(Progress("step", name=name, text=description))

    def done(self, files: int, bytes: int) -> None:
        """Tell that files are done."""
        self._watch(Progress("done", files=files, bytes=bytes))

    def say(self, line: str) -> None:
        """Tell a line."""
        self._watch(Progress("message", text=line))


def _reached(
    adapters: Adapters | None, progress: Watch | None, stop: threading.Event | None
) -> Adapters:
    from stateshift import migration

    reached = adapters or migration.real_adapters(stop=stop)
    reached = replace(reached, policies=policies_in_use, measure=measure_run)
    if stop is not None:
        reached = replace(reached, stop=stop)
    return reached if progress is None else replace(reached, meter=CallbackMeter(progress))


def measure_run(
    workdir: Workdir, progress: RunProgress, at_work: bool, now: float
) -> Iterator[Gauge]:
    """Yield the metrics of the jobs of a run at work here, as `stateshift metrics` has them."""
    from stateshift.documents.metrics import LABELS, ObservedRun, families
    from stateshift.migration.adapters import Gauge
    from stateshift.report import summarize

    place, live = os.path.abspath(workdir.path), workdir.steering.live() if at_work else None
    run = ObservedRun(place, progress, summarize(progress), at_work, live)
    for family in families([run], now):
        if "job" in LABELS[family.name]:  # others count the runs of all workdirs
            for sample in family.samples:
                yield Gauge(family.name, family.help, float(sample.value), sample.labels)


@contextmanager
def _hints(place: Workdir) -> Iterator[None]:
    """Make what a hint says of the run a command that can be pasted."""
    from stateshift import migration
    from stateshift.errors import StateshiftError

    try:
        yield
    except StateshiftError as error:
        begun = place.exists and migration.progress_of(place).state != "new"
        raise name_the_run(error, str(place.path) if begun else None) from error.__cause__


def name_the_run(error: StateshiftError, path: str | None) -> StateshiftError:
    """Return the error with the run's workdir in its hint, which then can be pasted.

    If no run was begun, there is nothing to be resumed: the same command is given again.
    """
    named = rf"`?stateshift resume {WORKDIR}`?" if path is None else WORKDIR
    instead = AGAIN if path is None else shlex.quote(path)
    return error.with_hint(re.sub(named, lambda found: instead, error.hint or "") or None)


def run_name(jobs: Sequence[str], now: float, random: bytes) -> str:
    """Return a run's name, such as `20260301-120000-orders-1f3a`.

    It says when (UTC) and what, and has four digits so that two at once differ.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    first = jobs[0] if jobs else ""
    slug = re.sub(r"[^a-z0-9]+", "-", first.lower()).strip("-")[:32].strip("-") or "run"
    return f"{stamp}-{slug}-{random.hex()}"


def refuse_another(place: Workdir) -> None:
    """Refuse the workdir of a run for another one. One that is over has nothing to be resumed."""
    from stateshift import migration
    from stateshift.errors import JournalError

    if not place.exists:
        return
    state = migration.progress_of(place).state
    path, another = str(place.path), "give another --workdir, or none"
    if state in ("finished", "rolled-back"):
        over = "is finished" if state == "finished" else "was rolled back"
        shown = f"a new run has its own: {another}; of this one: stateshift status "
        fact = f"{path} is the workdir of a run that {over}"
        raise JournalError(fact, hint=f"{shown}{shlex.quote(path)}")
    raise JournalError(
        f"{path} is the workdir of a run already",
        hint=f"stateshift resume {shlex.quote(path)}; or {another}",
    )
