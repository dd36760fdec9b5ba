"""The answers of clusters about themselves and a job before a plan is made. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from threading import Thread
from typing import Final, cast

from stateshift.clusters.http import OTHER_FIELDS
from stateshift.clusters.protocol import (
    Cluster,
    Fit,
    JobState,
    Origin,
    StopRequest,
    Submission,
    TellsOrigin,
    TellsRoom,
)
from stateshift.clusters.redaction import redact
from stateshift.engines.protocol import Engine
from stateshift.errors import ClusterError, StateshiftError
from stateshift.specification import ClusterSpec, JobSpec
from stateshift.specification.grammars import NEVER
from stateshift.specification.model import JOB_STOPPED
from stateshift.specification.options import SPARK_KINDS
from stateshift.survey import ClusterFacts, Finding

NO_TAG = "stateshift.nobody-has-submitted-this"
_ROOM_KINDS: Final = ("flink_operator", "spark_operator", "yarn")
_ROOM_SECONDS: Final = 10.0  # in all, for a plan
_NOT_TOLD: Final = (StateshiftError, ArithmeticError, *OTHER_FIELDS)


def facts_of_target(
    engine: Engine, cluster: Cluster, spec: ClusterSpec, job: JobSpec, source: Cluster | None
) -> ClusterFacts:
    """Return the facts of the cluster that the job is to go to."""
    # Nobody waits for this import without a cluster.
    from stateshift.clusters.kind import kind_of

    version = cluster.version()
    findings: list[Finding] = []
    if job.submit is not None and not kind_of(spec).can_stop(spec.options):
        message = (
            f"{spec.name} has no command to stop a job: once {job.name} runs there, a rollback "
            "needs you to stop it by hand"
        )
        hint = 'give the cluster a "stop" command (`move`: --stop COMMAND, which is for both)'
        findings.append(Finding("warn", message, hint=hint))
    status = cluster.find(NO_TAG)
    if status.state not in (JobState.ABSENT, JobState.UNKNOWN):
        # It would never be given our job.
        message = f"{cluster.name} says that a job nobody has submitted is {status.state}"
        hint = "its `find` has to answer for the tag it is asked for: $STATESHIFT_TAG"
        findings.append(Finding("refuse", message, hint=hint))
    is_tried = job.submit is None or job.submit.check is not None or job.source_cluster is None
    if cluster.kind in ("command", *SPARK_KINDS) and job.moves and not is_tried:
        message = (
            f"whether the program takes its arguments on {cluster.name} shows only when the old "
            "job has stopped: a `submit_check` of `submit` can try it before"
        )
        findings.append(Finding("note", message))
    known = ClusterFacts(
        spec.name,
        cluster.kind,
        version,
        "unknown",
        findings=tuple(findings),
        host=cluster.host(job.connection),
        reaches=cluster.reaches(job.destination),
    )
    return engine.ask_target(cluster, job, known, source)


def facts_of_source(
    engine: Engine, cluster: Cluster, spec: ClusterSpec, job: JobSpec
) -> ClusterFacts:
    """Return the facts of the cluster that the job runs on. Refuse a running job that cannot be
    stopped, before anything is begun; and one that nobody sees, which may run all the same, and
    would be fenced off while it does.
    """
    # Nobody waits for this import without a cluster.
    from stateshift.clusters.kind import kind_of

    status = cluster.find_source(stop_request(job))
    kind = kind_of(spec)
    is_unknown = status.state is JobState.UNKNOWN
    # People and commands are asked to stop a job that is unknown; others stop only what they see.
    is_unseen = is_unknown and not kind.stops_unseen
    findings: list[Finding] = []
    if job.moves and is_unseen:
        message = f"{spec.name} cannot tell whether {job.name} runs: {status.detail}"
        hint = (
            'say in `stop` which job it is; or make the source a cluster of kind "command" '
            "that finds and stops it "
            f'(such as `yarn application`); or, where it is stopped, "waive": ["{JOB_STOPPED}"]'
        )
        findings.append(Finding("refuse", message, JOB_STOPPED, hint))
    elif (status.state.alive or is_unknown) and not kind.can_stop(spec.options):
        message = f"{spec.name} has no command to stop the job with, and the job is {status.state}"
        hint = 'give the cluster a "stop" command, or stop the job first'
        findings.append(Finding("refuse", message, hint=hint))
    if is_unseen and JOB_STOPPED in job.waive:
        status = replace(status, state=JobState.ABSENT)
    if status.state.alive or status.state is JobState.UNKNOWN:
        findings += _of_way_back(cluster, job)
    known = ClusterFacts(
        spec.name, cluster.kind, cluster.version(), str(status.state), status.id, tuple(findings)
    )
    return engine.ask_source(cluster, job, known)


def _of_way_back(cluster: Cluster, job: JobSpec) -> Iterator[Finding]:
    """Warn of a job that nothing starts again once it is stopped: nobody says how it began."""
    is_one = len(job.image_writers) < 2
    if not job.moves or job.cutover == NEVER:
        return
    if is_one and job.source_submit is not None:
        fact = (
            f"if the move fails (its start, too) or is rolled back, {job.name} is started again "
            'where it was, by `source_submit` (unless "on_failure" says otherwise)'
        )
        yield Finding("note", fact)
        return
    if is_one and job.submit is not None and cluster.kind == "flink_rest":
        return  # it compares both programs before the stop, and uploads the jar for that
    told = origin_at(cluster, job, None)
    if told.options is not None:
        return
    hint = '"source_submit" in the spec says how it starts there (`move`: --restart COMMAND)'
    if not is_one:
        hint = "move them one by one, or be ready to start them yourself"
    elif cluster.kind == "manual":
        hint = 'start it yourself then; "source_submit": {} in the spec asks for that'
    fact = f"if the move fails or is rolled back, {job.name} stays down: {redact(told.why)}"
    yield Finding("warn", fact, hint=hint)


def origin_at(cluster: Cluster, job: JobSpec, like: Mapping[str, object] | None) -> Origin:
    """Return the origin of a running job by its cluster's word, or why there is none."""
    if not hasattr(cluster, "origin"):
        return Origin(why=f"a cluster of kind {cluster.kind} does not tell what a job began with")
    try:
        return cast(TellsOrigin, cluster).origin(stop_request(job), like)
    except ClusterError as error:
        return Origin(why=f"{cluster.name} did not tell what it began with: {error.fact}")


