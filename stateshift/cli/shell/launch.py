"""The way from a request to a run: plan, show, ask, apply, report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stateshift import migration
from stateshift.api.runs import refuse_another, run_name
from stateshift.cli.shell.options import RunOptions
from stateshift.cli.shell.request import Request
from stateshift.cli.shell.work import carry_out, confirm
from stateshift.cli.views import plan_text as render_plan
from stateshift.cli.views.units import many
from stateshift.documents.plan import plan_facts
from stateshift.documents.problems import FindingDocument
from stateshift.documents.shape import documents_of
from stateshift.errors import PlanError
from stateshift.workdir import Workdir

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal
    from stateshift.migration import Adapters, Proposal
    from stateshift.report import Report


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
    show(terminal, proposal, brief=options.yes and not terminal.verbose)
    refuse_refused(proposal, request.typed)
    confirm(terminal, "carry this out?", options.yes)

    def work(adapters: Adapters, begun: Callable[[], None]) -> Report:
        return migration.apply(proposal, run, workdir, adapters, begun)

    return carry_out(terminal, workdir, work, request.spec, options.fleet)


def show(terminal: Terminal, proposal: Proposal, brief: bool) -> None:
    """Show what is about to be done; `brief` is for who has agreed already."""
    facts = plan_facts(proposal)
    if brief:
        terminal.talk(render_plan.brief(facts))
    else:
        terminal.talk(render_plan.proposal(facts, terminal.verbose))


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
