"""The origins of jobs: the options with which they were started where they run, asked of their
clusters before they are stopped. A move that fails starts them again with these.

    <workdir>/origins.json    {"orders": {"cluster", "options", "environment", "why"}}: for the
                              owner's eyes alone, since it may hold credentials
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import cast

from stateshift import plain
from stateshift.clusters.protocol import Origin, StopRequest, TellsOrigin
from stateshift.clusters.redaction import redact, redact_words
from stateshift.errors import ClusterError
from stateshift.journal import OriginNoted
from stateshift.migration.cluster_facts import stop_request
from stateshift.migration.context import ORIGINS, RunContext, read_origins
from stateshift.specification import JobSpec


def note_origins(context: RunContext, jobs: Iterable[JobSpec]) -> None:
    """Write down the origins of these jobs. A cluster may not tell: `source_submit` may say it."""
    for job in jobs:
        if job.source_cluster is None or not job.moves:
            continue
        origin = _ask_origin(context, job)
        known = read_origins(context.workdir)
        if origin.options is None and known.get(job.name, {}).get("options") is not None:
            continue  # an earlier attempt of the run has been told more
        context.workdir.write(ORIGINS, {**known, job.name: asdict(origin)})
        line = _without_credentials(origin)
        context.record(OriginNoted(context.now(), job.name, job.source_cluster, line))


def _ask_origin(context: RunContext, job: JobSpec) -> Origin:
    assert job.source_cluster is not None, "a job that runs somewhere"
    cluster = context.world.cluster(job.source_cluster)
    if not hasattr(cluster, "origin"):
        return Origin(why=f"a cluster of kind {cluster.kind} does not tell what a job began with")
    like = job.source_submit or job.submit
    request: StopRequest = stop_request(job)
    try:
        return cast(TellsOrigin, cluster).origin(request, None if like is None else like.options)
    except ClusterError as error:
        return Origin(why=f"{job.source_cluster} did not tell what it began with: {error.fact}")


def _without_credentials(origin: Origin) -> str:
    if origin.options is None:
        return redact(origin.why)
    options: dict[str, object] = dict(origin.options)
    for key, value in options.items():
        if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
            options[key] = redact_words(list(value))
    return redact(plain.canonical(options))
