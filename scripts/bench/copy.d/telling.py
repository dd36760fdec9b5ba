"""The measurements as a table with its verdicts, and as a picture.

What a person has written below WRITTEN in the results stays there, and so do the tables of routes
and sets that were not measured this time.
"""

from __future__ import annotations

import os
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import drawing
from tools import NOT_SYNCED, OURS, ROUTES

WRITTEN = "## Where the time goes"
NAMES = {"many": "a checkpoint of many small files", "large": "2 GiB in eight files"}
# way -> (the goal, whether it is how many times the fastest tool's time ours may be, or how many
# times ours theirs is)
GOALS = {
    "ours": (1.0, "at most"),
    "ours, needed": (10.0, "at least"),
    "ours, compacted": (15.0, "at least"),
}

NOT_SYNCED_GOAL = 1.0

ROUNDS_MIN = 5  # for a verdict

Every = Sequence[Any]


def as_table(every: Every, left_out: Mapping[str, str], results: Path, python: str) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    told = (
        f"`./scripts/bench/copy` on {os.cpu_count()} cores and {memory:.0f} GB, Linux, Python "
        f"{python}; source, target, both HDFS (Hadoop 3.4) and S3 (SeaweedFS) all on this "
        "machine. `load` is what was "
        "going on when a measurement began, the most of a way's rounds. Medians of the "
        "rounds, and (least "
        "/ most), without each way's start. *needed* and *compacted* are from the begin of "
        "the copy to the end of "
        "publish; *compared* is that with the comparison of both sides, *read back* with "
        "every digest asked of the "
        "target: the other tools compare nothing. What is written to a disk or to HDFS is on the "
        "disk when a way is done, but for those that are *not synced*: the other tools need a "
        "`sync` for it, which is counted."
    )
    page = "\n".join(
        ["# Copying", "", *textwrap.wrap(told, 120, break_on_hyphens=False), ""]
        + [f"Left out: {way}, {reason}." for way, reason in left_out.items()]
    )
    sections = _sections_of(results)
    for route, name in _groups(every):
        sections[_heading(route, name)] = "\n".join(_part(_of(every, route, name)))
    known = [_heading(route, name) for route in ROUTES for name in NAMES] + [WRITTEN]
    for heading in known:
        if heading in sections:
            page = f"{page.rstrip()}\n\n{heading}\n\n{sections[heading].strip()}"
    return page.rstrip() + "\n"


def _heading(route: str, name: str) -> str:
    return f"## {route.replace('-', ' → ')}, {NAMES[name]}"


def _sections_of(results: Path) -> dict[str, str]:
    """What stands on the page by heading; what a person wrote last may have headings of its own."""
    page = results.read_text() if results.exists() else ""
    measured, heading, written = page.partition(f"\n{WRITTEN}\n")
    sections = {}
    for section in measured.split("\n## ")[1:]:
        first, _, rest = section.partition("\n")
        sections[f"## {first}"] = rest
    if heading:
        sections[WRITTEN] = written
    return sections


def drawn(every: Every, place: Path) -> None:
    """Bars of the medians, one panel for each route and set, where all were measured; the whiskers
    are least and most.
    """
    pyplot = drawing()
    groups = _groups(every)
    if pyplot is None or len(groups) < len(ROUTES) * len(NAMES):
        return
    figure, panels = pyplot.subplots(
        len(groups), 1, figsize=(9, 1 + 2.4 * len(groups)), squeeze=False
    )
    for (route, name), panel in zip(groups, panels[:, 0], strict=True):
        ways = _of(every, route, name)
        middles = [statistics.median(seconds) for seconds in map(_seconds, ways.values())]
        spans = [
            [m - min(s), max(s) - m]
            for m, s in zip(middles, map(_seconds, ways.values()), strict=True)
        ]
        colours = ["tab:blue" if way.startswith(OURS) else "tab:gray" for way in ways]
        panel.barh(
            list(ways),
            middles,
            color=colours,
            xerr=list(zip(*spans, strict=True)),
            ecolor="black",
            capsize=2,
        )
        panel.invert_yaxis()
        panel.set_title(_heading(route, name).removeprefix("## "), fontsize=10)
        panel.set_xlabel("seconds, without the start", fontsize=8)
        panel.tick_params(labelsize=8)
    figure.tight_layout()
    figure.savefig(place, dpi=100)


def _groups(every: Every) -> list[tuple[str, str]]:
    there = {(one.route, one.set) for one in every}
    return [(route, name) for route in ROUTES for name in NAMES if (route, name) in there]


def _of(every: Every, route: str, name: str) -> dict[str, list[Any]]:
    """By way, ours first."""
    own = [one for one in every if (one.route, one.set) == (route, name)]
    ways = sorted(
        {one.way for one in own}, key=lambda way: (not way.startswith(OURS), len(way), way)
    )
    return {way: sorted((o for o in own if o.way == way), key=lambda o: o.round) for way in ways}


def _part(ways: Mapping[str, list[Any]]) -> Iterator[str]:
    fastest = _fastest(ways, synced=True)
    yield (
        f"| way | seconds | times as long as {fastest or 'the others'} | files | rounds | "
        "load | at |"
    )
    yield "|---|---|---|---|---|---|---|"
    for way, measured in ways.items():
        ratios = _ratios(measured, ways[fastest]) if fastest else []
        cells = (
            way,
            _spread(_seconds(measured)),
            _spread(ratios) if ratios else "",
            f"{measured[-1].files:,}",
            len(measured),
            f"{max(one.load for one in measured):.1f}",
            measured[-1].at,
        )
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    for way, (goal, word) in GOALS.items():
        if fastest and way in ways:
            yield from _verdict(ways, way, fastest, goal, word)
    not_synced = _fastest(ways, synced=False)
    if not_synced and f"{OURS}{NOT_SYNCED}" in ways:
        yield from _verdict(ways, f"{OURS}{NOT_SYNCED}", not_synced, NOT_SYNCED_GOAL, "at most")


def _verdict(
    ways: Mapping[str, list[Any]], way: str, other: str, goal: float, word: str
) -> Iterator[str]:
    ratios = _ratios(ways[way], ways[other])
    if not ratios:
        return
    is_most = word == "at most"
    times = statistics.median(ratios) if is_most else 1 / statistics.median(ratios)
    is_kept = times <= goal if is_most else times >= goal
    judged = "kept" if is_kept else "missed"
    if len(ratios) < ROUNDS_MIN:
        judged = f"no verdict from {len(ratios)} of {ROUNDS_MIN} rounds"
    compared = "times as long as" if is_most else "times as fast as"
    yield f"* {way}: {times:.2f} {compared} {other} (goal: {word} {goal}): {judged}"


def _fastest(ways: Mapping[str, list[Any]], synced: bool) -> str | None:
    """The fastest of the others, of those that wait for the disk or of those that do not."""
    others = {
        way: statistics.median(_seconds(found))
        for way, found in ways.items()
        if not way.startswith(OURS) and way.endswith(NOT_SYNCED) != synced
    }
    return min(others, key=lambda way: others[way]) if others else None


def _ratios(measured: Sequence[Any], against: Sequence[Any]) -> list[float]:
    """Of each round that has both."""
    seconds = {one.round: one.seconds for one in against}
    return [
        one.seconds / max(0.001, seconds[one.round]) for one in measured if one.round in seconds
    ]


def _seconds(measured: Sequence[Any]) -> list[float]:
    return [one.seconds for one in measured]


def _spread(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return (
        f"{middle:.2f}"
        if len(values) == 1
        else f"{middle:.2f} ({min(values):.2f} / {max(values):.2f})"
    )
