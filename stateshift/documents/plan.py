"""A plan: the facts that all views share beyond its steps, and its document.

PlanFacts    a proposal, with
  waves        the jobs that move together, in their order
  cuts         the jobs that are stopped at one cut, by the spec's dataflow
  findings     of all plans, each with its job
  estimate     how long everything takes, and for how long a job is down
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, ClassVar, NotRequired, TypedDict

from stateshift.documents.problems import FindingDocument
from stateshift.documents.shape import At, document_of, documents_of
from stateshift.documents.survey import (
    EndpointDocument,
    NewPositionDocument,
    NewPositionOf,
    new_positions_of,
)
from stateshift.plan import Estimate
from stateshift.storage.locations import Redacted

if TYPE_CHECKING:
    from stateshift.dataflow.cuts import Cut
    from stateshift.migration import Proposal
    from stateshift.plan import Plan
    from stateshift.specification import Spec
    from stateshift.survey import Finding

WaveNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CutFacts:
    """Jobs that are stopped at one cut, by the spec's dataflow."""

    schema_name: ClassVar = "Cut"
    jobs: Annotated[tuple[str, ...], "all of them"]
    order: Annotated[tuple[tuple[str, ...], ...], "the order in which they stop"]
    ring: Annotated[tuple[str, ...], "jobs that feed each other"]
    joints: Annotated[tuple[tuple[str, ...], ...], "where a tuple passes from one job to another"]
    between: Annotated[tuple[str, ...], "operators between them that are of no job that moves"]
    stops: Annotated[tuple[str, ...], "the jobs that the run stops itself"]
    blind: Annotated[tuple[str, ...], "jobs that are stopped without asking how far they have read"]


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
        """The findings of all plans."""
        pairs = [[FindingOf(each, plan.job) for each in plan.findings] for plan in self.plans]
        return tuple(chain.from_iterable(pairs))

    @property
    def sources(self) -> tuple[NewPositionOf, ...]:
        """The sources that read on from elsewhere."""
        return tuple(new_positions_of(self.plans))

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Every plan, in the order they run."""
        return self.proposal.plans


def plan_facts(proposal: Proposal) -> PlanFacts:
    """Return everything that the views of a plan say."""
    from stateshift import migration

    planned = [plan.job for plan in proposal.plans]
    waves = []
    for wave in migration.waves(proposal.spec):
        names = tuple(job.name for job in wave if job.name in planned)
        if names:
            waves.append(names)
    halted = [plan.job for plan in proposal.plans if plan.purpose == "halt"]
    cuts = []
    for cut in migration.cuts_of(proposal.spec, planned):
        stops = tuple(name for name in cut.jobs if name in halted)
        blind = _stopped_blind(cut, proposal.spec, halted)
        cuts.append(CutFacts(cut.jobs, cut.order, cut.ring, cut.joints, cut.between, stops, blind))
    estimate = _estimate_of(proposal.plans, waves)
    return PlanFacts(proposal, tuple(waves), tuple(cuts), estimate)


def _stopped_blind(cut: Cut, spec: Spec, halted: Sequence[str]) -> tuple[str, ...]:
    """Return the halted jobs that read what others of the cut write, and cannot be asked how far.

    Jobs of a ring are left out: they are said by themselves.
    """
    from stateshift import migration

    readers = set(chain.from_iterable(cut.order[1:]))  # they read what the first ones write
    readers = readers.intersection(halted).difference(cut.ring)
    read = [job for job in spec.jobs if job.name in readers]
    return tuple(job.name for job in read if not migration.reads_out(spec, job))


def _estimate_of(plans: Sequence[Plan], waves: Sequence[WaveNames]) -> Estimate | None:
    """Return the time of all waves, and the longest downtime; None where no plan has steps.

    Waves follow each other, and a job is down while its own wave is under way.
    """
    seconds = 0.0
    downtimes = [0.0]
    basis = None
    with_steps = [plan for plan in plans if plan.phases]
    for wave in waves:
        of_wave = [plan.estimate for plan in with_steps if plan.job in wave]
        estimates = [estimate for estimate in of_wave if estimate]
        seconds += sum(estimate.seconds for estimate in estimates)
        downtimes.append(sum(estimate.downtime_seconds for estimate in estimates))
        if estimates:
            basis = estimates[0].basis
    if basis is None:
        return None
    return Estimate(round(seconds, 2), round(max(downtimes), 2), basis)


# ---- documents -----------------------------------------------------------------------------------


class StepDocument(TypedDict):
    """One step of a phase."""

    name: Annotated[str, "the step's name, as the journal has it"]
    kind: Annotated[str, "the kind of step"]
    does: Annotated[Redacted, "what it does, in words", At(lambda step: step.describe())]
    files: Annotated[int, "how many files it writes or reads"]
    bytes: Annotated[int, "their size together"]


class PhaseDocument(TypedDict):
    """One phase of a plan. Its steps are independent of each other."""

    name: Annotated[
        str, "prepare, halt, copy, transform, compare, publish, submit, confirm, retire"
    ]
    steps: Annotated[int, "how many steps it has"]
    files: Annotated[int, "how many files they write or read"]
    bytes: Annotated[int, "their size together"]
    job: Annotated[str, "the job it is of"]
    details: NotRequired[Annotated[list[StepDocument], "each step (--verbose)"]]


class EstimateDocument(TypedDict):
    """How long it may take."""

    seconds: Annotated[float, "from the beginning to the end"]
    downtime_seconds: Annotated[float, "for how long a job is down, at most"]
    basis: Annotated[str, "what the estimate was computed from, in words"]


class PlannedFindingDocument(FindingDocument):
    """A finding of one job's plan."""

    job: Annotated[str, "the job it is about"]


