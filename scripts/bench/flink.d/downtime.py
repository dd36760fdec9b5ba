"""What scripts/bench/downtime-flink measures. Each record that comes out is written at once, so
that what was written when is what came out when; a gap is the longest time in which nothing was.

    restart  stopped with a native savepoint, by Flink's own REST API, and started from it where it
             was
    move     stateshift, "mode": "move": the same savepoint, copied and compared, and the job
             started on the other
    warm     stateshift, "mode": "warm": its checkpoints in rounds, and then the last one

Halt to publish is by the run's journal: from the end of the step that ends the job until the
metadata has its name. The way that a savepoint takes to be written is in the gap, and in `stop`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ground import CHECKPOINT_MS, PAYLOAD, PER_SECOND, ROOT, STEADY_SECONDS, Ground, keys_of
from pages import drawing, reached, told
from published import beside

from stateshift.journal import decode_records, fold
from tests.support.flink import cluster_of
from tests.support.servers import group

RESULTS = ROOT / "scripts" / "bench" / "results" / "downtime-flink.md"
WAYS = ("restart", "move", "warm")
HALT_TO_PUBLISH_MAX, OF_RESTART_MAX = 1.0, 1.1


@dataclass(frozen=True)
class Measured:
    way: str
    gap: float
    halt_to_publish: float | None
    parts: Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", default="10,200,2000")
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    sections, moves, every = [], list[tuple[str, float, float]](), dict[int, list[Measured]]()
    folder = Path(tempfile.mkdtemp(prefix="stateshift-downtime-"))
    try:
        with group(folder / "servers", "flink-a", "flink-b") as servers:
            clusters = (cluster_of(servers, "flink-a"), cluster_of(servers, "flink-b"))
            for size in (int(text) for text in options.megabytes.split(",")):
                place = folder / str(size)
                place.mkdir()
                ground = Ground(place, clusters, keys_of(size))
                found, held = one_size(ground, size, options)
                sections.append(table(found, size, held))
                moves += of_moves(found, size)
                every[size] = found
                shutil.rmtree(place, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page = "\n".join([head(), *sections, *beside(moves)])
    RESULTS.write_text(page, encoding="utf-8")
    print(page)
    plotted(every, RESULTS.with_suffix(".png"))


def one_size(ground: Ground, size: int, options: argparse.Namespace) -> tuple[list[Measured], int]:
    print(f"{size} MB: filling the state", file=sys.stderr, flush=True)
    ground.fill()
    found: list[Measured] = []
    for number in range(options.rounds):
        for way in options.ways.split(","):
            ground.settle()
            one = restarted(ground) if way == "restart" else moved(ground, way)
            found.append(one)
            told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in one.parts.items())
            print(
                f"  {size} MB, round {number + 1}: {way} {one.gap:.2f} s ({told})",
                file=sys.stderr,
                flush=True,
            )
    ground.settle()
    held = ground.state_bytes
    ground.here.cancelled(ground.job)
    return found, held


def of_moves(found: Sequence[Measured], size: int) -> Iterator[tuple[str, float, float]]:
    gaps = [[one.gap for one in found if one.way == way] for way in ("move", "warm")]
    if all(gaps):
        yield f"Flink, counters in RocksDB, {size} MB", median(gaps[0]), median(gaps[1])


def restarted(ground: Ground) -> Measured:
    with ground.watched():
        time.sleep(STEADY_SECONDS)
        savepoint = ground.stopped()
        stopped = time.time()
        ground.go_on(savepoint)
        time.sleep(STEADY_SECONDS)
    begin, end = ground.gap()
    return Measured("restart", end - begin, None, {"stop": stopped - begin, "start": end - stopped})


def moved(ground: Ground, way: str) -> Measured:
    with ground.watched():
        time.sleep(STEADY_SECONDS)
        workdir = ground.apply(way)
        time.sleep(STEADY_SECONDS)
    progress = fold(iter(decode_records((workdir / "journal").read_bytes())[0]))
    steps = [
        step
        for plan in progress.plans
        if plan.purpose in ("halt", "move")
        for step in plan.steps.values()
    ]
    halt = next(step for step in steps if step.phase == "halt")
    publish = next(step for step in reversed(steps) if step.phase == "publish")
    ended, published = halt.at + halt.seconds, publish.at + publish.seconds
    begin, end = ground.gap()
    parts = {"stop": ended - begin, "copy": published - ended, "start": end - published}
    return Measured(way, end - begin, published - ended, parts)


def head() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"""# How long nothing comes out of a Flink job while it moves

