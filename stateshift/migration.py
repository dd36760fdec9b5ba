"""The calls everything else makes: gather, propose, apply, resume, roll back, status, verify.

    spec ──gather──▶ facts ──engine.plan──▶ plans ──execute──▶ journal ──summarize──▶ report

The adapters of storages and clusters are opened here and nowhere above. A run is its jobs in the spec's order: one
job a wave. Each wave takes the lock on its target, carries out its plans, and lets go.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

from stateshift import __version__, executor, lock, plain
from stateshift.clusters.opening import check_submit, open_cluster
from stateshift.clusters.protocol import Cluster, StopRequest
from stateshift.engines.registry import Engine, all_entries, all_transforms, engine
from stateshift.errors import Interrupted, JournalError, PlanError, SpecError, StalePlan, StateshiftError, StorageError
from stateshift.estimating import estimated, probe
from stateshift.journal import (
    Journal,
    LockReleased,
    LockTaken,
    PlanAdopted,
    PlanProgress,
    Progress,
    RollbackStarted,
    RunFailed,
    RunFinished,
    RunResumed,
    RunRolledBack,
    RunStarted,
    decode_records,
    fold,
)
from stateshift.plan import PLAN_VERSION, Plan, decode_plan, encode_plan
from stateshift.report import Report, summarize
from stateshift.spec import ClusterSpec, JobSpec, Spec, parse_spec, to_plain_spec
from stateshift.step.jobs import tag_of
from stateshift.storage import locations
from stateshift.storage.opening import SystemClock, open_patiently
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import Pace, Throttled
from stateshift.survey import ClusterFacts, Facts, Finding, Survey
from stateshift.workdir import Workdir
from stateshift.world import Clock, Meter, Unwatched, World


@dataclass(frozen=True)
class Doors:
    """How the outside is reached. Tests put in-memory twins here; nothing else has to be patched."""

    open_storage: Callable[[str], Storage]
    open_cluster: Callable[[ClusterSpec, Workdir], Cluster]
    clock: Clock
    meter: Meter = field(default_factory=Unwatched)
    stop: threading.Event = field(default_factory=threading.Event)
    host: str = "localhost"


def real_doors(meter: Meter | None = None, stop: threading.Event | None = None) -> Doors:
    """The world as it is: storages by their URL, retried where an error may pass; clusters by their kind."""
    interrupt, watched = stop or threading.Event(), meter or Unwatched()

    def cluster(spec: ClusterSpec, workdir: Workdir) -> Cluster:
        return open_cluster(
            spec, str(workdir.path), open_storage=open_patiently, say=watched.say, interrupt=interrupt
        )

    return Doors(open_patiently, cluster, SystemClock(), watched, interrupt, socket.gethostname())


@dataclass(frozen=True, slots=True)
class Proposal:
    """What `plan` prints and `apply` executes: the plans of every job that was asked for."""

    spec: Spec
    plans: tuple[Plan, ...]

    @property
    def fingerprint(self) -> str:
        return plain.fingerprint([to_plain_spec(self.spec), [plan.fingerprint for plan in self.plans]])

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(finding for plan in self.plans for finding in plan.refusals)


def encode_proposal(proposal: Proposal) -> dict[str, Any]:
    return {
        "stateshift_plan": PLAN_VERSION,
        "stateshift": __version__,
        "fingerprint": proposal.fingerprint,
        "spec": to_plain_spec(proposal.spec),
        "plans": [encode_plan(plan) for plan in proposal.plans],
    }


def decode_proposal(value: Any) -> Proposal:
    """A saved plan, read back; one that another version made or somebody changed is refused."""
    if not isinstance(value, dict) or "stateshift_plan" not in value:
        raise PlanError("not a saved plan", hint="make one: stateshift plan SPEC -o FILE")
    if value["stateshift_plan"] != PLAN_VERSION:
        raise PlanError(
            f"the plan was made by another version of stateshift ({value.get('stateshift', 'unknown')}; "
            f"this is {__version__})",
            hint="make it again: stateshift plan SPEC -o FILE",
        )
    try:
        spec, plans = parse_spec(plain.canonical(value.get("spec"))), value.get("plans")
        proposal = Proposal(spec, tuple(decode_plan(plan) for plan in list(plans or ())))
    except (SpecError, TypeError):
        proposal = None
    if proposal is None or proposal.fingerprint != value.get("fingerprint"):
        raise PlanError(
            "the saved plan does not match its fingerprint: it was changed by hand or damaged",
            hint="make it again: stateshift plan SPEC -o FILE",
        )
    return proposal


# ---- before anything happens ------------------------------------------------------------------------------------


def gather(spec: Spec, job: JobSpec, doors: Doors, workdir: Workdir, probing: bool = False) -> Facts:
    """All the reading there is before a plan exists."""
    kind = engine(spec.engine)
    if job.submit is not None and job.target_cluster is not None:
        check_submit(spec.cluster(job.target_cluster).kind, job.submit.options, f"/jobs/{spec.jobs.index(job)}/submit")
    source = doors.open_storage(job.source)
    surveyed = _surveyed(kind.survey(source), source)
    return Facts(
        source=surveyed,
        target=_survey(spec, job.target, doors) if job.target else surveyed,
        merges=tuple(_survey(spec, location, doors) for location in job.merge_locations),
        data=tuple((_data(kind, d.source, doors, True), _data(kind, d.target, doors, d.copy)) for d in job.data),
        source_cluster=_cluster_facts(spec, job.source_cluster, job, doors, workdir, running=True),
        target_cluster=_cluster_facts(spec, job.target_cluster, job, doors, workdir, running=False),
        rates=probe(source, surveyed) if probing else None,
        at=doors.clock.now(),
    )


def propose(spec: Spec, doors: Doors, workdir: Workdir, only: str | None = None) -> Proposal:
    """The plans of the spec's jobs, with estimates. Reads, and changes nothing."""
    plans = []
    for job in jobs_of(spec, only):
        facts = gather(spec, job, doors, workdir, probing=True)
        made = engine(spec.engine).plan(spec, job, facts)
        plans += [replace(plan, estimate=estimated(plan, facts)) for plan in made]
    return Proposal(spec, tuple(plans))


