"""The page and the picture, from the lines of figures that lie beside them."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from latency import (
    BEFORE_SECONDS,
    EXCESS_SECONDS_MIN,
    counted_excess,
    excess,
    over_rounds,
    times_lower,
)
from pages import put_down, reached, wrapped
from published import MEGAPHONE

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "scripts" / "bench" / "results" / "live.md"
FIGURES = RESULTS.with_suffix(".jsonl")
COMMAND = "./scripts/bench/live"

EXCESS_MIN = {1_200_000: 10.0, 600_000: 5.0}
MAXIMA_MIN = {1_200_000: 6.0, 600_000: 3.0}
P50_MAX = 1.3
COLUMNS_MAX = 1 / 20
BINS_MAX = 1.2
THROUGHPUT_MIN = 1.0
ALL_AT_ONCE, FLUID = "all-at-once", "fluid"

Figures = Mapping[str, Any]
Every = Sequence[Figures]


def written(every: Every) -> None:
    from picture import pictured

    put_down(RESULTS, as_page(every))
    pictured(every, RESULTS.with_suffix(".png"))


def as_page(every: Every) -> Iterator[str]:
    yield "# State that moves in bins while Spark jobs run"
    yield ""
    yield from wrapped(
        f"`{COMMAND}` on {os.cpu_count()} cores, Linux, Python {platform.python_version()}, a real "
        "Spark 4.3 on this machine (local, a core and 1 GB each). Rows are offered in open loop: "
        "record n is due at its time, whatever the applications do. The latency of a record is "
        "the time from then until its row was put out, behind the commit. *Load* is uptime's at "
        "the begin, the bench's own included. Only figures of one table can be held against each "
        f"other, and ratios say more than seconds. {FIGURES.name} has each measurement."
    )
    yield ""
    yield "![latency while bins move, its CCDF and histogram, load, bins](live.png)"
    for part, section in SECTIONS.items():
        of_part = of(every, part)
        yield ""
        yield from section(of_part) if of_part else _not_measured(part)
        if of_part:
            yield ""
            days = ", ".join(sorted({one["at"].split()[0] for one in of_part}))
            names = "strategies,columns,executors" if part == "strategies" else part
            yield f"Again: `{COMMAND} --again --parts {names}` (these: {days})."
    yield ""
    yield from beside(every)


def of(every: Every, part: str) -> Every:
    """Return the figures of a part; of memory those of the strategies, where it has none itself."""
    found = [one for one in every if one["part"] == part]
    if found or part != "memory":
        return found
    return [
        one
        for one in every
        if one["part"] == "strategies" and one["form"] == "objects" and one["home"] == "driver"
    ]


def _not_measured(part: str) -> Iterator[str]:
    yield f"## {TITLES[part]}"
    yield ""
    yield f"Not measured yet: `{COMMAND} --parts {part}`."


TITLES = {
    "strategies": "All bins move from one application to another",
    "forms": "What the form of a state costs that moves",
    "throughput": "Throughput, beside Spark's own groupBy().count()",
    "bins": "What bins cost while nothing moves (M-19)",
    "load": "At higher rates (M-22)",
    "memory": "Memory (M-23)",
}


# ------------------------------------------------------------------------------------ strategies


def strategies(every: Every) -> Iterator[str]:
    yield f"## {TITLES['strategies']}"
    yield ""
    yield from wrapped(
        "256 bins, 2,000 records a second, two applications; all bins go from one to the other, "
        "then back by the next strategy, and so on, in several rounds. *Before* are the records "
        "that were due in the 30 s before the request, *during* those from then until a second "
        "after all bins have come. Latencies are medians of the rounds. *Excess* is what the move "
        "adds to the worst latency: median (least / most). *fluid* is prepared: 256 "
        "steps, a bin each 0.1 s. *batched(32)* begins a step once the one before is complete. "
        "*warm* copies ahead. Between one giver and one taker *optimised* has the steps of "
        "*fluid*, so it is not measured by itself. *Exactly once* holds every row's number "
        "against those that were due. No maximum is below the worst latency of two batches: the "
        "ratio of maxima says how long a state takes to come beside that, and the excess leaves "
        "it out."
    )
    for case, found in by_setup(every).items():
        yield ""
        yield from setup_table(case, found)
    yield ""
    yield from columns_table(every)


Case = tuple[int, str, str]


def by_setup(every: Every) -> dict[Case, Every]:
    found: dict[Case, list[Figures]] = {}
    for one in every:
        found.setdefault((one["keys"], one["form"], one["home"]), []).append(one)
    order = sorted(found, key=lambda case: (case[2], case[1] == "columns", -case[0]))
    return {case: found[case] for case in order}


def setup_table(case: Case, found: Every) -> Iterator[str]:
    keys, form, home = case
    yield f"### {keys:,} keys, {form}, in the {home}"
    yield ""
    yield (
        "| strategy | steps | moved in, s | before: p50 / max, s | during: p50 / p99 / max, s | "
        "excess, s | exactly once | load | rounds |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    moves = by_strategy(found)
    for strategy, one in moves.items():
        before, during = one["before"], one["during"]
        cells = [strategy, str(one["steps"]), f"{one['moved_in']:.1f}"]
        cells += [seconds(before, "p50", "max"), seconds(during, "p50", "p99", "max")]
        rounds = [excess(each) for each in found if each["strategy"] == strategy]
        cells += [spread(rounds), "yes" if one["exactly_once"] else "NO", f"{one['load']:.1f}"]
        yield f"| {' | '.join([*cells, str(one['rounds'])])} |"
    yield ""
    looked_at = min(one["before"]["rows"] / one["rate"] for one in found)
    if round(looked_at) < BEFORE_SECONDS:
        yield f"*Before* is {looked_at:.0f} s here."
        yield ""
    yield from strategy_verdicts(case, list(moves.values()))


def by_strategy(found: Every) -> dict[str, Figures]:
    """Return one measurement for all rounds of each strategy."""
    rounds: dict[str, list[Figures]] = {}
    for one in found:
        rounds.setdefault(one["strategy"], []).append(one)
    return {strategy: over_rounds(each) for strategy, each in rounds.items()}


def seconds(latency: Figures, *names: str) -> str:
    return " / ".join(f"{latency[name]:.2f}" for name in names)


def strategy_verdicts(case: Case, found: Every) -> Iterator[str]:
    """Hold all-at-once against the best of the others."""
    once = [one for one in found if one["strategy"] == ALL_AT_ONCE]
    others = [one for one in found if one["strategy"] != ALL_AT_ONCE]
    if not once or not others:
        return
    keys, form, home = case
    has_goals = form == "objects" and home == "driver"
    best = min(others, key=lambda one: (counted_excess(one), one["during"]["max"]))
    ratio = times_lower(once[0], best)
    small = excess(best) < EXCESS_SECONDS_MIN
    least = f"; below {EXCESS_SECONDS_MIN} s it counts as that" if small else ""
    goal = EXCESS_MIN.get(keys) if has_goals else None
    yield f"* excess, all-at-once ÷ {best['strategy']} = {ratio:.2f}{at_least(ratio, goal)}{least}"
    low = min(others, key=lambda one: one["during"]["max"])
    ratio = once[0]["during"]["max"] / low["during"]["max"]
    goal = MAXIMA_MIN.get(keys) if has_goals else None
    yield f"* maxima, all-at-once ÷ {low['strategy']} = {ratio:.2f}{at_least(ratio, goal)}"
    ratio = best["during"]["p50"] / best["before"]["p50"]
    met = f"goal: at most {P50_MAX}, {reached(ratio <= P50_MAX)}"
    yield f"* p50, during ÷ before, {best['strategy']} = {ratio:.2f} ({met})"


def at_least(value: float, goal: float | None) -> str:
    if goal is None:
        return ""
    return f" (goal: at least {goal:g}, {reached(value >= goal)})"


def columns_table(every: Every) -> Iterator[str]:
    """What a key costs that moves at once: the work that giver and taker have more than usual."""
    once = [one for one in every if one["strategy"] == ALL_AT_ONCE]
    yield "### What a key costs that moves"
    yield ""
    yield from wrapped(
        "Of *all-at-once*: how much longer the batches worked that gave and that took bins than "
        "the median batch of who has them, without Spark's share, by the number of keys. Whole "
        "batches, with what storage and each bin cost whatever it holds."
    )
    yield ""
    yield "| keys | form | home | giver, µs a key | taker, µs a key | both |"
    yield "|---|---|---|---|---|---|"
    for (keys, form, home), found in by_setup(once).items():
        given, taken = (
            statistics.median(cost(one, what) for one in found) for what in ("given", "taken")
        )
        yield f"| {keys:,} | {form} | {home} | {given:.2f} | {taken:.2f} | {given + taken:.2f} |"
    for (keys, form, home), found in by_setup(once).items():
        objects = by_setup(once).get((keys, "objects", home))
        if form == "columns" and objects:
            ratio = both_costs(found) / both_costs(objects)
            yield ""
            yield f"* {keys:,} keys, {home}: columns ÷ objects = {ratio:.3f}"


# ------------------------------------------------------------------------------------ forms


def forms(every: Every) -> Iterator[str]:
    """What the state by itself costs that moves, without the batch around it."""
    yield f"## {TITLES['forms']}"
    yield ""
    keys = every[0]["keys"]
    yield from wrapped(
        f"{keys:,} keys in 256 bins: the giver makes bytes of them, the taker makes a state of "
        "the bytes. No Spark, no storage, and no batch around it. CPU microseconds a key, the "
        "median of the rounds, objects and columns in turn."
    )
    yield ""
    yield "| form | bytes a key | giver | taker | both: median (least / most) | rounds |"
    yield "|---|---|---|---|---|---|"
    for form in ("objects", "columns"):
        rounds = [one for one in every if one["form"] == form]
        given, taken, size = (
            statistics.median(one[what] for one in rounds) for what in ("given", "taken", "bytes")
        )
        both = [one["given"] + one["taken"] for one in rounds]
        spread = f"{statistics.median(both):.3f} ({min(both):.3f} / {max(both):.3f})"
        yield f"| {form} | {size:.0f} | {given:.3f} | {taken:.3f} | {spread} | {len(rounds)} |"
    ratio = forms_ratio(every)
    yield ""
    met = f"goal: at most 1/20 = 0.05, {reached(ratio <= COLUMNS_MAX)}"
    yield f"* columns ÷ objects = {ratio:.3f} ({met})"


def forms_ratio(every: Every) -> float:
    """Return the median, over the rounds, of what columns cost by what objects cost."""
    costs: dict[int, dict[str, float]] = {}
    for one in every:
        costs.setdefault(one["round"], {})[one["form"]] = one["given"] + one["taken"]
    return statistics.median(one["columns"] / one["objects"] for one in costs.values())


def cost(one: Figures, what: str) -> float:
    """Return microseconds a key."""
    found = one["work"][what]
    return float(1e6 * found["more"] / max(1, found["keys"]))


def both_costs(found: Every) -> float:
    return statistics.median(cost(one, "given") + cost(one, "taken") for one in found)


# ------------------------------------------------------------------------------------ throughput


def throughput(every: Every) -> Iterator[str]:
    yield f"## {TITLES['throughput']}"
    yield ""
    yield from wrapped(
        "One application with two cores, 100,000 rows a batch of 200,000 keys, to nowhere. Native "
        "is `groupBy(key).count()` in update mode, RocksDB with changelog. Every way in each "
        "round, in turn, the JVM warm. A batch's time is Spark's own for all of it; CPU is that "
        "of the application with all of its processes. The factor is of the rows a second, of "
        "each round: median (least / most)."
    )
    yield ""
    yield "| way | a batch, s | CPU of a batch, s | rows a second | factor | CPU factor | rounds |"
    yield "|---|---|---|---|---|---|---|"
    ways = list(dict.fromkeys(one["way"] for one in every))
    ways.sort(key=lambda way: (way != "native", way.startswith("columns"), way))
    for way in ways:
        found = [one for one in every if one["way"] == way]
        cells = [way, f"{middle(found, 'batch'):.2f}", f"{middle(found, 'cpu'):.2f}"]
        cells.append(f"{middle(found, 'rows_a_second'):,.0f}")
        for what, is_rate in (("rows_a_second", True), ("cpu", False)):
            ratios = list(factors(every, way, what, is_rate))
            cells.append(spread(ratios) if way != "native" else "1")
        yield f"| {' | '.join([*cells, str(len(found))])} |"
    yield ""
    for home in ("driver", "executors"):
        for form in ("objects", "columns"):
            ratios = list(factors(every, f"{form}, {home}", "rows_a_second", True))
            if ratios:
                ratio = statistics.median(ratios)
                told = f"{form}, {home} ÷ native = {ratio:.2f}"
                yield f"* {told}{at_least(ratio, THROUGHPUT_MIN)}"


def factors(every: Every, way: str, what: str, is_rate: bool) -> Iterator[float]:
    """Yield ours over Spark's, or the other way round where less is better, of each round."""
    native = {one["round"]: one[what] for one in every if one["way"] == "native"}
    for one in every:
        if one["way"] == way and one["round"] in native:
            theirs = native[one["round"]]
            yield one[what] / theirs if is_rate else theirs / one[what]


