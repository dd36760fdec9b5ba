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

from dataclasses import replace
from typing import Protocol, cast

from stateshift.clusters.protocol import Cluster, JobState, RunningJob, Slots
from stateshift.errors import ClusterError
from stateshift.specification import JobSpec
from stateshift.survey import ClusterFacts, Finding, Savable, refuse, warn

SLOTS = "free-slots"


class AsksFlink(Protocol):
    """The questions that `flink_rest` answers beside those of each such cluster."""

    def running(self, job_id: str) -> tuple[RunningJob, ...]: ...

    def alive(self) -> tuple[RunningJob, ...]: ...

    def no_canonical(self, job_id: str) -> str | None: ...

    def slots(self) -> Slots | None: ...

    def jars(self) -> dict[str, str] | None: ...

    def job_settings(self, job_id: str) -> dict[str, str]: ...

    def given_settings(self) -> dict[str, str]: ...


def ask_source(cluster: Cluster, job: JobSpec, known: ClusterFacts) -> ClusterFacts:
    """Return a cluster's facts, and each job for a savepoint, with why none canonical."""
    asks = cast(AsksFlink, cluster)
    settings: dict[str, str] = {}
    # Those that the job runs under, or ran under until it was stopped. Several jobs may differ.
    if len(job.ids_on_cluster) == 1 and _tells(cluster, "job_settings"):
        running = asks.running(job.ids_on_cluster[0])
        settings = asks.job_settings(running[-1].id) if running else {}
    known = replace(known, settings=settings)
    if not job.image_writers or not _tells(cluster, "running"):
        return known
    findings = known.findings
    alive = _alive(cluster, job.image_writers[0]) if job.mode == "warm" else []
    if any(running.lasting is False for running in alive):
        refusal = refuse(
            f"the checkpoints of {job.name} are deleted when it is cancelled, and it is to end "
            "with one",
            hint='start it with "execution.checkpointing.externalized-checkpoint-retention": '
            '"RETAIN_ON_CANCELLATION"; or "mode": "move"',
        )
        findings = (*findings, refusal)
    savable = tuple(_savable(cluster, id) for id in job.image_writers)
    return replace(known, findings=findings, savable=savable)


def _savable(cluster: Cluster, id: str) -> Savable:
    asks, alive = cast(AsksFlink, cluster), _alive(cluster, id)
    if not alive:
        others = asks.alive() if _tells(cluster, "alive") else ()
        return Savable(id, listed=tuple(f"{other.id} ({other.name})" for other in others))
    job = alive[0]
    backend = str(job.settings.get("state_backend") or "") or None
    why = asks.no_canonical(job.id) if _tells(cluster, "no_canonical") else None
    widths = {name: (parallelism, most) for name, parallelism, most in job.vertices.values()}
    return Savable(id, job.name, backend, why, widths)


def _alive(cluster: Cluster, id: str) -> list[RunningJob]:
    return [job for job in cast(AsksFlink, cluster).running(id) if job.state.alive]


def ask_target(
    cluster: Cluster, job: JobSpec, known: ClusterFacts, source: Cluster | None
) -> ClusterFacts:
    """Return a cluster's facts with the obstacles to a submission now, as far as it says them."""
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
    if id is None or not _tells(cluster, "jars"):
        return ()
    jars = cast(AsksFlink, cluster).jars()
    if jars is None or str(id) in jars:
        return ()
    names = ", ".join(sorted(jars)) or "none"
    hint = f'jars there: {names}; or "jar" names a file here, which is uploaded'
    return (refuse(f"{cluster.name} has no jar {str(id)!r}", hint=hint),)


def _of_slots(cluster: Cluster, job: JobSpec, source: Cluster | None) -> tuple[Finding, ...]:
    assert job.submit is not None, "only a job that is to be started"
    wanted = job.submit.options.get("parallelism")
    if not isinstance(wanted, int) or not _tells(cluster, "slots"):
        return ()
    slots = cast(AsksFlink, cluster).slots()
    if slots is None or slots.on_demand:
        return ()
    free = slots.free
    if source is not None:
        url = _url(source)
        has_same_url = url != "" and url == _url(cluster)
        if source.name == cluster.name or has_same_url:
            free += _slots_given_back(job, source)
    if wanted <= free:
        return ()
    message = (
        f"{job.name} is to run with parallelism {wanted}, and {cluster.name} has {free} free "
        f"slots of {slots.all}"
    )
    if slots.adaptive and free > 0:
        return (warn(f"{message}: its adaptive scheduler starts it with fewer"),)
    hint = (
        f'a "parallelism" up to {free}, or more TaskManagers; or, where there will be '
        f'enough by then, "waive": ["{SLOTS}"]'
    )
    return (refuse(message, SLOTS, hint),)


def _slots_given_back(job: JobSpec, source: Cluster) -> int:
    assert job.flink is not None, "a spec that is checked"
    is_ended = job.moves and job.flink.cancel_job is not False
    if not is_ended or not _tells(source, "running"):
        return 0
    slots = 0
    for id in job.image_writers:
        for running in cast(AsksFlink, source).running(id):
            if running.state is JobState.RUNNING:
                # A job has as many slots as its widest vertex has subtasks.
                slots += max((count for _, count, _ in running.vertices.values()), default=0)
    return slots


def _url(cluster: Cluster) -> str:
    return str(getattr(cluster, "options", {}).get("url", "")).rstrip("/")


def _tells(cluster: Cluster, question: str) -> bool:
    return callable(getattr(cluster, question, None))
