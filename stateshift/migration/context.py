"""The context of a run at work, which every part of it is given: the request, the journal, and the
adapters to the outside. Frozen: the journal alone changes in the course of a run. Its stages hand
on the state of a wave to each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from typing import Any, TypeVar, cast

from stateshift import executor, plain
from stateshift.clusters.protocol import Origin
from stateshift.engines.protocol import Engine
from stateshift.engines.registry import engine
from stateshift.errors import Interrupted, StateshiftError, StorageError
from stateshift.journal import Journal, Progress, Record, RunFailed
from stateshift.migration.adapters import Adapters, world_of
from stateshift.migration.gathering import Inquiry
from stateshift.migration.plan_book import NumberedPlan, PlanBook
from stateshift.migration.proposal import Proposal, proposal_of
from stateshift.migration.run_control import LiveStatus, RunControl
from stateshift.notification.notifier import Notifier, Outbox
from stateshift.plan import PHASES, PhaseName
from stateshift.report import Report, summarize
from stateshift.specification import JobSpec, Spec
from stateshift.workdir import Workdir
from stateshift.world import World

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
            hint = f"stateshift resume {quote(str(self.workdir.path))}"
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
