"""Changing how many of a job's vertices run, in place: Flink from 1.18 on, with its adaptive
scheduler.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.values import Job, release_of, wanted_parallelism
from stateshift.clusters.http.rest import through_outages
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError

_SINCE = (1, 18)


def rescale(
    calls: FlinkCalls,
    id: str,
    parallelism: Mapping[str, int],
    seconds_max: float,
    interrupt: threading.Event | None,
) -> None:
    """Rescale a job and wait until as many run as were asked for. Repeating it is safe."""
    version = calls.version()
    if release_of(version) < _SINCE:
        fact = f"Flink {version} cannot change the parallelism of a running job"
        raise _error(
            calls,
            id,
            fact,
            "stop it with a savepoint, and start it from there with another parallelism",
        )
    job = _job(calls, id)
    _refuse_what_does_not_fit(calls, job, parallelism)
    if _is_so(job, parallelism):
        return
    calls.set_parallelism(id, wanted_parallelism(calls.parallelism(id), parallelism))
    look = through_outages(
        lambda: _is_so(_job(calls, id), parallelism) or None, calls.outage_seconds
    )
    if not wait_for(look, seconds_max, interrupt):
        changed = [vertex for vertex in _job(calls, id).vertices if vertex.id in parallelism]
        now = ", ".join(f"{vertex.name} with {vertex.parallelism}" for vertex in changed)
        fact = f"{job.name} runs {now} {seconds_max:g} s after it was asked for more or less"
        hint = (
            "it goes on: are there enough free slots? and Flink rescales no more often than "
            "its cool-down says"
        )
        raise _error(
            calls,
            id,
            fact,
            f"{hint} (jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling)",
        )


def _vertices_of(job: Job) -> str:
    return ", ".join(f"{vertex.id} ({vertex.name})" for vertex in job.vertices)


def _refuse_what_does_not_fit(calls: FlinkCalls, job: Job, parallelism: Mapping[str, int]) -> None:
    vertices = {vertex.id: vertex for vertex in job.vertices}
    if not job.state.alive:
        raise _error(
            calls,
            job.id,
            f"{job.name} is {job.flink_state}",
            "only a job that runs can be rescaled",
        )
    for id, count in parallelism.items():
        if id not in vertices:
            known = f"it has {_vertices_of(job)}"
            raise _error(calls, job.id, f"{job.name} has no vertex {id}", known)
        most = vertices[id].parallelism_max
        if not 1 <= count <= most:
            fact = f"{vertices[id].name} cannot run {count} times: its max parallelism is {most}"
            raise _error(
                calls,
                job.id,
                fact,
                "a higher max parallelism needs a rewritten savepoint: stateshift repartition",
            )


def _is_so(job: Job, parallelism: Mapping[str, int]) -> bool:
    return job.runs and all(
        parallelism.get(v.id, v.parallelism) == v.parallelism for v in job.vertices
    )


def _job(calls: FlinkCalls, id: str) -> Job:
    job = calls.job(id)
    if job is None:
        raise calls.unknown(id)
    return job


def _error(calls: FlinkCalls, id: str, fact: str, hint: str) -> ClusterError:
    return ClusterError(fact, cluster=calls.cluster, job=id, hint=hint)
