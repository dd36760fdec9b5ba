"""The context of a run at work, which every part of it is given: the request, the journal, and the
adapters to the outside. Frozen: the journal alone changes in the course of a run. Its stages hand
on the state of a wave to each other.

People watch a run at work: its status in `live.json`, and their requests, which
it heeds: cutover, pause, throttle, stop.

`look` is called between any two writes, by every thread of the run; it reads the wishes a few times
a second. A pause is waited for right there, and only while the job runs: once it has been stopped,
nothing keeps it down longer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from typing import Any, TypeVar, cast

from stateshift import executor, plain
from stateshift.clusters.protocol import Origin
from stateshift.engines.protocol import Engine
from stateshift.engines.registry import engine
from stateshift.errors import Interrupted, StateshiftError, StorageError
from stateshift.journal import Journal, Progress, Record, RunFailed, Steered
from stateshift.migration.adapters import Adapters, world_of
from stateshift.migration.gathering import Inquiry
from stateshift.migration.plan_book import NumberedPlan, PlanBook
from stateshift.migration.proposal import Proposal, proposal_of
from stateshift.notification.notifier import Notifier, Outbox
from stateshift.plan import PHASES, PhaseName
from stateshift.report import Report, summarize
from stateshift.specification import JobSpec, Spec
from stateshift.steering import Live, Steering, Throttle, Wishes
from stateshift.storage.wrappers import Pace
from stateshift.survey import Left
from stateshift.workdir import Workdir
from stateshift.world import Clock, Meter, World

E = TypeVar("E", bound=StateshiftError)
ORIGINS = "origins.json"


@dataclass(frozen=True)
class RunContext:
    """One run. `world` is what its steps act on; `status` tells people what the run is at,
    `control` heeds what they ask of it, and `notifier` sends what the spec's `on` asks for.
    """

    spec: Spec
    engine: Engine
    journal: Journal
    workdir: Workdir
    adapters: Adapters
    world: World
    status: LiveStatus
    control: RunControl
    plans: PlanBook
    notifier: Notifier

    @property
    def progress(self) -> Progress:
        """All that has happened so far."""
        return self.journal.progress

    @property
    def inquiry(self) -> Inquiry:
        return Inquiry(self.spec, self.adapters, self.workdir)

    @property
    def inquiry_at_pace(self) -> Inquiry:
        """The same with the run's own storages, which keep to its pace and are opened once."""
        adapters = replace(self.adapters, open_storage=self.world.storage)
        return Inquiry(self.spec, adapters, self.workdir)

    def now(self) -> float:
        return self.adapters.clock.now()

    def record(self, record: Record) -> None:
        """Write down what has happened, before anything else does."""
        self.journal.append(record)

    def execute(
        self,
        plans: Sequence[NumberedPlan],
        phases: Sequence[PhaseName] = PHASES,
        world: World | None = None,
    ) -> None:
        """Carry out plans together."""
        executor.execute_together(
            plans, world or self.world, self.journal, self.adapters.fleet, phases
        )

    def say(self, line: str) -> None:
        self.world.meter.say(line)

    def job(self, name: str) -> JobSpec:
        job = self.spec.job(name)
        assert job is not None, "the journal names a job that its own spec has not"
        return job

    def with_workdir(self, hint: str | None) -> str | None:
        """Return a hint with this run's workdir in it."""
        return hint and hint.replace("WORKDIR", quote(str(self.workdir.path)))

    def write_report(self) -> Report:
        """Write the report of the run so far into its workdir."""
        report = summarize(self.progress, self.workdir.commands())
        self.workdir.write("report.json", plain.to_plain(report))
        return report

    def record_failure(self, error: E) -> E:
        """Write a failure down, unless the journal has it. Return it with this run's own commands
        in its hint.

        If the workdir's own disk is full the failure cannot be written down. It is raised all the
        same, and a journal that ends in the middle of a run can be resumed.
        """
        hint = self.with_workdir(error.hint)
        if isinstance(error, Interrupted):
            hint = self._after_interruption()
        if self.progress.state in ("running", "rolling-back"):
            with suppress(StorageError):
                self.record(
                    RunFailed(
                        at=self.now(),
                        error=type(error).__name__,
                        message=error.fact,
                        hint=hint,
                        exit_code=error.exit_code,
                        step=error.where.get("step"),
                    )
                )
                self.write_report()
        return error.with_hint(hint)

    def _after_interruption(self) -> str:
        """Return the ways to go on, and the jobs that may run at their new places."""
        place = quote(str(self.workdir.path))
        if self.progress.state == "rolling-back":
            return f"stateshift resume {place}"
        started = []
        for plan in self.progress.known:
            begun = [step for step in plan.steps.values() if step.state != "undone"]
            phases = {step.phase for step in begun}
            if plan.finished_at is None and phases & {"submit", "confirm"}:
                started.append(plan.job)
        hint = f"stateshift resume {place}; or, to take it back: stateshift rollback {place}"
        if started:
            hint += f"; {' and '.join(started)} was started on the target, and may run there"
        return hint