def stop_request(job: JobSpec) -> StopRequest:
    """Return the request that means the job where it runs now."""
    options = dict(job.stop)
    if job.ids_on_cluster:
        options["job_ids"] = list(job.ids_on_cluster)
    return StopRequest(job.name, job.source, job.stop.get("tag"), options=options)


def findings_of_room(
    clusters: Mapping[str, ClusterSpec],
    jobs: Sequence[JobSpec],
    open_cluster: Callable[[ClusterSpec], Cluster],
) -> dict[str, list[Finding]]:
    """Return, by job, warnings of jobs that would wait for room, and notes of what is not known.

    Such a job may be queued for ever, and may also be given nodes that an autoscaler adds. It is
    never refused for that, and nobody waits long: the question is put once, for a plan that is
    shown. Jobs of one cluster are placed one after the other on what is free.
    """
    asked: dict[str, list[JobSpec]] = {}
    for job in jobs:
        name = job.target_cluster
        if job.submit is not None and name is not None and clusters[name].kind in _ROOM_KINDS:
            asked.setdefault(name, []).append(job)
    given = [clusters[name].options.get("request_seconds", _ROOM_SECONDS) for name in asked]
    seconds = min([_ROOM_SECONDS, *(float(str(each)) for each in given)])

    def opened(name: str) -> Cluster:
        spec = clusters[name]
        if spec.kind not in _ROOM_KINDS:
            return open_cluster(spec)
        bounds = {"request_seconds": seconds, "outage_seconds": 0.0}
        return open_cluster(replace(spec, options={**spec.options, **bounds}))

    found: dict[str, list[Finding]] = {}
    if asked:
        call = (ask_for_room, asked, opened, time.monotonic() + seconds, found)
        thread = Thread(target=copy_context().run, args=call, name="room", daemon=True)
        thread.start()
        thread.join(seconds)
    in_time, late = found.copy(), Finding("note", f"not known: no answer within {seconds:g} s")
    told: dict[str, list[Finding]] = {}
    for name, those in asked.items():
        for job in those:
            told[job.name] = [
                replace(each, message=f"the room for {job.name} on {name}: {each.message}")
                for each in in_time.get(job.name, [late])
            ]
    return told


def ask_for_room(
    asked: Mapping[str, Sequence[JobSpec]],
    opened: Callable[[str], Cluster],
    until: float,
    found: dict[str, list[Finding]],
) -> None:
    """Ask the clusters, and write down what is found of each job."""
    for name, jobs in asked.items():
        try:
            target = cast(TellsRoom, opened(name))
            fitting = target.fitting(until)
        except _NOT_TOLD as error:
            found.update({job.name: [_unknown(error)] for job in jobs})
            continue
        for job in jobs:
            if time.monotonic() >= until:
                return
            try:
                found[job.name] = _of_room(target, job, fitting, opened)
            except _NOT_TOLD as error:
                found[job.name] = [_unknown(error)]


def _of_room(
    target: TellsRoom,
    job: JobSpec,
    fitting: Callable[[Submission], Fit],
    opened: Callable[[str], Cluster],
) -> list[Finding]:
    """Return the findings of one job. A lack is a note where the old job may run on the same nodes:
    its part is not counted.
    """
    submit = job.submit
    assert submit is not None, "one that is asked for"
    place, connection = job.destination, job.connection
    wanted = Submission(NO_TAG, job.name, place, connection, submit.options, submit.environment)
    fit = fitting(wanted)
    findings = [Finding("note", note) for note in fit.notes]
    if not fit.lacks:
        return findings
    is_elsewhere = not job.moves or job.source_cluster is None
    if not fit.is_ever and not is_elsewhere:
        source = opened(str(job.source_cluster))
        if hasattr(source, "addresses"):
            is_elsewhere = not cast(TellsRoom, source).addresses() & target.addresses()
    if fit.is_ever or is_elsewhere:
        hint = "free room there, or ask for less in `submit`"
        return [Finding("warn", f"not enough: {fit.lacks}", hint=hint), *findings]
    message = f"{fit.lacks}. What the old job gives back at its end is not counted"
    return [Finding("note", message), *findings]


def _unknown(error: Exception) -> Finding:
    """Return the note that nobody knows, and why."""
    fact = error.fact if isinstance(error, StateshiftError) else f"an odd answer ({error!r})"
    return Finding("note", f"not known: {fact}")
