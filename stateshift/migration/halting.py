"""Stopping the jobs of a wave, and what comes before: their targets' applications come up early,
where the spec says so. And letting them go on, when they do not move after all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from stateshift import executor
from stateshift.journal import PlanProgress
from stateshift.migration.draining import Draining, parts, reads_out
from stateshift.migration.working import Working
from stateshift.plan import WHILE_IT_RUNS, Plan
from stateshift.specification import JobSpec
from stateshift.step import PrepareJob, StopJob, TakeCheckpoint, TakeSavepoint


class Halting(Working):
    def halt(
        self, wave: list[JobSpec], meanwhile: Callable[[threading.Event], None] | None = None
    ) -> frozenset[str]:
        """Carry out the halt plans, where there are some; the jobs that they stopped. `meanwhile`
        goes on beside that, until it is told that it is over.
        """
        halts = {job.name: halt for job in wave if (halt := self._halt_of(job)) is not None}
        order = [[job for job in part if job.name in halts] for part in parts(self.spec, wave)]
        begun = self.has_stopped(wave)
        readers = {
            job.name: reader
            for part in order[1:]
            for job in part
            if (reader := self._reader(job, halts))
        }
        for reader in readers.values() if not begun else ():
            reader.first_look()
        if len(order) > 1:
            self.prepare(wave)  # what fails then has stopped nobody
        if halts:
            self.telling.stopping()
        with _beside(meanwhile if halts and not begun else None):
            for part in order:
                for job in part:
                    if job.name in readers:
                        readers[job.name].wait()
                plans = [halts[job.name] for job in part]
                executor.execute_together(plans, self.world, self.journal, self.doors.fleet)
        steps = [
            step
            for number, _ in halts.values()
            for step in self.journal.progress.plans[number].steps.values()
        ]
        if halts:
            self.telling.down(
                max(
                    (step.at + step.seconds for step in steps if step.phase == "halt"), default=None
                )
            )
        return frozenset(halts)

    def has_stopped(self, wave: Iterable[JobSpec]) -> bool:
        """Whether some job of the wave has been stopped, or may have been: the others follow it,
        whatever was to be awaited before. One that moves alone, and runs on behind a stop that
        failed, has not.
        """
        jobs = tuple(wave)
        plans = self.journal.progress.plans_of(tuple(job.name for job in jobs))
        return any(map(is_stopping, plans)) and not (
            len(jobs) == 1 and self._runs_on(jobs[0], plans)
        )

    def _runs_on(self, job: JobSpec, plans: Iterable[PlanProgress]) -> bool:
        for plan in (plan for plan in plans if is_stopping(plan)):
            steps = (
                step
                for step in self.plan_of(plan)
                if isinstance(step, StopJob | TakeCheckpoint | TakeSavepoint)
            )
            if plan.purpose != "halt" or any(plan.finished(step.name) for step in steps):
                return False
        cluster = self.facts_of(job).source_cluster
        return cluster is not None and cluster.state == "running"

    def _reader(self, job: JobSpec, halts: Mapping[str, tuple[int, Plan]]) -> Draining | None:
        """What waits until a job has read all, if it still has to be stopped, and somebody can
        be asked.
        """
        number, plan = halts[job.name]
        phase = plan.phase("halt")
        step = phase.steps[0] if phase is not None else None
        if step is None or self.journal.progress.plans[number].finished(step.name):
            return None
        if isinstance(step, StopJob) and reads_out(self.spec, job):
            return Draining(self, job, step)
        self.say(
            f"{job.name} is stopped with the others: nobody here can ask whether it has "
            "read all by then"
        )
        return None

    def prepare(self, jobs: list[JobSpec]) -> bool:
        """What of the halt plans can be done while the jobs run; whether anything was."""
        early = [
            halt
            for job in jobs
            if (halt := self._halt_of(job)) is not None and halt[1].phase("prepare")
        ]
        executor.execute_together(early, self.world, self.journal, self.doors.fleet, ("prepare",))
        return bool(early)

    def _halt_of(self, job: JobSpec) -> tuple[int, Plan] | None:
        """The plan that stops the job, where there is one."""
        adopted = self.adopted(job, "halt")
        if adopted is not None and (again := self.again(*adopted)) is not None:
            return self.adopt(again)
        if adopted is not None and not self._was_prepared_and_undone(adopted[0]):
            return adopted
        proposed = self.proposed(job, "halt")
        if proposed is None or self.adopted(job, "move", "start") is not None:
            return None
        self.same_facts(job, proposed)
        return self.adopt(_attempted(proposed, self.attempt(job)))

    def undo_halts(self, wave: list[JobSpec]) -> None:
        """Of a wave that does not move: its jobs go on where they are."""
        for job in reversed(wave):
            adopted = self.adopted(job, "halt")
            if adopted is not None:
                executor.roll_back(adopted[0], adopted[1], self.world, self.journal)

    def with_images(self, job: JobSpec) -> JobSpec:
        """The job from where its halt has left its images, if it was asked for some."""
        halts = [
            plan for plan in self.journal.progress.plans_of((job.name,)) if plan.purpose == "halt"
        ]
        evidence = (
            [step.evidence or {} for step in halts[-1].steps.values()]
            if halts and not halts[-1].undone
            else []
        )
        images = tuple(found["image"] for found in evidence if "image" in found)
        return job.started_from(images) if images and job.takes_savepoints else job

    def attempt(self, job: JobSpec) -> int:
        """How often this run has tried to start the job at its target, this time included: each
        under a tag of its own, since what was started under an earlier one has been stopped.
        """
        plans = self.journal.progress.plans_of((job.name,))
        moves = [plan for plan in plans if plan.purpose not in ("halt", *WHILE_IT_RUNS)]
        return 1 + len(moves) + sum(self._was_prepared_and_undone(plan.plan) for plan in plans)

    def _was_prepared_and_undone(self, number: int) -> bool:
        plan = self.journal.progress.plans[number]
        return (
            plan.purpose == "halt"
            and plan.undone
            and any(s.phase == "prepare" for s in plan.steps.values())
        )


@contextmanager
def _beside(work: Callable[[threading.Event], None] | None) -> Iterator[None]:
    """`work` goes on in a thread of its own for as long as the block takes; what it is at then,
    it finishes.
    """
    if work is None:
        yield
        return
    over = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as threads:
        done = threads.submit(work, over)
        try:
            yield
        finally:
            over.set()
    done.result()


def is_stopping(plan: PlanProgress) -> bool:
    """Whether this plan has begun with what the job does not run on for."""
    begun = plan.purpose not in WHILE_IT_RUNS and any(
        step.phase != "prepare" for step in plan.steps.values()
    )
    return begun and not plan.undone


def _attempted(halt: Plan, attempt: int) -> Plan:
    """The plan, for the attempt that this is."""
    if attempt == 1:
        return halt
    phases = (
        replace(
            p,
            steps=tuple(
                replace(s, attempt=attempt) if isinstance(s, PrepareJob) else s for s in p.steps
            ),
        )
        for p in halt.phases
    )
    return replace(halt, phases=tuple(phases))
