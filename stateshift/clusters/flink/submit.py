"""Submission of a Flink job: the options checked, the jar uploaded, and the request's body; a trial
of it, and the origin of a job that runs.

A jar goes there under its own name with a digest of its content after it, so that one that is there
is not sent again. Jobs of SQL are `sql_submit`'s. A start is tried without starting it:

    jar   POST /jars/<id>/plan runs the program's main with its arguments up to `execute`, and
          answers with the graph. Side effects of main happen, as they will at the start. A program
          that catches every Throwable around `execute` has no plan: that says nothing of its start
    sql   the statements before the last one are run in a session of their own, the last one is
          explained

Flink tells the parallelism of a running job, its checkpoints' settings and its global parameters
(`/jobs/<id>/config`, `/checkpoints/config`), and neither jar nor arguments. The spec's own way to
start it is taken where its plan is that of the job that runs: the same vertices. Parameters that
the job tells take the place of those of the same name.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.causes import cause_of
from stateshift.clusters.flink.sql_submit import complaints_about_sql, explain, sql_ready
from stateshift.clusters.flink.values import Job, release_of
from stateshift.clusters.http import Json, Refused, Unanswered
from stateshift.clusters.noted import Notes, fill, fill_values
from stateshift.clusters.options import Options, as_text, read_options, settings
from stateshift.clusters.protocol import Origin, Submission, Trial
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.options import options_of

TAKES = options_of("flink_rest")
_CLAIMS = ("no_claim", "legacy")
_OF_PLAN: Final = ("programArgsList", "flinkConfiguration", "entryClass", "parallelism")
# Flink says so where main was run and gave no graph, for reasons that a start may not meet.
_NO_PLAN: Final = re.compile(r"plan could not be fetched|aborted pre-maturely")


def read_submit(options: Options, pointer: str, cluster: Options) -> Options:
    """Return checked options, `cluster` being the cluster's own: before a move and a submission."""
    given = read_options(options, TAKES.submit, pointer)
    complaints = [*_about_program(given, cluster, pointer)]
    claim = given.get("claim_mode", "no_claim")
    if claim not in _CLAIMS:
        why = "does not fit"
        if claim == "claim":
            why = "lets Flink delete the image, which may be the only copy"
        complaints.append(Complaint(f"{pointer}/claim_mode", why, claim, ", ".join(_CLAIMS)))
    if given.get("parallelism") == 0:
        place = f"{pointer}/parallelism"
        complaints.append(Complaint(place, "does not fit", 0, "a whole number from 1 on"))
    if complaints:
        raise SpecError(tuple(complaints))
    return given


def one_application(name: str) -> str:
    """Return the reason for which nothing can be submitted to a cluster of one application."""
    return f"{name} is a cluster of one application, which is started together with it"


@contextmanager
def ready(
    calls: FlinkCalls, submission: Submission, given: Options, interrupt: threading.Event | None
) -> Iterator[Callable[[str], object]]:
    """Do all but the start, which is given the job's id."""
    if "sql" in given:
        with sql_ready(calls, submission, given, interrupt) as start:
            yield start
    else:
        body = run_body(submission, given, calls.options, calls.version(), calls.cluster)
        jar = jar_there(calls, given, submission)
        yield lambda id: calls.run(jar, {**body, "jobId": id})


def run_body(
    submission: Submission, given: Options, cluster: Options, version: str | None, name: str
) -> Json:
    """Return the request that starts a job, without words that this Flink would ignore."""
    release = release_of(version)
    configured = {
        **settings(cluster.get("flink_configuration")),
        **settings(given.get("flink_configuration")),
    }
    configuration = fill_values(configured, submission)
    lacking = None
    if configuration and release < (1, 17):
        lacking = '"flink_configuration": it came with 1.17'
    elif release < (1, 15):
        lacking = '"claim_mode": it came with 1.15'
    if lacking is not None:
        fact = f"Flink {version} does not know {lacking}"
        hint = "submit to a newer one, or leave it out"
        raise ClusterError(fact, cluster=name, job=submission.job, hint=hint)
    arguments = [as_text(argument) for argument in given.get("arguments", ())]
    body: Json = {"programArgsList": [fill(argument, submission) for argument in arguments]}
    if configuration:
        body["flinkConfiguration"] = configuration
    if "entry_class" in given:
        body["entryClass"] = given["entry_class"]
    if "parallelism" in given:
        body["parallelism"] = given["parallelism"]
    if submission.location:
        claim_mode = "claimMode" if release >= (1, 20) else "restoreMode"
        body["savepointPath"] = submission.location
        body["allowNonRestoredState"] = bool(given.get("allow_non_restored_state", False))
        body[claim_mode] = str(given.get("claim_mode", "no_claim")).upper()
    return body


