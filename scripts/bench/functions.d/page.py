"""The page and the picture, from the lines of figures that lie beside them."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curves import COLOURS, Axis, Curves, plotted
from pages import drawing, put_down, reached, told, wrapped

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "scripts" / "bench" / "results" / "functions.md"
FIGURES = RESULTS.with_suffix(".jsonl")
PLOT = RESULTS.with_suffix(".png")
COMMAND = "./scripts/bench/functions"

FAST_OF_EPOCH_MAX = 0.1
THROUGHPUT = (0.9, 1.1)
BATCHES_MAX = 3
RESTART_OF_LIVE_MIN = 5.0
OVERHEAD_MAX = 1.05
WAYS = {
    "live": "live, by batch",
    "query": "the query stopped and started, in one session",
    "application": "the application stopped and started",
}

Figures = Mapping[str, Any]
Every = Sequence[Figures]


def written(every: Every) -> None:
    put_down(RESULTS, as_page(every))
    pictured(every)


def as_page(every: Every) -> Iterator[str]:
    yield "# Functions that change while a Spark job runs"
    yield ""
    yield from wrapped(
        f"`{COMMAND}` on {os.cpu_count()} cores, Linux, Python {platform.python_version()}, a "
        "real Spark 4.3 on this machine (local). Its functions are chains "
        "(`stateshift.live.chain`), changed through the group's folder by another process. "
        "Others were at work on the machine: only figures of one table can be held against each "
        "other, and ratios say more than seconds. *Load* is uptime's, the job's own included. "
        "Medians, and (least / most). A delay is the time from the proposal until a worker runs "
        "the new function: until the first one does, and until all do."
    )
    yield ""
    yield "![latency in a surge, delays, throughput](functions.png)"
    for part, section in SECTIONS.items():
        of_part = [one for one in every if one["part"] == part]
        if of_part:
            yield ""
            yield from section(of_part)
            yield ""
            yield f"Again: `{COMMAND} --parts {part}` (these: {days(of_part)})."
    yield ""
    yield from beside(every)


def days(every: Every) -> str:
    return ", ".join(sorted({one["at"].split()[0] for one in every}))


# ------------------------------------------------------------------------------------ surge, calm


def surge(every: Every) -> Iterator[str]:
    yield "## A surge: the rate doubles, an expensive function is replaced by a cheap one (F-20)"
    yield ""
    yield from wrapped(
        "An open-loop source, 2,400 records a second, then twice as many: more than two workers "
        "manage with a function that takes 0.5 ms a record, so batches grow. Once one has taken "
        "5 s, the change is asked for within the next, a quarter, half or three quarters of the "
        "last batch's time after its begin. *fries* sends a message, which the dataflow allows; "
        "*epoch* waits for the next batch. Several targets are chains beside each other in one "
        "query, each with its share of the records; targets in a row have to change by batch. "
        "*Falls* is how long after the request a batch first ends whose worst latency is about "
        "that of before the surge."
    )
    yield ""
    yield from delay_table(every, falls=True)
    yield ""
    for targets in sorted({one["targets"] for one in every}):
        for what in ("first", "last"):
            ratio = of_epoch(every, targets, what)
            who = "the first worker" if what == "first" else "all workers"
            goal = f"goal: at most {FAST_OF_EPOCH_MAX}, {reached(ratio <= FAST_OF_EPOCH_MAX)}"
            yield f"* {plural(targets)}, {who}: fries ÷ epoch = {ratio:.3f} ({goal})"


def calm(every: Every) -> Iterator[str]:
    yield "## Short batches: an epoch is fast, too"
    yield ""
    yield from wrapped(
        "2,000 records a second, functions that take 0.1 ms. Between batches no worker runs, so "
        "a message waits for the next batch as an epoch does."
    )
    yield ""
    yield from delay_table(every, falls=False)
    yield ""
    for targets in sorted({one["targets"] for one in every}):
        ratio = of_epoch(every, targets, "last")
        yield f"* {plural(targets)}, all workers: fries ÷ epoch = {ratio:.2f}"


def delay_table(every: Every, falls: bool) -> Iterator[str]:
    more = " falls after, s |" if falls else ""
    yield f"| targets | scheduler | batch, s | first worker, s | all workers, s |{more} n | load |"
    yield "|---|---|---|---|---|---|---|" + ("---|" if falls else "")
    for targets, scheduler, found in by_case(every):
        cells = [str(targets), scheduler, f"{middle(found, 'batch'):.1f}"]
        cells += [spread(found, "first"), spread(found, "last")]
        cells += [spread(found, "falls")] if falls else []
        yield f"| {' | '.join([*cells, str(len(found)), loads(found)])} |"


def by_case(every: Every) -> Iterator[tuple[int, str, Every]]:
    cases = sorted({(one["targets"], one["scheduler"]) for one in every})
    for targets, scheduler in sorted(cases, key=lambda case: (case[0], case[1] == "epoch")):
        yield targets, scheduler, of(every, targets, scheduler)


def of(every: Every, targets: int, scheduler: str) -> Every:
    case = (targets, scheduler)
    return [one for one in every if (one["targets"], one["scheduler"]) == case]


def of_epoch(every: Every, targets: int, what: str) -> float:
    return middle(of(every, targets, "fries"), what) / middle(of(every, targets, "epoch"), what)


# ------------------------------------------------------------------------------------ the others


def filters(every: Every) -> Iterator[str]:
    yield "## A filter is introduced, and replaced by another one (T-18, T-19)"
    yield ""
    yield from wrapped(
        "It keeps every fifth record. *Over it* is the throughput from half of the time before "
        "the request until that after. *Batches* have begun from the request until all workers "
        "run it."
    )
    yield ""
    yield "| act | all workers, s | batches | in before, 1/s | over it | after | after ÷ before |"
    yield "|---|---|---|---|---|---|---|"
    for act in ("introduce", "replace"):
        found = [one for one in every if one["act"] == act]
        ratio = statistics.median(one["in_after"] / one["in_before"] for one in found)
        rates = [f"{middle(found, what):,.0f}" for what in ("in_before", "in_over_it", "in_after")]
        cells = [act, spread(found, "last"), f"at most {most(found, 'batches')}", *rates]
        yield f"| {' | '.join([*cells, f'{ratio:.2f}'])} |"
    yield ""
    ratios = [one["in_after"] / one["in_before"] for one in every]
    fits = all(THROUGHPUT[0] <= ratio <= THROUGHPUT[1] for ratio in ratios)
    out = [one["out_after"] / one["out_before"] for one in every if one["act"] == "introduce"]
    yield (
        f"* throughput in, after ÷ before, each time: {min(ratios):.2f} to {max(ratios):.2f} "
        f"(goal: 0.9 to 1.1, {reached(fits)}); out, by the introduced filter: "
        f"{statistics.median(out):.2f}"
    )
    batches = most(every, "batches")
    goal = f"goal: at most {BATCHES_MAX}, {reached(batches <= BATCHES_MAX)}"
    of_batches = "1 batch" if batches == 1 else f"{batches} batches"
    yield f"* everywhere within {of_batches} ({goal})"


def restart(every: Every) -> Iterator[str]:
    yield "## Beside a restart with the new function"
    yield ""
    yield from wrapped(
        "*Gap* is the longest time in which nothing comes out, *usual* the time from batch to "
        "batch, *worst* the latency of the record that waited longest. A session that stays up "
        "can start its query again only if the new function is in it already: whoever submits "
        "jobs has to start the application again."
    )
    yield ""
    yield "| way | gap, s | usual, s | worst, s | until the new one runs, s | n | load |"
    yield "|---|---|---|---|---|---|---|"
    for way, name in WAYS.items():
        found = [one for one in every if one["way"] == way]
        cells = [name, spread(found, "gap"), f"{middle(found, 'usual'):.2f}"]
        cells += [spread(found, "worst"), spread(found, "until_new"), str(len(found))]
        yield f"| {' | '.join([*cells, loads(found)])} |"
    yield ""
    live = middle([one for one in every if one["way"] == "live"], "gap")
    for way in ("application", "query"):
        ratio = middle([one for one in every if one["way"] == way], "gap") / live
        goal = f"goal: at least {RESTART_OF_LIVE_MIN:g}, {reached(ratio >= RESTART_OF_LIVE_MIN)}"
        yield f"* gap, {WAYS[way]} ÷ live = {ratio:.1f} ({goal})"


def overhead(every: Every) -> Iterator[str]:
    yield "## What a chain costs where nothing changes"
    yield ""
    yield from wrapped(
        "One query with the bare function and with a chain of it, in turn, 200,000 rows a batch in "
        "20 Arrow batches and two tasks; a batch's time in ms, the median of each query's batches."
    )
    yield ""
    yield "| bare, ms | chain, ms | chain ÷ bare, of each pair | pairs | load |"
    yield "|---|---|---|---|---|"
    pairs = [one for one in every if "bare" in one]
    ratios = [one["chain"] / one["bare"] for one in pairs]
    bare, chain = [one["bare"] for one in pairs], [one["chain"] for one in pairs]
    cells = [rounded(bare), rounded(chain), told(ratios), str(len(pairs)), loads(pairs)]
    yield f"| {' | '.join(cells)} |"
    yield ""
    ratio = statistics.median(ratios)
    goal = f"goal: at most {OVERHEAD_MAX}, {reached(ratio <= OVERHEAD_MAX)}"
    yield f"* chain ÷ bare = {ratio:.3f}, the median of the pairs ({goal})"
    if max(ratios) - min(ratios) > OVERHEAD_MAX - 1:
        yield "* single pairs differ by more than the goal: the machine's other work is in them"
    for one in every:
        if "task" in one:
            part = one["task"] / statistics.median(bare)
            yield (
                f"* without Spark, a task of ten Arrow batches takes {one['task']:.1f} ms more by a "
                f"chain (the seal of its batch is most of it), {100 * part:.1f} % of such a batch"
            )


def pair(every: Every) -> Iterator[str]:
    yield "## Two queries with a real Kafka between them, both change"
    yield ""
    yield from wrapped(
        "The first one's chain stamps its records, the second one's follows the stamp. The delay "
        "of all workers includes the way of the first new record through Kafka. *Mixed* counts "
        "combinations of an old and a new function that records have met."
    )
    yield ""
    yield "| batch, s | first worker, s | all workers, s | mixed | n | load |"
    yield "|---|---|---|---|---|---|"
    cells = [f"{middle(every, 'batch'):.1f}", spread(every, "first"), spread(every, "last")]
    yield f"| {' | '.join([*cells, str(most(every, 'mixed')), str(len(every)), loads(every)])} |"


SECTIONS = {
    "surge": surge,
    "calm": calm,
    "filter": filters,
    "restart": restart,
    "overhead": overhead,
    "pair": pair,
}


def beside(every: Every) -> Iterator[str]:
    """What was published beside ours, as far as it was measured."""
    yield "## Beside what was published"
    yield ""
    yield (
        "Theirs are other systems on clusters of several machines: how the two schedulers stand "
        "to each other can be compared, seconds cannot."
    )
    yield ""
    yield "| what | theirs | ours |"
    yield "|---|---|---|"
    surges = [one for one in every if one["part"] == "surge"]
    for scheduler, theirs in (("fries", "44 to 1,702 ms"), ("epoch", "4,127 to 20,532 ms")):
        found = [one["last"] * 1000 for one in surges if one["scheduler"] == scheduler]
        if found:
            ours = f"{min(found):,.0f} to {max(found):,.0f} ms (surge, all workers)"
            yield f"| Fries (VLDB 2022), table 3: delay by {scheduler} | {theirs} | {ours} |"
    for act, theirs in (("introduce", "under 10 s"), ("replace", "under 9 s")):
        found = [one["last"] for one in every if one["part"] == "filter" and one["act"] == act]
        if found:
            ours = f"{min(found):.1f} to {max(found):.1f} s"
            yield f"| BTW 2018: {act} a filter, until all run it | {theirs} | {ours} |"
    yield (
        "| Fries, 8.3: the latency in a surge | falls at once; by an epoch once the stragglers "
        "are through | see the picture |"
    )


# ------------------------------------------------------------------------------------ figures


def middle(found: Every, what: str) -> float:
    return float(statistics.median(one[what] for one in found))


def rounded(values: Sequence[float]) -> str:
    """Their median, the least and the most, without decimals."""
    return f"{statistics.median(values):.0f} ({min(values):.0f} / {max(values):.0f})"


def most(found: Every, what: str) -> int:
    return int(max(one[what] for one in found))


def spread(found: Every, what: str) -> str:
    return told([one[what] for one in found])


def loads(found: Every) -> str:
    values = [one["load"] for one in found]
    return f"{min(values):.0f} to {max(values):.0f}"


def plural(targets: int) -> str:
    return f"{targets} target" + ("s" if targets > 1 else "")


# ------------------------------------------------------------------------------------ the picture


def pictured(every: Every) -> None:
    pyplot = drawing()
    if pyplot is None:
        return
    figure, panels = pyplot.subplots(1, 3, figsize=(18, 5.5))
    surges = [one for one in every if one["part"] == "surge"]
    latency_panel(panels[0], surges)
    delay_panel(panels[1], surges)
    rate_panel(panels[2], [one for one in every if one["part"] == "filter"])
    figure.tight_layout()
    figure.savefig(PLOT, dpi=80)


def latency_panel(panel: Any, surges: Every) -> None:
    """One surge with each scheduler, from before the rate doubles."""
    curves = {}
    for scheduler in ("fries", "epoch"):
        found = of(surges, 1, scheduler)
        if found:
            one = found[0]
            curves[scheduler] = [(at, late) for at, late in one["latencies"] if at > -20]
            panel.axvline(one["doubled"], color="grey", linestyle=":", linewidth=1)
    x = Axis("when a record was due, from the request on", "s", log=False)
    title = "a surge, one target (each tooth is a batch)"
    lines(panel, curves, x, Axis("latency", "s", log=False), title)
    panel.axvline(0, color="black", linewidth=1)
    panel.legend()


def lines(panel: Any, curves: Curves, x: Axis, y: Axis, title: str) -> None:
    """Thin lines: curves of time cross, and none hides another one."""
    for (name, points), colour in zip(curves.items(), COLOURS, strict=False):
        across, up = [a for a, _ in points], [b for _, b in points]
        panel.plot(across, up, label=name, color=colour, linewidth=1.5, marker=".")
    panel.set(title=title, xlabel=str(x), ylabel=str(y))


def delay_panel(panel: Any, surges: Every) -> None:
    """Every delay, by the number of targets."""
    curves = {}
    for scheduler in ("fries", "epoch"):
        for what in ("first", "last"):
            found = [one for one in surges if one["scheduler"] == scheduler]
            shift = {"first": -0.1, "last": 0.1}[what]
            name = f"{scheduler}, {'first worker' if what == 'first' else 'all workers'}"
            curves[name] = [(one["targets"] + shift, one[what]) for one in found]
    y = Axis("delay", "s")
    title = "from the request until the new function runs"
    plotted(panel, curves, Axis("targets", log=False), y, title, joined=False)
    panel.set_xticks(sorted({one["targets"] for one in surges}))
    panel.legend()


def rate_panel(panel: Any, found: Every) -> None:
    """Records read and put out around the first introduction of a filter."""
    introduced = [one for one in found if one["act"] == "introduce"][:1]
    curves = {}
    for one in introduced:
        curves["read"] = [(at, read) for at, read, _ in one["rates"]]
        curves["put out"] = [(at, out) for at, _, out in one["rates"]]
    x = Axis("from the request on", "s", log=False)
    y = Axis("records", "1/s", log=False)
    lines(panel, curves, x, y, "a filter is introduced: every fifth record")
    panel.axvline(0, color="black", linewidth=1)
    panel.set_ylim(bottom=0)
    panel.legend()
