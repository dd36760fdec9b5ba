"""The way to a run from a request (a spec, a saved plan, or jobs that were typed): plan, show, ask,
apply, report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stateshift import migration
from stateshift.api.requests import move_of
from stateshift.api.runs import refuse_another, run_name
from stateshift.cli.shell.options import RunOptions, overridden
from stateshift.cli.shell.work import carry_out, confirm
from stateshift.cli.views import plan_text as render_plan
from stateshift.cli.views.units import many
from stateshift.documents.plan import plan_facts
from stateshift.documents.problems import FindingDocument
from stateshift.documents.shape import documents_of
from stateshift.errors import PlanError
from stateshift.migration import Proposal, jobs_of, keep_policies
from stateshift.specification import JobSpec, Spec
from stateshift.specification.grammars import NEVER
from stateshift.workdir import Workdir

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal
    from stateshift.migration import Adapters
    from stateshift.report import Report


@dataclass(frozen=True)
class Request:
    """A spec, of which `only` some jobs may be meant; `saved` is its plan, if it was made before.

    The jobs of a shortcut are `typed` on the command line: there is no file to correct.
    """

    spec: Spec
    only: tuple[str, ...] = ()
    saved: Proposal | None = None
    typed: bool = False

    @property
    def jobs(self) -> Sequence[JobSpec]:
        """The jobs that the run carries out."""
        if self.saved is not None:
            return self.saved.jobs()
        return jobs_of(self.spec, self.only)


def request_in(path: str, only: Sequence[str], options: RunOptions, continuous: bool) -> Request:
    """Return the request in a file. A saved plan stops its jobs: a `continuous` run plans again."""
    given = move_of(path)
    saved = given if isinstance(given, Proposal) else None
    spec = given.spec if isinstance(given, Proposal) else given
    spec = overridden(spec, options.parallel, options.throttle)
    if continuous:
        return Request(kept_fresh(spec, only), tuple(only))
    if saved is not None:
        saved = replace(saved.of_jobs(only), spec=spec)
    return Request(spec, tuple(only), saved)


def kept_fresh(spec: Spec, only: Collection[str]) -> Spec:
    """Return the spec of a run that never stops its jobs: its copies can be started at any time."""
    jobs = []
    for job in spec.jobs:
        is_meant = not only or job.name in only
        if is_meant and job.mode != "warm":
            raise PlanError(
                f"{job.name} is not copied while it runs", hint='"mode": "warm" in the spec'
            )
        jobs.append(replace(job, cutover=NEVER) if job.mode == "warm" else job)
    return replace(spec, jobs=tuple(jobs))


def launch(terminal: Terminal, options: RunOptions, request: Request) -> int:
    """Carry out a request, once somebody has agreed to its plan; return the exit code."""
    refuse_unknown_master(options.fleet)
    if not options.yes and not terminal.someone_there:
        confirm(terminal, "", yes=False)  # before the reading, which may take a while
    run = run_name([job.name for job in request.jobs], time.time(), os.urandom(2))
    workdir = Workdir(options.workdir or os.path.join(options.workdirs, run))
    refuse_another(workdir)
    proposal = request.saved
    if proposal is None:
        proposal = migration.propose(request.spec, terminal.adapters(), workdir, request.only)
    facts = plan_facts(proposal)
    if options.yes and not terminal.verbose:  # who has agreed already
        terminal.talk(render_plan.brief(facts))
    else:
        terminal.talk(render_plan.proposal(facts, terminal.verbose))
    refuse_refused(proposal, request.typed)
    keep_policies(proposal.jobs(), terminal.adapters(), proposal.signed)
    confirm(terminal, "carry this out?", options.yes)

    def work(adapters: Adapters, begun: Callable[[], None]) -> Report:
        def begun_and_listed() -> None:
            workdir.list_in(options.workdirs, run)
            begun()

        return migration.apply(proposal, run, workdir, adapters, begun_and_listed)

    return carry_out(terminal, workdir, work, request.spec, options.fleet)


def refuse_unknown_master(fleet: str | None) -> None:
    """Refuse what is no Spark master, before anything is read for it."""
    if fleet is not None:
        from stateshift.fleet import kind_of

        kind_of(fleet)


def refuse_refused(proposal: Proposal, typed: bool) -> None:
    """Refuse a plan with refusals. They were just shown: they are not said again."""
    refusals = proposal.refusals
    if not refusals:
        return
    hint, names = refusals[0].hint, [refusal.waive for refusal in refusals if refusal.waive]
    if typed and len(names) == len(refusals):
        # There is no spec to correct: what can be waived is waived on the command line.
        hint = "to waive it: " + " ".join(f"--waive {name}" for name in dict.fromkeys(names))
    count = many(len(refusals), "finding refuses", "findings refuse")
    raise PlanError(
        f"{count} this plan; nothing was done",
        hint=hint,
        findings=documents_of(FindingDocument, refusals),
    )
