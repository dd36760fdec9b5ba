"""The value that `plan` prints and `apply` executes; to JSON and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from shlex import quote

from stateshift import __version__, lock, plain
from stateshift.errors import Complaint, JournalError, PlanError, SpecError
from stateshift.estimating import estimate
from stateshift.extensions import names_added
from stateshift.migration.adapters import Adapters
from stateshift.migration.cluster_facts import findings_of_room
from stateshift.migration.gathering import Inquiry, gather
from stateshift.migration.one_cut import JointStart
from stateshift.migration.signature import Signed, signature_in
from stateshift.migration.source_check import damages
from stateshift.migration.take_over import plan_job
from stateshift.migration.wave_order import cuts_of, waves
from stateshift.plan import PLAN_VERSION, Plan, decode_plan, encode_plan
from stateshift.specification import JobSpec, Spec, parse_spec, to_plain_spec
from stateshift.specification.grammars import seconds_of
from stateshift.specification.job_relations import sharing
from stateshift.storage import locations
from stateshift.suggestion import did_you_mean
from stateshift.survey import Facts, Finding
from stateshift.workdir import Workdir

TOGETHER = "leave out --job, or make a spec of the jobs that move"
PLAN_AGAIN = "make it again: stateshift plan SPEC -o FILE"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The plans of every job that was named, and the spec they were made from. A signature is of
    the whole: some of its jobs are nobody's.
    """

    spec: Spec
    plans: tuple[Plan, ...]
    signed: Signed | None = None

    @property
    def fingerprint(self) -> str:
        return _fingerprint(to_plain_spec(self.spec), self.plans)

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(chain.from_iterable(plan.refusals for plan in self.plans))

    def jobs(self, only: Collection[str] = ()) -> tuple[JobSpec, ...]:
        """Return the jobs to be carried out: all that were planned, or those that are named."""
        planned = {plan.job for plan in self.plans}
        wanted = jobs_of(self.spec, only or planned)
        without = [job.name for job in wanted if job.name not in planned]
        if without:
            raise PlanError(
                f"nothing was planned for {', '.join(map(repr, without))}",
                hint="plan again: without --job, or with every one that is to move",
            )
        return wanted

    def of_jobs(self, only: Collection[str]) -> Proposal:
        """Return the plans of these jobs alone."""
        wanted = {job.name for job in self.jobs(only)}
        plans = tuple(plan for plan in self.plans if plan.job in wanted)
        signed = self.signed if plans == self.plans else None
        return replace(self, plans=plans, signed=signed)


def _fingerprint(spec: plain.Value, plans: Iterable[Plan]) -> str:
    """Return a short name for a spec, as it is written, and plans."""
    return plain.fingerprint([spec, [plan.fingerprint for plan in plans]])


def propose(
    spec: Spec, adapters: Adapters, workdir: Workdir, only: Collection[str] = (), deep: bool = False
) -> Proposal:
    """Return the plans of the spec's jobs, with estimates. `deep`: read sources to the end."""
    inquiry = Inquiry(spec, adapters, workdir)
    plans: list[Plan] = []
    joint = JointStart(inquiry)
    jobs: list[JobSpec] = []
    for job in map(joint.job, jobs_of(spec, only)):
        jobs.append(job)
        parent = adapters.open_storage(locations.parent(job.destination))
        fed_by = job.takes_over.fed_by if job.takes_over is not None else None
        lock.refuse_held(parent, locations.name(job.destination), but=fed_by)
        facts = gather(inquiry, job, extent="plan")
        made = list(plan_job(inquiry, job, facts))
        made[-1] = joint.with_findings(made[-1])
        if deep:
            adapters.meter.say(f"{job.name}: looking at the source")
            findings = damages(inquiry, job)
            made[-1] = replace(made[-1], findings=(*made[-1].findings, *findings))
        plans += _with_estimates(spec, job, facts, made)
    if spec.restart:
        clusters = {each.name: each for each in spec.clusters}
        told = findings_of_room(clusters, jobs, lambda each: adapters.open_cluster(each, workdir))
        last = {plan.job: number for number, plan in enumerate(plans)}
        for name, found in told.items():
            plan = plans[last[name]]
            plans[last[name]] = replace(plan, findings=(*plan.findings, *found))
    return Proposal(spec, tuple(plans))


def _with_estimates(
    spec: Spec, job: JobSpec, facts: Facts, plans: Sequence[Plan]
) -> Iterator[Plan]:
    has_rounds = any(plan.purpose == "warm" for plan in plans)
    left = seconds_of(job.until) if has_rounds else None
    throttle = (spec.bytes_per_second, spec.operations_per_second)
    for plan in plans:
        yield replace(plan, estimate=estimate(plan, facts, throttle, left))


