"""Verdicts for a person: a table first, then each job's reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from stateshift.advise.evaluate.explaining import explain
from stateshift.advise.evaluate.reasons import in_units
from stateshift.cli.views.text import Block, Cell, Gap, Line, Row, Table, Tone
from stateshift.cli.views.units import span

if TYPE_CHECKING:
    from stateshift.advise.advising import Advice
    from stateshift.advise.evaluate.verdicts import Verdict

_TONES: Final[Mapping[str, Tone]] = {
    "fits": "good",
    "scale": "warn",
    "move": "warn",
    "limited": "warn",
    "unknown": "dim",
}
_SAID_BY: Final[Mapping[str, str]] = {
    "runs": "measured by our own runs",
    "flink": "measured by Flink",
    "default": "assumed: nothing has measured it",
}


def blocks(advice: Sequence[Advice], explain: bool) -> Iterator[Block]:
    """Show the verdicts; with `explain`, each formula with its numbers."""
    if not advice:
        yield Line("no job runs there")
        return
    heads = ("job", "verdict", ">now", ">advised", ">headroom", ">waits")
    rows: list[Row] = []
    for each in advice:
        verdict, word = each.verdict, each.verdict.word
        row = (
            verdict.job,
            Cell("cannot tell" if word == "unknown" else word, _TONES[word]),
            "-" if verdict.parallelism is None else _count(verdict.parallelism, verdict),
            "-" if verdict.wanted is None else _count(verdict.wanted, verdict),
            "-" if verdict.headroom is None else f"{verdict.headroom:.0%}",
            "-" if verdict.lag is None else f"{verdict.lag:,.0f}",
        )
        rows.append(row)
    yield Table(heads, tuple(rows), indent=0)
    for each in advice:
        yield Gap()
        yield Line(f"{each.verdict.job}: {headline(each.verdict)}", "strong")
        for reason in each.verdict.reasons:
            yield Line(reason, indent=2)
        yield from _costs(each.verdict)
        if explain:
            yield from _formulas(each)


def watch(advice: Sequence[Advice], explain: bool) -> Iterator[Block]:
    """Yield a line for each job, after each round of --watch."""
    for each in advice:
        yield Line(_line(each.verdict))
        if explain:
            yield from _formulas(each)


def headline(verdict: Verdict) -> str:
    """Return the advice in a few words."""
    match verdict.word:
        case "unknown":
            return "cannot tell"
        case "fits":
            return "fits"
        case "limited":
            return "limited: more subtasks do not help"
        case word if verdict.wanted is None:
            return f"{word} to {verdict.factor or 1:.2f} times the cores"
        case word:
            return f"{word} to {_count(verdict.wanted, verdict)}"


def _line(verdict: Verdict) -> str:
    words = headline(verdict)
    if verdict.headroom is not None:
        words += f", headroom {verdict.headroom:.0%}"
    if verdict.lag is not None:
        words += f", {verdict.lag:,.0f} wait"
    return f"{verdict.job}: {words}: {verdict.reasons[0]}"


def _formulas(advice: Advice) -> Iterator[Line]:
    """Yield each formula of a verdict with its numbers, below its line."""
    for formula in explain(advice.inputs, advice.verdict):
        yield Line(f"    {formula}")


def _count(parallelism: int, verdict: Verdict) -> str:
    """Return a parallelism; of Spark with what it counts, since Flink's is a word of its own."""
    if verdict.unit == "subtasks":
        return str(parallelism)
    return in_units(parallelism, verdict.unit)


def _costs(verdict: Verdict) -> Iterator[Line]:
    if verdict.word in ("scale", "move"):
        restart = verdict.restart
        words = f"a restart takes {span(restart.seconds)} ({_SAID_BY[restart.source]})"
        yield Line(words, indent=2)
    if verdict.cost_per_hour is not None and verdict.cost_per_hour_wanted is not None:
        price = f"{verdict.cost_per_hour:.2f} an hour"
        if verdict.cost_per_hour_wanted != verdict.cost_per_hour:
            price += f", {verdict.cost_per_hour_wanted:.2f} as advised"
        yield Line(f"it costs {price}", indent=2)