def open_run(
    proposal: Proposal, journal: Journal, workdir: Workdir, adapters: Adapters
) -> RunContext:
    """Make the context of a run that begins."""
    spec, clock = proposal.spec, adapters.clock
    status = LiveStatus(adapters.meter, workdir.steering, clock)
    world = world_of(spec, journal.progress.run, workdir, replace(adapters, meter=status))
    control = RunControl(status, journal, spec, world)
    return RunContext(
        spec=spec,
        engine=engine(spec.engine),
        journal=journal,
        workdir=workdir,
        adapters=adapters,
        world=replace(world, look=control.look, origins=partial(_origin_of, workdir)),
        status=status,
        control=control,
        plans=PlanBook(proposal, journal, workdir, clock),
        notifier=Notifier(
            spec.on, Outbox(workdir.path, workdir.write, lambda path: Workdir(path).held)
        ),
    )


def _origin_of(workdir: Workdir, job: str) -> Origin | None:
    noted = read_origins(workdir).get(job)
    return None if noted is None else Origin(**noted)


def read_origins(workdir: Workdir) -> dict[str, Any]:
    """Return the origins of jobs that were written down (`origins`)."""
    if not (workdir.path / ORIGINS).exists():
        return {}
    return cast(dict[str, Any], workdir.read(ORIGINS))


def reopen_run(journal: Journal, workdir: Workdir, adapters: Adapters) -> RunContext:
    """Make the context of a run that was begun earlier, from its workdir."""
    return open_run(proposal_of(workdir), journal, workdir, adapters)


# Work that goes on beside others until the event is set.
BesideWork = Callable[[threading.Event], None]


@dataclass
class WaveState:
    """`pending` jobs have not moved yet; `beside_stop` is the work beside their stop, `halted`
    those that a halt of this run has stopped, `moves` the plans for their targets.
    """

    jobs: tuple[JobSpec, ...]
    pending: list[JobSpec] = field(default_factory=list)
    beside_stop: BesideWork | None = None
    halted: frozenset[str] = frozenset()
    moves: list[NumberedPlan] = field(default_factory=list)


SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_BETWEEN_WORDS = 0.5


