"""The experiments of Fries on the simulator, and the speed of finding components: tables, a picture, a page."""

from __future__ import annotations

import argparse
import platform
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from statistics import linear_regression, median

from experiments import SWEEPS, TABLE_3, falls_after, joins, pipeline, surge
from finding import by_networkx, ours, random_dataflow

from stateshift.reconfigure.schedulers import SCHEDULERS, Scheduler, schedule

RESULTS = Path(__file__).resolve().parent.parent / "results" / "reconfigure.md"
SIZES = ((10_000, 40_000), (20_000, 80_000), (50_000, 200_000), (100_000, 400_000))
TARGETS = 20
ROUNDS = 3

Curves = Mapping[str, Mapping[Scheduler, list[float]]]


def main(seed: int) -> None:
    curves: Curves = {
        name: {by: [run(seed, by, x).delay_seconds for x in xs] for by in SCHEDULERS}
        for name, (_, _, xs, run) in SWEEPS.items()
    }
    tables = (_head(seed), _table_3(seed), _sweeps(curves), _surge(seed), _choke_points(seed), _finding(seed))
    page = "\n".join(line for table in tables for line in table) + "\n"
    print(page)
    RESULTS.write_text(page)
    _drawn(curves, RESULTS.with_suffix(".png"))


def _head(seed: int) -> Iterator[str]:
    yield "# How fast operators that change together can change"
    yield ""
    yield from _wrapped(
        f"`./scripts/bench/reconfigure --seed {seed}`, Python {platform.python_version()}. *Theirs* is what Fries "
        "(VLDB 2022, section 8) measured on its cluster; *ours* is `stateshift.reconfigure.simulating`: tuples, "
        "queues, costs and control messages, event by event. Absolute seconds depend on loads that the paper does not "
        "tell; what is to be compared is how the schedulers stand to each other, and how delays grow. A delay is the "
        "time from the request until no target uses its old function any more."
    )
    yield ""
    yield "![delay over rate, cost and workers](reconfigure.png)"
    yield ""


def _table_3(seed: int) -> Iterator[str]:
    yield "## Joins, one behind another (F-22, table 3)"
    yield ""
    yield "Theirs: Fries 44 to 1,702 ms, the epoch barrier 4,127 to 20,532 ms. Ours, in ms, each join with a straggler:"
    yield ""
    yield f"| targets | components | {' | '.join(SCHEDULERS)} | epoch / fries |"
    yield "|---|---|" + "---:|" * (len(SCHEDULERS) + 1)
    for flow, targets in TABLE_3:
        found = schedule(flow, targets, "fries").components
        delays = {by: joins(flow, targets, by, seed).delay_seconds for by in SCHEDULERS}
        told = " | ".join(f"{delays[by] * 1000:,.0f}" for by in SCHEDULERS)
        inside = "; ".join(", ".join(one.operators) for one in found)
        yield f"| {', '.join(targets)} | {inside} | {told} | {delays['epoch'] / delays['fries']:,.1f} |"
    yield ""


def _sweeps(curves: Curves) -> Iterator[str]:
    yield "## Delay over rate, cost and workers (F-21)"
    yield ""
    yield "Theirs: with more of each, the delay of the epoch barrier grows with a significantly larger slope. Ours: the"
    yield "slope of a straight line through the delays, and the delays at both ends, in ms."
    yield ""
    yield "| varied | scheduler | slope, ms for one more | first | last |"
    yield "|---|---|---:|---:|---:|"
    for name, delays in curves.items():
        what, unit, xs, _ = SWEEPS[name]
        for by in SCHEDULERS:
            slope = linear_regression(xs, delays[by]).slope * 1000
            ends = " | ".join(f"{delays[by][i] * 1000:,.0f}" for i in (0, -1))
            yield f"| {what}, {xs[0]:g} to {xs[-1]:g} {unit} | {by} | {slope:,.1f} | {ends} |"
    yield ""


def _surge(seed: int) -> Iterator[str]:
    yield "## A surge, and a cheaper function (F-20)"
    yield ""
    yield "The rate doubles at second 20, the function is replaced at 24. Theirs: with Fries the latency falls at once,"
    yield "the epoch barrier waits for what is queued at the slowest worker."
    yield ""
    yield "| scheduler | queued at the slowest worker, s | delay, s | latency below that at the request after, s |"
    yield "|---|---:|---:|---:|"
    for by in SCHEDULERS:
        run = surge(seed, by)
        yield f"| {by} | {run.backlog_seconds:.2f} | {run.delay_seconds:.3f} | {falls_after(run):.0f} |"
    yield ""


def _choke_points(seed: int) -> Iterator[str]:
    yield "## Where a marker waits (F-19)"
    yield ""
    yield "Of an epoch barrier through S → FD (expensive, a straggler) → J → T: seconds from the request until the last"
    yield "worker of each has it, and how much of that passed since the operator before."
    yield ""
    yield "| rate | after S | FD | J | T | FD, straggler | FD, the other |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for rate in (80.0, 100.0, 120.0):
        through = pipeline(seed, "epoch", rate=rate).through
        last = {name: max(when for (one, _), when in through.items() if one == name) for name in ("S", "FD", "J", "T")}
        steps = [last["S"], last["FD"] - last["S"], last["J"] - last["FD"], last["T"] - last["J"]]
        told = " | ".join(f"{seconds:.3f}" for seconds in (*steps, through["FD", 0], through["FD", 1]))
        yield f"| {rate:g} | {told} |"
    yield ""


def _finding(seed: int) -> Iterator[str]:
    yield "## Finding what has to change together (F-8)"
    yield ""
    yield from _wrapped(
        f"Random dataflows, {TARGETS} targets, seconds of one core, the median of {ROUNDS} rounds in turn. Ours: from "
        "the dataflow to components with heads and edges, pruning included. networkx: descendants, ancestors and "
        "weakly connected components of a graph that was made before. Both find the same components."
    )
    yield ""
    yield "| operators | edges | inside | ours, s | µs an edge | networkx, s | ours / networkx |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for operators, edges in SIZES:
        chance = Random(seed)
        flow = random_dataflow(operators, edges, chance)
        targets = tuple(chance.sample(flow.names, TARGETS))
        rounds = [(ours(flow, targets), by_networkx(flow, targets)) for _ in range(ROUNDS)]
        mine, theirs = rounds[0][0][1], rounds[0][1]
        if theirs is not None:
            assert {*mine} == {*theirs[1]}, "networkx finds others"
        seconds = median(one[0] for one, _ in rounds)
        other = None if theirs is None else median(one[0] for _, one in rounds if one is not None)
        beside = "- | -" if other is None else f"{other:.2f} | {seconds / other:.2f}"
        inside = sum(map(len, mine))
        yield f"| {operators:,} | {edges:,} | {inside:,} | {seconds:.2f} | {seconds / edges * 1e6:.1f} | {beside} |"
    yield ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_on_hyphens=False)


def _drawn(curves: Curves, place: Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    figure, panels = pyplot.subplots(1, 3, figsize=(13, 4), sharey=True)
    for panel, (name, delays) in zip(panels, curves.items(), strict=True):
        what, unit, xs, _ = SWEEPS[name]
        for by, seconds in delays.items():
            panel.semilogy(xs, seconds, "o-", label=by)
        panel.set(title=what, xlabel=unit)
    panels[0].set(ylabel="delay [s]")
    panels[0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(place, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    main(parser.parse_args().seed)
