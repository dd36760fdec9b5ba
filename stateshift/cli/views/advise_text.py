"""Verdicts for a person: a table first, then each job's reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from stateshift.advise.evaluate.flink_formulas import VertexDecision, is_backlog
from stateshift.advise.evaluate.inputs import Inputs, SparkInputs
from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.reasons import in_units
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.spark_batches import CoresSource
from stateshift.advise.evaluate.verdicts import Verdict, restart_seconds
from stateshift.cli.views.text import Block, Cell, Gap, Line, Row, TextTable, Tone
from stateshift.cli.views.units import span

if TYPE_CHECKING:
    from stateshift.advise.advising import Advice

_TONES: Final[Mapping[str, Tone]] = {
    "fits": "good",
    "scale": "warn",
    "move": "warn",
    "limited": "warn",
    "unknown": "dim",
}
_MEASURED_BY: Final[Mapping[str, str]] = {
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
    yield TextTable(heads, tuple(rows), indent=0)
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
        verdict = each.verdict
        words = f"{verdict.job}: {headline(verdict)}"
        if verdict.headroom is not None:
            words += f", headroom {verdict.headroom:.0%}"
        if verdict.lag is not None:
            words += f", {verdict.lag:,.0f} wait"
        yield Line(f"{words}: {verdict.reasons[0]}")
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
        words = f"a restart takes {span(restart.seconds)} ({_MEASURED_BY[restart.source]})"
        yield Line(words, indent=2)
    if verdict.cost_per_hour is not None and verdict.cost_per_hour_wanted is not None:
        price = f"{verdict.cost_per_hour:.2f} an hour"
        if verdict.cost_per_hour_wanted != verdict.cost_per_hour:
            price += f", {verdict.cost_per_hour_wanted:.2f} as advised"
        yield Line(f"it costs {price}", indent=2)


def explain(inputs: Inputs, verdict: Verdict) -> Iterator[str]:
    """Yield the formulas of a verdict, a line each; nothing of one that could not be made."""
    settings = inputs.around.settings
    if isinstance(inputs, SparkInputs) and verdict.decisions:
        if inputs.cores is None:
            yield "cores    = unknown: counted in hundredths of those that it has"
        else:
            yield f"cores    = {inputs.cores}, {_SAID_BY[inputs.cores_from]}"
    restart = restart_seconds(inputs.around)
    backlog = is_backlog(verdict.loads, settings)
    names = {load.id: load.name for load in verdict.loads}
    for load, decision in zip(verdict.loads, verdict.decisions, strict=False):
        yield f"{load.name}, {in_units(load.parallelism, verdict.unit)} at present"
        lines = (
            *_arrives(load, decision, settings, names),
            _true_rate(load, decision, settings),
            *_thresholds(decision, settings, restart, backlog),
            *_wanted(load, decision, settings),
        )
        for line in lines:
            yield f"  {line}"


_SAID_BY: Final[Mapping[CoresSource | None, str]] = {
    "option": "as the caller says (--cores)",
    "driver": "as its driver says",
    "query": "as the query says itself (stateshift.job)",
    "spec": "as `conf` of its submission asks for",
    None: "as its inputs have it",
}


def _arrives(
    load: VertexLoad, decision: VertexDecision, settings: Settings, names: Mapping[str, str]
) -> Iterator[str]:
    if load.is_source:
        yield (
            f"lambda   = max(0, input rate {_n(load.input_rate)} + lag rate "
            f"{_n(load.lag_rate)}) = {_n(decision.target_rate)}"
        )
        lag = "unknown, taken for 0" if load.lag is None else _n(load.lag)
        yield (
            f"catchup  = lag {lag} / catch-up.duration {_n(settings.catch_up_duration)} s = "
            f"{_n(decision.catchup_rate)}"
        )
        return
    ids = dict.fromkeys(edge.vertex for edge in load.inputs)
    upstream = ", ".join(names.get(id, id) for id in ids)
    ratios = "its output ratio" if len(ids) == 1 else "their output ratios"
    yield f"lambda   = of {upstream} by {ratios} = {_n(decision.target_rate)}"
    queued = f" + queued {_n(load.queued)} / catch-up.duration" if load.queued else ""
    yield f"catchup  = likewise{queued} = {_n(decision.catchup_rate)}"
    if load.queue_rate:
        yield f"queue    = {_n(load.queue_rate)} records/s more were written than it has read"


def _true_rate(load: VertexLoad, decision: VertexDecision, settings: Settings) -> str:
    if decision.true_rate is None:
        return f"TPR      = infinite: input rate {_n(load.input_rate)}, busy {load.busy:.1%}"
    rate, busy = _n(decision.true_rate), f"busy {load.busy:.1%}"
    if decision.rate_is_observed:
        more = f"is more by {settings.observed_switch_threshold:.0%}"
        return f"TPR      = observed {rate}: input rate / {busy} {more}"
    of_subtasks = f"({settings.busy_time_aggregator} of subtasks)"
    return f"TPR      = input rate {_n(load.input_rate)} / {busy} {of_subtasks} = {rate}"


def _thresholds(
    decision: VertexDecision, settings: Settings, restart: float, backlog: bool
) -> Iterator[str]:
    above = 1.0 if backlog else settings.utilization_above
    below = 0.0 if backlog else settings.utilization_below
    if backlog:
        yield (
            "backlog: a source has more than backlog-processing.lag-threshold "
            f"{_n(settings.backlog_lag_threshold)} s before it, so the band is 0 to 1"
        )
    arrives = _n(decision.target_rate)
    extra = f"lambda {arrives} * restart {_n(restart)} s / {_n(settings.catch_up_duration)} s"
    catchup = f"catchup {_n(decision.catchup_rate)}"
    yield f"up       = {catchup} + lambda {arrives} / {above:g} = {_n(decision.up)}"
    down = "infinite" if decision.down is None else _n(decision.down)
    yield f"down     = {catchup} + {extra} + lambda {arrives} / {below:g} = {down}"
    target = f"lambda {arrives} / {settings.utilization_target:g}"
    yield f"capacity = {catchup} + {extra} + {target} = {_n(decision.capacity)}"


def _wanted(load: VertexLoad, decision: VertexDecision, settings: Settings) -> Iterator[str]:
    least, most = 1 - settings.scale_down_max_factor, 1 + settings.scale_up_max_factor
    yield (
        f"factor   = capacity {_n(decision.capacity)} / TPR, within [{least:g}, {most:g}] = "
        f"{decision.factor:.4g}"
    )
    bounds = (
        f", bounded by {decision.ceiling.count} {decision.ceiling.what}" if decision.ceiling else ""
    )
    aligned = "" if settings.alignment == "OFF" else f", aligned ({settings.alignment})"
    yield (
        f"p'       = ceil({decision.factor:.4g} * {load.parallelism}) = {decision.unclamped}"
        f"{bounds}{aligned} -> {decision.wanted}"
    )
    side = "below: too little" if decision.is_below else "inside the band"
    if decision.is_saturated and (decision.true_rate or 0.0) >= decision.up:
        side = f"not below, but it is busy for {load.busy:.1%}: too little"
    side = "above: too much" if decision.is_above else side
    yield f"TPR is {side}"


def _n(value: float) -> str:
    """Return a number with enough digits to calculate on."""
    return f"{value:,.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.4g}"
