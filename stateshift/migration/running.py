"""One run at work: its waves forward, and the way back.

Each wave is one job: it takes the lock on its target, carries out its plans, and lets go. What is found when a wave
begins must still be what the proposal was made from.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from shlex import quote

from stateshift import __version__, executor, lock, plain
from stateshift.clusters.protocol import StopRequest
from stateshift.engines.registry import engine
from stateshift.errors import Interrupted, JournalError, PlanError, StalePlan, StateshiftError, StorageError
from stateshift.journal import (
    Journal,
    LockReleased,
    LockTaken,
    PlanAdopted,
    PlanProgress,
    RunFailed,
    RunFinished,
    RunRolledBack,
)
from stateshift.migration.doors import Doors, world_of
from stateshift.migration.proposing import Proposal, decode_proposal, gather, refuse
from stateshift.plan import Plan
from stateshift.report import Report, summarize
from stateshift.spec import JobSpec
from stateshift.step import LiftFence
from stateshift.step.jobs import tag_of
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.workdir import Workdir


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


class Run:
    """One run at work: what it was proposed, its journal, and the world its steps act on."""

    def __init__(self, proposal: Proposal, journal: Journal, workdir: Workdir, doors: Doors) -> None:
        self.spec, self.proposal, self.journal, self.workdir, self.doors = (
            proposal.spec, proposal, journal, workdir, doors,
        )  # fmt: skip
        self.world = world_of(proposal.spec, journal.progress.run, workdir, doors)

    @classmethod
    def of(cls, journal: Journal, workdir: Workdir, doors: Doors) -> Run:
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
        executor.execute(plan[0], plan[1], self.world, self.journal, self.doors.fleet)
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
            executor.execute(adopted[0], adopted[1], self.world, self.journal, self.doors.fleet)
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
        refuse(made)
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
            hint="look at the difference with a new plan: stateshift plan WORKDIR/spec.json",
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

    def refuse_to_break_what_was_built_on(self) -> None:
        """State that was compacted in place: later versions of a job that has gone on may name our files."""
        for adopted in self.journal.progress.plans:
            plan = self.workdir.read_plan(adopted.plan, adopted.fingerprint)
            if _in_place(plan) and not adopted.undone and self._gone_on(adopted):
                raise PlanError(
                    f"{adopted.job} has committed batches since, on the files that were written here: it cannot do "
                    "without them",
                    hint="what was set aside may be removed; there is nothing to take back",
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
        if plan.purpose != "move" or not adopted.steps or (plan.target == plan.source and not _in_place(plan)):
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
            self.journal.append(RunFailed(self.doors.clock.now(), kind, error.fact, error.hint, error.exit_code, step))
            self._report()

    def ended(self) -> Report:
        """The report of a run that has nothing left to do: written again, should a kill have come before it."""
        return self._report()

    def _report(self) -> Report:
        report = summarize(self.journal.progress)
        self.workdir.write("report.json", plain.to_plain(report))
        return report


def _in_place(plan: Plan) -> bool:
    """Whether the plan changes an image where it lies."""
    return plan.target == plan.source and any(isinstance(step, LiftFence) for step in plan)