class LiveStatus:
    """A meter that passes on what it is told, and keeps `live.json`."""

    def __init__(self, inner: Meter, steering: Steering, clock: Clock) -> None:
        self._inner, self.steering, self._clock = inner, steering, clock
        self._lock = threading.Lock()
        self._live = Live(clock.now())
        self._told = float("-inf")
        self._said = ""

    def phase(self, job: str, name: str, files: int, bytes: int) -> None:
        self._inner.phase(job, name, files, bytes)
        now = self._clock.now()
        self._change(
            True,
            job=job,
            phase=name,
            began=now,
            files=files,
            bytes=bytes,
            files_done=0,
            bytes_done=0,
            waiting="",
        )

    def step(self, name: str, description: str) -> None:
        self._inner.step(name, description)

    def done(self, files: int, bytes: int) -> None:
        self._inner.done(files, bytes)
        self._change(False, more=(files, bytes))

    def say(self, line: str) -> None:
        self._inner.say(line)

    def left(self, job: str, left: Left) -> None:
        with self._lock:
            both = {**self._live.left, job: left}
        self._change(True, left=both, down_since=None)

    def stopping(self) -> None:
        """Forget what was left: the job is being stopped."""
        self._change(True, left={}, down_since=None)

    def down(self, since: float | None) -> None:
        self._change(True, down_since=since)

    def waiting(self, job: str, what: str) -> None:
        """Say once, for the readers of a log, why nothing goes on."""
        if what != self._live.waiting:
            self._change(True, waiting=what)
        if what and what != self._said:
            self._said = what
            self._inner.say(f"{job}: waiting {what}")

    def paused(self, on: bool) -> None:
        self._change(True, paused=on)

    def _change(self, at_once: bool, more: tuple[int, int] = (0, 0), **values: object) -> None:
        with self._lock:
            now, live = self._clock.now(), self._live
            self._live = replace(
                live,
                at=now,
                files_done=live.files_done + more[0],
                bytes_done=live.bytes_done + more[1],
            )
            self._live = replace(self._live, **values)  # type: ignore[arg-type]
            if at_once or now - self._told >= SECONDS_BETWEEN_WORDS or now < self._told:
                self._told = now
                self.steering.tell(self._live)


class RunControl:
    """Heeds requests by the pace of a run's world, and by the event that ends the run."""

    def __init__(self, status: LiveStatus, journal: Journal, spec: Spec, world: World) -> None:
        self.steering = status.steering
        self._status = status
        self._journal = journal
        self._clock = world.clock
        self._stop = world.stop
        self._pace = world.pace if isinstance(world.pace, Pace) else None
        self._spec_says = Throttle(spec.bytes_per_second, spec.operations_per_second)
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self.wishes = Wishes()
        self.may_pause = False
        self._paused = False

    @property
    def bytes_per_second(self) -> float | None:
        """The limit that the run is held to now."""
        return self._pace.bytes_per_second if self._pace is not None else None

    def look(self) -> None:
        """Heed what is requested now; return when the run may go on."""
        while self._heed_now() and self.may_pause and self.wishes.paused:
            if self._stop.is_set():
                return
            self._clock.sleep(SECONDS_BETWEEN_LOOKS)
            self._looked = float("-inf")

    def _heed_now(self) -> bool:
        """Heed the wishes; whether there is a pause. One thread reads for all."""
        with self._lock:
            now = self._clock.now()
            if now - self._looked >= SECONDS_BETWEEN_LOOKS or now < self._looked:
                self._looked = now
                wishes = self.steering.wishes()
                before, self.wishes = self.wishes, wishes
                if wishes.stop:
                    self._stop.set()
                if wishes.throttle != before.throttle:
                    limits = wishes.throttle or self._spec_says
                    if self._pace is not None:
                        self._pace.bytes_per_second = limits.bytes_per_second
                        self._pace.operations_per_second = limits.operations_per_second
                        parts = []
                        if limits.bytes_per_second:
                            parts.append(f"{limits.bytes_per_second / 1e6:g} MB/s")
                        if limits.operations_per_second:
                            parts.append(f"{limits.operations_per_second:g} requests a second")
                        self._record("throttle", ", ".join(parts) or "as fast as it goes")
                if wishes.cutover != before.cutover and wishes.cutover is not None:
                    self._record("cutover", wishes.cutover)
                paused = wishes.paused and self.may_pause
                if paused != self._paused:
                    self._paused = paused
                    self._status.paused(paused)
                    self._record("pause" if paused else "go on", "")
            return self.wishes.paused

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear a request to end the run, also while a step waits for a cluster."""
        over = threading.Event()

        def listen() -> None:
            while not over.wait(SECONDS_BETWEEN_WORDS) and not self._stop.is_set():
                if self.steering.wishes().stop:
                    self._stop.set()

        listener = threading.Thread(target=listen, name="listening", daemon=True)
        listener.start()
        try:
            yield
        finally:
            over.set()
            listener.join()

    def _record(self, what: str, value: str) -> None:
        if self._journal.progress.state in ("running", "rolling-back"):
            self._journal.append(Steered(self._clock.now(), what, value))
