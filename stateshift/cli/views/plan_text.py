"""`plan` for a person: phases, counts, time, and what to know before. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from stateshift.cli.views import findings_text as render_endpoints
from stateshift.cli.views.findings_text import findings, new_positions
from stateshift.cli.views.text import (
    Block,
    Cell,
    Gap,
    Line,
    Row,
    TextTable,
    pairs,
    section,
    table_or_nothing,
)
from stateshift.cli.views.units import about, dash, many, number, size, span
from stateshift.plan import COPYING
from stateshift.specification.grammars import MANUAL, NEVER, READY, seconds_of
from stateshift.specification.job_relations import unsynced_places
from stateshift.step.fences import FenceSource
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.documents.plan import CutFacts, PlanFacts
    from stateshift.plan import Plan
    from stateshift.specification import JobSpec, Spec
    from stateshift.survey import Finding


FENCED = "its job cannot go on there; rollback lifts that"
Pair = tuple[str, str | Cell]


def proposal(facts: PlanFacts, verbose: bool = False) -> Iterator[Block]:
    """Show every plan in the order they run, then time, findings and the fingerprint."""
    spec = facts.proposal.spec
    for place, plan in enumerate(facts.plans):
        if place:
            yield Gap()
        yield from one_plan(plan, spec, verbose)
    together = list(_together(facts))
    if together:
        yield Gap()
        yield from together
    # Each job's once, as its last plan has them.
    last_plans = {plan.job: plan for plan in facts.plans}
    several = len(last_plans) > 1
    rows: list[Row] = []
    for job, plan in last_plans.items():
        for end in plan.endpoints:
            image = str(end.details.get("image", ""))
            rows.append((job if several else "", image, *render_endpoints.row(end, verbose)))
    yield from section("Sources and sinks", *table_or_nothing(("",) * 6, rows))
    yield from section("Reads on", *new_positions(facts.sources, verbose))
    if spec.profile is not None:
        gave = ", ".join(map(redact, spec.profile.gave)) or "nothing that the spec does not say"
        given = f"{spec.profile.name} ({spec.profile.file}) gave {gave}"
        yield from section("Profile", Line(given, indent=2))
    yield from section("Findings", *findings(_findings(facts), verbose))
    yield Gap()
    yield pairs(*_summary(facts), indent=0)


def findings_of(facts: PlanFacts, verbose: bool = False) -> Iterator[Block]:
    """Show the findings alone, and whether they refuse the plan."""
    yield from findings(_findings(facts), verbose)
    refusals = [pairs(each, indent=0) for each in _summary(facts) if each[0] == "refused"]
    yield from refusals


def brief(facts: PlanFacts) -> Iterator[Block]:
    """Show a line a plan, and what should have stopped it, to who has said yes already. Its files
    are those that it writes: they are read once more to be compared.
    """
    for plan in facts.plans:
        title = _title(plan, facts.proposal.spec.job(plan.job))
        phases = ", ".join(phase.name for phase in plan.phases) or "nothing"
        writing = [phase for phase in plan.phases if phase.name in COPYING]
        files = many(sum(phase.files for phase in writing), "file")
        bytes_ = size(sum(phase.bytes for phase in writing))
        amounts = f" (writes {files}, {bytes_})" if writing else ""
        yield Line(f"{title}: {phases}{amounts}", "strong")
        if _fences(plan):
            yield Line(f"fenced: {redact(plan.source)}: {FENCED}", indent=2)
    yield from _together(facts)
    loud = [finding for finding in _findings(facts) if finding.level != "note"]
    yield from findings(loud)


# ---- several jobs --------------------------------------------------------------------------------


def _together(facts: PlanFacts) -> Iterator[Block]:
    """Show which jobs move as one, and which of them are stopped in what order."""
    together = [wave for wave in facts.waves if len(wave) > 1]
    for wave in together:
        yield Line(f"together, phase by phase: {', '.join(wave)}")
    if together:
        for cut in facts.cuts:
            yield from _cut(cut)


def _cut(cut: CutFacts) -> Iterator[Block]:
    joints = [f"{upstream} -> {downstream}" for upstream, downstream in cut.joints]
    passing = f" (a tuple may pass {_some(joints)})" if joints else ""
    order = ", then ".join(" and ".join(part) for part in cut.order)
    yield Line(f"{'stopped' if cut.stops else 'to be stopped'} at one cut: {order}{passing}")
    if cut.blind:
        yield _warning(
            f"stopped whether they have read all that was written before or not: "
            f'{_some(cut.blind)} (nobody can ask: name the brokers of Spark jobs, "kafka")'
        )
    if cut.ring:
        yield _warning(
            f"feed each other, so that something may be left between them: {_some(cut.ring)}"
        )
    if cut.between:
        yield _warning(
            f"between them, in jobs that do not move: {_some(cut.between)}; "
            "at the cut they hold what the old jobs wrote"
        )


def _warning(text: str) -> Line:
    return Line(text, "warn", indent=2)


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


# ---- one plan ------------------------------------------------------------------------------------


def one_plan(plan: Plan, spec: Spec, verbose: bool = False) -> Iterator[Block]:
    """Show one plan: from where to where, what it depends on, and its phases."""
    job = spec.job(plan.job)
    fork = _is_fork(plan, job)
    yield Line(_title(plan, job), "strong")
    if plan.source == plan.target:
        yield pairs(("stays at", redact(plan.source)))
    else:
        fenced = ("fenced", f"the source: {FENCED}") if _fences(plan) else None
        yield pairs(("source", redact(plan.source)), ("target", redact(plan.target)), fenced)
    if job is not None and job.rehearses:
        yield _warning("the standby is fed meanwhile: it is planned again if that changes it")
    elif fork:
        terms = terms_of(plan.engine)
        newest = f"its newest {terms.done} {terms.one}"
        yield _warning(f"the source may run on: what is copied is {newest} at that time")
        if job is not None and unsynced_places(spec, job):
            yield _warning("the copy is not synced: a power cut can lose files of it")
    elif plan.purpose == "warm":
        yield _warning(
            "provisional: the first round, as of now; later rounds copy what the job adds"
        )
        if job is not None:
            yield Line(_stopped(job), indent=2)
    elif job is not None and job.takes_over is not None:
        yield _warning("provisional: it is planned again once the standby is claimed")
    elif plan.provisional:
        yield _warning(
            "provisional: the job runs. This is what would move now; it is planned again once the "
            "job has stopped,"
        )
        yield _warning("and refused if the job has changed by then.")
    if not plan.phases:
        why = "the findings say why" if plan.refusals else "there is nothing to do"
        yield Line(f"no steps: {why}", indent=2)
        return
    yield from _phases(plan, verbose)


def _fences(plan: Plan) -> bool:
    """Whether it keeps the old job from committing."""
    steps = chain.from_iterable(phase.steps for phase in plan.phases)
    return plan.source != plan.target and any(isinstance(step, FenceSource) for step in steps)


def _is_fork(plan: Plan, job: JobSpec | None) -> bool:
    return plan.purpose == "move" and job is not None and job.mode == "fork"


def _title(plan: Plan, job: JobSpec | None) -> str:
    at = f" at {terms_of(plan.engine).at} {plan.epoch}" if plan.epoch is not None else ""
    move = "copy its image to a fork" if _is_fork(plan, job) else "move its image"
    if job is not None and job.takes_over is not None:
        move = "start it from its standby"
    if job is not None and job.rehearses:
        move = "start it from a copy of its standby, and throw that away: a drill"
    does = {
        "aside": "set aside what is there",
        "warm": f"copy what it needs{at} while it runs, in rounds",
        "halt": "stop the job",
        "start": "start the job",
        "move": f"{move}{at}",
    }
    return f"{plan.job}: {does[plan.purpose]}"


def _stopped(job: JobSpec) -> str:
    """Return the moment at which a job is stopped that is copied while it runs."""
    if job.cutover == NEVER:
        return (
            "the job is not stopped: the target holds an image to start from, "
            "until `stateshift cutover`"
        )
    signals = {READY: "", MANUAL: ", once you run: stateshift cutover WORKDIR"}
    signal = signals.get(job.cutover, f", between {job.cutover}")
    return f"the job is stopped {_enough(job)}{signal}"


def _enough(job: JobSpec) -> str:
    """Return the condition to stop copying: little is left, or all allowed rounds were made."""
    little_left = f"once what is left would take less than {span(seconds_of(job.until))}"
    if job.rounds is None:
        return little_left
    rounds = many(job.rounds, "round")
    return f"after {rounds}" if job.until is None else f"{little_left}, within {rounds}"


def _phases(plan: Plan, verbose: bool) -> Iterator[Block]:
    rows: list[Row] = []
    for phase in plan.phases:
        steps = number(len(phase.steps))
        rows.append((phase.name, steps, dash(phase.files, number), dash(phase.bytes, size)))
    yield TextTable(("phase", ">steps", ">files", ">size"), tuple(rows))
    if not verbose:
        return
    each: list[Row] = []
    for step in chain.from_iterable(phase.steps for phase in plan.phases):
        files, bytes_ = dash(step.files, number), dash(step.bytes, size)
        each.append((step.name, step.kind, files, bytes_, redact(step.describe())))
    yield Gap()
    yield TextTable(("step", "kind", ">files", ">size", "does"), tuple(each))


def _findings(facts: PlanFacts) -> list[Finding]:
    return [each.finding for each in facts.findings]


def _summary(facts: PlanFacts) -> Iterator[Pair]:
    estimate = facts.estimate
    if estimate is not None:
        down = about(estimate.downtime_seconds)
        yield "estimate", f"{about(estimate.seconds)}, the job down for {down} of it"
        yield "", Cell(estimate.basis, "dim")
    if facts.processes > 1:
        yield "processes", f"{facts.processes} share the work (--parallel 1: one does it alone)"
    yield "fingerprint", facts.proposal.fingerprint
    if facts.proposal.signed is not None:
        yield "signed", redact(facts.proposal.signed.claim)
    refusals = len(facts.proposal.refusals)
    if refusals:
        count = many(refusals, "finding")
        words = f"{count}: nothing can be done before they are gone or waived"
        yield "refused", Cell(words, "bad")
