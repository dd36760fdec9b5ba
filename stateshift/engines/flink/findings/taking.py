"""What a person should know before savepoints are taken of running jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stateshift.engines.flink.changes import asked_version
from stateshift.engines.flink.findings.versions import of_reading, of_writing
from stateshift.formats.flink.versions import newest_for
from stateshift.specification import JobSpec
from stateshift.survey import ClusterFacts, Facts, Finding

# The clusters that can be asked for savepoints, and for a job's progress since.
ASKABLE = ("flink_rest", "memory")
LISTED_MAX = 8  # jobs that a hint names


def of_taking(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield what is known before savepoints are taken of running jobs."""
    cluster = facts.source_cluster
    if cluster is not None:
        yield from _of_asking(job, cluster)
    written = _version_written(job, cluster)
    if facts.target_cluster is not None and written is not None:
        yield from of_reading(facts.target_cluster, written)
    if cluster is not None:
        theirs = facts.target_cluster.version if facts.target_cluster is not None else None
        yield from of_writing(cluster, theirs or asked_version(job))
    if job.mode == "warm":
        yield Finding(
            "warn",
            "what the job does since its last checkpoint is done again, as after a failure: a sink "
            "that is not transactional gets it twice",
            hint='"mode": "move" ends it with a savepoint, and nothing is done after that',
        )
    elif job.target is not None:
        yield Finding(
            "note",
            "what is copied, and what is rewritten, is planned from the savepoints, once they are "
            "taken",
        )
    yield from _of_stopping(job)


def _of_asking(job: JobSpec, cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield why a cluster cannot take the savepoints."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    if cluster.kind not in ASKABLE:
        yield Finding(
            "refuse",
            f"{cluster.name} ({cluster.kind}) cannot be asked for a savepoint",
            hint='give it "kind": "flink_rest" and its "url"; or take the savepoint yourself, and '
            'name it in "existing_savepoint_paths"',
        )
    elif cluster.state not in ("running", "unknown"):
        what = "no savepoint can be taken" if job.mode != "warm" else "it cannot be followed"
        yield Finding(
            "refuse",
            f"{', '.join(job.flink.job_ids)} on {cluster.name}: {cluster.state}, and {what}",
            hint=f"{_running_there(cluster)}; or name the savepoint it ended with in "
            '"existing_savepoint_paths"',
        )


def _running_there(cluster: ClusterFacts) -> str:
    """Return which jobs could be meant instead."""
    ids: dict[str, None] = {}  # each once, in their order
    for savable in cluster.savable:
        ids.update(dict.fromkeys(savable.listed))
    if not ids:
        return f"no job runs on {cluster.name}"
    return f'jobs that run there, for "job_ids": {_first_of([*ids])}'


def _first_of(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:LISTED_MAX])
    more = len(ids) - LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _version_written(job: JobSpec, cluster: ClusterFacts | None) -> int | None:
    """Return the newest version that the metadata may have: as asked for, or as the cluster writes
    it; None if neither tells.
    """
    asked = newest_for(asked_version(job))
    if asked is not None or cluster is None:
        return asked
    return newest_for(cluster.version)


def _of_stopping(job: JobSpec) -> Iterator[Finding]:
    """Yield what becomes of the old job behind its savepoint."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    if job.flink.cancel_job:
        yield Finding(
            "warn",
            "records that the job reads between its savepoint and its cancellation are done twice, "
            "or lost where its source cannot be read again",
            hint='leave out "cancel_job": the job then ends with its savepoint, and does nothing '
            "after it",
        )
    elif job.flink.cancel_job is False or job.mode == "fork":
        yield Finding(
            "warn",
            "the old job goes on: what it does after its savepoint is not in the new one, and both "
            "write",
            hint='leave out "cancel_job" to stop it with its savepoint',
        )
    if job.stop.get("drain"):
        yield Finding(
            "warn",
            "a drained job fires all its windows and timers, as at the end of all input: it is not "
            "meant to go on",
        )
