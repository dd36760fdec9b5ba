"""`stateshift advise`: does each job fit, should it scale or move. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.shell.options import (
    WORKDIRS,
    Format,
    Jobs,
    Workdirs,
    argument,
    command,
    flag,
    option,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import SpecError

if TYPE_CHECKING:
    from stateshift.advise.evaluate.settings import Settings


SAMPLE = "60s"
Sample = Annotated[
    str, option("--sample", "TIME", "How long to measure, where one look is not enough.")
]
Changed = Annotated[
    list[str] | None,
    option(
        "--set", "KEY=VALUE", "A setting, as the Flink operator's autoscaler calls it. Repeatable."
    ),
]


@command(
    "stateshift advise orders.json\n"
    "stateshift advise http://jobmanager:8081 --job orders --explain\n"
    "stateshift advise s3a://bucket/checkpoints/orders --driver-ui http://driver:4040\n"
    "stateshift advise orders.json --history /var/lib/stateshift --json",
    (2, 6, 8, 130),
    e0='a verdict on each job; "cannot tell" is one',
    e6="the history's folder cannot be read or written",
    e8="what rebalance has kept is damaged",
    e130="you stopped watching",
)
def advise(
    terminal: Terminal,
    given: Annotated[
        str | None,
        argument("[SPEC|URL|LOCATION]", "A spec; or the URL of a Flink; or a checkpoint of Spark."),
    ] = None,
    job: Jobs = None,
    sample: Sample = SAMPLE,
    history: Annotated[
        str | None,
        option(
            "--history",
            "DIR",
            "Keep each look here. The next measures from it on, and waits for nothing.",
        ),
    ] = None,
    explain: Annotated[bool, flag("--explain", "Show each formula with its numbers.")] = False,
    setting: Changed = None,
    cores: Annotated[
        int | None, option("--cores", "N", "What a job of Spark runs on.", min=1)
    ] = None,
    driver_ui: Annotated[
        str | None,
        option(
            "--driver-ui",
            "URL",
            "Also ask the driver of the job of Spark, such as http://driver:4040.",
        ),
    ] = None,
    driver_ca_file: Annotated[
        str | None,
        option(
            "--driver-ca-file",
            "FILE",
            "The authority that signed the driver's certificate, if its page is https.",
        ),
    ] = None,
    replay: Annotated[
        str | None,
        option("--replay", "FILE", "Judge again what --json has written; look at nothing."),
    ] = None,
    watch: Annotated[bool, flag("--watch -w", "Repeat every --sample until you stop it.")] = False,
    workdirs: Workdirs = WORKDIRS,
    rebalance: Annotated[
        str | None,
        option(
            "--rebalance",
            "DIR",
            "Where `rebalance` keeps what it knows, if not in WORKDIRS/rebalance-<spec>.",
        ),
    ] = None,
    format: Format = "text",
) -> int | None:
    """Does each job fit, should it scale or move?

    Measures running jobs: how busy they are, what arrives, what waits. Uses the formulas and the
    settings of the Flink operator's autoscaler, also for Spark, whose checkpoint is its history.
    Changes nothing. A job that cannot be measured gets "cannot tell" with the reason.
    """
    from stateshift.api.advice import AdviceRequest, adviser_of, replay_advice
    from stateshift.cli.views import advise_text
    from stateshift.documents.advice import advice_documents

    terminal.format_as(format)
    if replay is not None:
        refuse_beside_replay(
            given is not None or watch, "judges a file again, and looks at no jobs"
        )
        advice = replay_advice(replay, job or ())
    else:
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
        adapters = terminal.adapters()
        adviser = adviser_of(request, adapters)
        advice = adviser.round()
        terminal.is_paged = not watch
        while watch:  # until Ctrl-C
            documents = partial(advice_documents, advice)
            terminal.answer("advise", documents, advise_text.watch(advice, explain))
            adapters.clock.sleep(request.sample_seconds)
            advice = adviser.round()
    documents = partial(advice_documents, advice)
    terminal.answer("advise", documents, advise_text.blocks(advice, explain))
    return None


def require_argument(given: str | None, argument: str, example: str) -> str:
    """Return an argument that may be left out only beside `--replay`."""
    if given is None:
        raise SpecError.of(argument, "missing", hint=example)
    return given


def seconds_in(text: str, option: str = "--sample") -> float:
    """Return a time that an option gives."""
    from stateshift.advise.evaluate.settings import duration

    try:
        seconds = duration(text)
    except ValueError as error:
        message = f"{text!r}: expected {error}"
        raise SpecError.of(option, message, text, hint=f"{option} 60s") from error
    if seconds <= 0:
        raise SpecError.of(option, "a time above 0", hint=f"{option} 60s")
    return seconds


def settings_in(given: Sequence[str]) -> Settings:
    """Return the settings that `--set` has changed."""
    from stateshift.advise.evaluate.settings import settings_from

    pairs = [text.partition("=") for text in given]
    for text, (_, sign, _) in zip(given, pairs, strict=True):
        if not sign:
            message = f"{text!r} is no KEY=VALUE"
            raise SpecError.of("--set", message, hint="--set utilization.target=0.6")
    return settings_from({key: value for key, _, value in pairs})


def refuse_beside_replay(is_given: bool, message: str) -> None:
    """Refuse what asks for a look or an act beside `--replay`, which does neither."""
    if is_given:
        raise SpecError.of("--replay", message, hint="leave the rest out")
