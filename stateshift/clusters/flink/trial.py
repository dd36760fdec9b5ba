"""Try a start of a Flink job without starting it, and what a job that runs was started with.

    jar   POST /jars/<id>/plan runs the program's main with its arguments up to `execute`, and
          answers with the graph. Side effects of main happen, as they will at the start. A program
          that catches every Throwable around `execute` has no plan: that says nothing of its start
    sql   the statements before the last one are run in a session of their own, the last one is
          explained

Flink tells of a running job its parallelism, its checkpoints' settings and its global parameters
(`/jobs/<id>/config`, `/checkpoints/config`), and neither jar nor arguments. So the spec's own way
to start it is taken where its plan is that of the job that runs: the same vertices. Parameters that
the job tells take the place of those of the same name.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.causes import cause_of
from stateshift.clusters.flink.sql_submit import explain
from stateshift.clusters.flink.submit import jar_there, one_application, read_submit, run_body
from stateshift.clusters.flink.values import Job
from stateshift.clusters.http.rest import Json, Refused, Unanswered
from stateshift.clusters.noted import Notes
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import Origin, Submission, Trial
from stateshift.errors import ClusterError, SpecError

# What Flink says where main was run and gave no graph, for reasons that a start may not meet.
_NO_PLAN: Final = re.compile(r"plan could not be fetched|aborted pre-maturely")


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


_OF_PLAN: Final = ("programArgsList", "flinkConfiguration", "entryClass", "parallelism")


def origin_of(calls: FlinkCalls, job: Job, notes: Notes, like: Options | None) -> Origin:
    """Return what a job that runs was started with."""
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
    return _if_the_same(calls, job, options)


def _if_the_same(calls: FlinkCalls, job: Job, options: Options) -> Origin:
    """Return the options, if the program that they start is the one that runs."""
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
