"""The page: each experiment of the paper as a table of theirs, ours and the unit, and as curves."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from statistics import linear_regression, median

from experiments import REPLACED_SECONDS, SURGE_SECONDS, SWEEPS, falls_after
from figures import Figure, in_letters
from finding import by_networkx, ours, random_dataflow
from measuring import Measured, names
from pages import wrapped
from paper import DELAYS_MS, FALLS_AFTER, NOT_TOLD, SLOPES, TABLE_3, TABLE_4, TABLE_5, W5
from paper import REPLACED_SECONDS as THEY_REPLACED
from paper import SURGE_SECONDS as THEIR_SURGE

from stateshift.dataflow.schedulers import SCHEDULERS, fries

SIZES = ((10_000, 40_000), (20_000, 80_000), (50_000, 200_000), (100_000, 400_000))
TARGETS = 20
ROUNDS = 3


def page(found: Measured, figures: list[Figure], seed: int, lacking: Sequence[str]) -> str:
    """Where a package is `lacking`, what it would bring is left out."""
    joins, *sweeps, surges = figures
    parts = (
        _head(seed, lacking),
        _components(),
        _joins(found),
        in_letters(joins),
        _sweeps(found),
        *(_titled(one) for one in sweeps),
        _surge(found),
        in_letters(surges),
        _choke_points(found),
        _finding(seed, lacking),
    )
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _head(seed: int, lacking: Sequence[str]) -> Iterator[str]:
    yield "# How fast operators that change together can change"
    yield ""
    yield from wrapped(
        f"`./scripts/bench/reconfigure --seed {seed}`, Python {platform.python_version()}. "
        "*Theirs* is what Fries "
        "(VLDB 2022, section 8) measured on its cluster; *ours* is "
        "`stateshift.dataflow.simulation`: tuples, "
        "queues, costs and control messages, event by event. Absolute seconds depend on "
        "loads that the paper does not "
        "tell; what is to be compared is how the schedulers stand to each other, and how "
        "delays grow. A delay is the "
        "time from the request until no target uses its old function any more."
    )
    yield ""
    yield from wrapped(
        f"*{NOT_TOLD}*: our notes on the paper have no figure for it. The notes are rows "
        "F-19 to F-24 of "
        "[tests/rows.md](../../../tests/rows.md), the list of all that the project has to "
        "show; F-8 and the like in "
        "the headings below are rows of it."
    )
    yield ""
    yield from wrapped(
        "The schedulers: *fries* sends control messages, which overtake data, to the heads "
        "of what has to change "
        "together, and markers inside it; *epoch* sends markers from all sources, in line "
        "with the data; "
        "*multi-version* has the sources say with each tuple which function is meant; "
        "*naive* tells each target on "
        "its own, which is fast and not consistent."
    )
    yield ""
    if not lacking:
        yield "![delays and latencies of the four schedulers](reconfigure.png)"
        yield ""


def _components() -> Iterator[str]:
    yield "## What has to change together (F-22 to F-24: tables 3 to 5)"
    yield ""
    yield from wrapped(
        "Operators between commas change together, those on both sides of a semicolon on "
        "their own. Edges are those "
        "that markers go along, with one-to-many operators pruned that need not join, and without."
    )
    yield ""
    yield "| table | targets | theirs | ours | unit |"
    yield "|---|---|---|---|---|"
    for number, table in ((3, TABLE_3), (4, TABLE_4)):
        for flow, targets, theirs in table:
            found = [frozenset(one.operators) for one in fries(flow, names(targets)).components]
            same = {*found} == {frozenset(names(part)) for part in theirs.split(";")}
            told = (
                theirs if same else "; ".join(", ".join(sorted(one)) for one in found)
            )  # in one order
            yield f"| {number} | {targets} | {theirs} | {told} | operators |"
    for targets, pruned, unpruned in TABLE_5:
        yield (
            f"| 5 | {targets}, pruned | {pruned} | {len(fries(W5, names(targets)).edges)} | edges |"
        )
        yield (
            f"| 5 | {targets}, not pruned | {unpruned} | "
            f"{len(fries(W5, names(targets), 'none').edges)} | edges |"
        )
    yield ""


def _joins(found: Measured) -> Iterator[str]:
    yield "## Joins, one behind another (F-22: delays of table 3)"
    yield ""
    yield (
        "Each join has a straggler: one of four workers that gets a third of the keys, and "
        "falls behind."
    )
    yield ""
    yield "| scheduler, of the ten rows | theirs | ours | unit |"
    yield "|---|---:|---:|---|"
    for by in SCHEDULERS:
        least, most = (
            (f"{ms:,}" for ms in DELAYS_MS[by]) if by in DELAYS_MS else (NOT_TOLD, NOT_TOLD)
        )
        yield f"| {by}, least | {least} | {min(found.joins[by]) * 1000:,.0f} | ms |"
        yield f"| {by}, most | {most} | {max(found.joins[by]) * 1000:,.0f} | ms |"
    yield ""
    yield "Row by row; of theirs the notes have only the least and the most above."
    yield ""
    yield (
        f"| row | targets | theirs, ms | {' | '.join(f'ours, {by}, ms' for by in SCHEDULERS)} "
        "| epoch / fries |"
    )
    yield "|---:|---|---|" + "---:|" * (len(SCHEDULERS) + 1)
    for row, (_, targets, _) in enumerate(TABLE_3):
        delays = {by: found.joins[by][row] for by in SCHEDULERS}
        told = " | ".join(f"{delays[by] * 1000:,.0f}" for by in SCHEDULERS)
        yield (
            f"| {row + 1} | {targets} | {NOT_TOLD} | {told} | "
            f"{delays['epoch'] / delays['fries']:,.1f} |"
        )
    yield ""


def _sweeps(found: Measured) -> Iterator[str]:
    yield "## Delay over rate, cost and workers (F-21)"
    yield ""
    yield from wrapped(
        "Ours: the slope of a straight line through the delays, and the delays at both "
        "ends. Of theirs the notes have "
        "how the slopes stand to each other, and none of the figures' points."
    )
    yield ""
    yield "| varied | scheduler | what | theirs | ours | unit |"
    yield "|---|---|---|---|---:|---|"
    for name, (what, unit, xs, _) in SWEEPS.items():
        for by in SCHEDULERS:
            delays = found.sweeps[name][by]
            slope = linear_regression(xs, delays).slope * 1000
            ends = f"{delays[0] * 1000:,.0f} to {delays[-1] * 1000:,.0f}"
            varied = f"{what}, {xs[0]:g} to {xs[-1]:g} {unit}"
            yield (
                f"| {varied} | {by} | slope | {SLOPES.get(by, NOT_TOLD)} | {slope:z,.1f} | ms "
                "for one unit more |"
            )
            yield f"| {varied} | {by} | first to last | {NOT_TOLD} | {ends} | ms |"
    yield ""


def _titled(figure: Figure) -> Iterator[str]:
    yield f"{figure.title.capitalize()}:"
    yield ""
    yield from in_letters(figure)


def _surge(found: Measured) -> Iterator[str]:
    yield "## A surge, and a cheaper function (F-20)"
    yield ""
    yield from wrapped(
        "The rate doubles, queues grow, and the function is replaced by one that costs a "
        "ninth (ours; what theirs "
        "costs is not told). *Falls after*: seconds from the request until tuples take "
        "less than at the request."
    )
    yield ""
    yield "| what | theirs | ours | unit |"
    yield "|---|---:|---:|---|"
    yield f"| the rate doubles at | {THEIR_SURGE} | {SURGE_SECONDS:g} | s |"
    yield f"| the function is replaced at | {THEY_REPLACED} | {REPLACED_SECONDS:g} | s |"
    backlog = max(run.backlog_seconds for run in found.surges.values())
    yield f"| queued then at the slowest worker | {NOT_TOLD} | {backlog:.2f} | s |"
    for by, run in found.surges.items():
        yield f"| delay, {by} | {NOT_TOLD} | {run.delay_seconds:.3f} | s |"
    for by, run in found.surges.items():
        yield (
            f"| the latency falls after, {by} | {FALLS_AFTER.get(by, NOT_TOLD)} | "
            f"{falls_after(run):.0f} | s |"
        )
    yield ""


def _choke_points(found: Measured) -> Iterator[str]:
    yield "## Where a marker waits (F-19)"
    yield ""
    yield from wrapped(
        "Of an epoch barrier through S → FD (expensive, with a straggler) → J → T: how "
        "much passes from the last "
        "worker of one operator to the last of the next. Theirs, in words: the delay comes "
        "about at expensive "
        "operators and stragglers, and grows with the amount of data."
    )
    yield ""
    yield "| rate, tuples/s | from → to | theirs | ours | unit |"
    yield "|---:|---|---|---:|---|"
    for rate, parts in found.markers.items():
        for way, seconds in parts.items():
            yield f"| {rate:g} | {way} | {NOT_TOLD} | {seconds:.3f} | s |"
    yield ""


def _finding(seed: int, lacking: Sequence[str]) -> Iterator[str]:
    yield "## Finding what has to change together, in large dataflows (F-8)"
    yield ""
    beside = (
        "Theirs is networkx: descendants, ancestors and weakly connected components of a "
        "graph that was made before. "
        "Both find the same components."
    )
    yield from wrapped(
        f"Random dataflows, {TARGETS} targets, time of one core without the garbage "
        "collector (as timeit measures), "
        f"the median of {ROUNDS} rounds in turn. Ours: from the dataflow to components "
        "with heads and edges, pruning "
        "included. "
        + (
            "There is nothing beside it: networkx is not installed."
            if "networkx" in lacking
            else beside
        )
    )
    yield ""
    yield (
        "| operators | edges | operators found | theirs, ms | ours, ms | ours / theirs | "
        "ours, µs an edge |"
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for operators, edges in SIZES:
        inside, mine, theirs = _found(seed, operators, edges)
        time, ratio = (
            ("-", "-") if theirs is None else (f"{theirs * 1e3:.2f}", f"{mine / theirs:.2f}")
        )
        told = f"{time} | {mine * 1e3:.2f} | {ratio} | {mine / edges * 1e6:.1f}"
        yield f"| {operators:,} | {edges:,} | {inside:,} | {told} |"


def _found(seed: int, operators: int, edges: int) -> tuple[int, float, float | None]:
    """How many operators, and the seconds it took us and networkx."""
    chance = Random(seed)
    flow = random_dataflow(operators, edges, chance)
    targets = tuple(chance.sample(flow.names, TARGETS))
    rounds = [(ours(flow, targets), by_networkx(flow, targets)) for _ in range(ROUNDS)]
    mine, theirs = rounds[0][0][1], rounds[0][1]
    if theirs is not None:
        assert {*mine} == {*theirs[1]}, "networkx finds others"
    return (
        sum(map(len, mine)),
        median(one[0] for one, _ in rounds),
        _median(one[0] for _, one in rounds if one),
    )


def _median(values: Iterable[float]) -> float | None:
    every = list(values)
    return median(every) if every else None