def encode_proposal(proposal: Proposal) -> dict[str, object]:
    """Return the content of a saved plan: all plans, the spec, and the version that made them."""
    return {
        "stateshift_plan": PLAN_VERSION,
        "stateshift": __version__,
        "fingerprint": proposal.fingerprint,
        "spec": to_plain_spec(proposal.spec),
        "plans": [encode_plan(plan) for plan in proposal.plans],
    }


def decode_proposal(value: object) -> Proposal:
    """Return a saved plan. Refuse one that another version made, or that somebody changed: its spec
    counts as it is written there, which may be in words of an earlier version.
    """
    if not isinstance(value, dict) or "stateshift_plan" not in value:
        raise PlanError("not a saved plan", hint="make one: stateshift plan SPEC -o FILE")
    if value["stateshift_plan"] != PLAN_VERSION:
        made_by = value.get("stateshift", "unknown")
        raise PlanError(
            "the plan was made by another version of stateshift "
            f"({made_by}; this is {__version__})",
            hint=PLAN_AGAIN,
        )
    try:
        spec = parse_spec(plain.canonical(value.get("spec")), names_added=names_added)
        plans = list(value.get("plans") or ())
        proposal = Proposal(spec, tuple(decode_plan(plan) for plan in plans))
    except (SpecError, TypeError, RecursionError):
        proposal = None
    if proposal is None or _fingerprint(value["spec"], proposal.plans) != value.get("fingerprint"):
        raise PlanError(
            "the saved plan does not match its fingerprint: it was changed by hand or damaged",
            hint=PLAN_AGAIN,
        )
    return replace(proposal, signed=signature_in(value))


def proposal_of(workdir: Workdir) -> Proposal:
    """Return the proposal of a run. Its plans are in the format of the version that made them."""
    value = workdir.read("proposal.json")
    made_by = value.get("stateshift") if isinstance(value, dict) else None
    try:
        return decode_proposal(value)
    except PlanError as error:
        hint = f"pip install stateshift=={made_by}, then the same command again"
        if made_by in (None, __version__):
            hint = "restore it from a copy"
        raise JournalError(f"{workdir.path / 'proposal.json'}: {error.fact}", hint=hint) from error


def refuse(plans: Sequence[Plan]) -> None:
    """Raise the first finding that stops one of these plans."""
    refusals = list(chain.from_iterable(plan.refusals for plan in plans))
    if refusals:
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        raise PlanError(refusals[0].message + more, hint=refusals[0].hint)


def jobs_of(spec: Spec, only: Collection[str] = ()) -> tuple[JobSpec, ...]:
    """Return the jobs to work on, in their order: all, or named ones (IS-3), none divided."""
    refuse_rebalanced(spec)
    names = [job.name for job in spec.jobs]
    for name in only:
        if name not in names:
            fact = f"the spec has no job {name!r}{did_you_mean(name, names)}"
            hint = f"--job takes one of: {', '.join(sorted(names))}"
            raise SpecError((Complaint("--job", fact),), hint=hint)
    jobs = tuple(chain.from_iterable(waves(spec)))
    if only:
        jobs = tuple(job for job in jobs if job.name in only)
        # Refuse some of the jobs that share a source, or change at one cut, and not all of them.
        for job in jobs:
            left = [other.name for other in sharing(spec, job) if other not in jobs]
            if left:
                fact = f"{job.name!r} shares its source with {left[0]!r}: they move together"
                raise PlanError(fact, hint=TOGETHER)
        for cut in cuts_of(spec):
            named = [name for name in cut.jobs if name in only]
            left = [repr(name) for name in cut.jobs if name not in only]
            if named and left:
                fact = (
                    f"{named[0]!r} is stopped at one cut with {', '.join(left)}: by the spec's "
                    "dataflow they move together"
                )
                raise PlanError(fact, hint=TOGETHER)
    return jobs


def refuse_rebalanced(spec: Spec, file: str = "SPEC") -> None:
    """Refuse a spec that leaves open where its jobs go. `file` is where it was read."""
    if spec.rebalance is not None:
        message = "the spec says between which clusters its jobs may move, and not where they go"
        command = f"stateshift rebalance {quote(file)} --once"
        hint = f"{command}   # tells what would be moved; --yes moves it"
        raise SpecError((Complaint("/rebalance", message),), hint=hint)
