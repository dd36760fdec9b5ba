"""What clusters say of themselves and of a job before a plan is made. Asks, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from stateshift.clusters.protocol import Cluster, JobState, JobStatus, RunningJob, StopRequest
from stateshift.migration import flink_checks
from stateshift.specification import ClusterSpec, JobSpec
from stateshift.survey import ClusterFacts, Finding

STOPPED = "job-stopped"  # the waiver: somebody has seen that the job does not run
NO_TAG = "stateshift.nobody-has-submitted-this"


def facts_of_target(
    cluster: Cluster, name: str, job: JobSpec, source: Cluster | None
) -> ClusterFacts:
    """Return what the cluster says that the job is to go to."""
    findings = (
        *_findings_of_target(cluster),
        *flink_checks.findings_of_target(cluster, job, source),
    )
    return ClusterFacts(
        name,
        cluster.kind,
        cluster.version(),
        "unknown",
        findings=findings,
        host=cluster.host(job.connection),
        reaches=cluster.reaches(job.destination),
    )


def facts_of_source(cluster: Cluster, spec: ClusterSpec, job: JobSpec) -> ClusterFacts:
    """Return what the cluster says that the job runs on."""
    status = cluster.find_source(_stop_request(job))
    findings = list(_findings_of_source(spec, job, status))
    if status.state is JobState.UNKNOWN and _is_said_to_be_stopped(spec, job):
        status = replace(status, state=JobState.ABSENT)
    if job.mode == "warm" and job.image_writers:
        findings += _findings_of_checkpoints(cluster, job)
    return ClusterFacts(
        spec.name,
        cluster.kind,
        cluster.version(),
        str(status.state),
        status.id,
        tuple(findings),
        savable=flink_checks.savable_jobs(cluster, job),
    )


def _stop_request(job: JobSpec) -> StopRequest:
    options = dict(job.stop)
    if job.ids_on_cluster:
        options["job_ids"] = list(job.ids_on_cluster)
    return StopRequest(job.name, job.source, job.stop.get("tag"), options=options)


def _findings_of_target(cluster: Cluster) -> Iterator[Finding]:
    """Refuse a cluster that knows a job which nobody has submitted: it would never be given
    ours.
    """
    status = cluster.find(NO_TAG)
    if status.state not in (JobState.ABSENT, JobState.UNKNOWN):
        message = f"{cluster.name} says that a job nobody has submitted is {status.state}"
        hint = "its `find` has to answer for the tag it is asked for: $STATESHIFT_TAG"
        yield Finding("refuse", message, hint=hint)


def _cannot_stop_unseen(cluster: ClusterSpec) -> bool:
    """Whether it stops what it sees, and nothing else: people and commands are asked to stop a
    job that is unknown.
    """
    from stateshift.clusters.opening import kind_of

    return not kind_of(cluster).stops_unseen


def _is_said_to_be_stopped(cluster: ClusterSpec, job: JobSpec) -> bool:
    """Whether somebody has looked, and says that the job is stopped."""
    return STOPPED in job.waive and _cannot_stop_unseen(cluster)


def _can_stop(cluster: ClusterSpec) -> bool:
    from stateshift.clusters.opening import kind_of

    return kind_of(cluster).can_stop(cluster.options)


def _findings_of_source(cluster: ClusterSpec, job: JobSpec, status: JobStatus) -> Iterator[Finding]:
    """Refuse a running job that cannot be stopped, before anything is begun; and one that nobody
    sees, which may run all the same, and would be fenced off while it does.
    """
    is_unknown = status.state is JobState.UNKNOWN
    if job.moves and is_unknown and _cannot_stop_unseen(cluster):
        yield _unseen(cluster, job, status)
    elif (status.state.alive or is_unknown) and not _can_stop(cluster):
        yield _unstoppable(cluster, status)


def _unseen(cluster: ClusterSpec, job: JobSpec, status: JobStatus) -> Finding:
    message = f"{cluster.name} cannot tell whether {job.name} runs: {status.detail}"
    hint = (
        'say in `stop` which job it is; or make the source a cluster of kind "command" '
        "that finds and stops it "
        f'(such as `yarn application`); or, where it is stopped, "waive": ["{STOPPED}"]'
    )
    return Finding("refuse", message, STOPPED, hint)


def _unstoppable(cluster: ClusterSpec, status: JobStatus) -> Finding:
    message = f"{cluster.name} has no command to stop the job with, and the job is {status.state}"
    hint = 'give the cluster a "stop" command, or stop the job first'
    return Finding("refuse", message, hint=hint)


def _findings_of_checkpoints(cluster: Cluster, job: JobSpec) -> Iterator[Finding]:
    """Refuse a job that is to end with its last checkpoint, and does not leave it behind."""
    ask: Callable[[str], tuple[RunningJob, ...]] | None = getattr(cluster, "running", None)
    jobs = ask(job.image_writers[0]) if ask is not None else ()
    alive = [running for running in jobs if running.state.alive]
    if any(running.lasting is False for running in alive):
        yield _leaves_no_checkpoint(job)


def _leaves_no_checkpoint(job: JobSpec) -> Finding:
    message = (
        f"the checkpoints of {job.name} are deleted when it is cancelled, and it is to end with one"
    )
    hint = (
        'start it with "execution.checkpointing.externalized-checkpoint-retention": '
        '"RETAIN_ON_CANCELLATION"; or "mode": "move"'
    )
    return Finding("refuse", message, hint=hint)