def jobs_of(spec: Spec, only: str | None) -> tuple[JobSpec, ...]:
    """The jobs to work on: all, or the one whose name matches (IS-3)."""
    if only is None:
        return spec.jobs
    job = spec.job(only)
    if job is None:
        names = ", ".join(sorted(job.name for job in spec.jobs))
        raise PlanError(f"the spec has no job {only!r}", hint=f"--job takes one of: {names}")
    return (job,)


def _survey(spec: Spec, location: str, doors: Doors) -> Survey:
    storage = doors.open_storage(location)
    return _surveyed(engine(spec.engine).survey(storage), storage)


def _surveyed(survey: Survey, storage: Storage) -> Survey:
    traits = storage.traits
    return replace(survey, traits={"renames": traits.renames, "keeps_times": traits.keeps_times})


def _data(kind: Engine, location: str, doors: Doors, ours: bool) -> Survey:
    """A place the job reads or writes: its files; and, where somebody else brought them there, whether they know."""
    storage = doors.open_storage(location)
    files = tuple(sorted(storage.list()))
    findings = () if ours else kind.misplaced(storage, files)
    return _surveyed(Survey(storage.location, None, "data" if files else "empty", files, (), findings), storage)


def _cluster_facts(
    spec: Spec, name: str | None, job: JobSpec, doors: Doors, workdir: Workdir, running: bool
) -> ClusterFacts | None:
    if name is None:
        return None
    cluster = doors.open_cluster(spec.cluster(name), workdir)
    state, found = "unknown", None
    if running:
        request = StopRequest(job.name, job.source, job.stop.get("tag"), options=job.stop)
        status = cluster.find_source(request)
        state, found = str(status.state), status.id
    return ClusterFacts(name, cluster.kind, cluster.version(), state, found)


# ---- acting -----------------------------------------------------------------------------------------------------


