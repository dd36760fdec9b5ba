"""The JSON document of `plan`: facts in, typed dictionaries out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from stateshift.documents.problems import FindingDocument
from stateshift.documents.shape import document_of, documents_of
from stateshift.documents.survey import EndpointDocument
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.documents.plan import CutFacts, FindingOf, PlanFacts
    from stateshift.plan import Estimate, Phase, Plan
    from stateshift.step import AnyStep


class StepDocument(TypedDict):
    """One step of a phase."""

    name: Annotated[str, "the step's name, as the journal has it"]
    kind: Annotated[str, "the kind of step"]
    does: Annotated[str, "what it does, in words"]
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


class CutDocument(TypedDict):
    """Jobs that are stopped at one cut, by the spec's dataflow."""

    jobs: Annotated[list[str], "all of them"]
    order: Annotated[list[list[str]], "the order in which they stop"]
    ring: Annotated[list[str], "jobs that feed each other"]
    joints: Annotated[list[list[str]], "where a tuple passes from one job to another"]
    between: Annotated[list[str], "operators between them that are of no job that moves"]
    stops: Annotated[list[str], "the jobs that the run stops itself"]
    blind: Annotated[list[str], "jobs that are stopped without asking how far they have read"]


class PlannedFindingDocument(FindingDocument):
    """A finding of one job's plan."""

    job: Annotated[str, "the job it is about"]


class OnePlanDocument(TypedDict):
    """The plan of one job, or of one part of its move."""

    job: Annotated[str, "the job"]
    engine: Annotated[str, "spark or flink"]
    purpose: Annotated[str, "warm, standby, halt, move or start"]
    source: Annotated[str, "where its image lies"]
    target: Annotated[str, "where its image goes"]
    epoch: Annotated[int | None, "the epoch that is moved"]
    provisional: Annotated[bool, "whether it is made again once the job has stopped"]
    fingerprint: Annotated[str, "the name of exactly this plan"]
    files: Annotated[int, "how many files its steps write or read"]
    bytes: Annotated[int, "their size together"]
    phases: Annotated[list[str], "the names of its phases"]
    endpoints: Annotated[list[EndpointDocument], "the job's sources and sinks"]


class PlanDocument(TypedDict):
    """What `plan` would have `apply` do."""

    fingerprint: Annotated[str, "the name of exactly this plan"]
    phases: Annotated[list[PhaseDocument], "the phases of all plans, in the order they run"]
    estimate: Annotated[EstimateDocument | None, "null where nothing is to be done"]
    waves: Annotated[list[list[str]], "the jobs that move together, in their order"]
    cuts: Annotated[list[CutDocument], "the jobs that are stopped at one cut"]
    findings: Annotated[list[PlannedFindingDocument], "what to know before"]
    plans: Annotated[list[OnePlanDocument], "each plan"]


def document(facts: PlanFacts, verbose: bool = False) -> PlanDocument:
    """Return all plans as one list of phases in the order they run, and each plan by itself."""
    return {
        "fingerprint": facts.proposal.fingerprint,
        "phases": list(phases(facts.plans, verbose)),
        "estimate": None if facts.estimate is None else estimate(facts.estimate),
        "waves": [list(wave) for wave in facts.waves],
        "cuts": [cut(each) for each in facts.cuts],
        "findings": [planned_finding(each) for each in facts.findings],
        "plans": [one_plan(plan) for plan in facts.plans],
    }


def phases(plans: Iterable[Plan], verbose: bool) -> Iterator[PhaseDocument]:
    """Yield the phases of all plans."""
    for plan in plans:
        for planned in plan.phases:
            yield phase(planned, plan.job, verbose)


def planned_finding(planned: FindingOf) -> PlannedFindingDocument:
    """Return a finding of one job's plan."""
    return {**document_of(FindingDocument, planned.finding), "job": planned.job}


def phase(planned: Phase, job: str, verbose: bool = False) -> PhaseDocument:
    """Return one phase; `verbose` adds each of its steps."""
    counted: PhaseDocument = {
        "name": planned.name,
        "steps": len(planned.steps),
        "files": planned.files,
        "bytes": planned.bytes,
        "job": job,
    }
    if verbose:
        counted["details"] = [step(each) for each in planned.steps]
    return counted


def step(planned: AnyStep) -> StepDocument:
    """Return one step."""
    return {
        "name": planned.name,
        "kind": planned.kind,
        "does": redact(planned.describe()),
        "files": planned.files,
        "bytes": planned.bytes,
    }


def estimate(expected: Estimate) -> EstimateDocument:
    """Return the estimate of the whole."""
    return {
        "seconds": expected.seconds,
        "downtime_seconds": expected.downtime_seconds,
        "basis": expected.basis,
    }


def cut(facts: CutFacts) -> CutDocument:
    """Return the jobs that are stopped at one cut."""
    return {
        "jobs": list(facts.jobs),
        "order": [list(part) for part in facts.order],
        "ring": list(facts.ring),
        "joints": [list(ends) for ends in facts.joints],
        "between": list(facts.between),
        "stops": list(facts.stops),
        "blind": list(facts.blind),
    }


def one_plan(plan: Plan) -> OnePlanDocument:
    """Return one plan, without its steps."""
    return {
        "job": plan.job,
        "engine": plan.engine,
        "purpose": plan.purpose,
        "source": redact(plan.source),
        "target": redact(plan.target),
        "epoch": plan.epoch,
        "provisional": plan.provisional,
        "fingerprint": plan.fingerprint,
        "files": plan.files,
        "bytes": plan.bytes,
        "phases": [phase.name for phase in plan.phases],
        "endpoints": documents_of(EndpointDocument, plan.endpoints),
    }
