"""What clusters say of themselves and of a job before a plan is made. Asks, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stateshift.clusters.protocol import Cluster, JobState, JobStatus, StopRequest
from stateshift.engines.protocol import Engine
from stateshift.specification import ClusterSpec, JobSpec
from stateshift.survey import ClusterFacts, Finding

STOPPED = "job-stopped"  # the waiver: somebody has seen that the job does not run
# Kinds of clusters that run a program, and cannot try one.
ARGUMENTS_UNTRIED = ("command", "livy", "spark_standalone", "spark_submit")
NO_TAG = "stateshift.nobody-has-submitted-this"


def facts_of_target(
    engine: Engine, cluster: Cluster, name: str, job: JobSpec, source: Cluster | None
) -> ClusterFacts:
    """Return what the cluster says that the job is to go to."""
    known = ClusterFacts(
        name,
        cluster.kind,
        cluster.version(),
        "unknown",
        findings=(*_findings_of_target(cluster), *_untried(cluster, job)),
        host=cluster.host(job.connection),
        reaches=cluster.reaches(job.destination),
    )
    return engine.ask_target(cluster, job, known, source)


def facts_of_source(
    engine: Engine, cluster: Cluster, spec: ClusterSpec, job: JobSpec
) -> ClusterFacts:
    """Return what the cluster says that the job runs on."""
    status = cluster.find_source(stop_request(job))
    findings = tuple(_findings_of_source(spec, job, status))
    if status.state is JobState.UNKNOWN and _is_said_to_be_stopped(spec, job):
        status = replace(status, state=JobState.ABSENT)
    known = ClusterFacts(
        spec.name, cluster.kind, cluster.version(), str(status.state), status.id, findings
    )
    return engine.ask_source(cluster, job, known)


def stop_request(job: JobSpec) -> StopRequest:
    """Return the request that means the job where it runs now."""
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


def _untried(cluster: Cluster, job: JobSpec) -> Iterator[Finding]:
    """Note a start that nothing tries before the old job is stopped."""
    if job.submit is None or job.submit.check is not None or job.source_cluster is None:
        return
    if cluster.kind in ARGUMENTS_UNTRIED and job.moves:
        message = (
            f"whether the program takes its arguments on {cluster.name} shows only when the old "
            "job has stopped: a `submit_check` of `submit` can try it before"
        )
        yield Finding("note", message)


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