class OnePlanDocument(TypedDict):
    """The plan of one job, or of one part of its move."""

    job: Annotated[str, "the job"]
    engine: Annotated[str, "spark or flink"]
    purpose: Annotated[str, "aside, warm, standby, halt, move or start"]
    source: Annotated[Redacted, "where its image lies"]
    target: Annotated[Redacted, "where its image goes"]
    epoch: Annotated[int | None, "the epoch that is moved"]
    provisional: Annotated[bool, "whether it is made again once the job has stopped"]
    fingerprint: Annotated[str, "the name of exactly this plan"]
    files: Annotated[int, "how many files its steps write or read"]
    bytes: Annotated[int, "their size together"]
    phases: Annotated[
        list[str], "the names of its phases", At(lambda plan: [phase.name for phase in plan.phases])
    ]
    endpoints: Annotated[list[EndpointDocument], "the job's sources and sinks"]


class GivenDocument(TypedDict):
    """The parts of a plan that a profile of stateshift.toml gave."""

    name: Annotated[str, "the profile's name"]
    file: Annotated[str, "the file that has it"]
    gave: Annotated[list[Redacted], "what the spec has of it: cluster dr, storage backup, throttle"]


class SignatureDocument(TypedDict):
    """The signature of a saved plan, unchecked unless a rule asks for one."""

    by: Annotated[str, "the signer, as their machine calls them"]
    key: Annotated[str, "the public key that belongs to it, in hex"]
    at: Annotated[float, "when it was signed, in seconds since 1970"]
    expires: Annotated[float, "from when on no run may begin by it"]


class PlanDocument(TypedDict):
    """What `plan` would have `apply` do."""

    fingerprint: Annotated[str, "the name of exactly this plan", At("proposal.fingerprint")]
    phases: Annotated[list[PhaseDocument], "the phases of all plans, in the order they run"]
    estimate: Annotated[EstimateDocument | None, "null where nothing is to be done"]
    waves: Annotated[list[list[str]], "the jobs that move together, in their order"]
    cuts: Annotated[list[CutFacts], "the jobs that are stopped at one cut"]
    findings: Annotated[list[PlannedFindingDocument], "what to know before", At(_finding_documents)]
    plans: Annotated[list[OnePlanDocument], "each plan"]
    profile: NotRequired[
        Annotated[GivenDocument, "what a profile gave", At("proposal.spec.profile")]
    ]
    signed: NotRequired[
        Annotated[SignatureDocument, "who has signed it", At("proposal.signed.header")]
    ]
    sources: NotRequired[
        Annotated[
            list[NewPositionDocument],
            "the sources that read on from elsewhere",
            At(lambda facts: facts.sources or None),
        ]
    ]


def plan_document(facts: PlanFacts, verbose: bool = False) -> PlanDocument:
    """Return the document of all plans; `verbose` adds each step of each phase."""
    phases = []
    for plan in facts.plans:
        for phase in plan.phases:
            document: PhaseDocument = {
                "name": phase.name,
                "steps": len(phase.steps),
                "files": phase.files,
                "bytes": phase.bytes,
                "job": plan.job,
            }
            if verbose:
                document["details"] = documents_of(StepDocument, phase.steps)
            phases.append(document)
    return document_of(PlanDocument, facts, phases=phases)


def _finding_documents(facts: PlanFacts) -> list[PlannedFindingDocument]:
    """Return the documents of all findings, each with its job."""
    return [
        {**document_of(FindingDocument, each.finding), "job": each.job} for each in facts.findings
    ]