`./scripts/bench/downtime-flink` on {os.cpu_count()} cores and {memory:.0f} GB, Linux, Python
{platform.python_version()}: Flink 2.3, two subtasks that keep {PAYLOAD} bytes and a count for each key in RocksDB,
{PER_SECOND} records a second, incremental checkpoints every {CHECKPOINT_MS / 1000:g} s on a local disk. *restart* stops
it with a native savepoint and starts it from that where it was; *move* does the same by way of the other cluster, with
the savepoint copied and compared; *warm* brings its checkpoints over while it runs, and ends it with one more. Medians,
and (least / most), in seconds; {time.strftime("%Y-%m-%d %H:%M")}, the load {os.getloadavg()[0]:.1f}.

![what a gap is made of](downtime-flink.png)
"""


def table(found: Sequence[Measured], size: int, held: int) -> str:
    lines = [
        f"## {size} MB ({held / 1e6:,.0f} MB as files)",
        "",
        (
            "| way | gap | stop | copy, publish | start, load | halt to publish | times "
            "restart's gap | rounds |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    by_way = {
        way: [one for one in found if one.way == way]
        for way in WAYS
        if any(o.way == way for o in found)
    }
    for way, own in by_way.items():
        ratio = [
            one.gap / other.gap for one, other in zip(own, by_way.get("restart", own), strict=False)
        ]
        halts = [one.halt_to_publish for one in own if one.halt_to_publish is not None]
        parts = (
            told([one.parts.get(part, 0.0) for one in own]) for part in ("stop", "copy", "start")
        )
        cells = [
            told([one.gap for one in own]),
            *parts,
            told(halts) if halts else "",
            f"{median(ratio):.2f}",
        ]
        lines.append(f"| {way} | {' | '.join(cells)} | {len(own)} |")
    lines.append("")
    if {"restart", "move", "warm"} <= by_way.keys():
        halt, of_move = (
            median([one.halt_to_publish or 0.0 for one in by_way[way]]) for way in ("warm", "move")
        )
        gap = median(
            [a.gap / b.gap for a, b in zip(by_way["warm"], by_way["restart"], strict=False)]
        )
        lines += [
            f"* from halt to publish: {halt:.2f} s (goal: at most {HALT_TO_PUBLISH_MAX:g}, "
            f"{reached(halt <= 1.0)}), "
            f"{of_move / max(halt, 1e-3):.1f} times shorter than a move's",
            f"* gap, of that of a restart in place: {gap:.2f} times (goal: at most "
            f"{OF_RESTART_MAX}, "
            f"{reached(gap <= OF_RESTART_MAX)})",
            "",
        ]
    return "\n".join(lines)


def plotted(every: Mapping[int, Sequence[Measured]], file: Path) -> None:
    """What the gap of each way is made of, by size."""
    pyplot = drawing()
    if pyplot is None:
        return
    figure, axes = pyplot.subplots(1, len(every), figsize=(3.4 * len(every), 3.2), squeeze=False)
    for axis, (size, found) in zip(axes[0], every.items(), strict=True):
        ways = [way for way in WAYS if any(one.way == way for one in found)]
        below = [0.0] * len(ways)
        for part in ("stop", "copy", "start"):
            heights = [
                median([one.parts.get(part, 0.0) for one in found if one.way == way])
                for way in ways
            ]
            axis.bar(ways, heights, bottom=below, label=part)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        axis.set_title(f"{size} MB", fontsize=9)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("gap, s")
    figure.tight_layout()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
