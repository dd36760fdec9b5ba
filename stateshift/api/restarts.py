"""How long a restart of a job takes, as our own runs have measured it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from stateshift import migration
from stateshift.errors import StateshiftError
from stateshift.journal import RunFailed, RunResumed, decode_records
from stateshift.report import summarize
from stateshift.workdir import Workdir

# The number of runs of a job that count, as the operator's history.max.count.
RESTARTS_KEPT = 3


def restarts_below(workdirs: str | None) -> dict[str, float]:
    """Return the duration of a restart of each job, by our own runs. A run that failed, or was
    interrupted, tells how long nobody went on with it.
    """
    measured: list[tuple[str, float, float]] = []
    try:
        names = [] if workdirs is None else sorted(os.listdir(workdirs))
    except OSError:  # what runs have taken is not known then
        names = []
    for name in names:
        path = os.path.join(workdirs or "", name)
        if not os.path.exists(os.path.join(path, "journal")):
            continue
        with suppress(StateshiftError):
            workdir = Workdir(path)
            progress = migration.progress_of(workdir)
            records, _ = decode_records(workdir.lines.read())
            if any(isinstance(record, RunFailed | RunResumed) for record in records):
                continue  # it has ended before its time, whatever it has come to since
            for job in summarize(progress).jobs:
                if job.downtime_seconds is not None:
                    measured.append((job.job, progress.began, job.downtime_seconds))
    return restart_times(measured)


def restart_times(measured: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    """Return the longest downtime of the last RESTARTS_KEPT runs of each job, so that one bad night
    is not told for ever. A measure is (job, begin of its run, downtime).
    """
    by_job: dict[str, list[tuple[float, float]]] = {}
    for job, began, seconds in measured:
        by_job.setdefault(job, []).append((began, seconds))
    longest = {}
    for job, times in by_job.items():
        last = sorted(times)[-RESTARTS_KEPT:]
        longest[job] = max(seconds for _, seconds in last)
    return longest
