"""`stateshift advise`: does each job fit, should it scale or move. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import WORKDIRS, Jobs, Workdirs, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.advise.advising import Advice, Adviser
    from stateshift.advise.evaluate.settings import Settings
    from stateshift.api.advice import AdviceRequest

EPILOG = epilog(
    "stateshift advise orders.json\n"
    "stateshift advise http://jobmanager:8081 --job orders --explain\n"
    "stateshift advise orders.json --history /var/lib/stateshift --json",
    2,
    6,
    130,
    e0='a verdict on each job; "cannot tell" is one',
    e6="the history's folder cannot be read or written",
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
    sample: Annotated[
        str,
        typer.Option(
            "--sample", metavar="TIME", help="How long to measure, where one look is not enough."
        ),
    ] = "60s",
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
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting, as the Flink operator's autoscaler calls it. Repeatable.",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option("--cores", metavar="N", min=1, help="What a job of Spark runs on."),
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
) -> int | None:
    """Does each job fit, should it scale or move?

    Measures running jobs: how busy they are, what arrives, what waits. Uses the formulas and the
    settings of the Flink operator's autoscaler, also for Spark, whose checkpoint is its history.
    Changes nothing. A job that cannot be measured gets "cannot tell" with the reason.
    """
    from stateshift.api.advice import AdviceRequest, adviser_of, replayed

    if replay is not None:
        _refuse_both(given, watch)
        _show(terminal, replayed(replay, job or ()), explain)
        return None
    request = AdviceRequest(
        _needed(given),
        tuple(job or ()),
        settings_in(setting or ()),
        seconds_in(sample),
        history,
        cores,
        workdirs,
    )
    adviser = adviser_of(request, terminal.adapters())
    if watch:
        _watch(terminal, adviser, request)
    _show(terminal, adviser.round(), explain)
    return None


def _watch(terminal: Terminal, adviser: Adviser, request: AdviceRequest) -> None:
    """Judge again and again. It ends with Ctrl-C."""
    from stateshift.cli.views import advise_json
    from stateshift.cli.views.advise_text import line

    clock = terminal.adapters().clock
    while True:
        advice = adviser.round()
        if terminal.json:
            terminal.document("advise", advise_json.document(advice))
        else:
            for each in advice:
                terminal.say(line(each.verdict))
        clock.sleep(request.sample_seconds)


def _show(terminal: Terminal, advice: list[Advice], explain: bool) -> None:
    from stateshift.cli.views import advise_json, advise_text

    terminal.answer(
        "advise",
        lambda: advise_json.document(advice),
        lambda: advise_text.blocks(advice, explain),
    )


def _needed(given: str | None) -> str:
    from stateshift.errors import Complaint, SpecError

    if given is None:
        raise SpecError(
            (Complaint("SPEC|URL|LOCATION", "missing"),),
            hint="stateshift advise http://jobmanager:8081",
        )
    return given


def _refuse_both(given: str | None, watch: bool) -> None:
    """Refuse to look at jobs beside a replay, which looks at nothing."""
    from stateshift.errors import Complaint, SpecError

    if given is not None or watch:
        message = "judges a file again, and looks at no jobs"
        raise SpecError((Complaint("--replay", message),), hint="leave the rest out")


def seconds_in(text: str) -> float:
    """Return how long `--sample` says to measure."""
    from stateshift.advise.evaluate.settings import duration
    from stateshift.errors import Complaint, SpecError

    try:
        seconds = duration(text)
    except ValueError as error:
        raise SpecError(
            (Complaint("--sample", f"{text!r}: expected {error}", text),), hint="--sample 60s"
        ) from error
    if seconds <= 0:
        raise SpecError(
            (Complaint("--sample", "it takes some time to measure"),), hint="--sample 60s"
        )
    return seconds


def settings_in(given: list[str] | tuple[()]) -> Settings:
    """Return the settings that `--set` has changed."""
    from stateshift.advise.evaluate.settings import settings_from
    from stateshift.errors import Complaint, SpecError

    pairs = [text.partition("=") for text in given]
    for text, (_, sign, _) in zip(given, pairs, strict=True):
        if not sign:
            message = f"{text!r} is no KEY=VALUE"
            raise SpecError((Complaint("--set", message),), hint="--set utilization.target=0.6")
    return settings_from({key: value for key, _, value in pairs})
