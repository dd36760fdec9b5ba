"""One run at work: its waves forward, and the way back.

Each wave is the jobs that move together: it takes the locks on their targets, halts them all,
carries out their plans phase by phase, and lets go. What is found when a wave begins must still be
what the proposal was made from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from shlex import quote

from stateshift import executor, lock, plain
from stateshift.clusters.protocol import JobState
from stateshift.engines.registry import engine
from stateshift.errors import Interrupted, StalePlan, StateshiftError, StorageError
from stateshift.journal import (
    Journal,
    LockReleased,
    LockTaken,
    PlanProgress,
    RollbackRefused,
    RollbackStarted,
    RunFailed,
    RunFinished,
    RunResumed,
    RunRolledBack,
    StepFinished,
    StepProgress,
    StepStarted,
    StepUndone,
    WaveGivenUp,
)
from stateshift.migration.doors import Doors
from stateshift.migration.halting import Halting
from stateshift.migration.looking import refuse_damaged
from stateshift.migration.proposing import Proposal, proposal_of, refuse
from stateshift.migration.refusing import (
    FROM_THE_START,
    CommittedSince,
    Refusing,
    is_only_stopped,
    is_whole,
)
from stateshift.migration.together import waves
from stateshift.migration.warming import Warming
from stateshift.migration.working import stale
from stateshift.plan import PHASES, WHILE_IT_RUNS, PhaseName, Plan
from stateshift.report import Report, summarize
from stateshift.specification import JobSpec
from stateshift.step import AwaitProgress, FenceSource, MoveFiles, SubmitJob
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.workdir import Workdir

_log = logging.getLogger(__name__)

# What became of a job that has to be started once more.
OVER = (JobState.FAILED, JobState.ABSENT)

# The phases that fill a target which nobody sees yet.
WRITING: tuple[PhaseName, ...] = ("copy", "transform", "compare")


class Run(Halting):
    def __init__(
        self, proposal: Proposal, journal: Journal, workdir: Workdir, doors: Doors
    ) -> None:
        super().__init__(proposal, journal, workdir, doors)
        self.refusing = Refusing(proposal.spec, self.world, workdir)

    @classmethod
    def of(cls, journal: Journal, workdir: Workdir, doors: Doors) -> Run:
        return cls(proposal_of(workdir), journal, workdir, doors)

    # -- forward

    def go(self) -> Report:
        with self.helm.listening():
            return self._go()

    def _go(self) -> Report:
        """All waves, as far as they go. What becomes of the others when one fails, the spec
        says.
        """
        failures: list[StateshiftError] = []
        try:
            for wave in self._waves():
                try:
                    self._wave(wave)
                except StateshiftError as error:
                    if isinstance(error, Interrupted) or self.spec.on_failure == "stop":
                        raise
                    failures.append(error)
                    if self.spec.on_failure != "finish":
                        self._all_back(wave, error)
                        break
                    self._give_up(wave, error)
            if not failures:
                self.journal.append(RunFinished(self.doors.clock.now()))
        except StateshiftError as error:
            self._fail(error)
            self._let_go_of_untouched()
            raise
        if failures:
            self._fail(failures[0])
            raise failures[0]
        return self._report()

    def _waves(self) -> list[tuple[JobSpec, ...]]:
        """Those of the run's jobs."""
        ours = self.journal.progress.jobs
        mine = (tuple(job for job in wave if job.name in ours) for wave in waves(self.spec))
        return [wave for wave in mine if wave]

    def _wave(self, wave: tuple[JobSpec, ...]) -> None:
        _log.info("wave %s begins", ", ".join(_names(wave)))
        if self.journal.progress.half_back(_names(wave)):
            self._take_back(wave)
        pending = [job for job in wave if not self._done(job)]
        for job in wave:
            if job not in pending:
                self._let_go(job)
        if not self.has_stopped(pending):
            refuse_damaged(
                self.spec,
                pending,
                replace(self.doors, open_storage=self.world.storage),
                self.workdir,
            )
        for job in pending:
            self._lock(job)
        for job in pending:
            self.load(job)
        warm = [job for job in pending if self._moves_warm(job)]
        warming = Warming(self, warm) if warm and not self.has_stopped(pending) else None
        if warming is not None:
            warming.until_cutover()
        for job in pending:
            self.tidy(self.while_it_ran(job))
        halted = self.halt(pending, warming.while_they_stop() if warming is not None else None)
        if any(job.mode == "warm" for job in pending):
            self.helm.steering.heeded("cutover")  # not before: who resumes is not asked again
        adopted = [
            self.adopted(job, "move", "start") or self._fresh(job, halted, pending)
            for job in pending
        ]
        plans = [self.adopt(one) if isinstance(one, Plan) else one for one in adopted]
        self._start_again(plans)
        executor.execute_together(plans, self.world, self.journal, self.doors.fleet)
        for job in pending:
            self._let_go(job)
        self.telling.down(None)

    def _start_again(self, plans: list[tuple[int, Plan]]) -> None:
        """A job that an earlier attempt waited for in vain, and that has failed, or that was
        stopped to be taken back and was not: who resumes wants it started again.
        """
        now, write = self.doors.clock.now, self.journal.append
        for number, plan in plans:
            done = self.journal.progress.plans[number]
            waits = [step for step in plan if isinstance(step, AwaitProgress)]
            vain = [
                step for step in waits if step.name in done.steps and not done.finished(step.name)
            ]
            waited, hopeless = bool(vain), any(step.is_hopeless(self.world) for step in vain)
            ended = any(step.ended_in_vain(self.world) for step in vain)
            for step in (step for step in plan if isinstance(step, SubmitJob)):
                stopped = _was_stopped(done.steps.get(step.name))
                over = _over(waited, stopped, ended)
                if not hopeless and (not over or step.status(self.world).state not in over):
                    continue
                why = _why_again(stopped, ended, hopeless)
                self.world.meter.say(f"{plan.job}{why}: it is started again")
                if stopped:
                    self.refusing.from_another_job([done], "resume")
                else:
                    write(StepUndone(now(), number, step.name, ()))
                # Killed between the stop and the start, a resume has to know that it was stopped by
                # us.
                write(StepStarted(now(), number, "submit", step.name, stopped or hopeless))
                evidence = step.again(self.world, stopped or ended, hopeless)
                write(StepFinished(now(), number, step.name, 0.0, 0, 0, evidence))

    def _moves_warm(self, job: JobSpec) -> bool:
        """Whether it is still to be followed while it runs: it was not stopped yet, or has been
        started again.
        """
        return self.proposed(job, "warm") is not None and not self.has_stopped((job,))

    def _done(self, job: JobSpec) -> bool:
        last = next(reversed(self.journal.progress.plans_of((job.name,))), None)
        moved = last is not None and last.purpose not in ("halt", *WHILE_IT_RUNS)
        return moved and last is not None and last.finished_at is not None and not last.undone

    def _fresh(self, job: JobSpec, halts: frozenset[str], wave: list[JobSpec]) -> Plan:
        """The move plan of what is there now, if that is still what the proposal was made from.
        Else no job of the wave stays halted.
        """
        halted = job.name in halts
        job = self.with_images(job)
        facts = self.facts_of(job)
        if halted and facts.source_cluster is not None and facts.source_cluster.state == "unknown":
            # A cluster that cannot tell was told to stop the job, and said that it did.
            facts = replace(facts, source_cluster=replace(facts.source_cluster, state="absent"))
        made = engine(self.spec.engine).plan(
            self.spec, job, replace(facts, attempt=self.attempt(job), stopped=halted)
        )
        proposed = self._proposed(job)[-1]
        runs = any(plan.purpose == "halt" for plan in made)
        if runs and halted:
            raise StalePlan(
                f"{job.name} runs again after it was stopped",
                hint="something restarts it: switch that off, then `stateshift resume WORKDIR`",
            )
        now = engine(self.spec.engine).identity(facts) if proposed.provisional else made[-1].facts
        if runs or now != proposed.facts:
            self.undo_halts(wave)
            raise stale(job, taken_back=bool(halts))
        if made[-1].refusals:
            self.undo_halts(wave)
        refuse(made)
        return made[-1]

    def _let_go_of_untouched(self) -> None:
        """A target on which nothing was begun, or where everything was taken back, need not stay
        locked.
        """
        for name in self.journal.progress.jobs:
            plans = [plan for plan in self.journal.progress.plans if plan.job == name]
            touched = any(step.state != "undone" for plan in plans for step in plan.steps.values())
            if not touched:
                with suppress(
                    StateshiftError
                ):  # the failure that was told counts, and a resume finds its own lock
                    self._let_go(self._job(name))

    # -- back

    def back(self) -> Report:
        try:
            # also when this goes on: it may have been moved on in between
            self.refusing.from_another_run(self.journal.progress.known)
            self._undo(self.journal.progress.known)
            for name in self.journal.progress.jobs:
                self._let_go(self._job(name))
            self.journal.append(RunRolledBack(self.doors.clock.now()))
        except CommittedSince as since:
            since.hint, now = self._in_words(since.hint), self.doors.clock.now()
            kind = type(since).__name__
            self.journal.append(RollbackRefused(now, kind, since.fact, since.hint, since.exit_code))
            with suppress(StorageError):
                self._report()
            raise
        except StateshiftError as error:
            self._fail(error)
            raise
        return self._report()

    def _undo(self, plans: Sequence[PlanProgress]) -> None:
        """All jobs are stopped and asked before any image is touched: what cannot be taken back is
        whole. What takes long, and keeps no job from running where it was, comes last.
        """
        left = [adopted for adopted in reversed(plans) if not adopted.undone]
        self.refusing.from_another_job(adopted for adopted in left if is_whole(adopted))
        for adopted in left if not self._discards else ():
            self.refusing.before_it_is_stopped(adopted)
        for adopted in left:
            self._lock(self._job(adopted.job))  # ours still; or again, where the run had finished
        for adopted in left:
            executor.roll_back(
                adopted.plan, self.plan_of(adopted), self.world, self.journal, FROM_THE_START
            )
        for adopted in (self.journal.progress.plans[one.plan] for one in left):
            if is_only_stopped(adopted):
                self.refusing.since_it_was_asked_to_stop(adopted, self._discards)
        for phases in (_in_the_way, lambda plan: PHASES):
            for number, adopted in enumerate(left):
                plan, rest = (
                    self.plan_of(adopted),
                    [(one.plan, self.plan_of(one)) for one in left[number + 1 :]],
                )
                executor.roll_back(
                    adopted.plan, plan, self.world, self.journal, phases(plan), others=rest
                )

    @property
    def _discards(self) -> bool:
        """Whether what a job has committed since may be thrown away: the run goes back, or a
        wave does.
        """
        progress = self.journal.progress
        return (
            progress.discard
            if progress.state == "rolling-back"
            else self.spec.on_failure == "discard"
        )

    def _take_back(self, wave: tuple[JobSpec, ...]) -> None:
        """One wave, while the run goes on."""
        self._undo(self.journal.progress.plans_of(_names(wave)))
        for job in wave:
            self._let_go(job)

    def _give_up(self, wave: tuple[JobSpec, ...], error: StateshiftError) -> None:
        """Take a wave back that failed, unless that would lose what its jobs have done since. What
        keeps it from being taken back is told with the failure, and is no reason to leave the other
        waves alone.
        """
        names = " and ".join(_names(wave))
        try:
            self.refusing.back(
                self.journal.progress.plans_of(_names(wave)), self.spec.on_failure == "discard"
            )
        except StateshiftError as refusal:
            error.hint = (
                f"{names} was not taken back: {refusal.fact}; `stateshift resume WORKDIR` "
                "tries it again"
            )
            self.journal.append(self._given_up(wave, error, back=False))
            return
        error.hint = (
            f"{names} was taken back; mend this, then `stateshift resume WORKDIR` tries it again"
        )
        self.journal.append(self._given_up(wave, error, back=True))
        try:
            self._take_back(wave)
        except Interrupted:
            raise
        except CommittedSince as since:
            error.hint = f"{names} was not taken back: {since.fact}; {since.hint}"
            self.journal.append(self._given_up(wave, error, back=False))
        except StateshiftError as worse:
            error.hint = (
                f"taking {names} back failed, too ({worse.fact}): `stateshift resume WORKDIR` "
                "tries again"
            )
            self.journal.append(self._given_up(wave, error, back=True))

    def _given_up(
        self, wave: tuple[JobSpec, ...], error: StateshiftError, back: bool
    ) -> WaveGivenUp:
        hint, step = self._in_words(error.hint), error.where.get("step")
        return WaveGivenUp(
            self.doors.clock.now(),
            _names(wave),
            back,
            type(error).__name__,
            error.fact,
            hint,
            error.exit_code,
            step,
        )

    def _all_back(self, wave: tuple[JobSpec, ...], error: StateshiftError) -> None:
        """Take the whole run back, because a wave failed. Where that would lose what other jobs
        have done since, only the wave that failed.
        """
        discard = self.spec.on_failure == "discard"
        try:
            self.refusing.back(self.journal.progress.known, discard)
        except StateshiftError as refusal:
            self._give_up(wave, error)
            error.hint = f"{error.hint}; the rest was not taken back: {refusal.fact}"
            return
        ran = [one for one in self._waves() if all(map(self._done, one))]
        self._fail(error)
        self.journal.append(RollbackStarted(self.doors.clock.now(), discard, automatic=True))
        try:
            self.back()
        except Interrupted:
            raise
        except CommittedSince as since:
            error.hint = self._in_words(f"the run was not taken back: {since.fact}; {since.hint}")
            self._let_go_on(ran, error)
            raise error from since
        except StateshiftError as worse:
            again = "`stateshift resume WORKDIR` goes on with that"
            error.hint = self._in_words(f"taking the run back failed, too ({worse.fact}): {again}")
            raise error from worse
        error.hint = (
            "the run was taken back, as `on_failure` says: mend this, then apply the spec again"
        )

    def _let_go_on(self, waves: Sequence[tuple[JobSpec, ...]], error: StateshiftError) -> None:
        """Jobs that ran on their targets and were stopped for nothing: nobody may be there to
        resume.
        """
        if not waves:
            return
        names = " and ".join(name for wave in waves for name in _names(wave))
        self.journal.append(RunResumed(self.doors.clock.now()))
        try:
            for wave in waves:
                self._wave(wave)
        except Interrupted:
            raise
        except StateshiftError as worse:
            error.hint = f"{error.hint}; to start {names} there again failed, too ({worse.fact})"
        else:
            error.hint = f"{error.hint}; started there again: {names}"

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
        lock.take(
            self._above(location), locations.name(location), self.world.run, path, self.doors.host
        )
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
        error.hint = (
            f"stateshift resume {where}"
            if isinstance(error, Interrupted)
            else self._in_words(error.hint)
        )
        step = error.where.get("step")
        kind = type(error).__name__
        if self.journal.progress.state not in ("running", "rolling-back"):
            return  # the journal has it
        # Where the workdir's own disk is full, the failure cannot be written down: it is raised all
        # the same, and a journal that ends in the middle of a run can be resumed.
        with suppress(StorageError):
            self.journal.append(
                RunFailed(
                    self.doors.clock.now(), kind, error.fact, error.hint, error.exit_code, step
                )
            )
            self._report()

    def _in_words(self, hint: str | None) -> str | None:
        """The hint with this run's workdir in it."""
        return hint and hint.replace("WORKDIR", quote(str(self.workdir.path)))

    def ended(self) -> Report:
        """The report of a run that has nothing left to do: written again, should a kill have
        come before it.
        """
        return self._report()

    def _report(self) -> Report:
        report = summarize(self.journal.progress)
        self.workdir.write("report.json", plain.to_plain(report))
        return report


