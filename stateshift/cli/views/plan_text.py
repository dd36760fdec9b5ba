"""`plan` for a person: phases, counts, time, and what to know before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views import endpoints_text as render_endpoints
from stateshift.cli.views.findings_text import findings
from stateshift.cli.views.plan_facts import PlanFacts, plan_facts
from stateshift.cli.views.text import Block, Cell, Gap, Line, Table, pairs, section, without_empty
from stateshift.cli.views.units import about, dash, many, number, size, span
from stateshift.specification.warm import NEVER, READY, TOLD, seconds_of
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.cli.views.plan_facts import CutFacts
    from stateshift.migration import Proposal
    from stateshift.plan import Plan
    from stateshift.specification import JobSpec
    from stateshift.survey import Finding


def proposal(proposed: Proposal, verbose: bool = False) -> Iterator[Block]:
    """Every plan in the order they run, then time, findings and the fingerprint."""
    facts = plan_facts(proposed)
    for number_, plan in enumerate(proposed.plans):
        if number_:
            yield Gap()
        yield from one_plan(plan, proposed.spec.job(plan.job), verbose)
    together = list(_together(facts))
    if together:
        yield Gap()
        yield from together
    yield from section("Sources and sinks", *_endpoints(proposed.plans, verbose))
    yield from section("Findings", *findings(_findings(proposed.plans), verbose))
    yield Gap()
    yield pairs(*_summary(facts), indent=0)


def _together(facts: PlanFacts) -> Iterator[Block]:
    """Which jobs move as one, and which of them are stopped in what order."""
    together = [wave for wave in facts.waves if len(wave) > 1]
    yield from (Line(f"together, phase by phase: {', '.join(wave)}") for wave in together)
    if together:
        yield from _cuts(facts.cuts)


def _cuts(cuts: Iterable[CutFacts]) -> Iterator[Block]:
    for cut in cuts:
        joints = [f"{one} -> {other}" for one, other in cut.joints]
        passing = f" (a tuple may pass {_some(joints)})" if joints else ""
        order = ", then ".join(" and ".join(part) for part in cut.order)
        yield Line(f"{'stopped' if cut.stops else 'to be stopped'} at one cut: {order}{passing}")
        if cut.blind:
            yield Line(
                "stopped whether they have read all that was written before or not: "
                f"{_some(cut.blind)} "
                '(nobody can ask: name the brokers of Spark jobs, "kafka")',
                "warn",
                indent=2,
            )
        if cut.ring:
            yield Line(
                (f"feed each other, so that something may be left between them: {_some(cut.ring)}"),
                "warn",
                indent=2,
            )
        if cut.between:
            yield Line(
                f"between them, in jobs that do not move: {_some(cut.between)}; "
                "at the cut they hold what the old jobs wrote",
                "warn",
                indent=2,
            )


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def brief(proposed: Proposal) -> Iterator[Block]:
    """For who has said yes already: a line a plan, and what should have stopped them."""
    for plan in proposed.plans:
        phases = ", ".join(phase.name for phase in plan.phases) or "nothing"
        title = _title(plan, _is_fork(plan, proposed.spec.job(plan.job)))
        yield Line(f"{title}: {phases} ({many(plan.files, 'file')}, {size(plan.bytes)})", "strong")
    yield from _together(plan_facts(proposed))
    loud = [finding for finding in _findings(proposed.plans) if finding.level != "note"]
    yield from findings(loud)


def _is_fork(plan: Plan, job: JobSpec | None) -> bool:
    return plan.purpose == "move" and job is not None and job.mode == "fork"


def one_plan(plan: Plan, job: JobSpec | None, verbose: bool = False) -> Iterator[Block]:
    fork, terms = _is_fork(plan, job), terms_of(plan.engine)
    yield Line(_title(plan, fork), "strong")
    if plan.source != plan.target:
        yield pairs(("source", redact(plan.source)), ("target", redact(plan.target)))
    else:
        yield pairs(("stays at", redact(plan.source)))
    if fork:
        newest = f"its newest {terms.done} {terms.one}"
        yield Line(
            f"the source may run on: what is copied is {newest} at that time", "warn", indent=2
        )
    elif plan.purpose == "warm":
        yield Line(
            "provisional: the first round, as of now; later rounds copy what the job adds",
            "warn",
            2,
        )
        if job is not None:
            yield Line(_stopped(job), indent=2)
    elif plan.provisional:
        yield Line(
            (
                "provisional: the job runs. This is what would move now; it is planned again "
                "once the job has stopped,"
            ),
            "warn",
            indent=2,
        )
        yield Line("and refused if the job has changed by then.", "warn", indent=2)
    if plan.phases:
        yield _phases(plan)
        if verbose:
            yield Gap()
            yield _steps(plan)
    else:
        yield Line(
            "no steps: the findings say why"
            if plan.refusals
            else "no steps: there is nothing to do",
            indent=2,
        )


def _title(plan: Plan, fork: bool) -> str:
    at = f" at {terms_of(plan.engine).at} {plan.epoch}" if plan.epoch is not None else ""
    move = "copy its image to a fork" if fork else "move its image"
    does = {
        "warm": f"bring what it needs{at} over while it runs, in rounds",
        "halt": "stop the job",
        "start": "start the job",
        "move": f"{move}{at}",
    }
    return f"{plan.job}: {does[plan.purpose]}"


def _stopped(job: JobSpec) -> str:
    """When a job is that is brought over while it runs."""
    if job.cutover == NEVER:
        return (
            "the job is not stopped: the target holds an image to start from, "
            "until `stateshift cutover`"
        )
    when = f"once what is left would take less than {span(seconds_of(job.until))}"
    if job.rounds is not None:
        rounds = many(job.rounds, "round")
        when = f"after {rounds}" if job.until is None else f"{when}, within {rounds}"
    told = {READY: "", TOLD: ", when it is told: stateshift cutover WORKDIR"}
    return f"the job is stopped {when}{told.get(job.cutover, f', between {job.cutover}')}"


def _phases(plan: Plan) -> Table:
    rows: list[tuple[str | Cell, ...]] = [
        (phase.name, number(len(phase.steps)), dash(phase.files, number), dash(phase.bytes, size))
        for phase in plan.phases
    ]
    return Table(("phase", ">steps", ">files", ">size"), tuple(rows))


def _steps(plan: Plan) -> Table:
    rows = tuple(
        (
            step.name,
            step.kind,
            dash(step.files, number),
            dash(step.bytes, size),
            redact(step.describe()),
        )
        for phase in plan.phases
        for step in phase.steps
    )
    return Table(("step", "kind", ">files", ">size", "does"), rows)


def _endpoints(plans: Iterable[Plan], verbose: bool) -> Iterator[Block]:
    """Of each job once, as its last plan has them."""
    last = {plan.job: plan for plan in plans}
    several = len(last) > 1
    rows = tuple(
        (
            plan.job if several else "",
            str(end.details.get("image", "")),
            *render_endpoints.row(end, verbose),
        )
        for plan in last.values()
        for end in plan.endpoints
    )
    if rows:
        yield without_empty(Table(("",) * 6, rows))


def _findings(plans: Iterable[Plan]) -> list[Finding]:
    return [finding for plan in plans for finding in plan.findings]


def _summary(facts: PlanFacts) -> Iterator[tuple[str, str | Cell]]:
    estimate = facts.estimate
    if estimate is not None:
        down = about(estimate.downtime_seconds)
        yield "estimate", f"{about(estimate.seconds)}, the job down for {down} of it"
        yield "", Cell(estimate.basis, "dim")
    yield "fingerprint", facts.proposal.fingerprint
    refusals = len(facts.proposal.refusals)
    if refusals:
        yield (
            "refused",
            Cell(
                f"{many(refusals, 'finding')}: nothing can be done before they are gone or waived",
                "bad",
            ),
        )
