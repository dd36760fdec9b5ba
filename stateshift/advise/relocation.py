"""Where a job of a spec runs by now: at its source or, once `apply` has moved it, at its target.

    Flink   on its target cluster, if its source cluster has no such job, or does not answer
    Spark   in its target's checkpoint, if the source is fenced, is not there, or has been
            standing still while the target went on

A fork leaves its source where it is: nobody looks for that elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateshift.advise.metrics.spark import Checkpoint
from stateshift.engines.spark.layout import number_of_log
from stateshift.errors import ClusterError
from stateshift.formats.marks import fence_owner
from stateshift.specification.model import JobSpec
from stateshift.survey import FileInfo

# What to do where a job is found at neither end.
ASK_FLINK = "name the Flink where it runs, stateshift advise URL, or start it"
ASK_CHECKPOINT = "name the checkpoint that it writes to now: stateshift advise LOCATION"


def target_of(job: JobSpec) -> str | None:
    """Return where `apply` brings the checkpoint of a job; None where it leaves one behind that is
    the job's own.
    """
    if not job.moves or job.target == job.source:
        return None
    return job.target


def target_cluster_of(job: JobSpec) -> str | None:
    """Return the cluster that `apply` moves a job to, where that is another one."""
    if not job.moves or job.target_cluster == job.source_cluster:
        return None
    return job.target_cluster


def on_neither(job: str, source: ClusterError, target: ClusterError) -> ClusterError:
    """Return that a job of Flink was found on neither of its clusters."""
    fact = f"it runs neither at its source ({source.fact}) nor at its target ({target.fact})"
    return ClusterError(f"{fact}: {ASK_FLINK}", job=job)


def fenced_by(queries: Sequence[Checkpoint]) -> str | None:
    """Return the run that has moved the queries of a checkpoint away, by the fence that it has left
    there; None where there is none.

    Raises:
        StorageError: the checkpoint cannot be read.
    """
    for query in queries:
        for file in (_newest(query, "offsets"), _newest(query, "commits")):
            owner = None if file is None else fence_owner(query.storage.read(file.path))
            if owner is not None:
                return owner
    return None


def is_left_behind(
    queries: Sequence[Checkpoint], targets: Sequence[Checkpoint], now: float, seconds_max: float
) -> bool:
    """Whether queries stand still, and their targets have gone on: each has later batches. A copied
    commit is no later batch.
    """
    last = _last_commits(queries)
    further = _last_commits(targets)
    if not last or set(last) != set(further):
        return False
    if any(now - file.modified < seconds_max for file in last.values()):
        return False
    return all(
        number_of_log(further[prefix].path) > number_of_log(last[prefix].path) for prefix in last
    )


def _last_commits(queries: Sequence[Checkpoint]) -> dict[str, FileInfo]:
    commits: dict[str, FileInfo] = {}
    for query in queries:
        newest = _newest(query, "commits")
        if newest is not None:
            commits[query.prefix] = newest
    return commits


def _newest(query: Checkpoint, folder: str) -> FileInfo | None:
    """Return the last log of a folder."""
    files = [
        file for file in query.storage.list(query.path(folder)) if number_of_log(file.path) >= 0
    ]
    return max(files, key=lambda file: number_of_log(file.path), default=None)