def jar_there(calls: FlinkCalls, given: Options, submission: Submission) -> str:
    """Return the id of the jar on the cluster, uploaded if it was not there."""
    if "jar_id" in given:
        return str(given["jar_id"])
    jar = Path(str(given["jar"]))
    try:
        with jar.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        name = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', jar.stem)}-{digest}.jar"
        return calls.jar_of(name) or calls.upload(jar, name)
    except OSError as error:
        fact = f"the jar {jar} cannot be read: {error.strerror or error}"
        hint = '"jar" names a file on this machine'
        raise ClusterError(fact, cluster=calls.cluster, job=submission.job, hint=hint) from error


def _about_program(given: Options, cluster: Options, pointer: str) -> Iterator[Complaint]:
    named = [option for option in ("jar", "jar_id", "sql") if option in given]
    place, expected = f"{pointer}/jar", "a file on this machine"
    if len(named) != 1:
        message = "needs a jar, or the id of one that is there, or a file of SQL, and not both"
        yield Complaint(place, message, named or None, expected)
    elif named == ["sql"]:
        yield from complaints_about_sql(given, cluster, pointer)
    elif named == ["jar"] and not Path(str(given["jar"])).is_file():
        yield Complaint(place, "there is no such file", given["jar"], expected)


def try_start(
    calls: FlinkCalls, submission: Submission, interrupt: threading.Event | None
) -> Trial:
    """Try a start as far as Flink does without running anything."""
    given = read_submit(submission.options, "/submit", calls.options)
    try:
        if "sql" in given:
            untried = explain(calls, submission, given, interrupt)
            return Trial(untried=untried)
        plan_of(calls, submission, given)
    except Unanswered as silent:
        return Trial(untried=f"it gave no answer to a trial: {silent.fact}")
    except Refused as refused:
        if _NO_PLAN.search(refused.fact) or refused.status in (404, 405):
            return Trial(untried=f"the program has no plan outside its start: {refused.fact}")
        cause = cause_of(refused.answer)
        return Trial(refused.fact, cause.hint if cause is not None else None)
    return Trial()


def plan_of(calls: FlinkCalls, submission: Submission, given: Options) -> Json:
    """Return the graph of the program that a submission starts. Its jar is uploaded for it."""
    body = run_body(submission, given, calls.options, calls.version(), calls.cluster)
    asked: Json = {key: body[key] for key in _OF_PLAN if key in body}
    return calls.plan(jar_there(calls, given, submission), asked)


def origin_of(calls: FlinkCalls, job: Job, notes: Notes, like: Options | None) -> Origin:
    """Return the origin of a job that runs."""
    for record in notes.every():
        if record.get("asked") == job.id and isinstance(record.get("options"), dict):
            return Origin(record["options"])
    if calls.of_one_application:
        return Origin(why=one_application(calls.cluster))
    if like is None:
        why = "Flink tells neither a job's arguments nor its jar, and the spec has no source_submit"
        return Origin(why=why)
    told = calls.job_config(job.id)
    options = dict(like)
    if "sql" not in options:
        options["arguments"] = _as_told(like.get("arguments", ()), told.get("user-config") or {})
    parallelism = told.get("job-parallelism")
    if isinstance(parallelism, int) and parallelism > 0:
        options["parallelism"] = parallelism
    if "sql" in options:
        return Origin(why="what a job of SQL was started with cannot be compared")
    try:
        given = read_submit(options, "/submit", calls.options)
        plan = plan_of(calls, Submission("", job.name, "", options=options), given)
    except (ClusterError, SpecError) as error:
        return Origin(why=f"the spec's way to start it is refused there: {error.fact}")
    nodes = {str(node["id"]) for node in plan.get("nodes", ())}
    if nodes != {vertex.id for vertex in job.vertices}:
        return Origin(why="what the spec starts is another program than that which runs")
    return Origin(options)


def _as_told(arguments: Sequence[object], told: Mapping[str, object]) -> list[str]:
    """Return a program's arguments with the values that the job has, by their names."""
    words = [str(word) for word in arguments]
    for number, word in enumerate(words):
        name, assigned, _ = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in told:
            continue
        if assigned:
            words[number] = f"{word.partition('=')[0]}={told[name]}"
        elif number + 1 < len(words) and not words[number + 1].startswith("--"):
            words[number + 1] = str(told[name])
    return words
