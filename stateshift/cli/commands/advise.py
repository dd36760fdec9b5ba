"""`stateshift advise`: does each job fit, should it scale or move. Reads only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.measuring import (
    SAMPLE,
    Changed,
    Sample,
    refuse_beside_replay,
    require_argument,
    seconds_in,
    settings_in,
)
from stateshift.cli.shell.options import WORKDIRS, Jobs, Workdirs, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.advise.advising import Advice, Adviser
    from stateshift.api.advice import AdviceRequest

EPILOG = epilog(
    "stateshift advise orders.json\n"
    "stateshift advise http://jobmanager:8081 --job orders --explain\n"
    "stateshift advise s3a://bucket/checkpoints/orders --driver-ui http://driver:4040\n"
    "stateshift advise orders.json --history /var/lib/stateshift --json",
    2,
    6,
    8,
    130,
    e0='a verdict on each job; "cannot tell" is one',
    e6="the history's folder cannot be read or written",
    e8="what rebalance has kept is damaged",
    e130="you stopped watching",
)


def command(
    terminal: Terminal,
    given: Annotated[
        str | None,
        typer.Argument(
            metavar="[SPEC|URL|LOCATION]",
            help="A spec; or the URL of a Flink; or a checkpoint of Spark.",
        ),
    ] = None,
    job: Jobs = None,
    sample: Sample = SAMPLE,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="DIR",
            help="Keep each look here. The next measures from it on, and waits for nothing.",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each formula with its numbers.")
    ] = False,
    setting: Changed = None,
    cores: Annotated[
        int | None,
        typer.Option("--cores", metavar="N", min=1, help="What a job of Spark runs on."),
    ] = None,
    driver_ui: Annotated[
        str | None,
        typer.Option(
            "--driver-ui",
            metavar="URL",
            help="Also ask the driver of the job of Spark, such as http://driver:4040.",
        ),
    ] = None,
    driver_ca_file: Annotated[
        str | None,
        typer.Option(
            "--driver-ca-file",
            metavar="FILE",
            help="The authority that signed the driver's certificate, if its page is https.",
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="FILE", help="Judge again what --json has written; look at nothing."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Repeat every --sample until you stop it.")
    ] = False,
    workdirs: Workdirs = WORKDIRS,
    rebalance: Annotated[
        str | None,
        typer.Option(
            "--rebalance",
            metavar="DIR",
            help="Where `rebalance` keeps what it knows, if not in WORKDIRS/rebalance-<spec>.",
        ),
    ] = None,
) -> int | None:
    """Does each job fit, should it scale or move?

    Measures running jobs: how busy they are, what arrives, what waits. Uses the formulas and the
    settings of the Flink operator's autoscaler, also for Spark, whose checkpoint is its history.
    Changes nothing. A job that cannot be measured gets "cannot tell" with the reason.
    """
    from stateshift.api.advice import AdviceRequest, adviser_of, replay_advice

    if replay is not None:
        refuse_beside_replay(
            given is not None or watch, "judges a file again, and looks at no jobs"
        )
        _show(terminal, replay_advice(replay, job or ()), explain)
        return None
    example = "stateshift advise http://jobmanager:8081"
    request = AdviceRequest(
        require_argument(given, "SPEC|URL|LOCATION", example),
        tuple(job or ()),
        settings_in(setting or ()),
        seconds_in(sample),
        history,
        cores,
        workdirs,
        driver_ui,
        rebalance,
        driver_ca_file,
    )
    adviser = adviser_of(request, terminal.adapters())
    if watch:
        _watch(terminal, adviser, request, explain)
    _show(terminal, adviser.round(), explain)
    return None


def _watch(terminal: Terminal, adviser: Adviser, request: AdviceRequest, explain: bool) -> None:
    """Judge again and again. It ends with Ctrl-C."""
    from stateshift.cli.views import advise_text
    from stateshift.documents.advice import advice_documents

    clock = terminal.adapters().clock
    while True:
        advice = adviser.round()
        terminal.answer(
            "advise", partial(advice_documents, advice), advise_text.watch(advice, explain)
        )
        clock.sleep(request.sample_seconds)


def _show(terminal: Terminal, advice: list[Advice], explain: bool) -> None:
    from stateshift.cli.views import advise_text
    from stateshift.documents.advice import advice_documents

    terminal.answer("advise", lambda: advice_documents(advice), advise_text.blocks(advice, explain))
