"""The parts of the bench: each yields figures, one measurement after the other, of cases that are
missing.

A figure has what it was measured of (`case_of`), and what came of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ground import HERE, Pair, Setup, Way, environment, pair
from latency import summary

Figures = dict[str, Any]
IsMissing = Callable[..., bool]
CASE = ("part", "form", "home", "keys", "strategy", "way", "count", "bins", "rate", "round")

RATE = 2000
ALL_AT_ONCE, BATCHED, FLUID, WARM = "all-at-once", "batched(32)", "fluid", "warm"
WAYS = {
    ALL_AT_ONCE: Way("all-at-once"),
    FLUID: Way("fluid", gap=0.1, prepared=True),
    BATCHED: Way("batched(32)"),
    WARM: Way("warm"),
}


@dataclass(frozen=True)
class Size:
    """How much of each part is measured."""

    setups: Mapping[str, tuple[tuple[Setup, tuple[str, ...]], ...]]
    moves_rounds: int  # of those in the driver as objects, which goals are set for
    bins: tuple[int, ...]
    bins_keys: int
    bins_rounds: int
    bins_seconds: int
    throughput_rows: int
    throughput_batches: int
    throughput_rounds: int
    load_keys: int
    load_rates: tuple[int, ...]
    memory_keys: int
    memory: tuple[str, ...]
    forms_keys: int
    forms_rounds: int


FEW = (ALL_AT_ONCE, FLUID)
WHOLE = Size(
    setups={
        "strategies": (
            (Setup("objects", "driver", 1_200_000), tuple(WAYS)),
            (Setup("objects", "driver", 600_000), tuple(WAYS)),
        ),
        "columns": ((Setup("columns", "driver", 1_200_000), FEW),),
        "executors": (
            (Setup("objects", "executors", 600_000), FEW),
            (Setup("columns", "executors", 600_000), FEW),
        ),
    },
    moves_rounds=3,
    bins=(1, 16, 256, 4096, 65_536),
    bins_keys=200_000,
    bins_rounds=1,
    bins_seconds=6,
    throughput_rows=100_000,
    throughput_batches=8,
    throughput_rounds=3,
    load_keys=1_200_000,
    load_rates=(1000, 8000, 32_000),
    memory_keys=600_000,
    memory=(ALL_AT_ONCE, BATCHED, FLUID),
    forms_keys=1_200_000,
    forms_rounds=5,
)
QUICK = Size(
    setups={
        "strategies": ((Setup("objects", "driver", 50_000), (ALL_AT_ONCE, FLUID)),),
        "columns": ((Setup("columns", "driver", 50_000), (ALL_AT_ONCE,)),),
        "executors": ((Setup("objects", "executors", 50_000), (ALL_AT_ONCE,)),),
    },
    moves_rounds=1,
    bins=(1, 256),
    bins_keys=20_000,
    bins_rounds=1,
    bins_seconds=4,
    throughput_rows=100_000,
    throughput_batches=4,
    throughput_rounds=1,
    load_keys=20_000,
    load_rates=(1000, 4000),
    memory_keys=50_000,
    memory=(ALL_AT_ONCE,),
    forms_keys=50_000,
    forms_rounds=1,
)


def case_of(figures: Figures) -> tuple[Any, ...]:
    """Return what tells a measurement apart."""
    return tuple(figures.get(name) for name in CASE)


# ------------------------------------------------------------------------------------ moves


def strategies(which: str, size: Size, is_missing: IsMissing) -> Iterator[Figures]:
    rounds = size.moves_rounds if which == "strategies" else 1
    for setup, names in size.setups[which]:
        cases = [
            {**_of(setup), "part": "strategies", "strategy": name, "round": round_}
            for round_ in range(rounds)
            for name in names
        ]
        missing = [case for case in cases if is_missing(**case)]
        if not missing:
            continue
        with pair(setup, RATE) as both:
            for case in missing:
                both.settle()
                yield {**case, "rate": RATE, **both.move(WAYS[case["strategy"]])}


def memory(size: Size, is_missing: IsMissing) -> Iterator[Figures]:
    """Each strategy in processes of its own: what has once been used is not given back."""
    setup = Setup("objects", "driver", size.memory_keys)
    for name in size.memory:
        case = {**_of(setup), "part": "memory", "strategy": name}
        if is_missing(**case):
            with pair(setup, RATE) as both:
                moved = both.move(WAYS[name])
                moved.pop("timeline")
                yield {**case, **moved}


def load(size: Size, is_missing: IsMissing) -> Iterator[Figures]:
    setup = Setup("objects", "driver", size.load_keys)
    cases = [{**_of(setup), "part": "load", "rate": rate} for rate in size.load_rates]
    missing = [
        case
        for case in cases
        if is_missing(**case, strategy=FLUID, round=size.moves_rounds - 1)
        and is_missing(**case, saturated=True)
    ]
    if not missing:
        return
    with pair(setup, missing[0]["rate"]) as both:
        for case in missing:
            both.rate(case["rate"])
            steady, is_saturated = _steady(both)
            yield {**case, "strategy": "steady", "during": steady, "saturated": is_saturated}
            if is_saturated:
                return
            for round_ in range(size.moves_rounds):
                for name in FEW:
                    both.settle()
                    moved = both.move(WAYS[name])
                    moved.pop("timeline")
                    yield {**case, "strategy": name, "round": round_, **moved}


def _steady(both: Pair) -> tuple[dict[str, Any], bool]:
    """Return the latencies at a rate, and whether rows come later and later."""
    began = time.time()
    for _ in range(3):
        time.sleep(12.0)
        if both.is_settled():
            now = time.time()
            both.until_all_came(now)
            return summary(both.latencies().between(now - 8.0, now)), False
    return summary(both.latencies().between(began, time.time())), True


def _of(setup: Setup) -> Figures:
    return {"form": setup.form, "home": setup.home, "keys": setup.keys}


# ------------------------------------------------------------------------------------ one application


def bins(size: Size, is_missing: IsMissing) -> Iterator[Figures]:
    cases = [
        {"part": "bins", "count": kind, "keys": size.bins_keys, "bins": number, "round": round_}
        for round_ in range(size.bins_rounds)
        for kind in ("key-count", "hash-count")
        for number in size.bins
    ]
    missing = [case for case in cases if is_missing(**case)]
    yield from _application("steady.py", missing, rate=RATE, seconds=size.bins_seconds)


def throughput(size: Size, is_missing: IsMissing) -> Iterator[Figures]:
    ways = ["native", *(f"{form}, {home}" for form in FORMS for home in HOMES)]
    cases = []
    for round_ in range(size.throughput_rounds):
        order = ways if round_ % 2 == 0 else ways[::-1]
        cases += [{"part": "throughput", "way": way, "round": round_} for way in order]
    missing = [case for case in cases if is_missing(**case)]
    yield from _application(
        "throughput.py", missing, rows=size.throughput_rows, batches=size.throughput_batches
    )


def forms(size: Size, is_missing: IsMissing) -> Iterator[Figures]:
    """A state by itself, its forms in turn."""
    cases = [
        {"part": "forms", "form": form, "keys": size.forms_keys, "round": round_}
        for round_ in range(size.forms_rounds)
        for form in FORMS
    ]
    missing = [case for case in cases if is_missing(**case)]
    yield from _application("forms.py", missing, keys=size.forms_keys)


FORMS = ("objects", "columns")
HOMES = ("driver", "executors")


def _application(script: str, cases: list[Figures], **settings: int) -> Iterator[Figures]:
    """Run an application over cases, and yield what it prints of each."""
    if not cases:
        return
    with tempfile.TemporaryDirectory(prefix="live-bins-") as folder:
        words = [json.dumps({"folder": folder, "cases": cases, **settings})]
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, str(HERE / script), *words],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        if process.wait():
            raise SystemExit(log.read_text()[-3000:])


PARTS: dict[str, Callable[[Size, IsMissing], Iterator[Figures]]] = {
    "strategies": partial(strategies, "strategies"),
    "throughput": throughput,
    "bins": bins,
    "columns": partial(strategies, "columns"),
    "forms": forms,
    "load": load,
    "memory": memory,
    "executors": partial(strategies, "executors"),
}
