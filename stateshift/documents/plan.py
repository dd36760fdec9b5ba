"""What all views of a plan say beyond its steps, computed once: waves, cuts, and the time it takes.

PlanFacts    a proposal, with
  waves        the jobs that move together, in their order
  cuts         the jobs that are stopped at one cut, by the spec's dataflow
  findings     of all plans, each with its job
  estimate     how long everything takes, and for how long a job is down
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.plan import Estimate

if TYPE_CHECKING:
    from stateshift.dataflow.cuts import Cut
    from stateshift.migration import Proposal
    from stateshift.plan import Plan
    from stateshift.specification import JobSpec, Spec
    from stateshift.survey import Finding

WaveNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CutFacts:
    """Jobs that are stopped at one cut.

    The run itself stops those in `stops`. Those in `blind` are stopped whether they have read what
    the others wrote or not: nobody can ask them. Those in `ring` feed each other.
    """

    jobs: tuple[str, ...]
    order: tuple[tuple[str, ...], ...]
    ring: tuple[str, ...]
    joints: tuple[tuple[str, str], ...]
    between: tuple[str, ...]
    stops: tuple[str, ...]
    blind: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindingOf:
    """A finding, and the job it is about."""

    finding: Finding
    job: str


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """A proposal, and what is computed of it for all views. `processes` of this machine would
    share the work; 1 where this one does all.
    """

    proposal: Proposal
    waves: tuple[WaveNames, ...]
    cuts: tuple[CutFacts, ...]
    estimate: Estimate | None
    processes: int = 1

    @property
    def findings(self) -> tuple[FindingOf, ...]:
        """What all plans say is to be known before."""
        findings: list[FindingOf] = []
        for plan in self.plans:
            findings.extend(FindingOf(finding, plan.job) for finding in plan.findings)
        return tuple(findings)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Every plan, in the order they run."""
        return self.proposal.plans


def plan_facts(proposal: Proposal) -> PlanFacts:
    """Return everything that the views of a plan say."""
    waves = waves_of(proposal)
    return PlanFacts(proposal, waves, cuts_of(proposal), estimate_of(proposal.plans, waves))


def waves_of(proposal: Proposal) -> tuple[WaveNames, ...]:
    """Return the planned jobs that move together, by name, in their order."""
    from stateshift import migration

    planned = {plan.job for plan in proposal.plans}
    waves = (_planned_names(wave, planned) for wave in migration.waves(proposal.spec))
    return tuple(names for names in waves if names)


def _planned_names(wave: Iterable[JobSpec], planned: Collection[str]) -> WaveNames:
    return tuple(job.name for job in wave if job.name in planned)


def cuts_of(proposal: Proposal) -> tuple[CutFacts, ...]:
    """Return which of the planned jobs are stopped at one cut."""
    from stateshift import migration

    planned = [plan.job for plan in proposal.plans]
    halted = [plan.job for plan in proposal.plans if plan.purpose == "halt"]
    cuts = migration.cuts_of(proposal.spec, planned)
    return tuple(_cut_facts(cut, proposal.spec, halted) for cut in cuts)


def _cut_facts(cut: Cut, spec: Spec, halted: Sequence[str]) -> CutFacts:
    return CutFacts(
        jobs=cut.jobs,
        order=cut.order,
        ring=cut.ring,
        joints=cut.joints,
        between=cut.between,
        stops=tuple(name for name in cut.jobs if name in halted),
        blind=_stopped_blind(cut, spec, halted),
    )


def _stopped_blind(cut: Cut, spec: Spec, halted: Sequence[str]) -> tuple[str, ...]:
    """Return the halted jobs that read what others of the cut write, and cannot be asked how far.

    Jobs of a ring are left out: they are said by themselves.
    """
    from stateshift import migration

    readers = _readers(cut).intersection(halted).difference(cut.ring)
    read = [job for job in spec.jobs if job.name in readers]
    return tuple(job.name for job in read if not migration.reads_out(spec, job))


def _readers(cut: Cut) -> set[str]:
    """Return the jobs that are stopped behind the first ones: they read what those write."""
    readers: set[str] = set()
    for part in cut.order[1:]:
        readers.update(part)
    return readers


def estimate_of(plans: Sequence[Plan], waves: Sequence[WaveNames]) -> Estimate | None:
    """Return the time of all waves, and the longest downtime; None where no plan has steps.

    Waves follow each other, and a job is down while its own wave is under way.
    """
    seconds = 0.0
    downtimes = [0.0]
    basis = None
    for wave in waves:
        estimates = _estimates(plans, wave)
        seconds += sum(estimate.seconds for estimate in estimates)
        downtimes.append(sum(estimate.downtime_seconds for estimate in estimates))
        if estimates:
            basis = estimates[0].basis
    if basis is None:
        return None
    return Estimate(round(seconds, 2), round(max(downtimes), 2), basis)


def _estimates(plans: Sequence[Plan], wave: WaveNames) -> list[Estimate]:
    """Return the estimates of a wave's plans that have steps."""
    estimates = []
    for plan in plans:
        if plan.job in wave and plan.phases and plan.estimate:
            estimates.append(plan.estimate)
    return estimates