def apply(proposal: Proposal, run: str, workdir: Workdir, doors: Doors, only: str | None = None) -> Report:
    """Carry out a proposal as a new run. What is found now must still be what the plans were made from."""
    _refuse(proposal.plans)
    jobs = jobs_of(proposal.spec, only)
    workdir.create()
    with workdir.hold():
        journal = Journal(workdir.lines)
        if journal.progress.state != "new":
            where = quote(str(workdir.path))
            raise JournalError(
                f"{workdir.path} is the workdir of another run",
                hint=f"stateshift status {where} tells of it; stateshift apply --workdir takes another place",
            )
        plain_spec = to_plain_spec(proposal.spec)
        workdir.write("spec.json", plain_spec)
        workdir.write("proposal.json", encode_proposal(proposal))
        names = tuple(job.name for job in jobs)
        journal.append(RunStarted(doors.clock.now(), run, __version__, plain.fingerprint(plain_spec), names))
        return _Run(proposal, journal, workdir, doors).go()


def resume(workdir: Workdir, doors: Doors) -> Report:
    """Go on where the journal ends. A finished run has nothing left to do."""
    workdir.require()
    with workdir.hold():
        journal = Journal(workdir.lines)
        match journal.progress.state:
            case "finished" | "rolled-back":
                return _Run.of(journal, workdir, doors).ended()
            case "rolling-back":
                return _Run.of(journal, workdir, doors).back()
            case "new":
                raise PlanError(
                    f"{workdir.path} was begun and nothing was done in it",
                    hint=f"begin again: stateshift apply {quote(str(workdir.path / 'spec.json'))}",
                )
            case _:
                journal.append(RunResumed(doors.clock.now()))
                return _Run.of(journal, workdir, doors).go()


def rollback(workdir: Workdir, doors: Doors, discard_progress: bool = False) -> Report:
    """Take a run back: everything it wrote, and nothing else."""
    workdir.require()
    with workdir.hold():
        journal = Journal(workdir.lines)
        if journal.progress.state == "new":
            return summarize(journal.progress)
        run = _Run.of(journal, workdir, doors)
        match journal.progress.state:
            case "rolled-back":
                return run.ended()
            case "rolling-back":
                return run.back()
        run.refuse_to_take_from_another_run()
        run.refuse_to_take_from_another_job()
        if not discard_progress:
            run.refuse_to_lose_progress()
        journal.append(RollbackStarted(doors.clock.now()))
        return run.back()


def status(workdir: Workdir) -> Report:
    """Where a run stands. Reads the journal only, also while another process writes it."""
    workdir.require()
    return summarize(progress_of(workdir))


