"""The measurements as a table with its verdict, and as a picture. What a person has written
below WRITTEN stays.
"""

from __future__ import annotations

import os
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pages import drawing

WRITTEN = "## What this shows"
NAMES = {"many": "1,024 files of 4 KiB: operations", "large": "384 MiB in 16 files: bytes"}
ORDER = ("one process", "one executor", "two executors", "distcp", "two distcps")
AGAINST = "one process"
ROUNDS_MIN = 5

Every = Sequence[Any]


def as_table(every: Every, results: Path, python: str) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    told = (
        f"`./scripts/bench/fleet` on {os.cpu_count()} cores and {memory:.0f} GB, Linux, "
        f"Python {python}: from S3 to S3 "
        "(SeaweedFS), all on this machine. Each machine (the process, an executor, a "
        "distcp) has a link of its own "
        "with 20 MB/s in each direction and 50 operations a second. Medians of the rounds, "
        "and (least / most), without "
        "each way's start. `load` is what was going on when a measurement began, the most "
        "of a way's rounds."
    )
    lines = ["# A fleet", "", *textwrap.wrap(told, 120, break_on_hyphens=False), ""]
    for name in (name for name in NAMES if any(one.set == name for one in every)):
        lines += [f"## {NAMES[name]}", "", *_part([one for one in every if one.set == name]), ""]
    before = results.read_text().partition(WRITTEN) if results.exists() else ("", "", "")
    return "\n".join(lines).rstrip() + "\n" + (f"\n{WRITTEN}{before[2]}" if before[1] else "")


def _part(every: Every) -> Iterator[str]:
    yield f"| way | seconds | times as fast as {AGAINST} | files | rounds | load | at |"
    yield "|---|---|---|---|---|---|---|"
    for way in ORDER:
        if own := [one for one in every if one.way == way]:
            cells = (
                way,
                _spread([one.seconds for one in own]),
                _spread(_times(every, way, AGAINST)),
                f"{own[-1].files:,}",
                len(own),
                f"{max(one.load for one in own):.1f}",
                own[-1].at,
            )
            yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    for ours, theirs in (
        ("one executor", "one process"),
        ("two executors", "one process"),
        ("one process", "distcp"),
        ("two executors", "two distcps"),
    ):
        if times := _times(every, ours, theirs):
            rounds = (
                "" if len(times) >= ROUNDS_MIN else f", from {len(times)} of {ROUNDS_MIN} rounds"
            )
            yield f"* {ours}: {statistics.median(times):.2f} times as fast as {theirs}{rounds}"


def drawn(every: Every, place: Path) -> None:
    pyplot = drawing()
    if pyplot is None:
        return
    names = [name for name in NAMES if any(one.set == name for one in every)]
    figure, panels = pyplot.subplots(len(names), 1, figsize=(8, 1 + 2 * len(names)), squeeze=False)
    for name, panel in zip(names, panels[:, 0], strict=True):
        ways = {way: [o.seconds for o in every if (o.set, o.way) == (name, way)] for way in ORDER}
        ways = {way: seconds for way, seconds in ways.items() if seconds}
        middles = [statistics.median(seconds) for seconds in ways.values()]
        spans = [[m - min(s), max(s) - m] for m, s in zip(middles, ways.values(), strict=True)]
        colours = ["tab:gray" if "distcp" in way else "tab:blue" for way in ways]
        panel.barh(
            list(ways),
            middles,
            color=colours,
            xerr=list(zip(*spans, strict=True)),
            ecolor="black",
            capsize=2,
        )
        panel.invert_yaxis()
        panel.set_title(NAMES[name], fontsize=10)
        panel.set_xlabel("seconds, without the start", fontsize=8)
        panel.tick_params(labelsize=8)
    figure.tight_layout()
    figure.savefig(place, dpi=100)


def _times(every: Every, way: str, other: str) -> list[float]:
    """How many times as fast, in each round that has both."""
    seconds = {one.round: one.seconds for one in every if one.way == other}
    return [
        seconds[o.round] / max(0.001, o.seconds)
        for o in every
        if o.way == way and o.round in seconds
    ]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = statistics.median(values)
    return (
        f"{middle:.2f}"
        if len(values) == 1
        else f"{middle:.2f} ({min(values):.2f} / {max(values):.2f})"
    )
