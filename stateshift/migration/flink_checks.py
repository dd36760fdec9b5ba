"""What clusters are asked of Flink's jobs before a plan is made: what keeps a run from succeeding,
once it has begun.

    the source  which jobs run there, whether each can write the savepoint that is asked for, and
                how many slots it
                will give back
    the target  is the jar there, and are there slots for the parallelism?

A cluster that is asked through other words than Flink's has none of these questions, and is not
asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from stateshift.clusters.protocol import Cluster, JobState, RunningJob, Slots
from stateshift.errors import ClusterError
from stateshift.specification import JobSpec
from stateshift.survey import Finding, Savable

SLOTS = "free-slots"


class AsksFlink(Protocol):
    """What `flink_rest` tells beside what every cluster that writes savepoints does."""

    def alive(self) -> tuple[RunningJob, ...]: ...

    def no_canonical(self, job_id: str) -> str | None: ...

    def slots(self) -> Slots | None: ...

    def jars(self) -> dict[str, str] | None: ...


def savable_jobs(cluster: Cluster, job: JobSpec) -> tuple[Savable, ...]:
    """Of each job that a savepoint is to be taken of: what it is, and why it would not be a
    canonical one.
    """
    if job.flink is None or not job.takes_savepoints or not _tells(cluster, "running"):
        return ()
    return tuple(_savable(cluster, id) for id in job.flink.job_ids)


def _savable(cluster: Cluster, id: str) -> Savable:
    running: Callable[[str], tuple[RunningJob, ...]] = cast(Any, cluster).running
    found = [one for one in running(id) if one.state.alive]
    if not found:
        return Savable(id, listed=_listed(cluster))
    one = found[0]
    widths = {name: (parallelism, most) for name, parallelism, most in one.vertices.values()}
    why = cast(AsksFlink, cluster).no_canonical(one.id) if _tells(cluster, "no_canonical") else None
    return Savable(id, one.name, str(one.settings.get("state_backend") or "") or None, why, widths)


def _listed(cluster: Cluster) -> tuple[str, ...]:
    """Which jobs run there, for a person who has named another."""
    jobs = cast(AsksFlink, cluster).alive() if _tells(cluster, "alive") else ()
    return tuple(f"{one.id} ({one.name})" for one in jobs)


def findings_of_target(
    cluster: Cluster, job: JobSpec, source: Cluster | None
) -> tuple[Finding, ...]:
    """Whether the job could be submitted there now. Whatever cannot be asked is found out when
    it is submitted.
    """
    if job.submit is None or job.flink is None:
        return ()
    try:
        return (*_of_jar(cluster, job), *_of_slots(cluster, job, source))
    except ClusterError:
        return ()


def _of_jar(cluster: Cluster, job: JobSpec) -> tuple[Finding, ...]:
    assert job.submit is not None, "only a job that is to be started"
    id = job.submit.options.get("jar_id")
    there = cast(AsksFlink, cluster).jars() if id is not None and _tells(cluster, "jars") else None
    if there is None or str(id) in there:
        return ()
    names = ", ".join(sorted(there)) or "none"
    message = f"{cluster.name} has no jar {str(id)!r}"
    return (
        Finding(
            "refuse",
            message,
            hint=f'jars there: {names}; or "jar" names a file here, which is uploaded',
        ),
    )


def _of_slots(cluster: Cluster, job: JobSpec, source: Cluster | None) -> tuple[Finding, ...]:
    assert job.submit is not None, "only a job that is to be started"
    wanted = job.submit.options.get("parallelism")
    if not isinstance(wanted, int) or not _tells(cluster, "slots"):
        return ()
    slots = cast(AsksFlink, cluster).slots()
    if slots is None or slots.on_demand:
        return ()
    given_back = _given_back(job, source) if source is not None and _is_same(source, cluster) else 0
    free = slots.free + given_back
    if wanted <= free:
        return ()
    message = (
        f"{job.name} is to run with parallelism {wanted}, and {cluster.name} has {free} free "
        f"slots of {slots.all}"
    )
    if slots.adaptive and free > 0:
        return (Finding("warn", f"{message}: its adaptive scheduler starts it with fewer"),)
    hint = (
        f'a "parallelism" up to {free}, or more TaskManagers; or, where there will be '
        'enough by then, "waive": '
        f'["{SLOTS}"]'
    )
    return (Finding("refuse", message, SLOTS, hint),)


def _given_back(job: JobSpec, source: Cluster) -> int:
    """The slots of the jobs that end with their savepoints: as many as their widest vertex has
    subtasks.
    """
    assert job.flink is not None, "a spec that is checked"
    ends = job.moves and job.flink.cancel_job is not False and job.takes_savepoints
    if not ends or not _tells(source, "running"):
        return 0
    running: Callable[[str], tuple[RunningJob, ...]] = cast(Any, source).running
    found = [one for id in job.flink.job_ids for one in running(id)]
    alive = [one for one in found if one.state is JobState.RUNNING]
    return sum(max((count for _, count, _ in one.vertices.values()), default=0) for one in alive)


def _is_same(one: Cluster, other: Cluster) -> bool:
    urls = [
        str(getattr(cluster, "options", {}).get("url", "")).rstrip("/") for cluster in (one, other)
    ]
    return one.name == other.name or (urls[0] == urls[1] != "")


def _tells(cluster: Cluster, question: str) -> bool:
    return callable(getattr(cluster, question, None))
