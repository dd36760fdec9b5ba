"""The page and the picture, from the sources and from what was measured last."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lines_of_code import PAPER_MEGAPHONE, PAPER_NATIVE, QUERIES, live_lines, native_lines
from pages import drawing, put_down, wrapped

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "scripts" / "bench" / "results" / "nexmark.md"
FIGURES = RESULTS.with_suffix(".jsonl")
PICTURE = RESULTS.with_suffix(".png")
COMMAND = "./scripts/bench/nexmark"
PAPER = "Megaphone (PVLDB 12(9), 2019)"
# What its text says of the latency during a move (section 5.1).
PAPER_SAYS = {
    ("q4", "all-at-once"): "more than 2 s",
    ("q4", "batched"): "at most 0.1 s more",
    ("q8", "all-at-once"): "no figure",
    ("q8", "batched"): "no figure",
}

Figures = Mapping[str, Any]


def written(every: Sequence[Figures]) -> None:
    """Write the page and the picture."""
    put_down(RESULTS, as_page(every))
    if every:
        pictured(every)


def as_page(every: Sequence[Figures]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# NEXMark's queries as live operators"
    yield ""
    yield from wrapped(
        f"`{COMMAND}` writes this page. The queries are in `scripts/bench/nexmark.d`: as live "
        "operators (`live_queries.py`), as a user of Spark writes them (`native.py`), and as "
        "plainly as they can be said (`reference.py`). `tests/nexmark` holds the rows of both "
        "against the plain ones, on a real Spark."
    )
    yield ""
    yield from lines_section()
    if every:
        yield ""
        yield from moves_section(every)


# ------------------------------------------------------------------------------------ lines of code


def lines_section() -> Iterator[str]:
    """Yield how long the queries are, ours and the paper's."""
    yield "## Lines of code (M-18)"
    yield ""
    yield from wrapped(
        "A query with all functions and classes that it needs, without blank lines, comments, "
        "docstrings, imports and constants. What queries share counts for each of them. The "
        f"paper's are Table 1 of {PAPER}: Rust, on timely dataflow."
    )
    yield ""
    yield f"| | {' | '.join(query.upper() for query in QUERIES)} |"
    yield f"|---|{'---|' * len(QUERIES)}"
    native, ours = native_lines(), live_lines()
    yield _row("Spark, native", native)
    yield _row("live operators", ours)
    yield _factors("native ÷ live", native, ours)
    yield _row("the paper's, native", PAPER_NATIVE)
    yield _row("the paper's, Megaphone", PAPER_MEGAPHONE)
    yield _factors("native ÷ Megaphone", PAPER_NATIVE, PAPER_MEGAPHONE)
    yield ""
    yield from wrapped(
        "Spark's own joins, windows and aggregates say most queries in a few lines: where SQL does, "
        "it is shorter. Q4 and Q6 are no SQL of a stream: natively they are two "
        "`transformWithState` each, and the live operators take a little more than half of that. The paper's native "
        "queries have no such operators below them, and are optimised by hand."
    )


def _row(name: str, lines: Mapping[str, int]) -> str:
    return f"| {name} | {' | '.join(str(lines[query]) for query in QUERIES)} |"


def _factors(name: str, native: Mapping[str, int], live: Mapping[str, int]) -> str:
    factors = [f"{native[query] / live[query]:.1f}" for query in QUERIES]
    return f"| {name} | {' | '.join(factors)} |"


# ------------------------------------------------------------------------------------ moves


def moves_section(every: Sequence[Figures]) -> Iterator[str]:
    """Yield what moving queries has cost."""
    yield "## Q4 and Q8 moved while they run (M-17)"
    yield ""
    days = ", ".join(sorted({each["day"] for each in every}))
    loads = [each["load"] for each in every]
    dilation = max(each["dilation"] for each in every)
    yield from wrapped(
        f"`{COMMAND} --move`, {days}, {os.cpu_count()} cores, Python {platform.python_version()}: "
        "two real Spark 4.3 applications, one core each, that share the main operator of the "
        "query, 256 bins. As in the paper, half of the bins are at each; a first move makes that "
        "a quarter and three quarters, and the second one, which is measured, takes them back. "
        f"Others were at work on the machine (load {min(loads):.0f} to {max(loads):.0f}): both "
        "strategies were measured one after the other in the same applications, and only their "
        f"ratio counts. Q8's window is 12 hours; its time is dilated by {dilation} (the paper's: 79)."
    )
    yield ""
    yield from wrapped(
        "Latency: of every bin and every 250 ms of the clock, how much later its events are all "
        "folded and committed; in seconds, before the move, and from the command to a second "
        "after its end. Rows of one key in fifty are held against the query each time."
    )
    yield ""
    yield (
        "| query | strategy | keys moved | MB | steps | move, s | before: p50 | p99 | max "
        "| during: p50 | p99 | max | the paper |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for each in every:
        yield _move_row(each)
    yield ""
    for query in dict.fromkeys(each["query"] for each in every):
        yield from wrapped(_verdict([each for each in every if each["query"] == query]))
        yield ""
    yield f"![latency over time]({PICTURE.name})"


def _move_row(each: Figures) -> str:
    before, during = each["before"], each["during"]
    kind = each["strategy"].split("(")[0]
    cells = (
        each["query"].upper(),
        each["strategy"],
        f"{each['keys']:,}",
        f"{each['bytes'] / 1e6:.1f}",
        str(each["steps"]),
        f"{each['seconds']:.1f}",
        *(f"{before[what]:.2f}" for what in ("p50", "p99", "max")),
        *(f"{during[what]:.2f}" for what in ("p50", "p99", "max")),
        PAPER_SAYS[each["query"], kind],
    )
    return f"| {' | '.join(cells)} |"


def _verdict(of_query: Sequence[Figures]) -> str:
    """Return what one query's strategies come to."""
    at_once, batched = of_query
    more = [each["during"]["max"] - each["before"]["max"] for each in (at_once, batched)]
    p99 = at_once["during"]["p99"] / batched["during"]["p99"]
    return (
        f"{at_once['query'].upper()}: the highest latency is {more[0]:+.2f} s above that of before "
        f"all at once, and {more[1]:+.2f} s {batched['strategy']}; p99 of all at once is {p99:.1f} "
        "times that of the steps."
    )


def pictured(every: Sequence[Figures]) -> None:
    """Draw latency over time, a panel for each query and strategy."""
    pyplot = drawing()
    if pyplot is None:
        return
    rows = list(dict.fromkeys(each["query"] for each in every))
    figure, panels = pyplot.subplots(
        len(rows), 2, figsize=(11, 3.4 * len(rows)), squeeze=False, sharey="row"
    )
    for number, each in enumerate(every):
        panel = panels[rows.index(each["query"])][number % 2]
        panel.axvspan(0, each["ended"], color="0.9", label="the move")
        ends = [point[0] for point in each["timeline"]]
        for place, name in enumerate(("p50", "p99", "max"), start=1):
            panel.plot(ends, [max(0.01, point[place]) for point in each["timeline"]], label=name)
        panel.set(title=f"{each['query'].upper()}, {each['strategy']}", yscale="log")
        panel.set(xlabel="seconds since the command", ylabel="latency of bins, s")
    panels[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=90)
