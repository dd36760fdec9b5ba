"""What is measured, a function for each part; each returns lines of figures, plain values.

surge      an expensive function is replaced by a cheap one, at once and by batch
calm       functions are replaced while batches are short
filter     a filter is introduced, and replaced by another one
restart    a function is replaced live, by a restart of its query, by one of its application
overhead   a chain beside the bare function
pair       two queries with a real Kafka between them
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import made
from ground import HERE, ROOT, Event, Job, running

from stateshift.live.acts import ChangeResult, Edit

Figures = dict[str, Any]

COST_SECONDS = 0.0005  # of a record, of the expensive function: two workers manage 4,000 a second
BASE_RATE = 2400.0
CALM_RATE = 2000.0
CALM_COST_SECONDS = 0.0001
LONG_SECONDS = 5.0
POSITIONS = (0.5, 0.25, 0.75)  # of a batch: when a change is asked for
SCHEDULERS = ("fries", "epoch")


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    branches: tuple[int, ...]
    seconds: float
    pairs: int
    batches: int


WHOLE = Size(rounds=3, branches=(1, 2, 3), seconds=10.0, pairs=10, batches=14)
QUICK = Size(rounds=1, branches=(1,), seconds=4.0, pairs=2, batches=8)


def load() -> float:
    return round(os.getloadavg()[0], 1)


# ------------------------------------------------------------------------------------ surge, calm


def surge(size: Size) -> Iterator[Figures]:
    for branches in size.branches:
        with running(BASE_RATE, "--branches", str(branches)) as job:
            for number in range(size.rounds):
                for scheduler in SCHEDULERS:
                    yield _surged(job, branches, scheduler, POSITIONS[number % len(POSITIONS)])


def _surged(job: Job, branches: int, scheduler: str, position: float) -> Figures:
    """Double the rate, wait for long batches, and replace the function that cannot keep up."""
    cost = COST_SECONDS * branches  # each branch has its share of the records
    job.rate(BASE_RATE)
    job.change(_replacing(job, branches, cost))
    steady = job.until_batches(3)[-1]
    doubled = time.time()
    job.rate(2 * BASE_RATE)
    events = job.until(lambda events: _last_took(events) >= LONG_SECONDS, "no long batch")
    took = _last_took(events)
    time.sleep(max(0.0, events[-1].ended + position * took - time.time()))
    load_then, asked = load(), time.time()
    changed = job.change(_replacing(job, branches, 0.0), scheduler)
    limit = max(3.0, 1.5 * job.worst(steady))
    falls = job.until(
        lambda events: events[-1].ended > asked and job.worst(events[-1]) < limit, "it stays late"
    )[-1]
    job.until_batches(2)
    return {
        "part": "surge",
        "targets": branches,
        "scheduler": scheduler,
        "position": position,
        "batch": round(took, 2),
        **_delays(changed),
        "falls": round(falls.ended - asked, 2),
        "load": load_then,
        "latencies": _latencies(job, doubled - 8.0, asked),
        "doubled": round(doubled - asked, 2),
    }


def calm(size: Size) -> Iterator[Figures]:
    for branches in size.branches:
        with running(CALM_RATE, "--branches", str(branches)) as job:
            job.change(_replacing(job, branches, CALM_COST_SECONDS))
            for number in range(2 * size.rounds):
                for scheduler in SCHEDULERS:
                    ended = job.until_batches(2)[-1].ended
                    took = _usual(job.events()[-6:])
                    time.sleep(max(0.0, ended + (0.2 + 0.13 * number) % 1.0 * took - time.time()))
                    edits = _replacing(job, branches, CALM_COST_SECONDS)
                    changed = job.change(edits, scheduler)
                    yield {
                        "part": "calm",
                        "targets": branches,
                        "scheduler": scheduler,
                        "batch": round(took, 2),
                        **_delays(changed),
                        "load": load(),
                    }


def _replacing(job: Job, branches: int, cost: float) -> list[Edit]:
    k = job.next_k()
    names = [f"score-{number}" for number in range(branches)]
    return [Edit(name, "replace", made.giving(k, cost)) for name in names]


def _delays(changed: ChangeResult) -> Figures:
    carried = changed.carried
    assert carried is not None and carried.state == "finished", carried
    assert carried.first_seconds is not None and carried.last_seconds is not None
    return {
        "first": round(carried.first_seconds, 3),
        "last": round(carried.last_seconds, 3),
        "workers": carried.workers,
    }


def _last_took(events: Sequence[Event]) -> float:
    return events[-1].ended - events[-2].ended


def _usual(events: Sequence[Event]) -> float:
    return statistics.median(after.ended - before.ended for before, after in pairwise(events))


def _latencies(job: Job, since: float, asked: float) -> list[list[float]]:
    """When records were due, and how long they took: of each batch the first and the last one."""
    points = []
    for event in job.events():
        if event.ended < since or not event.count:
            continue
        for number in (event.first, event.last):
            due = job.rates.due(number)
            points.append([round(due - asked, 2), round(event.ended - due, 2)])
    return points


# ------------------------------------------------------------------------------------ filter


def filters(size: Size) -> Iterator[Figures]:
    with running(CALM_RATE) as job:
        for number in range(size.rounds):
            introduce = Edit("score-0", "introduce", made.every_fifth(0))
            yield _filtered(job, "introduce", introduce, size.seconds)
            replace = Edit("score-0", "replace", made.every_fifth(1 + number), at=0)
            yield _filtered(job, "replace", replace, size.seconds)
            job.change([Edit("score-0", "remove", at=0)])
            job.until_batches(2)


def _filtered(job: Job, act: str, edit: Edit, seconds: float) -> Figures:
    time.sleep(seconds)
    before = _throughput(job, time.time() - seconds, time.time())
    # a batch that runs is the one after the last that has ended
    running_then, asked = job.events()[-1].batch + 1, time.time()
    changed = job.change([edit])
    delays = _delays(changed)
    everywhere = asked + delays["last"]
    seals = sorted((job.folder / "group" / "batches").glob("*/*.json"))
    begun = [json.loads(path.read_text())["at"] for path in seals]
    batches = sum(1 for at in begun if asked < at <= everywhere)
    job.until_batches(1)
    began = time.time()
    time.sleep(seconds)
    after = _throughput(job, began, time.time())
    whole = _throughput(job, asked - seconds / 2, everywhere + seconds)
    return {
        "part": "filter",
        "act": act,
        **delays,
        "batches": batches,
        "asked_in": running_then,
        "in_before": round(before[0]),
        "in_after": round(after[0]),
        "in_over_it": round(whole[0]),
        "out_before": round(before[1]),
        "out_after": round(after[1]),
        "rates": _rates(job, asked, seconds),
        "load": load(),
    }


def _throughput(job: Job, since: float, until: float) -> tuple[float, float]:
    """Records read and put out a second, from the first batch's end in a time to the last one's."""
    events = [event for event in job.events() if since <= event.ended <= until and event.count]
    took = events[-1].ended - events[0].ended
    read = events[-1].last - events[0].last
    put_out = sum(event.count for event in events[1:])
    return read / took, put_out / took


def _rates(job: Job, asked: float, seconds: float) -> list[list[float]]:
    """Each batch's end, and the rates of what it has read and put out."""
    events = [event for event in job.events() if event.ended > asked - seconds and event.count]
    return [
        [
            round(after.ended - asked, 2),
            round((after.last - before.last) / (after.ended - before.ended)),
            round(after.count / (after.ended - before.ended)),
        ]
        for before, after in pairwise(events)
    ]


