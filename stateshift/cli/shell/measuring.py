"""The options of commands that measure jobs, and what they say: `advise` and `rebalance`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stateshift.advise.evaluate.settings import Settings

SAMPLE = "60s"
Sample = Annotated[
    str,
    typer.Option(
        "--sample", metavar="TIME", help="How long to measure, where one look is not enough."
    ),
]
Changed = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting, as the Flink operator's autoscaler calls it. Repeatable.",
    ),
]


def require_argument(given: str | None, argument: str, example: str) -> str:
    """Return an argument that may be left out only beside `--replay`."""
    from stateshift.errors import Complaint, SpecError

    if given is None:
        raise SpecError((Complaint(argument, "missing"),), hint=example)
    return given


def seconds_in(text: str, option: str = "--sample") -> float:
    """Return a time that an option gives."""
    from stateshift.advise.evaluate.settings import duration
    from stateshift.errors import Complaint, SpecError

    try:
        seconds = duration(text)
    except ValueError as error:
        raise SpecError(
            (Complaint(option, f"{text!r}: expected {error}", text),), hint=f"{option} 60s"
        ) from error
    if seconds <= 0:
        raise SpecError((Complaint(option, "a time above 0"),), hint=f"{option} 60s")
    return seconds


def settings_in(given: Sequence[str]) -> Settings:
    """Return the settings that `--set` has changed."""
    from stateshift.advise.evaluate.settings import settings_from
    from stateshift.errors import Complaint, SpecError

    pairs = [text.partition("=") for text in given]
    for text, (_, sign, _) in zip(given, pairs, strict=True):
        if not sign:
            message = f"{text!r} is no KEY=VALUE"
            raise SpecError((Complaint("--set", message),), hint="--set utilization.target=0.6")
    return settings_from({key: value for key, _, value in pairs})


def refuse_beside_replay(is_given: bool, message: str) -> None:
    """Refuse what asks for a look or an act beside `--replay`, which does neither."""
    from stateshift.errors import Complaint, SpecError

    if is_given:
        raise SpecError((Complaint("--replay", message),), hint="leave the rest out")