def progress_of(workdir: Workdir) -> Progress:
    records, _ = decode_records(workdir.lines.read())
    return fold(iter(records))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify WORKDIR` found: the steps whose evidence does not hold, and what could not be asked any more."""

    broken: tuple[executor.Broken, ...]
    notes: tuple[str, ...]


def verify(workdir: Workdir, doors: Doors) -> Verdict:
    """Ask every step of a run whether its evidence still holds. Once the job has gone on from the image, its files are
    the job's to change: then only what guards the source and the job itself is asked."""
    workdir.require()
    progress = progress_of(workdir)  # never a Journal: opening one would cut the line that a live run is writing
    world = world_of(proposal_of(workdir).spec, progress.run, workdir, doors)
    broken: list[executor.Broken] = []
    notes: list[str] = []
    for adopted in progress.plans:
        plan = workdir.read_plan(adopted.plan, adopted.fingerprint)
        gone_on = any(s.phase == "confirm" and s.state == "finished" for s in adopted.steps.values())
        if gone_on:
            notes.append(f"{adopted.job} has gone on from its image since: the image's files were not asked")
        kinds = ("FenceSource", "SubmitJob") if gone_on else ()
        broken += executor.ask(adopted.plan, plan, adopted, world, kinds)
    return Verdict(tuple(broken), tuple(notes))


def proposal_of(workdir: Workdir) -> Proposal:
    """What a run carries out. Its plans speak the language of the version that made them."""
    value = workdir.read("proposal.json")
    made_by = value.get("stateshift") if isinstance(value, dict) else None
    try:
        return decode_proposal(value)
    except PlanError as error:
        same = made_by in (None, __version__)
        again = "restore it from a copy" if same else f"pip install stateshift=={made_by}, then the same command again"
        where = f"{workdir.path / 'proposal.json'}: {error.fact}"
        raise JournalError(where, hint=again) from error


class _Run:
    """One run at work: what it was proposed, its journal, and the world its steps act on."""

    def __init__(self, proposal: Proposal, journal: Journal, workdir: Workdir, doors: Doors) -> None:
        self.spec, self.proposal, self.journal, self.workdir, self.doors = (
            proposal.spec, proposal, journal, workdir, doors,
        )  # fmt: skip
        self.world = world_of(proposal.spec, journal.progress.run, workdir, doors)

    @classmethod
    def of(cls, journal: Journal, workdir: Workdir, doors: Doors) -> _Run:
        return cls(proposal_of(workdir), journal, workdir, doors)

    # -- forward

    def go(self) -> Report:
        try:
            for name in self.journal.progress.jobs:
                self._wave(self._job(name))
            self.journal.append(RunFinished(self.doors.clock.now()))
        except StateshiftError as error:
            self._fail(error)
            self._let_go_of_untouched()
            raise
        return self._report()

    def _wave(self, job: JobSpec) -> None:
        if self._done(job):
            self._let_go(job)
            return
        self._lock(job)
        halted = self._halt(job)
        plan = self._adopted(job, "move", "start") or self._adopt(self._fresh(job, halted))
        executor.execute(plan[0], plan[1], self.world, self.journal)
        self._let_go(job)

    def _done(self, job: JobSpec) -> bool:
        plans = [plan for plan in self.journal.progress.plans if plan.job == job.name]
        return bool(plans) and plans[-1].purpose != "halt" and plans[-1].finished_at is not None

    def _halt(self, job: JobSpec) -> bool:
        """Carry out the halt plan, where there is one; whether there was."""
        adopted = self._adopted(job, "halt")
        if adopted is None and self._adopted(job, "move", "start") is None:
            proposed = self._proposed(job)
            if proposed[0].purpose == "halt":
                self._expect_fresh(job, proposed[0])
                adopted = self._adopt(proposed[0])
        if adopted is not None:
            executor.execute(adopted[0], adopted[1], self.world, self.journal)
        return adopted is not None

    def _fresh(self, job: JobSpec, halted: bool) -> Plan:
        """The move plan of what is there now, if that is still what the proposal was made from."""
        facts = gather(self.spec, job, self.doors, self.workdir)
        if halted and facts.source_cluster is not None and facts.source_cluster.state == "unknown":
            # A cluster that cannot tell was told to stop the job, and said that it did.
            facts = replace(facts, source_cluster=replace(facts.source_cluster, state="absent"))
        made = engine(self.spec.engine).plan(self.spec, job, facts)
        proposed = self._proposed(job)[-1]
        if made[0].purpose == "halt" and halted:
            raise StalePlan(
                f"{job.name} runs again after it was stopped",
                hint="something restarts it: switch that off, then `stateshift resume WORKDIR`",
            )
        now = engine(self.spec.engine).identity(facts) if proposed.provisional else made[-1].facts
        if made[0].purpose == "halt" or now != proposed.facts:
            self._stale(job, halted)
        if made[-1].refusals and halted:
            self._undo_halt(job)
        _refuse(made)
        return made[-1]

    def _let_go_of_untouched(self) -> None:
        """A target on which nothing was begun, or where everything was taken back, need not stay locked."""
        for name in self.journal.progress.jobs:
            plans = [plan for plan in self.journal.progress.plans if plan.job == name]
            touched = any(step.state != "undone" for plan in plans for step in plan.steps.values())
            if not touched:
                with suppress(StateshiftError):  # the failure that was told counts, and a resume finds its own lock
                    self._let_go(self._job(name))

    def _expect_fresh(self, job: JobSpec, proposed: Plan) -> None:
        facts = gather(self.spec, job, self.doors, self.workdir)
        if engine(self.spec.engine).identity(facts) != proposed.facts:
            self._stale(job, halted=False)

    def _stale(self, job: JobSpec, halted: bool) -> None:
        if halted:
            self._undo_halt(job)
        raise StalePlan(
            f"what is found at {job.source} and {job.destination} is no longer what the plan was made from"
            + ("; the halt was taken back" if halted else ""),
            hint="look at the difference with a new plan: stateshift plan SPEC",
        )

    def _undo_halt(self, job: JobSpec) -> None:
        adopted = self._adopted(job, "halt")
        if adopted is not None:
            executor.roll_back(adopted[0], adopted[1], self.world, self.journal)

    def _adopted(self, job: JobSpec, *purposes: str) -> tuple[int, Plan] | None:
        for plan in self.journal.progress.plans:
            if plan.job == job.name and plan.purpose in purposes:
                return plan.plan, self.workdir.read_plan(plan.plan, plan.fingerprint)
        return None

    def _adopt(self, plan: Plan) -> tuple[int, Plan]:
        number = len(self.journal.progress.plans)
        self.workdir.write_plan(number, plan)
        steps = sum(len(phase.steps) for phase in plan.phases)
        self.journal.append(
            PlanAdopted(self.doors.clock.now(), number, plan.job, plan.purpose, plan.fingerprint, steps)
        )
        return number, plan

    def _proposed(self, job: JobSpec) -> list[Plan]:
        return [plan for plan in self.proposal.plans if plan.job == job.name]

    # -- back

    def back(self) -> Report:
        try:
            self.refuse_to_take_from_another_run()  # also when this goes on: it may have been moved on in between
            for adopted in reversed(self.journal.progress.plans):
                if not adopted.undone:
                    self._lock(self._job(adopted.job))  # ours still; or again, where the run had finished
                    plan = self.workdir.read_plan(adopted.plan, adopted.fingerprint)
                    executor.roll_back(adopted.plan, plan, self.world, self.journal)
            for name in self.journal.progress.jobs:
                self._let_go(self._job(name))
            self.journal.append(RunRolledBack(self.doors.clock.now()))
        except StateshiftError as error:
            self._fail(error)
            raise
        return self._report()

    def refuse_to_take_from_another_run(self) -> None:
        """A job that was moved on from the target since: to take this run back would pull its source away from under
        that run, and start the old job beside the new one."""
        for adopted in self.journal.progress.plans:
            plan = self.workdir.read_plan(adopted.plan, adopted.fingerprint)
            if adopted.undone or not adopted.steps or plan.purpose != "move" or plan.target == plan.source:
                continue
            owner = self.world.fence(plan.target)
            if owner not in (None, self.world.run):
                raise PlanError(
                    f"run {owner} has moved {adopted.job} on from {plan.target} since",
                    hint="take that run back first: stateshift runs lists the workdirs",
                )

    def refuse_to_take_from_another_job(self) -> None:
        """A job that runs on the target, and that somebody else has started there."""
        for adopted in self.journal.progress.plans:
            job = self._job(adopted.job)
            submitted = any(s.phase == "submit" and s.state != "undone" for s in adopted.steps.values())
            if submitted and job.mode == "move" and job.target_cluster is not None:
                cluster, tag = self.world.cluster(job.target_cluster), tag_of(self.world, job.name)
                request = StopRequest(job.name, job.destination)
                if not cluster.find(tag).state.alive and cluster.find_source(request).state.alive:
                    raise PlanError(
                        f"{job.name} runs on {job.target_cluster}, and this run did not start it",
                        hint=f"stop it, then: stateshift rollback {quote(str(self.workdir.path))}",
                    )

    def refuse_to_lose_progress(self) -> None:
        """A run whose job has committed since, whoever started it: taking it back throws those batches away."""
        for adopted in self.journal.progress.plans:
            confirmed = [s for s in adopted.steps.values() if s.phase == "confirm" and s.state == "finished"]
            if any(s.evidence and s.evidence.get("committed") for s in confirmed) or self._gone_on(adopted):
                raise PlanError(
                    f"{adopted.job} has committed batches on the target since; a rollback would throw them away",
                    hint="if that is what you want: stateshift rollback "
                    f"{quote(str(self.workdir.path))} --discard-progress",
                )

    def _gone_on(self, adopted: PlanProgress) -> bool:
        """Whether the target's image has a later epoch than the one that was brought there."""
        plan = self.workdir.read_plan(adopted.plan, adopted.fingerprint)
        if plan.purpose != "move" or plan.target == plan.source or not adopted.steps:
            return False
        survey = engine(plan.engine).survey
        there = {image.path: image.epoch for image in survey(self.world.storage(plan.target)).images}
        here: dict[str, int | None] = {"": plan.epoch}
        if plan.epoch is None and any(epoch is not None for epoch in there.values()):  # a workflow
            here = {image.path: image.epoch for image in survey(self.world.storage(plan.source)).images}
        return any((there.get(path) or 0) > epoch for path, epoch in here.items() if epoch is not None)

    # -- both

    def _job(self, name: str) -> JobSpec:
        job = self.spec.job(name)
        assert job is not None, "the journal names a job that its own spec has not"
        return job

    def _lock(self, job: JobSpec) -> None:
        location = job.destination
        if location not in self.journal.progress.locks:
            self.journal.append(LockTaken(self.doors.clock.now(), location))
        path = str(self.workdir.path.absolute())
        lock.take(self._above(location), locations.name(location), self.world.run, path, self.doors.host)
        if job.source != location:
            lock.refuse_source(self._above(job.source), locations.name(job.source), self.world.run)

    def _above(self, location: str) -> Storage:
        """Where the lock on a location lies."""
        return self.doors.open_storage(locations.parent(location))

    def _let_go(self, job: JobSpec) -> None:
        location = job.destination
        if location in self.journal.progress.locks:
            lock.release(self._above(location), locations.name(location), self.world.run)
            self.journal.append(LockReleased(self.doors.clock.now(), location))

    def _fail(self, error: StateshiftError) -> None:
        where = quote(str(self.workdir.path))
        if isinstance(error, Interrupted):
            error.hint = f"stateshift resume {where}"
        elif error.hint is not None:
            error.hint = error.hint.replace("WORKDIR", where)
        step = error.where.get("step")
        kind = type(error).__name__
        # Where the workdir's own disk is full, the failure cannot be written down: it is raised all the same, and a
        # journal that ends in the middle of a run can be resumed.
        with suppress(StorageError):
            self.journal.append(
                RunFailed(self.doors.clock.now(), kind, error.fact, error.hint, error.exit_code, step)
            )
            self._report()

    def ended(self) -> Report:
        """The report of a run that has nothing left to do: written again, should a kill have come before it."""
        return self._report()

    def _report(self) -> Report:
        report = summarize(self.journal.progress)
        self.workdir.write("report.json", plain.to_plain(report))
        return report


def world_of(spec: Spec, run: str, workdir: Workdir, doors: Doors) -> World:
    """Everything the steps of one run may touch; storages and clusters are opened once."""
    storages: dict[str, Storage] = {}
    clusters: dict[str, Cluster] = {}
    opening = threading.Lock()
    throttled = spec.bytes_per_second or spec.operations_per_second
    pace = Pace(doors.clock, spec.bytes_per_second, spec.operations_per_second) if throttled else None

    def storage(location: str) -> Storage:
        with opening:
            if location not in storages:
                opened = doors.open_storage(location)
                storages[location] = opened if pace is None else Throttled(opened, pace)
            return storages[location]

    def cluster(name: str) -> Cluster:
        with opening:
            if name not in clusters:
                clusters[name] = doors.open_cluster(spec.cluster(name), workdir)
            return clusters[name]

    return World(
        storage=storage,
        cluster=cluster,
        transforms=all_transforms(),
        entries=all_entries(),
        clock=doors.clock,
        run=run,
        meter=doors.meter,
        stop=doors.stop,
        parallel=spec.parallel,
        fence=lambda location: _fence(engine(spec.engine).survey(storage(location))),
    )


def _fence(survey: Survey) -> str | None:
    return next((image.fence for image in survey.images if image.fence is not None), None)


def _refuse(plans: tuple[Plan, ...]) -> None:
    refusals = [finding for plan in plans for finding in plan.refusals]
    if refusals:
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        raise PlanError(refusals[0].message + more, hint=refusals[0].hint)