# ------------------------------------------------------------------------------------ bins


def bins(every: Every) -> Iterator[str]:
    keys = every[0]["keys"]
    yield f"## {TITLES['bins']}"
    yield ""
    yield from wrapped(
        f"One application, {keys:,} keys, 2,000 records a second. *hash-count* has texts as keys, "
        "*key-count* whole numbers. Latencies in ms, the median of the rounds; the factors are to "
        "one bin, of p50 and of p99."
    )
    yield ""
    yield "| count | bins | p50 | p90 | p99 | p99.9 | max | p50 ÷ 1 bin | p99 ÷ 1 bin | rounds |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for kind in ("hash-count", "key-count"):
        for number in sorted({one["bins"] for one in every}):
            yield from bins_row(every, kind, number)
    yield ""
    for kind in ("hash-count", "key-count"):
        for what in ("p50", "p99"):
            ratio = of_one_bin(every, kind, 256, what)
            if ratio is not None:
                met = f"goal: at most {BINS_MAX}, {reached(ratio <= BINS_MAX)}"
                yield f"* {kind}, {what}: 256 bins ÷ 1 bin = {ratio:.2f} ({met})"


def bins_row(every: Every, kind: str, number: int) -> Iterator[str]:
    found = of_bins(every, kind, number)
    if not found:
        return
    if any(one.get("saturated") for one in found):
        yield f"| {kind} | {number:,} | cannot keep up | | | | | | | {len(found)} |"
        return
    names = ("p50", "p90", "p99", "p99.9", "max")
    cells = [f"{1000 * latency(found, name):,.0f}" for name in names]
    for what in ("p50", "p99"):
        ratio = of_one_bin(every, kind, number, what)
        cells.append("" if ratio is None else f"{ratio:.2f}")
    yield f"| {kind} | {number:,} | {' | '.join(cells)} | {len(found)} |"


