"""The work of earlier runs, by the files that they left: where jobs are, what is not finished, what
a decision has to remember, and which moves are not tried again in vain.

    begun and no more     nothing was done: the move is as if it had not been
    finished              its jobs are where it brought them
    taken back            they are where they were; it is not repeated for a while, or until its
                          spec is another
    anything else         it is not finished, and comes before all others

    FOLDER/refused/0007.json    {"jobs", "target", "spec", "fact", "at", "lasting"}: a failed move

One that failed for its spec's reasons (a program that refuses its arguments, a class that is not
there) is not tried again, to any cluster, until the spec of its jobs is another. One that an outage
has ended is not tried again to that cluster until the cool-down is over.

Our own runs have measured, too, how long a restart of a job takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from stateshift import migration, plain
from stateshift.advise.rebalance.decision import JobMove
from stateshift.advise.rebalance.memory import Memory
from stateshift.api.rebalancing.folder import MoveRecord, RebalanceFolder
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.clusters.protocol import Silent
from stateshift.errors import Interrupted, JournalError, PolicyError, StateshiftError, StorageError
from stateshift.journal import RunFailed, RunResumed, decode_records
from stateshift.report import summarize
from stateshift.specification import Spec, to_plain_spec
from stateshift.workdir import Workdir

# Another attempt may meet another world.
_PASSING = (Silent, StorageError)
_UNTOLD = (Interrupted, JournalError, PolicyError)  # another hour may be another matter


@dataclass(frozen=True, slots=True)
class JobPlace:
    """The place of a job: its image is at `image`, by the move of that number; both are None for
    where the spec has it. `parallelism` is what we have scaled it to.
    """

    cluster: str
    image: str | None = None
    number: int | None = None
    at: float | None = None
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """The moves of earlier runs, by how far they have come."""

    finished: tuple[MoveRecord, ...] = ()
    taken_back: tuple[MoveRecord, ...] = ()
    unfinished: tuple[MoveRecord, ...] = ()

    @property
    def places(self) -> dict[str, JobPlace]:
        """Return the place of each job that was moved."""
        places: dict[str, JobPlace] = {}
        for move in self.finished:
            for job in move.jobs:
                before = places.get(job)
                image = move.images.get(job) or (before.image if before else None)
                scaled = move.parallelism.get(job) or (before.parallelism if before else None)
                places[job] = JobPlace(move.target, image, move.number, move.at, scaled)
        return places

    @property
    def last(self) -> int:
        """Return the number of the last move that is over."""
        return max((move.number for move in (*self.finished, *self.taken_back)), default=0)


def past_of(folder: RebalanceFolder) -> Past:
    """Return the moves of earlier runs.

    Raises:
        JournalError: a move, or its journal, cannot be read.
    """
    finished, taken_back, unfinished = list[MoveRecord](), list[MoveRecord](), list[MoveRecord]()
    for move in folder.moves():
        workdir = folder.workdir(move.number, move.jobs)
        match migration.progress_of(workdir).state if workdir.exists else "new":
            case "new":
                continue  # nothing was done
            case "finished":
                finished.append(move)
            case "rolled-back":
                taken_back.append(move)
            case _:
                unfinished.append(move)
    return Past(tuple(finished), tuple(taken_back), tuple(unfinished))


def memory_of(folder: RebalanceFolder, past: Past) -> Memory:
    """Return the memory for the next decision. Clusters are counted from zero again after a move; a
    move that was taken back has brought nothing. One that has failed is not judged here
    (`reason_against`).
    """
    kept = folder.memory()
    failed = {int(path.stem) for path in (folder.path / "refused").glob("[0-9]*.json")}
    unjudged = [move.moved for move in past.finished if move.number > kept.judged]
    given_up = [move for move in past.taken_back if move.number not in failed]
    acted = any(move.decision == kept.decision for move in past.finished)
    return Memory(
        counts={} if acted else kept.counts,
        counted={} if acted else kept.counted,
        moves=tuple(unjudged),
        failed=(
            *kept.failed,
            *(move.moved for move in given_up if move.number > kept.judged),
        ),
    )


# ---- moves that have failed


@dataclass(frozen=True, slots=True)
class FailedMove:
    """A move that has failed; `spec` is the fingerprint of what the spec said of its jobs."""

    jobs: tuple[str, ...]
    target: str
    spec: str
    fact: str
    at: float
    lasting: bool


def remember_failure(
    folder: RebalanceFolder,
    request: RebalanceRequest,
    move: MoveRecord,
    error: StateshiftError,
    now: float,
) -> None:
    """Write down that a move has failed, unless somebody has ended it."""
    if isinstance(error, _UNTOLD):
        return
    lasting = not isinstance(error, _PASSING)
    spec = _fingerprint(request.spec, move.jobs)
    refused = FailedMove(move.jobs, move.target, spec, error.fact, now, lasting)
    Workdir(folder.path).write(f"refused/{move.number:04}.json", plain.to_plain(refused))


def reason_against(
    folder: RebalanceFolder, request: RebalanceRequest, move: JobMove, now: float
) -> str | None:
    """Return the reason why a move is not tried now; None if there is none."""
    spec = _fingerprint(request.spec, move.jobs)
    for path in sorted((folder.path / "refused").glob("[0-9]*.json"), reverse=True):
        failed: FailedMove | None = None
        with suppress(JournalError, plain.Misfit):
            written = Workdir(folder.path).read(f"refused/{path.name}")
            failed = plain.from_plain(FailedMove, written)
        if failed is None or failed.jobs != move.jobs:
            continue
        if failed.lasting and failed.spec == spec:
            return f"its last move failed, and its spec is the same: {failed.fact}"
        is_recent = now - failed.at < request.section.cool_down
        if not failed.lasting and failed.target == move.target and is_recent:
            return f"its last move there failed, and the cool-down is not over: {failed.fact}"
    return None


def _fingerprint(spec: Spec, jobs: tuple[str, ...]) -> str:
    """Return a short name for all that a spec says of these jobs, and of the clusters."""
    named = tuple(job for job in spec.jobs if job.name in jobs)
    written = to_plain_spec(replace(spec, jobs=named or spec.jobs, waves=(), dataflow=None))
    return plain.fingerprint([written.get("jobs"), written.get("clusters")])


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
