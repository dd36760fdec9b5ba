"""What scripts/bench/advise measures: verdicts of `stateshift advise --history`, a look every so
many seconds, held against the jobs' own counters.

    right     what arrives, and what waits by a catch-up time of 30 minutes, over what the job can
              take, all as it counts itself over the whole load: from 1 on it has too little, below
              0.95 it fits; between these two either is right
    limited   the hot key alone is more than 0.7 of a subtask, and its subtask is full
    looks     from the second one of a load on; the first sees mostly the load before
    flaps     verdicts that change, and change back, within one load
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from loads import Load

RESULTS = Path(__file__).resolve().parents[1] / "results"
CATCH_UP_SECONDS, MAY_HAVE = 1800.0, 0.7
EDGE = 0.95
GOAL = 0.95


@dataclass(frozen=True)
class Counted:
    """What a job has counted itself by a time."""

    time: float
    arrived: float
    done: float
    busy_seconds: float


@dataclass(frozen=True)
class Look:
    """A verdict, and the job's own counters at that time. `number` counts from 1 in each load."""

    job: str
    load: str
    number: int
    verdict: str
    wanted: int | None
    counted: Counted
    reason: str = ""


@dataclass
class Episode:
    """A load on a job: its looks, and what the job counted when it began and ended."""

    job: str
    load: Load
    parallelism: int
    began: Counted
    ended: Counted | None = None
    looks: list[Look] = field(default_factory=list)

    @property
    def cost_seconds(self) -> float:
        assert self.ended is not None
        done = self.ended.done - self.began.done
        return (self.ended.busy_seconds - self.began.busy_seconds) / max(1.0, done)

    @property
    def arrives(self) -> float:
        assert self.ended is not None
        seconds = self.ended.time - self.began.time
        return (self.ended.arrived - self.began.arrived) / seconds

    def share(self, look: Look) -> float:
        """Return what the job's fullest subtask would have to do, over what it can."""
        waits = max(0.0, look.counted.arrived - look.counted.done)
        needed = (self.arrives + waits / CATCH_UP_SECONDS) * self.cost_seconds
        even = needed * (1 - self.load.hot) / self.parallelism
        return even + needed * self.load.hot

    def right(self, look: Look) -> tuple[str, ...]:
        """Return the verdicts that are right."""
        share = self.share(look)
        hot = self.arrives * self.load.hot * self.cost_seconds
        short: tuple[str, ...] = ("scale", "move")
        if self.parallelism > 1 and hot > MAY_HAVE:
            short = ("limited",)
        if share >= 1:
            return short
        return ("fits",) if share < EDGE else ("fits", *short)

    @property
    def judged(self) -> list[Look]:
        return [look for look in self.looks if look.number > 1]

    @property
    def wrong(self) -> list[Look]:
        return [look for look in self.judged if look.verdict not in self.right(look)]

    @property
    def flaps(self) -> int:
        words = [_word(look.verdict) for look in self.judged]
        changes = sum(one != other for one, other in pairwise(words))
        return max(0, changes - 1)


def _word(verdict: str) -> str:
    return "scale" if verdict == "move" else verdict


def table(episodes: Sequence[Episode]) -> list[str]:
    lines = [
        "| job | load | what it needs of what it can, as it counts itself | verdicts, from the "
        "second look on | right | flaps |",
        "|---|---|---|---|---|---|",
    ]
    for one in episodes:
        shares = sorted(one.share(look) for look in one.judged)
        between = f"{shares[0]:.2f} to {shares[-1]:.2f}" if shares else ""
        said = ", ".join(_runs([_word(look.verdict) for look in one.judged]))
        count = len(one.judged)
        right = f"{count - len(one.wrong)} of {count}"
        lines.append(
            f"| {one.job} | {one.load.name} | {between} | {said} | {right} | {one.flaps} |"
        )
    judged = sum(len(one.judged) for one in episodes)
    wrong = sum(len(one.wrong) for one in episodes)
    flaps = sum(one.flaps for one in episodes if one.load.is_constant)
    share = 1 - wrong / judged if judged else 0.0
    return [
        *lines,
        "",
        f"* right from the second look on: {judged - wrong} of {judged}, {share:.1%} (goal: "
        f"{GOAL:.0%}, {'reached' if share >= GOAL else 'missed'})",
        f"* flaps at constant load: {flaps} (goal: 0, {'missed' if flaps else 'reached'})",
    ]


def _runs(words: Iterable[str]) -> Iterable[str]:
    """Yield words with how often each follows itself."""
    last, count = "", 0
    for word in [*words, ""]:
        if word == last:
            count += 1
            continue
        if last:
            yield f"{last} x {count}"
        last, count = word, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", choices=("flink", "spark"), default="flink")
    parser.add_argument("--step", type=float, default=225.0, help="seconds of each load")
    parser.add_argument("--look", type=float, default=30.0, help="seconds between looks")
    parser.add_argument("--page", type=Path, default=RESULTS / "advise.md")
    options = parser.parse_args()
    if options.engine == "flink":
        from on_flink import head, measured
    else:
        from on_spark import head, measured
    episodes = measured(options.step, options.look)
    lines = [*head(options.step, options.look), "", *table(episodes), ""]
    written(options.page, options.engine, lines)
    print("\n".join(lines))
    for one in episodes:
        for look in one.wrong:
            print(json.dumps(_plain(one, look)), flush=True)


def _plain(one: Episode, look: Look) -> dict[str, Any]:
    return {
        "job": one.job,
        "load": one.load.name,
        "look": look.number,
        "verdict": look.verdict,
        "share": round(one.share(look), 3),
        "reason": look.reason,
    }


def written(page: Path, engine: str, lines: Sequence[str]) -> None:
    """Write the part of one engine into the page, and leave the other's."""
    marks = {"flink": "## Flink", "spark": "## Spark with Kafka"}
    parts = dict.fromkeys(marks, "")
    text = page.read_text() if page.exists() else ""
    for name, mark in marks.items():
        if mark in text:
            parts[name] = mark + text.split(mark)[1].split("\n## ")[0].rstrip() + "\n"
    parts[engine] = "\n".join([marks[engine], "", *lines]).rstrip() + "\n"
    first = "# Verdicts of `advise`, held against the jobs' own counters\n"
    doc = (__doc__ or "").partition("\n\n")[2].rstrip()
    legend = f"```\n{doc}\n```\n"
    page.write_text("\n".join([first, legend, *filter(None, parts.values())]))


if __name__ == "__main__":
    main()
