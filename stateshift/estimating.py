"""How long a plan may take, reckoned from a short read probe. Outside every fingerprint: rates
drift.
"""

from __future__ import annotations

import math
import time

from stateshift.errors import StorageError
from stateshift.plan import Estimate, Plan
from stateshift.purpose import WHILE_IT_RUNS
from stateshift.step import SubmitJob
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, Rates, Survey

PROBE_FILES = 24
PROBE_BYTES = 32 * 1024 * 1024
PROBE_SECONDS = 0.5
START_SECONDS = 20.0
PREPARED_SECONDS = 5.0  # of a job that is up, and has only its state to load
STOP_SECONDS = 10.0
# A plan assumes this of a restart: everything else of its downtime is reckoned.
RESTART_SECONDS = STOP_SECONDS + START_SECONDS
# The same where the job is prepared while the old one still runs.
PREPARED_RESTART_SECONDS = STOP_SECONDS + PREPARED_SECONDS
ASSUMED = Rates(100e6, 200.0)
ASSUMED_BYTES_PER_SECOND = 200e6
MOVING = ("copy", "transform", "compare", "publish")

# Bytes, and requests, in a second.
Throttle = tuple[float | None, float | None]


def probe(storage: Storage, survey: Survey) -> Rates | None:
    """Read a few small files and some of the largest: the speed of opening, and of bytes."""
    files = sorted(survey.files, key=lambda file: file.size)
    if not files:
        return None
    try:
        # Open some of the files, from the smallest to the largest; how long one took.
        chosen = files[:: max(1, len(files) // PROBE_FILES)][:PROBE_FILES]
        began = time.perf_counter()
        opened = 0
        for file in chosen:
            next(storage.chunks(file.path), b"")
            opened += 1
            if time.perf_counter() - began > PROBE_SECONDS:
                break
        file_seconds = (time.perf_counter() - began) / opened
        size, seconds = _read_some(storage, files[-1].path)
    except StorageError:
        # The survey is a moment old: what vanished since is the plan's business, not ours.
        return None
    # A small file says how fast files open and nothing of bytes: below a megabyte assume a modest
    # disk.
    is_enough = size >= 1 << 20 and seconds > 0
    bytes_per_second = size / seconds if is_enough else ASSUMED_BYTES_PER_SECOND
    return Rates(bytes_per_second, 1 / max(file_seconds, 1e-6))


def _read_some(storage: Storage, path: str) -> tuple[int, float]:
    """Read the beginning of a file; how many bytes, and how long it took."""
    began = time.perf_counter()
    size = 0
    for chunk in storage.chunks(path):
        size += len(chunk)
        if size >= PROBE_BYTES or time.perf_counter() - began > PROBE_SECONDS:
            break
    return size, time.perf_counter() - began


def estimate(
    plan: Plan, facts: Facts, throttle: Throttle = (None, None), left_seconds: float | None = None
) -> Estimate:
    """Return the seconds for the whole plan, and for the part of it in which the job is down: all
    of it, in a plain move; behind rounds, what those may leave (`left_seconds`). The spec's limits
    on bytes and requests hold for reading and writing together.
    """
    known = facts.rates or ASSUMED
    bytes_max, requests_max = throttle
    rates = Rates(
        min(known.bytes_per_second, bytes_max or math.inf),
        min(known.files_per_second, requests_max or math.inf),
    )
    # Files that are copied are read, written and synced; those compared, read on both sides.
    phases = [phase for phase in plan.phases if phase.name in MOVING]
    seconds = 2 * sum(phase.files for phase in phases) / rates.files_per_second
    seconds += 2 * sum(phase.bytes for phase in phases) / rates.bytes_per_second
    if plan.purpose == "move" and left_seconds is not None:
        seconds = min(seconds, left_seconds)
    if plan.purpose == "halt" and plan.phase("halt"):
        seconds += STOP_SECONDS
    starting = 0.0
    if plan.phase("submit") is not None:
        is_prepared = any(isinstance(step, SubmitJob) and step.prepared for step in plan)
        starting = PREPARED_SECONDS if is_prepared else START_SECONDS
    total = round(seconds + starting, 2)
    downtime = 0.0 if plan.purpose in ("start", *WHILE_IT_RUNS) else total
    origin = "" if facts.rates else " (assumed)"
    if rates != known:
        origin = " (throttled)"
    read = f"{byte_rate(rates.bytes_per_second)} and {significant(rates.files_per_second)} files/s"
    basis = f"read at {read}{origin}, writes assumed as fast"
    if starting:
        basis += f", {starting:.0f} s assumed for the job's start"
    return Estimate(total, downtime, basis)


def byte_rate(bytes_per_second: float) -> str:
    """Return `200 MB/s`, `1.5 MB/s`, `50 kB/s`, `10 B/s`: never 0 for what moves at all."""
    if bytes_per_second >= 1e6:
        return f"{significant(bytes_per_second / 1e6)} MB/s"
    if bytes_per_second >= 1e3:
        return f"{significant(bytes_per_second / 1e3)} kB/s"
    return f"{significant(bytes_per_second)} B/s"


def significant(rate: float) -> str:
    """Return a rate with three digits, or with all those before the decimal point."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
