"""The spec by which a job is started from its standby, made from the spec that feeds it. Pure.

It holds what the target needs and nothing else: the job where its copy is, and the clusters on
which it is started and on which it ran.
"""

from __future__ import annotations

from dataclasses import replace

from stateshift.specification.model import JobSpec, Spec, TakeOver


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
    kafka = job.kafka
    if kafka is not None:
        kafka = replace(kafka, source_bootstrap_servers=None, source_properties=None)
    names = (job.target_cluster, job.source_cluster, job.drill_cluster)
    clusters = tuple(cluster for cluster in spec.clusters if cluster.name in names)
    known = [cluster.name for cluster in clusters]
    started = replace(
        JobSpec(job.name, job.target),
        connection=job.connection,
        operators=job.operators,
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


def places_fed(job: JobSpec) -> tuple[str, ...]:
    """Return the places that the rounds of a standby write to; none of any other job."""
    if not job.is_standby:
        return ()
    return (job.destination, *(data.target for data in job.data if data.copy))