def _over(waited: bool, stopped: bool, ended: bool) -> tuple[JobState, ...]:
    """Return the states in which a job is started again: no state, where nobody waited for it or
    stopped it.
    """
    over = OVER if waited or stopped else ()
    return (*over, JobState.FINISHED) if stopped or ended else over


def _why_again(stopped: bool, ended: bool, hopeless: bool) -> str:
    """What became of a job that is started again."""
    if stopped:
        return " was stopped"
    if hopeless:
        return " gets no further"
    return " has ended" if ended else " has failed"


def _was_stopped(submit: StepProgress | None) -> bool:
    """Whether what a step had started was stopped to be taken back, and is not yet started
    again.
    """
    return submit is not None and (
        submit.state == "undone" or (submit.state == "started" and submit.stopped)
    )


def _in_the_way(plan: Plan) -> Sequence[PhaseName]:
    """What has to be taken back before the job may run where it was. Files that lie in the target,
    and that nobody can see any more, need not be.
    """
    brought = [step for phase in plan.phases if phase.name in WRITING for step in phase.steps]
    there = plan.target == plan.source or any(
        isinstance(step, FenceSource | MoveFiles) for step in brought
    )
    return PHASES if there else tuple(name for name in PHASES if name not in WRITING)


def _names(wave: Iterable[JobSpec]) -> tuple[str, ...]:
    return tuple(job.name for job in wave)
