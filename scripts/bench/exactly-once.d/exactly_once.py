"""Whether state that moves in bins stays exactly once, whoever dies when.

python exactly_once.py [--parts NAMES] [--rounds N] [--again] [--page]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import kills
from pages import figures_in, put_down, wrapped

BENCH = Path(__file__).resolve().parents[1]
RESULTS = BENCH / "results" / "exactly-once.md"
FIGURES = RESULTS.with_suffix(".jsonl")
COMMAND = "./scripts/bench/exactly-once"
PARTS_A_ROUND = 5  # of the walks; each has 2,000 steps

Figures = dict[str, Any]


def walk(number: int) -> Figures:
    """Take 10,000 steps at random; every fourth walk splits and merges bins, too."""
    from tests.live.bins.test_promises import walk_on

    steps, broken = 0, ""
    for part in range(number * PARTS_A_ROUND, (number + 1) * PARTS_A_ROUND):
        try:
            steps += walk_on(part, resizes=part % 4 == 3)
        except AssertionError as error:
            broken = f"part {part}: {error}"
    return {"steps": steps, "ok": not broken, "broken": broken}


ROUNDS: dict[str, tuple[int, Callable[[int], Figures]]] = {
    "kills": (50, kills.round_of),
    "walks": (100, walk),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--parts", default=",".join(ROUNDS))
    parser.add_argument("--rounds", type=int, default=max(count for count, _ in ROUNDS.values()))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    done = set()
    if not options.again:
        done = {(one["part"], one["round"]) for one in figures_in(FIGURES)}
    for part in () if options.page else options.parts.split(","):
        count, round_of = ROUNDS[part]
        for number in range(min(count, options.rounds)):
            if (part, number) in done:
                continue
            began = time.process_time() + _children()
            figures = {"part": part, "round": number, **round_of(number)}
            figures["cpu_seconds"] = round(time.process_time() + _children() - began, 1)
            figures["at"] = time.strftime("%Y-%m-%d")
            keep(figures)
            print(json.dumps(figures), file=sys.stderr, flush=True)
    every = figures_in(FIGURES)
    put_down(RESULTS, page(every))
    raise SystemExit(0 if all(one["ok"] for one in every) else 1)


def keep(figures: Figures) -> None:
    """Keep a round, beside those that another run has done meanwhile."""
    case = figures["part"], figures["round"]
    others = [one for one in figures_in(FIGURES) if (one["part"], one["round"]) != case]
    every = sorted([*others, figures], key=lambda one: (one["part"], one["round"]))
    FIGURES.write_text("".join(json.dumps(one) + "\n" for one in every))


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def page(every: Sequence[Figures]) -> Iterator[str]:
    yield "# State that moves in bins, whoever dies when"
    yield ""
    yield from wrapped(
        f"`{COMMAND}` goes on where it has ended. {FIGURES.name} has each round; a round can be "
        "done again from its number."
    )
    yield ""
    yield "## SIGKILL at the effects of a move"
    yield ""
    yield from wrapped(
        "Two processes read one log at their own pace, all bins begin at the one, and a half of "
        "them moves to the other. One of the three processes kills itself, by SIGKILL, right "
        "before a system call that changes something in the group's folder; which one is spread "
        "over all effects. It is started again, and in every other round killed a second time. "
        "What both put out is held against one worker alone, row for row."
    )
    yield ""
    yield from _kills([one for one in every if one["part"] == "kills"])
    yield ""
    yield "## Random steps against the model"
    yield ""
    yield from _walks([one for one in every if one["part"] == "walks"])


def _kills(every: Sequence[Figures]) -> Iterator[str]:
    yield "| killed | rounds | kills | kinds of effect | rows compared | rounds with another output |"
    yield "|---|---|---|---|---|---|"
    for victim in kills.VICTIMS:
        rounds = [one for one in every if one["victim"] == victim]
        effects = [effect for one in rounds for effect in one["effects"]]
        rows = sum(one["rows"] for one in rounds)
        wrong = sum(not one["ok"] for one in rounds)
        kinds = len({re.sub(r"[0-9a-f-]{6,}|[0-9]+", "N", effect) for effect in effects})
        yield f"| {victim} | {len(rounds)} | {len(effects)} | {kinds} | {rows:,} | {wrong} |"


def _walks(every: Sequence[Figures]) -> Iterator[str]:
    steps = sum(one["steps"] for one in every)
    broken = sum(not one["ok"] for one in every)
    seconds = sum(one["cpu_seconds"] for one in every)
    yield from wrapped(
        f"{steps:,} of 1,000,000 steps in {len(every)} rounds, {seconds:,.0f} s of CPU: "
        f"{broken} rounds in which a promise was broken."
    )


if __name__ == "__main__":
    main()
