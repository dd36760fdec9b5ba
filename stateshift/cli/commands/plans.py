"""The commands that take a spec: `plan` shows what would be done, `apply` does it."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

from stateshift.cli.shell.options import (
    WORKDIRS,
    Format,
    Jobs,
    Overwrite,
    Parallel,
    RunOptions,
    Throttle,
    Workdirs,
    argument,
    command,
    flag,
    option,
    overridden,
    refuse_no_file,
    refuse_replacing,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import PlanError, SpecError


@command(
    "stateshift plan orders.json -o orders.plan\n"
    "stateshift plan orders.plan --sign lead.key --expires 8h -o signed.plan",
    (2, 3, 4, 6, 7),
    e0="the plan can be carried out",
    e4="a finding says refuse; the plan is shown",
)
def plan(
    terminal: Terminal,
    spec: Annotated[str, argument("SPEC", "The spec, or a saved plan to look at again.")],
    output: Annotated[
        str | None,
        option(
            "--output -o",
            "FILE",
            "Save the plan for `stateshift apply FILE`, in place of a plan that is there.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    job: Jobs = None,
    parallel: Parallel = None,
    throttle: Throttle = None,
    workdirs: Workdirs = WORKDIRS,
    deep: Annotated[
        bool,
        flag("--deep", "Read every byte that a restart needs, as `verify --deep` and `apply` do."),
    ] = False,
    sign: Annotated[
        str | None,
        option(
            "--sign", "KEY", "Sign a saved plan, into --output, with this private key (Ed25519)."
        ),
    ] = None,
    expires: Annotated[
        str | None,
        option("--expires", "TIME", "With --sign: for how long a run may begin by it. [24h]"),
    ] = None,
    format: Format = "text",
) -> int | None:
    """Show what would be done, how long it takes, the risks.

    Shows phases, files, bytes, an estimate of time and downtime, and all findings. Only reads.
    `stateshift apply` carries it out. It plans again once the job has stopped, and exits with 4
    if source or target no longer fit.
    """
    from dataclasses import replace

    from stateshift.api.requests import is_saved_plan, mistakes_placed, move_of, save
    from stateshift.cli.commands.advise import seconds_in
    from stateshift.cli.views import plan_text as render_plan
    from stateshift.documents.plan import plan_document, plan_facts
    from stateshift.migration import (
        Proposal,
        encode_proposal,
        processes_for,
        propose,
        sign_plan,
        with_breach,
    )
    from stateshift.workdir import Workdir

    terminal.format_as(format, "phases")
    if output is not None:
        _refuse_output(spec, output)  # before the reading, which may take a while
        refuse_replacing(terminal, "-o", output, overwrite or is_saved_plan(output))
    given, only = move_of(spec), job or []
    if sign is None and expires is not None:
        raise SpecError.of("--expires", "is for --sign")
    seconds = seconds_in(expires or "24h", "--expires")
    if sign is not None and (output is None or not isinstance(given, Proposal)):
        hint = f"stateshift plan FILE --sign {shlex.quote(sign)} -o SIGNED"
        raise SpecError.of("--sign", "signs a saved plan FILE into another file", hint=hint)
    if isinstance(given, Proposal):
        proposal = given.of_jobs(only)
    else:
        workdir = Workdir(os.path.join(workdirs, "plan"))
        given = overridden(given, parallel, throttle)
        with mistakes_placed(spec):
            proposal = propose(given, terminal.adapters(), workdir, only, deep)
    if sign is not None and not proposal.refusals:
        signed = sign_plan(encode_proposal(proposal), sign, seconds, terminal.adapters())
        proposal = replace(proposal, signed=signed)
    processes = processes_for(proposal.plans, proposal.spec.parallel)
    judged = with_breach(proposal, terminal.adapters())
    facts = replace(plan_facts(judged), processes=processes)
    terminal.is_paged = output is None or sign is not None  # a plan is saved at once
    terminal.answer(
        "plan",
        lambda: plan_document(facts, terminal.verbose),
        render_plan.proposal(facts, terminal.verbose),
        beside=render_plan.findings_of(facts, terminal.verbose),
    )
    if sign is not None and proposal.signed is None:
        terminal.say("it is refused as it stands, and was not signed")
    elif output is not None:
        if sign is not None:
            from stateshift.cli.shell.work import confirm

            confirm(terminal, "sign this?", yes=not terminal.someone_there)
        save(proposal, output)
        if judged.refusals:
            terminal.say("saved; it is refused as it stands")
        else:
            terminal.say(f"saved; carry it out with: stateshift apply {shlex.quote(output)}")
    return PlanError.exit_code if judged.refusals else None


def _refuse_output(spec: str, output: str) -> None:
    """Refuse a file that is read, or that cannot be written."""
    if _same(spec, output):
        stem = os.path.splitext(output)[0]
        other = f"{stem}.plan"
        if _same(spec, other):
            other = f"{stem}-2.plan"
        message = f"{output} is the file that is read: the plan would take its place"
        raise SpecError.of("-o", message, hint=f"give it another name: -o {shlex.quote(other)}")
    refuse_no_file("-o", output, "a plan", "plan.json")


def _same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


@command(
    "stateshift apply orders.json\nstateshift apply orders.plan --yes --json > report.json\n"
    "stateshift apply orders.plan --fleet spark://master:7077\n"
    "stateshift apply signed.plan --signed-by lead.pub --yes\n"
    "stateshift apply orders.json --continuous --yes",
    (2, 3, 4, 5, 6, 7, 8, 10, 130),
    e0="the image is at its target; the job runs there if the spec has a `submit`",
    e4=(
        "refused (also a damaged source, and a no), stale, or a warm move that cannot catch up: "
        "the old job runs on, or its halt was undone"
    ),
    e8="another run holds the target or the workdir",
    e130="interrupted: `stateshift resume WORKDIR` continues",
)
def apply(
    terminal: Terminal,
    options: RunOptions,
    spec: Annotated[
        str, argument("SPEC|FILE", "The spec, or a plan saved by `stateshift plan -o`.")
    ],
    job: Jobs = None,
    continuous: Annotated[
        bool,
        flag(
            "--continuous",
            "Never stop the jobs. Keep at each target an image that a job can start from, "
            "until this ends or `stateshift cutover` asks for the switch.",
        ),
    ] = False,
    signed_by: Annotated[
        list[str] | None,
        option(
            "--signed-by",
            "KEY",
            "Begin only by a saved plan that one of these public keys (Ed25519) has signed. "
            "Repeatable.",
        ),
    ] = None,
) -> int | None:
    """Carry out a spec or a saved plan, and report.

    Asks first at a terminal, and needs --yes elsewhere. Ctrl-C finishes the current write. The
    journal keeps what was done, and `stateshift resume` continues.
    """
    from stateshift.api.requests import mistakes_placed
    from stateshift.cli.shell.launch import launch, request_in

    terminal.signed_by = tuple(signed_by or ())
    with mistakes_placed(spec):
        return launch(terminal, options, request_in(spec, job or [], options, continuous))
