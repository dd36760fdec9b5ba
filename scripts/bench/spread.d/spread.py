"""A day of many jobs on many clusters, under three ways of deciding: tables and a picture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "bench"), str(Path(__file__).resolve().parent)]

import pages  # noqa: E402
from day import HOUR, STEP, Fleet, fleet, jobs_at  # noqa: E402
from days import WAYS, Day, lived  # noqa: E402

from stateshift.advise.rebalance.limits import movable  # noqa: E402
from stateshift.advise.rebalance.memory import Memory  # noqa: E402
from stateshift.advise.rebalance.placement import place  # noqa: E402
from stateshift.advise.rebalance.situation import (  # noqa: E402
    Policy,
    Situation,
    loads_of,
    units_of,
)

JOBS, CLUSTERS = 1000, 50
FEW_JOBS, FEW_CLUSTERS, FEW = 12, 3, 40
SECONDS_MAX = 2.0
PAGE = ROOT / "scripts" / "bench" / "results" / "spread.md"
MILLION = 1e6


def main(seed: int) -> int:
    of = fleet(seed, JOBS, CLUSTERS)
    days = {name: lived(of, policy) for name, policy in WAYS.items()}
    lines = [*_page(seed, of, days), *_few(seed)]
    print("\n".join(lines))
    pyplot = pages.drawing()
    if pyplot is None:
        pages.left_alone(PAGE, pages.missing("matplotlib"))
        return 0
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    _draw(pyplot, days)
    return 0


def _page(seed: int, of: Fleet, days: Mapping[str, Day]) -> Iterator[str]:
    yield "# When a move is worth it: a day of many jobs, in numbers"
    yield ""
    yield from pages.wrapped(
        f"`./scripts/bench/spread --seed {seed}`: {len(of.patterns):,} jobs on {len(of.clusters)} clusters, each with a "
        "wave over the day and some with surges; in the morning some clusters have four times as much as others. A run "
        "each quarter of an hour measures the quarter before it, decides, and moves. Nothing is started: loads are "
        "numbers, and a move takes 3 s and a second for each 200 MiB."
    )
    yield ""
    yield (
        "| way | fullest cluster, mean of the day | at most | quarters with one above 100 % | moves | GB moved | "
        "records late, million | waiting for moves, million | longest decision, s |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, day in days.items():
        yield (
            f"| {name} | {mean(day.fullest):.0%} | {max(day.fullest):.0%} | "
            f"{sum(load > 1 for load in day.fullest)} | {day.moves:,} | {day.bytes / 2**30:,.0f} | "
            f"{day.late / MILLION:,.1f} | {day.waited_for_moves / MILLION:,.1f} | "
            f"{max(day.seconds, default=0.0):.2f} |"
        )
    yield ""
    yield from _goals(days)
    yield ""
    yield "![The fullest cluster over the day](spread.png)"
    yield ""


def _goals(days: Mapping[str, Day]) -> Iterator[str]:
    ours, each, none = days["ours"], days["at each trigger"], days["nobody moves"]
    sums = {name: day.late + day.waited_for_moves for name, day in days.items()}
    least = sums["ours"] < min(sums["at each trigger"], sums["nobody moves"])
    yield from pages.wrapped(
        f"* Records that wait, in all: ours {sums['ours'] / MILLION:,.1f} million, at each trigger "
        f"{sums['at each trigger'] / sums['ours']:,.1f} times, nobody moves "
        f"{sums['nobody moves'] / sums['ours']:,.1f} times as many (goal: fewest, {pages.reached(least)})"
    )
    yield (
        f"* Moves: {ours.moves:,} against {each.moves:,}; quarters with a cluster above its capacity: "
        f"{_over(ours)} against {_over(each)}, and {_over(none)} if nobody moves"
    )
    slowest = max(ours.seconds)
    yield (
        f"* A decision takes {slowest:.2f} s at most (goal: below {SECONDS_MAX:g} s, "
        f"{pages.reached(slowest < SECONDS_MAX)})"
    )


def _over(day: Day) -> int:
    return sum(load > 1 for load in day.fullest)


def _few(seed: int) -> Iterator[str]:
    """Yield how far one after the other is from the best spread, where all can be looked at."""
    policy = Policy()
    above, proven, bound_is_met = [], 0, 0
    for number in range(FEW):
        of = fleet(seed + number, FEW_JOBS, FEW_CLUSTERS)
        none = [None] * FEW_JOBS
        now = Situation(0.0, of.clusters, jobs_at(of, of.places, none, 0.0))
        units = movable(now, units_of(now), policy, Memory())
        best = place(now.clusters, units, loads_of(now), policy)
        greedy = place(now.clusters, units, loads_of(now), replace(policy, exact_units=0))
        proven += best.is_best
        bound_is_met += best.cost.levels[0] <= round(best.bound * policy.aim, 2) + 0.005
        above.append(greedy.cost.levels[0] / best.cost.levels[0] - 1)
    yield f"## {FEW_JOBS} jobs on {FEW_CLUSTERS} clusters, against the best of all spreads"
    yield ""
    yield from pages.wrapped(
        f"Of {FEW} such days' mornings the best spread was proven for {proven}; {bound_is_met} of them are within the band "
        f"above the bound that is printed. One job after the other, as with many jobs, leaves the fullest cluster "
        f"{mean(above):.1%} fuller in the mean, {max(above):.1%} at most."
    )


def _draw(pyplot: object, days: Mapping[str, Day]) -> None:
    figure, panel = pyplot.subplots(figsize=(9, 4))  # type: ignore[attr-defined]
    for name, day in days.items():
        hours = [step * STEP / HOUR for step in range(len(day.fullest))]
        panel.plot(hours, [load * 100 for load in day.fullest], label=name)
    panel.axhline(100, color="grey", linewidth=0.8)
    panel.set_xlabel("hour of the day")
    panel.set_ylabel("load of the fullest cluster, %")
    panel.legend()
    figure.tight_layout()
    figure.savefig(PAGE.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the jobs and their surges (1)")
    sys.exit(main(parser.parse_args().seed))
