"""How long a plan may take, reckoned from a short read probe. Outside every fingerprint: rates
drift.
"""

from __future__ import annotations

import time

from stateshift.errors import StorageError
from stateshift.plan import Estimate, Plan
from stateshift.step import SubmitJob
from stateshift.storage.protocol import Storage
from stateshift.survey import Facts, Rates, Survey

PROBE_FILES = 24
PROBE_BYTES = 32 * 1024 * 1024
PROBE_SECONDS = 0.5
START_SECONDS = 20.0
PREPARED_SECONDS = 5.0  # of a job that is up, and has only its state to load

# Bytes, and requests, in a second.
Throttle = tuple[float | None, float | None]


def probe(storage: Storage, survey: Survey) -> Rates | None:
    """Read a few small files and some of the largest: how fast files open, and how fast bytes
    come.
    """
    files = sorted(survey.files, key=lambda file: file.size)
    if not files:
        return None
    began, opened = time.perf_counter(), 0
    try:
        for file in files[:: max(1, len(files) // PROBE_FILES)][:PROBE_FILES]:
            next(storage.chunks(file.path), b"")
            opened += 1
            if time.perf_counter() - began > PROBE_SECONDS:
                break
        per_file = (time.perf_counter() - began) / opened
        began, read = time.perf_counter(), 0
        for chunk in storage.chunks(files[-1].path):
            read += len(chunk)
            if read >= PROBE_BYTES or time.perf_counter() - began > PROBE_SECONDS:
                break
        seconds = time.perf_counter() - began
    except StorageError:
        # the survey is a moment old: what vanished since is the plan's business, not the estimate's
        return None
    # A small file tells how fast files open and nothing of bytes: below a megabyte assume a modest
    # disk.
    return Rates(
        read / seconds if read >= 1 << 20 and seconds > 0 else 200e6, 1 / max(per_file, 1e-6)
    )


def estimated(
    plan: Plan, facts: Facts, throttle: Throttle = (None, None), left_seconds: float | None = None
) -> Estimate:
    """Seconds for the whole plan, and for the part of it in which the job is down: all of it, in a
    plain move; behind rounds, what those may leave (`left_seconds`). The spec's limits on bytes and
    requests hold for reading and writing together.
    """
    measured = facts.rates or Rates(100e6, 200.0)
    bytes_max, requests_max = throttle
    rates = Rates(
        min(measured.bytes_per_second, bytes_max or measured.bytes_per_second),
        min(measured.files_per_second, requests_max or measured.files_per_second),
    )
    held = rates != measured
    moved = [p for p in plan.phases if p.name in ("copy", "transform", "compare", "publish")]
    # What is copied is read, written and synced; what is compared is read on both sides.
    files, size = sum(phase.files for phase in moved), sum(phase.bytes for phase in moved)
    seconds = 2 * files / rates.files_per_second + 2 * size / rates.bytes_per_second
    if plan.purpose == "move" and left_seconds is not None:
        seconds = min(seconds, left_seconds)
    early = any(isinstance(step, SubmitJob) and step.prepared for step in plan)
    starting = (PREPARED_SECONDS if early else START_SECONDS) if plan.phase("submit") else 0.0
    stopping = float(START_SECONDS / 2) if plan.phase("halt") and plan.purpose == "halt" else 0.0
    basis = (
        f"read at {byte_rate(rates.bytes_per_second)} and {significant(rates.files_per_second)} files/s"
        f"{' (throttled)' if held else '' if facts.rates else ' (assumed)'}, writes assumed as fast"
        + (f", {starting:.0f} s assumed for the job's start" if starting else "")
    )
    total = round(seconds + starting + stopping, 2)
    return Estimate(total, 0.0 if plan.purpose in ("start", "warm") else total, basis)


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