def of_bins(every: Every, kind: str, number: int) -> Every:
    return [one for one in every if (one["count"], one["bins"]) == (kind, number)]


def latency(found: Every, name: str) -> float:
    return float(statistics.median(one["during"][name] for one in found))


def of_one_bin(every: Every, kind: str, number: int, what: str) -> float | None:
    one_bin, several = of_bins(every, kind, 1), of_bins(every, kind, number)
    if not one_bin or not several:
        return None
    return latency(several, what) / latency(one_bin, what)


# ------------------------------------------------------------------------------------ load, memory


def load(every: Every) -> Iterator[str]:
    keys = every[0]["keys"]
    yield f"## {TITLES['load']}"
    yield ""
    yield from wrapped(
        f"{keys:,} keys as objects in the driver, two applications that both read all rows, on two "
        "cores. A rate is held until latencies stand, then all bins move at once, then back by "
        "*fluid*, in several rounds: their medians. Seconds."
    )
    yield ""
    yield (
        "| records a second | steady: p50 / p99 / max | all-at-once: p99 / max | fluid: p99 / max "
        "| excess: all-at-once, fluid | all-at-once ÷ fluid: excess | max |"
    )
    yield "|---|---|---|---|---|---|---|"
    for rate in sorted({one["rate"] for one in every}):
        yield load_row(rate, by_strategy([one for one in every if one["rate"] == rate]))
    yield ""
    steady = [one for one in every if one["strategy"] == "steady" and not one["saturated"]]
    if steady:
        last = max(one["rate"] for one in steady)
        saturated = [one["rate"] for one in every if one.get("saturated")]
        end = f"{min(saturated):,} are too many" if saturated else "more were not offered"
        yield f"* the applications keep up with {last:,} records a second; {end}"


