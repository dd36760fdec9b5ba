"""The page: each case's table, what was to be reached and whether it is, and the latencies of all
records as a plot.

Beside the page lie the figures that it is made of, a line for each way in each round: a case that
is measured anew takes the place of what was there, the others stay.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ground import PARTITIONS, ROOT, UNDER_WAY_MB
from seen import BUCKET_SECONDS
from ways import UNTIL, WAYS

sys.path.insert(0, str(ROOT / "scripts" / "bench"))
from pages import drawing, reached
from published import beside

RESULTS = ROOT / "scripts" / "bench" / "results" / "downtime.md"
PLOT = RESULTS.with_suffix(".png")
FIGURES = RESULTS.with_suffix(".jsonl")
PARTS = ("stop", "copy", "publish", "start", "load")
NAMES = {"map": "a stateful map", "q8": "NEXMark's query 8"}
PROVIDERS = {"hdfs": "HDFS-backed", "rocksdb": "RocksDB"}
HALT_TO_PUBLISH_MAX, OF_RESTART_MAX, OF_MOVE_MIN, OF_HALT_MIN = 1.0, 1.1, 2.3, 10.0
LARGE_MB = 2000
COLOURS = {"restart": "#7f7f7f", "move": "#d62728", "warm": "#ff7f0e", "prepare": "#1f77b4"}

Every = Sequence[Mapping[str, Any]]


def written(measured: Every) -> None:
    every = [*others(measured), *measured]
    if not every:
        print("nothing was measured under this tag")
        return
    FIGURES.write_text("".join(json.dumps(without_steps(one)) + "\n" for one in in_order(every)))
    page = as_page(every)
    RESULTS.write_text(page)
    print(page)
    plotted(every, PLOT)


def others(measured: Every) -> Iterator[Mapping[str, Any]]:
    """What was measured before, of cases that were not measured now."""
    now = {case_of(one) for one in measured}
    for line in FIGURES.read_text().splitlines() if FIGURES.exists() else ():
        one = json.loads(line)
        if case_of(one) not in now:
            yield one


def without_steps(one: Mapping[str, Any]) -> dict[str, Any]:
    """They are of use while a run is taken apart."""
    return {key: value for key, value in one.items() if key != "steps"}


def case_of(one: Mapping[str, Any]) -> tuple[str, str, int]:
    return one["query"], one["provider"], one["mb"]


def in_order(every: Every) -> Every:
    return sorted(
        every, key=lambda one: (*case_of(one), one["round"], list(WAYS).index(one["way"]))
    )


def as_page(every: Every) -> str:
    title = "# How long nothing comes out of a job while it moves"
    lines = [title, "", *header(every), "", "![latencies](downtime.png)"]
    for case, found in by_case(every).items():
        query, provider, mb = case
        name, sizes = NAMES[query], statistics.median(one["state_bytes"] for one in found) / 1e6
        lines += [
            "",
            (
                f"## {name[:1].upper()}{name[1:]}, {PROVIDERS[provider]}, {mb} MB "
                f"({sizes:,.0f} MB as files)"
            ),
            "",
        ]
        lines += table(found)
        lines += ["", *(f"* {line}" for line in verdicts(found, mb))]
    lines += ["", *flatness(every), "", *beside(of_moves(every))]
    return "\n".join(lines).rstrip() + "\n"


def of_moves(every: Every) -> Iterator[tuple[str, float, float]]:
    """Each case's gap of a move, and with everything prepared."""
    for (query, provider, mb), found in by_case(every).items():
        gaps = [[one["gap"] for one in found if one["way"] == way] for way in ("move", "prepare")]
        if all(gaps):
            name = f"{NAMES[query]}, {PROVIDERS[provider]}, {mb} MB, prepared"
            yield (name, statistics.median(gaps[0]), statistics.median(gaps[1]))


def header(every: Every) -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    told = (
        f"`./scripts/bench/downtime` on {os.cpu_count()} cores and {memory:.0f} GB, Linux, Python "
        f"{platform.python_version()}: a real Spark (local[2], a driver that is its own "
        f"executor) with {PARTITIONS} "
        "partitions of state on one of two HDFS, all on this machine, which reads 100 "
        "records a second from files (and "
        f"tidies up every 10 s, with less than {UNDER_WAY_MB} MB: it lives for a minute at "
        "a time). It is "
        "moved to the other HDFS and back, each way in turn. *restart* stops it by the "
        "marker and starts it on the "
        "same checkpoint; *move* stops, copies, compares, starts; *warm* brings it over "
        f"while it runs (`{UNTIL}`); "
        "*prepare* has the new application up before the halt, too. Medians of the rounds, "
        "and (least / most), in "
        "seconds. The gap is how long nothing came out, and *stop* to *load* are all of "
        "it, each to the end of its "
        "part: the last batch and the old job's end; the look at what is left, the fence, "
        "the copy and the comparison; "
        "the publish; the new query's start; its state and first batch. *worst* is the "
        "latency of the record that "
        "waited longest, *halt to publish* from the old job's end until the last file is "
        "published, by the journal. "
        "*all of it* is from the command until the job's first output, *written* how many "
        "times the image's bytes were "
        "written for it. *uptime's load* is the highest before a way was begun, of the job "
        "itself and of others. "
        f"{FIGURES.name} has each round's figures."
    )
    return textwrap.wrap(told, 120, break_on_hyphens=False)


def by_case(every: Every) -> dict[tuple[str, str, int], Every]:
    found: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for one in in_order(every):
        found.setdefault(case_of(one), []).append(one)
    return dict(found)