# ------------------------------------------------------------------------------------ restart


def restart(size: Size) -> Iterator[Figures]:
    with running(CALM_RATE) as job:
        for _ in range(size.rounds):
            yield _gap(job, "live", lambda: job.change(_replacing(job, 1, 0.0)))
    with running(CALM_RATE, "--bare") as job:
        for _ in range(size.rounds):
            yield _gap(job, "query", lambda: _ask_for_restart(job))
        for _ in range(max(1, size.rounds - 1)):
            yield _gap(job, "application", lambda: _start_again(job))


def _ask_for_restart(job: Job) -> None:
    hidden = job.folder / "restart.tmp"
    hidden.write_text(json.dumps(job.next_k()))
    os.replace(hidden, job.folder / "restart.json")


def _start_again(job: Job) -> None:
    began = time.time()
    job.end()
    print(f"the application has stopped after {time.time() - began:.1f} s", file=sys.stderr)
    job.start("--k", str(job.next_k()))


def _gap(job: Job, way: str, act: Any) -> Figures:
    """How long nothing comes out while a function is replaced, and how late the latest record."""
    before = job.until_batches(6)
    usual, asked, load_then = _usual(before[-6:]), time.time(), load()
    act()
    k = job.last_k
    events = job.until(lambda events: events[-1].ks == {k}, "the new function does not run")
    events = job.until_batches(3)
    around = [event for event in events if event.ended >= asked - 2 * usual - 1.0]
    gaps = [after.ended - before.ended for before, after in pairwise(around)]
    return {
        "part": "restart",
        "way": way,
        "gap": round(max(gaps), 2),
        "usual": round(usual, 2),
        "worst": round(max(job.worst(event) for event in around), 2),
        "until_new": round(next(e.ended for e in events if k in e.ks) - asked, 2),
        "load": load_then,
    }