def load_row(rate: int, found: Mapping[str, Figures]) -> str:
    cells = [f"{rate:,}"]
    steady = found.get("steady")
    if steady is not None and steady["saturated"]:
        return f"| {rate:,} | later and later | | | | | |"
    cells.append("" if steady is None else seconds(steady["during"], "p50", "p99", "max"))
    moves = [found[name] for name in (ALL_AT_ONCE, FLUID) if name in found]
    cells += [seconds(one["during"], "p99", "max") for one in moves]
    if len(moves) == 2:
        once, fluid = moves
        ratio = times_lower(once, fluid)
        cells += [f"{excess(once):.2f}, {excess(fluid):.2f}", f"{ratio:.1f}"]
        cells.append(f"{once['during']['max'] / fluid['during']['max']:.1f}")
    return f"| {' | '.join(cells)} |"


def memory(every: Every) -> Iterator[str]:
    apart = "each strategy in new applications"
    if every[0]["part"] == "strategies":
        apart = "one move after the other in the same applications, there and back"
    yield f"## {TITLES['memory']}"
    yield ""
    yield from wrapped(
        f"Objects in the driver, {apart}. MiB of the driver's Python with its children: when the "
        "move is asked for, at most until it is over, and then. *More* is the peak over what "
        "whoever has the state had before or has after."
    )
    yield ""
    yield "| keys | strategy | giver: before / peak / after | taker: before / peak / after | more: giver | taker |"
    yield "|---|---|---|---|---|---|"
    for keys, strategy in dict.fromkeys((one["keys"], one["strategy"]) for one in every):
        rounds = [one for one in every if (one["keys"], one["strategy"]) == (keys, strategy)]
        one = over_rounds(rounds)
        cells = [f"{keys:,}", strategy]
        for who in ("giver", "taker"):
            found = one["memory"][who]
            cells.append(" / ".join(f"{found[when]:,.0f}" for when in ("before", "peak", "after")))
        cells += [f"{more(one, who):,.0f}" for who in ("giver", "taker")]
        yield f"| {' | '.join(cells)} |"


