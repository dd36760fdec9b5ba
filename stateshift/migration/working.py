"""What a run at work is made of: what it was proposed, its journal, the world its steps act on, and
its plans; and what is there now, behind the rounds that it has made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from stateshift import executor
from stateshift.engines.registry import engine
from stateshift.errors import StalePlan
from stateshift.journal import (
    Journal,
    PlanAdopted,
    PlanFinished,
    PlanProgress,
    StepFinished,
    StepStarted,
)
from stateshift.migration.brought import Arrivals, arrivals, with_arrivals
from stateshift.migration.doors import Doors, world_of
from stateshift.migration.helm import Helm, Telling
from stateshift.migration.proposing import LOOKS, SECONDS_BETWEEN_LOOKS, Proposal, gather
from stateshift.migration.remembering import dropped, remembered
from stateshift.plan import WHILE_IT_RUNS, Phase, Plan, phases_of
from stateshift.specification import JobSpec
from stateshift.specification.warm import NEVER
from stateshift.step import CompareImages, TakeCheckpoint, TakeSavepoint, TransformShard
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, Survey
from stateshift.workdir import Workdir


class Working:
    def __init__(
        self, proposal: Proposal, journal: Journal, workdir: Workdir, doors: Doors
    ) -> None:
        self.spec, self.proposal, self.journal, self.workdir, self.doors = (
            proposal.spec,
            proposal,
            journal,
            workdir,
            doors,
        )
        clock = doors.clock
        self.telling = Telling(doors.meter, workdir.steering, clock)
        world = world_of(
            proposal.spec, journal.progress.run, workdir, replace(doors, meter=self.telling)
        )
        self.helm = Helm(self.telling, journal, proposal.spec, clock, world.pace, doors.stop)
        self.world = replace(world, look=self.helm.look)
        self._plans: dict[int, Plan] = {}

    # -- its plans

    def proposed(self, job: JobSpec, purpose: str) -> Plan | None:
        return next((plan for plan in self._proposed(job) if plan.purpose == purpose), None)

    def _proposed(self, job: JobSpec) -> list[Plan]:
        return [plan for plan in self.proposal.plans if plan.job == job.name]

    def load(self, job: JobSpec) -> None:
        """What the job's plans need of its engine, while it still runs: Arrow alone takes a
        third of a second.
        """
        for step in (step for plan in self._proposed(job) for step in plan):
            if isinstance(step, TransformShard):
                self.world.transforms.get(step.transform)
            elif isinstance(step, CompareImages) and step.source_shards:
                self.world.entries.get(step.engine)

    def adopted(self, job: JobSpec, *purposes: str) -> tuple[int, Plan] | None:
        """The plan that is being carried out. A halt that was taken back is carried out again; what
        moved and was taken back is planned anew, since its job has gone on.
        """
        for plan in reversed(self.journal.progress.plans_of((job.name,))):
            if plan.purpose in purposes and (plan.purpose == "halt" or not plan.undone):
                return plan.plan, self.plan_of(plan)
        return None

    def adopt(self, plan: Plan) -> tuple[int, Plan]:
        number = len(self.journal.progress.plans)
        self._plans[number] = plan
        fingerprint, now = self.workdir.write_plan(number, plan), self.doors.clock.now()
        steps = sum(len(phase.steps) for phase in plan.phases)
        self.journal.append(
            PlanAdopted(
                now, number, plan.job, plan.purpose, fingerprint, steps, plan.source, plan.engine
            )
        )
        return number, plan

    def forget(self, numbers: Collection[int], job: str) -> None:
        """Plans that another one of the job's stands for."""
        self.journal.forget(numbers, job)
        for number in numbers:
            self._plans.pop(number, None)
            self.workdir.forget_plan(number)

    def plan_of(self, adopted: PlanProgress) -> Plan:
        if adopted.plan not in self._plans:
            self._plans[adopted.plan] = self.workdir.read_plan(adopted.plan, adopted.fingerprint)
        return self._plans[adopted.plan]

    def again(self, number: int, halt: Plan) -> Plan | None:
        """The halt of a Flink job that was taken back, and so started again under another id: that
        one is the job now. None of any other.
        """
        (step,) = steps if len(steps := tuple(halt)) == 1 else (None,)
        if not self.journal.progress.plans[number].undone or not isinstance(
            step, TakeCheckpoint | TakeSavepoint
        ):
            return None
        id = (
            self.world.cluster(step.cluster).find(step.tag_again(self.world)).id
            if step.restart is not None
            else None
        )
        if id is None:
            return None
        phases = tuple(replace(phase, steps=(replace(step, job_id=id),)) for phase in halt.phases)
        return replace(halt, phases=phases)

    def as_it_runs(self, job: JobSpec) -> JobSpec:
        """The job by the id that it has now."""
        adopted = (
            self.adopted(job, "halt") if job.takes_savepoints and job.flink is not None else None
        )
        if adopted is None:
            return job
        ends = [
            step
            for step in self.again(*adopted) or adopted[1]
            if isinstance(step, TakeCheckpoint | TakeSavepoint)
        ]
        ids = tuple(step.job_id for step in ends)
        return (
            replace(job, flink=replace(job.flink, job_ids=ids))
            if ids and job.flink is not None
            else job
        )

    # -- what is there

    def rounds_made(self, job: JobSpec) -> int:
        """Also those that one is remembered for."""
        return len(self.rounds(job)) + self.journal.progress.forgotten.get(job.name, 0)

    def rounds(self, job: JobSpec) -> list[PlanProgress]:
        """Those of this job that count."""
        return [plan for plan in self.while_it_ran(job) if plan.purpose == "warm"]

    def facts_of(self, job: JobSpec, before: Facts | None = None) -> Facts:
        """What is there now, and what of it rounds have brought. With facts from `before` no
        cluster is asked.
        """
        now = self.as_it_runs(job)
        return gather(
            self.spec, now, self.doors, self.workdir, arrived=self._arrivals(job), before=before
        )

    def with_arrivals(self, job: JobSpec, facts: Facts) -> Facts:
        """The same facts, behind a round that was made from them: what that has brought is at
        the target now.
        """
        _, target = engine(self.spec.engine).survey(facts.target.location, self.doors.open_storage)
        there = tuple((a, _relisted(b, self.doors.open_storage(b.location))) for a, b in facts.data)
        return with_arrivals(replace(facts, target=target, data=there), self._arrivals(job))

    def _arrivals(self, job: JobSpec) -> Arrivals:
        return arrivals(self.while_it_ran(job), self.plan_of)

    def while_it_ran(self, job: JobSpec) -> list[PlanProgress]:
        """What was carried out meanwhile, and not taken back."""
        plans = self.journal.progress.plans_of((job.name,))
        return [plan for plan in plans if plan.purpose in WHILE_IT_RUNS and not plan.undone]

    def tidy(self, plans: Iterable[PlanProgress]) -> None:
        """A round that was cut short is never repeated, but by other rounds: what is left of a file
        that it was at goes before the image can be seen.
        """
        begun = (
            (plan, {n for n, step in plan.steps.items() if step.state == "started"})
            for plan in plans
        )
        steps = (
            step
            for plan, names in begun
            if names
            for step in self.plan_of(plan)
            if step.name in names
        )
        for place in sorted({step.target for step in steps if isinstance(step, executor.WRITERS)}):
            self.world.storage(place).prune()

    def remember(self, job: JobSpec, facts: Facts) -> None:
        """So many rounds that they are better told as one. What lies at the target and is nobody's
        goes first, unless it may be a part of an image that can be seen.
        """
        rounds, facts = self.while_it_ran(job), self.with_arrivals(job, facts)
        if facts.left and job.cutover != NEVER:
            phases = phases_of(Phase("retire", tuple(dropped(facts.left))))
            template = self.plan_of(rounds[-1])
            tidied = self.adopt(replace(template, purpose="standby", phases=phases, findings=()))
            executor.execute_together([tidied], self.world, self.journal, self.doors.fleet)
            facts = replace(facts, left=())
        found = remembered(rounds, self._arrivals(job), facts, self.plan_of)
        if found is None:
            return
        self.tidy(plan for plan in rounds if plan.plan in found.forgotten)
        number, _ = self.adopt(found.plan)
        now, write = self.doors.clock.now, self.journal.append
        for name, evidence in found.evidence.items():
            write(StepStarted(now(), number, "copy", name))
            write(StepFinished(now(), number, name, 0.0, 0, 0, evidence))
        write(PlanFinished(now(), number))
        self.forget(found.forgotten, job.name)

    def same_facts(self, job: JobSpec, proposed: Plan | None) -> Facts:
        """What is there now, if the job is still the one that this was proposed for. One that is
        followed may be in the middle of something: it is looked at more than once.
        """
        for again in reversed(range(LOOKS if job.mode == "warm" else 1)):
            facts = self.facts_of(job)
            if proposed is None or engine(self.spec.engine).identity(facts) == proposed.facts:
                return facts
            if again:
                self.doors.clock.sleep(SECONDS_BETWEEN_LOOKS)
        raise stale(job, taken_back=False)

    def say(self, line: str) -> None:
        self.world.meter.say(line)


def stale(job: JobSpec, taken_back: bool) -> StalePlan:
    return StalePlan(
        (
            f"what is found at {job.source} and {job.destination} is no longer what the plan "
            "was made from"
        )
        + ("; the halt was taken back" if taken_back else ""),
        hint="look at the difference with a new plan: stateshift plan WORKDIR/spec.json",
    )


def _relisted(survey: Survey, storage: Storage) -> Survey:
    return replace(survey, files=tuple(sorted(storage.list())))