# ------------------------------------------------------------------------------------ overhead


def overhead(size: Size) -> Iterator[Figures]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    words = [str(HERE / "overhead.py"), str(size.pairs), str(size.batches)]
    ran = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(ran.stderr[-3000:])
    for line in ran.stdout.splitlines():
        if line.startswith("{"):
            yield {"part": "overhead", **json.loads(line), "load": load()}


# ------------------------------------------------------------------------------------ pair


def pair(size: Size) -> Iterator[Figures]:
    with _kafka() as words, running(CALM_RATE, *words) as job:
        for _ in range(2 * size.rounds):
            events = job.until_batches(3)
            time.sleep(0.3)
            k = job.next_k()
            edits = [
                Edit("clean", "replace", made.giving(k)),
                Edit("score", "replace", made.giving(k, 0.0, "m")),
            ]
            changed = job.change(edits)
            job.until(lambda events, k=k: events[-1].ks == {k}, "the new function does not run")
            met = {tuple(row[:2]) for event in job.events() for row in event.rows}
            yield {
                "part": "pair",
                "batch": round(_usual(events[-6:]), 2),
                **_delays(changed),
                "mixed": sum(1 for one, other in met if one != other),
                "load": load(),
            }


@contextmanager
def _kafka() -> Iterator[tuple[str, ...]]:
    """A broker, and the words by which a job finds it."""
    import tempfile
    from pathlib import Path

    sys.path.insert(0, str(ROOT / "scripts" / "servers.d"))
    from servers import Servers, Unavailable, downloads

    with tempfile.TemporaryDirectory(prefix="functions-kafka-") as folder:
        servers = Servers(Path(folder), {})
        try:
            jars = sorted(downloads.jars("kafka-spark-4.3").glob("*.jar"))
            servers.up("kafka")
        except Unavailable as reason:
            print(f"no Kafka: {reason}", file=sys.stderr)
            return
        try:
            address = servers.exports()["STATESHIFT_KAFKA"]
            yield ("--kafka", address, "--jars", ":".join(map(str, jars)))
        finally:
            servers.down("kafka")


PARTS = {
    "surge": surge,
    "calm": calm,
    "filter": filters,
    "restart": restart,
    "overhead": overhead,
    "pair": pair,
}