def more(one: Figures, who: str) -> float:
    found = one["memory"][who]
    return float(found["peak"] - max(found["before"], found["after"]))


SECTIONS: Mapping[str, Callable[[Every], Iterator[str]]] = {
    "strategies": strategies,
    "forms": forms,
    "throughput": throughput,
    "bins": bins,
    "load": load,
    "memory": memory,
}


# ------------------------------------------------------------------------------------ published


def beside(every: Every) -> Iterator[str]:
    """What Megaphone says beside ours, as far as it was measured."""
    yield "## Beside what was published"
    yield ""
    yield from wrapped(
        "Megaphone (PVLDB 12(9), 2019) is a library of Timely Dataflow, measured on four machines; "
        "ours is Spark on this one. Its floor is milliseconds, ours is two batches. "
        "How the strategies stand to each other can be compared, seconds cannot."
    )
    yield ""
    yield "| what | theirs | ours |"
    yield "|---|---|---|"
    for what, theirs, name in MEGAPHONE:
        yield f"| {what} | {theirs} | {OURS[name](every)} |"


def ours_of_load(every: Every) -> str:
    ratios = []
    loads = [one for one in every if one["part"] == "load"]
    for rate in sorted({one["rate"] for one in loads}):
        found = by_strategy([one for one in loads if one["rate"] == rate])
        if {ALL_AT_ONCE, FLUID} <= found.keys():
            ratios.append(times_lower(found[ALL_AT_ONCE], found[FLUID]))
    if not ratios:
        return "not measured"
    return f"the excess {min(ratios):.1f} to {max(ratios):.1f} times lower"


def ours_of_excess(every: Every) -> str:
    ratios = []
    moves = [one for one in every if one["part"] == "strategies"]
    for found in by_setup(moves).values():
        by_name = by_strategy(found)
        once = by_name.pop(ALL_AT_ONCE, None)
        if once and by_name and found[0]["form"] == "objects":
            best = min(map(counted_excess, by_name.values()))
            ratios.append(counted_excess(once) / best)
    if not ratios:
        return "not measured"
    return f"the excess {min(ratios):.0f} to {max(ratios):.0f} times lower"


def ours_of_bins(every: Every) -> str:
    found = [one for one in every if one["part"] == "bins"]
    told = []
    for number in (256, 4096, 65_536):
        ratios = [of_one_bin(found, kind, number, "p50") for kind in ("hash-count", "key-count")]
        known = [f"{ratio:.1f}" for ratio in ratios if ratio is not None]
        if known:
            told.append(f"p50 of {number:,} bins {' and '.join(known)} times that of one")
    return "; ".join(told) or "not measured"


def ours_of_memory(every: Every) -> str:
    found = of(every, "memory")
    most = max((one["keys"] for one in found), default=0)
    of_most = by_strategy([one for one in found if one["keys"] == most])
    told = [
        f"{strategy} {max(more(one, 'giver'), more(one, 'taker')):,.0f} MiB"
        for strategy, one in of_most.items()
    ]
    return ", ".join(told) or "not measured"


OURS: Mapping[str, Callable[[Every], str]] = {
    "excess": ours_of_excess,
    "load": ours_of_load,
    "bins": ours_of_bins,
    "memory": ours_of_memory,
}


# ------------------------------------------------------------------------------------ figures


def middle(found: Every, what: str) -> float:
    return float(statistics.median(one[what] for one in found))


def spread(values: Sequence[float]) -> str:
    """Their median, the least and the most."""
    if not values:
        return ""
    return f"{statistics.median(values):.2f} ({min(values):.2f} / {max(values):.2f})"
