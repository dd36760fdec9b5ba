"""Specs that are made from the one which feeds a standby. Pure.

spec_at_target  starts the job at its standby. It holds what the target needs and nothing else:
the job where its copy is, and the clusters on which it is started and ran
spec_home       moves the job back from there, to where it was
spec_again      keeps a standby where the job came from, once it is back
"""

from __future__ import annotations

from dataclasses import replace

from stateshift.specification.grammars import NEVER, READY
from stateshift.specification.model import (
    DataSpec,
    JobSpec,
    Spec,
    SubmitSpec,
    TakeBack,
    TakeOver,
)
from stateshift.specification.transform import Reposition


def spec_at_target(spec: Spec, job: JobSpec, fed_by: str) -> Spec:
    """Return the spec that starts the job at its target; the claim is of the first generation."""
    assert job.target is not None, "a standby has a target"
    flink, stop = job.flink, job.stop
    if flink is not None:
        if flink.job_ids and not {"job_id", "job_ids", "job_name"} & stop.keys():
            stop = {**stop, "job_ids": list(flink.job_ids)}
        flink = replace(
            flink,
            job_ids=(),
            new_savepoint=None,
            existing_savepoints=(job.target,),
            from_existing_savepoint=True,
            host=None,
            port=None,
            target_directory=None,
            cancel_job=None,
        )
    changes = [each.at_standby for each in job.transform if isinstance(each, Reposition)]
    kafka = job.kafka
    if kafka is not None and not changes:
        kafka = replace(kafka, source_bootstrap_servers=None, source_properties=None)
    names = (job.target_cluster, job.source_cluster, job.drill_cluster)
    clusters = tuple(cluster for cluster in spec.clusters if cluster.name in names)
    known = [cluster.name for cluster in clusters]
    started = replace(
        JobSpec(job.name, job.target),
        connection=job.connection,
        operators=job.operators,
        transform=tuple(changes),
        target_cluster=job.target_cluster,
        submit=None if job.submit is None else replace(job.submit, prepare=False),
        stop=stop,
        kafka=kafka,
        driver_ui=job.driver_ui,
        driver_ca_file=job.driver_ca_file,
        sources=job.sources,
        sink=job.sink,
        also=job.also,
        waive=job.waive,
        flink=flink,
        drill=job.drill,
        takes_over=TakeOver(
            generation=1,
            fed_by=fed_by,
            primary=job.source,
            cluster=job.source_cluster if job.source_cluster in known else None,
        ),
    )
    return replace(
        Spec(engine=spec.engine, jobs=(started,)),
        clusters=clusters,
        uid_hash=spec.uid_hash,
        on_failure="stop",
    )


def spec_home(spec: Spec, job: JobSpec) -> Spec:
    """Return the spec that moves a job back from its standby, as far as it is known how."""
    moved = _turned(job, job.source_submit or job.submit, job.submit)
    return _of_one_job(spec, replace(moved, takes_back=TakeBack(generation=1)))


def is_startable(home: Spec) -> bool:
    """Whether it is known how a job is started at home, and where it runs until then."""
    job = home.jobs[0]
    return None not in (job.submit, job.target_cluster, job.source_cluster)


def spec_again(spec: Spec, job: JobSpec) -> Spec:
    """Return the spec that keeps a standby where a job came from that has gone home. One of Flink
    is kept in a new place beside that.
    """
    assert job.takes_back is not None, "a job that goes home"
    kept = replace(_turned(job, job.source_submit, job.submit), cutover=NEVER, takes_back=None)
    if job.flink is not None:
        kept = replace(kept, target=f"{job.source.rstrip('/')}-{job.takes_back.generation}")
    return _of_one_job(spec, kept)


def _turned(job: JobSpec, submit: SubmitSpec | None, source_submit: SubmitSpec | None) -> JobSpec:
    """Return the job that moves the other way, while it runs."""
    assert job.target is not None, "a job that moves"
    stop = job.stop
    changes = [each.turned for each in job.transform if isinstance(each, Reposition)]
    if job.source_cluster != job.target_cluster:
        stop = {key: value for key, value in stop.items() if key == "seconds_max"}
    return replace(
        job,
        source=job.target,
        target=job.source,
        connection=None,
        transform=tuple(changes),
        source_cluster=job.target_cluster,
        target_cluster=job.source_cluster,
        submit=_unprepared(submit),
        source_submit=_unprepared(source_submit),
        stop={key: value for key, value in stop.items() if key != "tag"},
        data=tuple(DataSpec(data.target, data.source, data.copy) for data in job.data),
        kafka=None if job.kafka is None else job.kafka.turned,
        driver_ui=None,
        was_at=None,
        set_aside=job.flink is None,
        flink=None if job.flink is None else job.flink.followed,
        mode="warm",
        rounds=None,
        cutover=READY,
    )


def _unprepared(submit: SubmitSpec | None) -> SubmitSpec | None:
    return None if submit is None else replace(submit, prepare=False)


def _of_one_job(spec: Spec, job: JobSpec) -> Spec:
    names = (job.target_cluster, job.source_cluster, job.drill_cluster)
    clusters = tuple(cluster for cluster in spec.clusters if cluster.name in names)
    return replace(Spec(engine=spec.engine, jobs=(job,)), clusters=clusters, uid_hash=spec.uid_hash)


def places_fed(job: JobSpec) -> tuple[str, ...]:
    """Return the places that the rounds of a standby write to; none of any other job."""
    if not job.is_standby:
        return ()
    return (job.destination, *(data.target for data in job.data if data.copy))