def table(found: Every) -> Iterator[str]:
    columns = (
        "way",
        "gap",
        *PARTS,
        "worst",
        "halt to publish",
        "times restart's gap",
        "all of it",
        "written",
        "rounds",
        "uptime's load",
        "at",
    )
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for way in WAYS:
        ours = [one for one in found if one["way"] == way]
        if ours:
            yield line_of(way, ours, found)


def line_of(way: str, ours: Every, found: Every) -> str:
    parts = [f"{statistics.median(one['parts'][part] for one in ours):.1f}" for part in PARTS]
    of_restart = ratios(found, way, "restart", "gap")
    published = spread([one["halt_to_publish"] for one in ours], 2) if way != "restart" else ""
    of_image = statistics.median(one["brought"] / one["state_bytes"] for one in ours)
    cells = (
        way,
        spread([one["gap"] for one in ours]),
        *parts,
        spread([one["worst"] for one in ours]),
        published,
        spread(of_restart, 2) if of_restart else "",
        f"{statistics.median(one['took'] for one in ours):.1f}",
        f"{of_image:.2f}",
        len(ours),
        f"{max(one['load'] for one in ours):.1f}",
        ours[-1]["at"],
    )
    return f"| {' | '.join(map(str, cells))} |"


def ratios(found: Every, way: str, other: str, key: str) -> list[float]:
    """Of each round that has both."""
    of = {
        name: {one["round"]: one[key] for one in found if one["way"] == name}
        for name in (way, other)
    }
    return [
        of[way][n] / of[other][n] for n in sorted(of[way].keys() & of[other].keys()) if of[other][n]
    ]


def verdicts(found: Every, mb: int) -> Iterator[str]:
    """Whatever this case says of what was to be reached; between halt and publish that is of the
    largest state.
    """
    large = mb >= LARGE_MB
    published = [one["halt_to_publish"] for one in found if one["way"] == "prepare"]
    if published:
        yield told(
            "from halt to publish",
            statistics.median(published),
            HALT_TO_PUBLISH_MAX if large else None,
            most=True,
            unit=" s",
        )
    shorter = ratios(found, "move", "prepare", "halt_to_publish")
    if shorter:
        yield told(
            "a move's is longer by",
            statistics.median(shorter),
            OF_HALT_MIN if large else None,
            most=False,
        )
    of_restart = ratios(found, "prepare", "restart", "gap")
    if of_restart:
        yield told(
            "gap, of that of a restart in place",
            statistics.median(of_restart),
            OF_RESTART_MAX,
            most=True,
        )
    of_move = ratios(found, "move", "prepare", "gap")
    if of_move:
        least = OF_MOVE_MIN if large else 1.0
        yield told("a move's gap is longer by", statistics.median(of_move), least, most=False)


def told(what: str, value: float, goal: float | None, most: bool, unit: str = " times") -> str:
    if goal is None:
        return f"{what}: {value:.2f}{unit}"
    is_so = value <= goal if most else value >= goal
    return (
        f"{what}: {value:.2f}{unit} (goal: at {'most' if most else 'least'} {goal:g}, "
        f"{reached(is_so)})"
    )


def flatness(every: Every) -> Iterator[str]:
    """Whether the size of the state makes a difference between halt and publish."""
    for query, provider in sorted({(one["query"], one["provider"]) for one in every}):
        of_size: dict[int, list[float]] = {}
        for one in every:
            if (one["query"], one["provider"], one["way"]) == (query, provider, "prepare"):
                of_size.setdefault(one["mb"], []).append(one["halt_to_publish"])
        if len(of_size) > 1:
            middles = ", ".join(
                f"{mb} MB {statistics.median(of_size[mb]):.2f} s" for mb in sorted(of_size)
            )
            yield (
                f"From halt to publish of {NAMES[query]}, {PROVIDERS[provider]}, by size: "
                f"{middles}."
            )


def spread(values: Sequence[float], digits: int = 1) -> str:
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:.{digits}f}"
    return f"{middle:.{digits}f} ({min(values):.{digits}f} / {max(values):.{digits}f})"


def plotted(every: Every, file: Path) -> None:
    """Which part of the records was later than that, of all rounds; both axes logarithmic."""
    pyplot = drawing()
    if pyplot is None:
        return
    cases = by_case(every)
    rows = sorted({case[:2] for case in cases})
    columns = sorted({case[2] for case in cases})
    figure, axes = pyplot.subplots(
        len(rows),
        len(columns),
        figsize=(4.2 * len(columns), 3.2 * len(rows)),
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for (query, provider, mb), found in cases.items():
        axis = axes[rows.index((query, provider))][columns.index(mb)]
        axis.set_title(f"{query}, {PROVIDERS[provider]}, {mb} MB", fontsize=9)
        for way in WAYS:
            counted = Counter[int]()
            for one in found:
                if one["way"] == way:
                    counted.update(
                        {int(bucket): count for bucket, count in one["latencies"].items()}
                    )
            if counted:
                axis.step(
                    *ccdf(counted), where="post", label=way, color=COLOURS[way], linewidth=1.3
                )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("latency at the sink, s")
    for row in axes:
        row[0].set_ylabel("records later than that")
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def ccdf(counted: Mapping[int, int]) -> tuple[list[float], list[float]]:
    """By the upper edge of each bucket, the part of the records that is beyond it."""
    total, beyond = sum(counted.values()), sum(counted.values())
    seconds, parts = [BUCKET_SECONDS], [1.0]
    for bucket in sorted(counted):
        beyond -= counted[bucket]
        seconds.append((bucket + 1) * BUCKET_SECONDS)
        parts.append(max(beyond, 0.1) / total)
    return seconds, parts
