"""The questions to clusters about Flink's jobs before a plan is made: what keeps a run from
succeeding, once it has begun.

    ask_source  which jobs run there, whether each can write the savepoint that is asked for, or
                leaves its last checkpoint behind
    ask_target  is the jar there, and are there slots for the parallelism, with those that the
                source will give back?

A cluster that is asked through other words than Flink's has none of these questions, and is not
asked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol, cast

from stateshift.clusters.protocol import Cluster, JobState, RunningJob, Slots
from stateshift.errors import ClusterError
from stateshift.specification import JobSpec
from stateshift.survey import ClusterFacts, Finding, Savable

SLOTS = "free-slots"


class AsksFlink(Protocol):
    """The questions that `flink_rest` answers beside those of every cluster that writes
    savepoints.
    """

    def running(self, job_id: str) -> tuple[RunningJob, ...]: ...

    def alive(self) -> tuple[RunningJob, ...]: ...

    def no_canonical(self, job_id: str) -> str | None: ...

    def slots(self) -> Slots | None: ...

    def jars(self) -> dict[str, str] | None: ...

    def job_settings(self, job_id: str) -> dict[str, str]: ...

    def given_settings(self) -> dict[str, str]: ...


def ask_source(cluster: Cluster, job: JobSpec, known: ClusterFacts) -> ClusterFacts:
    """Return the facts of a job's cluster, with the jobs that savepoints are to be taken of: each
    job, and the reason for which its savepoint would not be a canonical one.
    """
    known = replace(known, settings=_settings_of(cluster, job))
    if not job.image_writers or not _tells(cluster, "running"):
        return known
    findings = _of_checkpoints(cluster, job) if job.mode == "warm" else ()
    return replace(
        known,
        findings=(*known.findings, *findings),
        savable=tuple(_savable(cluster, id) for id in job.image_writers),
    )


def _settings_of(cluster: Cluster, job: JobSpec) -> dict[str, str]:
    """Return the settings that a job runs under, or ran under until it was stopped; none of several
    jobs, which may differ.
    """
    if len(job.ids_on_cluster) != 1 or not _tells(cluster, "job_settings"):
        return {}
    running = cast(AsksFlink, cluster).running(job.ids_on_cluster[0])
    return cast(AsksFlink, cluster).job_settings(running[-1].id) if running else {}


def _of_checkpoints(cluster: Cluster, job: JobSpec) -> tuple[Finding, ...]:
    """Refuse a job that is to end with its last checkpoint, and does not leave it behind."""
    alive = _alive(cluster, job.image_writers[0])
    if any(running.lasting is False for running in alive):
        return (_leaves_no_checkpoint(job),)
    return ()


def _leaves_no_checkpoint(job: JobSpec) -> Finding:
    message = (
        f"the checkpoints of {job.name} are deleted when it is cancelled, and it is to end with one"
    )
    hint = (
        'start it with "execution.checkpointing.externalized-checkpoint-retention": '
        '"RETAIN_ON_CANCELLATION"; or "mode": "move"'
    )
    return Finding("refuse", message, hint=hint)


def _savable(cluster: Cluster, id: str) -> Savable:
    alive = _alive(cluster, id)
    if not alive:
        return Savable(id, listed=_listed(cluster))
    job = alive[0]
    backend = str(job.settings.get("state_backend") or "") or None
    # None where it is, or nobody knows.
    if not _tells(cluster, "no_canonical"):
        why = None
    else:
        why = cast(AsksFlink, cluster).no_canonical(job.id)
    widths = {name: (parallelism, most) for name, parallelism, most in job.vertices.values()}
    return Savable(id, job.name, backend, why, widths)


def _alive(cluster: Cluster, id: str) -> list[RunningJob]:
    """Return the jobs of this id, or of this name, that have not ended."""
    return [job for job in cast(AsksFlink, cluster).running(id) if job.state.alive]


def _listed(cluster: Cluster) -> tuple[str, ...]:
    """Return the jobs that run there, for a person who has named another."""
    jobs = cast(AsksFlink, cluster).alive() if _tells(cluster, "alive") else ()
    return tuple(f"{job.id} ({job.name})" for job in jobs)


def ask_target(
    cluster: Cluster, job: JobSpec, known: ClusterFacts, source: Cluster | None
) -> ClusterFacts:
    """Return the facts of a cluster, with the obstacles to submitting the job there now. Whatever
    cannot be asked shows when it is submitted.
    """
    if job.submit is None or job.flink is None:
        return known
    try:
        findings = (*_of_jar(cluster, job), *_of_slots(cluster, job, source))
    except ClusterError:
        return known
    given = cast(AsksFlink, cluster).given_settings() if _tells(cluster, "given_settings") else {}
    return replace(known, findings=(*known.findings, *findings), settings=given)


def _of_jar(cluster: Cluster, job: JobSpec) -> tuple[Finding, ...]:
    assert job.submit is not None, "only a job that is to be started"
    id = job.submit.options.get("jar_id")
    jars = None if id is None else _jars_of(cluster)
    if jars is None or str(id) in jars:
        return ()
    return (_no_jar(cluster, str(id), jars),)


def _jars_of(cluster: Cluster) -> Collection[str] | None:
    """Return the jars that were uploaded to a cluster; None where it does not say."""
    if not _tells(cluster, "jars"):
        return None
    return cast(AsksFlink, cluster).jars()


def _no_jar(cluster: Cluster, id: str, jars: Collection[str]) -> Finding:
    names = ", ".join(sorted(jars)) or "none"
    message = f"{cluster.name} has no jar {id!r}"
    hint = f'jars there: {names}; or "jar" names a file here, which is uploaded'
    return Finding("refuse", message, hint=hint)


def _of_slots(cluster: Cluster, job: JobSpec, source: Cluster | None) -> tuple[Finding, ...]:
    assert job.submit is not None, "only a job that is to be started"
    wanted = job.submit.options.get("parallelism")
    if not isinstance(wanted, int) or not _tells(cluster, "slots"):
        return ()
    slots = cast(AsksFlink, cluster).slots()
    if slots is None or slots.on_demand:
        return ()
    free = slots.free
    if source is not None and _is_same(source, cluster):
        free += _slots_given_back(job, source)
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
        f'enough by then, "waive": ["{SLOTS}"]'
    )
    return (Finding("refuse", message, SLOTS, hint),)


def _slots_given_back(job: JobSpec, source: Cluster) -> int:
    """Return the slots of the jobs that end with their savepoints."""
    assert job.flink is not None, "a spec that is checked"
    is_ended = job.moves and job.flink.cancel_job is not False
    if not is_ended or not _tells(source, "running"):
        return 0
    slots = 0
    for id in job.image_writers:
        slots += sum(map(_slots_of, cast(AsksFlink, source).running(id)))
    return slots


def _slots_of(job: RunningJob) -> int:
    """Return as many slots as a job's widest vertex has subtasks; none if it does not run."""
    if job.state is not JobState.RUNNING:
        return 0
    return max((count for _, count, _ in job.vertices.values()), default=0)


def _is_same(one: Cluster, other: Cluster) -> bool:
    url = _url(one)
    return one.name == other.name or (url != "" and url == _url(other))


def _url(cluster: Cluster) -> str:
    return str(getattr(cluster, "options", {}).get("url", "")).rstrip("/")


def _tells(cluster: Cluster, question: str) -> bool:
    return callable(getattr(cluster, question, None))
