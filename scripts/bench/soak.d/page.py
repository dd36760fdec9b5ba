"""The page and the picture of a soak: of the last run that is in the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from curves import COLOURS
from pages import ROOT, drawing, left_alone, missing, put_down, told, wrapped

PAGE = ROOT / "scripts" / "bench" / "results" / "soak.md"
PICTURE = PAGE.with_suffix(".png")
MIB = 1 << 20
FACT_CHARACTERS = 300
WARM_UP_SECONDS = 300.0  # after a start, until memory is compared

Figures = Mapping[str, Any]


def write_page(figures: Sequence[Figures]) -> None:
    lacking = missing("matplotlib")
    if lacking:
        left_alone(PAGE, lacking)
        return
    of = [one for one in figures if one["tag"] == figures[-1]["tag"]]
    draw(of, PICTURE)
    put_down(PAGE, lines_of(of))


def kind(of: Sequence[Figures], name: str) -> list[Figures]:
    return [one for one in of if one["kind"] == name]


def lines_of(of: Sequence[Figures]) -> list[str]:
    (run,), faults, samples = kind(of, "run"), kind(of, "fault"), kind(of, "sample")
    (end,) = kind(of, "end")
    minutes = (samples[-1]["at"] - samples[0]["at"]) / 60
    began = datetime.fromtimestamp(run["at"]).strftime("%Y-%m-%d %H:%M")
    lines = ["# A standby with a fault every minute", ""]
    lines += wrapped(
        f"`./scripts/bench/soak` on 2 cores and 24 GB, Linux, begun {began} with seed "
        f"{run['seed']}, for {minutes:.0f} minutes. A real Spark (local[1]) commits a batch every "
        "2 s to a checkpoint on S3 (SeaweedFS); `apply --continuous` keeps a standby on HDFS. All "
        "is on this machine, beside other work. The "
        "standby is started again 30 s after it has ended with exit code 6 or 7, as its unit of "
        "systemd does it. Once it has caught up after a fault, its image is read to its end, and "
        "its rows are counted: after batch N there are 200 times N + 1. Median (least / most)."
    )
    lines += [
        "",
        "| fault | of the | times | held, s | until the standby had caught up, s | restarts |",
        "|---|---|---|---|---|---|",
    ]
    for side, name in sorted({(one["side"], one["name"]) for one in faults}):
        those = [one for one in faults if (one["side"], one["name"]) == (side, name)]
        cells = [
            name,
            side,
            str(len(those)),
            told([one["held"] for one in those]),
            told([one["caught_up"] for one in those]),
            str(sum(one["restarts"] for one in those)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *wrapped(outcome_of(of, end, faults)), ""]
    for one in kind(of, "violation"):
        minute = (one["at"] - samples[0]["at"]) / 60
        lines += [*wrapped(f"Minute {minute:.0f}, {one['fact'][:FACT_CHARACTERS]}"), ""]
    lines += flatness(samples, end)
    lines += ["", f"![what it took over the time]({PICTURE.name})"]
    return lines


def outcome_of(of: Sequence[Figures], end: Figures, faults: Sequence[Figures]) -> str:
    violations = len(kind(of, "violation"))
    failover = end["failover"]
    first = (
        f"{len(faults)} faults, {end['rounds']} rounds, {end['images']} images. "
        f"Times at which an image could not be started, was worse than one before, or had no valid "
        f"state file: {violations or 'none'}. "
    )
    if failover is None:
        return first
    return first + (
        f"In the end the driver was killed at batch {end['newest']}. `failover` started the job "
        f"from batch {failover['epoch']} in {failover['rto_seconds']:.1f} s, and its state then "
        "held every row once."
    )


def flatness(samples: Sequence[Figures], end: Figures) -> list[str]:
    """A table of what the standby took in the first and in the last tenth of the time."""
    starts = end["starts"]
    settled = [one for one in samples if one["at"] > samples[0]["at"] + WARM_UP_SECONDS]
    tenth = max(1, len(settled) // 10)
    lines = [
        "| what | median of the first tenth (after 5 min) | of the last tenth | most |",
        "|---|---|---|---|",
    ]
    for key, name, unit in MEASURED:
        values = [one[key] / unit for one in settled if one.get(key) is not None]
        if key == "rss":
            longest = longest_life(settled, starts)
            values = [one["rss"] / unit for one in longest if one["rss"] is not None]
        if not values:
            continue
        tenth = max(1, len(values) // 10)
        first, last = median(values[:tenth]), median(values[-tenth:])
        lines.append(f"| {name} | {first:.1f} | {last:.1f} | {max(values):.1f} |")
    return lines


MEASURED = (
    ("rss", "memory (RSS) of the process that lived longest, MiB", MIB),
    ("journal", "journal, KiB", 1024),
    ("plans", "plans in the workdir", 1),
    ("files", "files at the target", 1),
    ("bytes", "at the target, KiB", 1024),
)


def longest_life(samples: Sequence[Figures], starts: Sequence[float]) -> list[Figures]:
    """Return the samples of the process that has lived longest, once it was warm."""
    lives: dict[float, list[Figures]] = {}
    for one in samples:
        begun = max((start for start in starts if start <= one["at"]), default=starts[0])
        if one["at"] > begun + WARM_UP_SECONDS:
            lives.setdefault(begun, []).append(one)
    return max(lives.values(), key=len, default=[])


def draw(of: Sequence[Figures], place: Path) -> None:
    pyplot = drawing()
    samples, faults = kind(of, "sample"), kind(of, "fault")
    (end,) = kind(of, "end")
    began = samples[0]["at"]
    figure, panels = pyplot.subplots(2, 2, figsize=(16, 9), sharex=True)
    drawn = (
        ("rss", "memory of the standby's process, MiB", MIB),
        ("bytes", "at the target, KiB", 1024),
        ("journal", "journal, KiB", 1024),
        ("kept", "batch that the standby has", 1),
    )
    for panel, (key, title, unit) in zip(panels.flat, drawn, strict=True):
        points = [
            ((one["at"] - began) / 60, one[key] / unit)
            for one in samples
            if one.get(key) is not None
        ]
        panel.plot([x for x, _ in points], [y for _, y in points], color=COLOURS[0], linewidth=1)
        for fault in faults:
            first, last = ((fault["began"] + more - began) / 60 for more in (0, fault["held"]))
            is_source = fault["side"] == "source"
            panel.axvspan(first, last, color=COLOURS[1 if is_source else 3], alpha=0.15)
        for start in end["starts"][1:]:
            panel.axvline((start - began) / 60, color="black", linestyle=":", linewidth=1)
        panel.set(title=title, ylim=(0, None))
    for panel in panels[1]:
        panel.set(
            xlabel="minutes (orange: a fault of the source, red: of the target; dotted: restart)"
        )
    figure.tight_layout()
    figure.savefig(place, dpi=80)
    pyplot.close(figure)
