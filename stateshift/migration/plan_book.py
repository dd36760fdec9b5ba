"""The plans of a run's jobs: proposed before it began, adopted by its journal, read again by a
resume.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from stateshift.journal import Journal, PlanAdopted, PlanProgress
from stateshift.migration.proposal import Proposal
from stateshift.plan import Plan
from stateshift.purpose import Purpose
from stateshift.specification import JobSpec
from stateshift.workdir import Workdir
from stateshift.world import Clock

# A plan, and its number in the run.
NumberedPlan = tuple[int, Plan]


@dataclass(eq=False)
class PlanBook:
    """Finds, saves and reads plans. Each is read from the workdir once."""

    _proposal: Proposal
    _journal: Journal
    _workdir: Workdir
    _clock: Clock
    _plans: dict[int, Plan] = field(default_factory=dict)

    def proposed_for(self, job: JobSpec) -> list[Plan]:
        """Return the plans that were proposed for a job, in their order."""
        return [plan for plan in self._proposal.plans if plan.job == job.name]

    def proposed(self, job: JobSpec, purpose: Purpose) -> Plan | None:
        plans = [plan for plan in self.proposed_for(job) if plan.purpose == purpose]
        return plans[0] if plans else None

    def adopted(self, job: JobSpec, *purposes: Purpose) -> NumberedPlan | None:
        """Return the newest plan of these purposes for a job. A halt that was taken back is carried
        out again, a move is not: its job has gone on since.
        """
        for plan in reversed(self._journal.progress.plans_of((job.name,))):
            if plan.purpose not in purposes:
                continue
            if plan.purpose == "halt" or not plan.undone:
                return plan.plan, self.read(plan)
        return None

    def adopt(self, plan: Plan) -> NumberedPlan:
        """Save a plan, and write down that the run carries it out from now on."""
        number = len(self._journal.progress.plans)
        self._plans[number] = plan
        fingerprint = self._workdir.write_plan(number, plan)
        self._journal.append(
            PlanAdopted(
                at=self._clock.now(),
                plan=number,
                job=plan.job,
                purpose=plan.purpose,
                fingerprint=fingerprint,
                steps=sum(len(phase.steps) for phase in plan.phases),
                source=plan.source,
                engine=plan.engine,
                positions=plan.positions,
            )
        )
        return number, plan

    def read(self, adopted: PlanProgress) -> Plan:
        number = adopted.plan
        if number not in self._plans:
            self._plans[number] = self._workdir.read_plan(number, adopted.fingerprint)
        return self._plans[number]

    def forget(self, numbers: Collection[int], job: str) -> None:
        """Remove plans of a job for which another of its plans stands."""
        self._journal.forget(numbers, job)
        for number in numbers:
            self._plans.pop(number, None)
            self._workdir.forget_plan(number)
