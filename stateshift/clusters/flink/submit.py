"""Submission of a Flink job: the options checked, the jar uploaded, and the request's body.

A jar goes there under its own name with a digest of its content behind it, so that one that is
there is not sent again. Jobs of SQL are `sql_submit`'s.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.sql_submit import complaints_about_sql, sql_ready
from stateshift.clusters.flink.values import release_of, texts_of
from stateshift.clusters.http.rest import Json
from stateshift.clusters.noted import fill, fill_values
from stateshift.clusters.options import Options, read_options, settings
from stateshift.clusters.protocol import Submission
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.options import options_of

TAKES = options_of("flink_rest")
_CLAIMS = ("no_claim", "legacy")


def read_submit(options: Options, pointer: str, cluster: Options) -> Options:
    """Return the options, if they can be meant: checked before anything moves, and once more before
    a submission. `cluster` are the cluster's own.
    """
    given = read_options(options, TAKES.submit, pointer)
    complaints = [*_about_program(given, cluster, pointer), *_about_claim(given, pointer)]
    if given.get("parallelism") == 0:
        place = f"{pointer}/parallelism"
        complaints.append(Complaint(place, "does not fit", 0, "a whole number from 1 on"))
    if complaints:
        raise SpecError(tuple(complaints))
    return given


def one_application(name: str) -> str:
    """Return why nothing can be submitted to a cluster of one application."""
    return f"{name} is a cluster of one application, which is started together with it"


@contextmanager
def ready(
    calls: FlinkCalls,
    submission: Submission,
    given: Options,
    interrupt: threading.Event | None,
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
    submission: Submission,
    given: Options,
    cluster: Options,
    version: str | None,
    name: str,
) -> Json:
    """Return the body of the request that starts a job. Flink ignores words that it does not know:
    what a version lacks is refused here.
    """
    release = release_of(version)
    configured = {
        **settings(cluster.get("flink_configuration")),
        **settings(given.get("flink_configuration")),
    }
    configuration = fill_values(configured, submission)
    lacking = _lacking(release, configured=bool(configuration))
    if lacking is not None:
        fact = f"Flink {version} does not know {lacking}"
        hint = "submit to a newer one, or leave it out"
        raise ClusterError(fact, cluster=name, job=submission.job, hint=hint)
    arguments = texts_of(given.get("arguments", ()))
    body: Json = {"programArgsList": [fill(argument, submission) for argument in arguments]}
    if configuration:
        body["flinkConfiguration"] = configuration
    if "entry_class" in given:
        body["entryClass"] = given["entry_class"]
    if "parallelism" in given:
        body["parallelism"] = given["parallelism"]
    if submission.location:
        body |= _restored(submission.location, given, release)
    return body


def _lacking(release: tuple[int, int], configured: bool) -> str | None:
    """Return what a request needs and a release does not know, None if it knows all."""
    if configured and release < (1, 17):
        return '"flink_configuration": it came with 1.17'
    if release < (1, 15):
        return '"claim_mode": it came with 1.15'
    return None


def jar_there(calls: FlinkCalls, given: Options, submission: Submission) -> str:
    """Return the id of the jar on the cluster, uploaded if it was not there."""
    if "jar_id" in given:
        return str(given["jar_id"])
    jar = Path(str(given["jar"]))
    try:
        name = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', jar.stem)}-{_digest(jar)}.jar"
        return calls.jar_of(name) or calls.upload(jar, name)
    except OSError as error:
        fact = f"the jar {jar} cannot be read: {error.strerror or error}"
        hint = '"jar" names a file on this machine'
        raise ClusterError(fact, cluster=calls.cluster, job=submission.job, hint=hint) from error


def _restored(location: str, given: Options, release: tuple[int, int]) -> Json:
    claim_mode = "claimMode" if release >= (1, 20) else "restoreMode"
    return {
        "savepointPath": location,
        "allowNonRestoredState": bool(given.get("allow_non_restored_state", False)),
        claim_mode: str(given.get("claim_mode", "no_claim")).upper(),
    }


def _about_program(given: Options, cluster: Options, pointer: str) -> Iterator[Complaint]:
    named = [option for option in ("jar", "jar_id", "sql") if option in given]
    if len(named) != 1:
        yield Complaint(
            f"{pointer}/jar",
            "needs a jar, or the id of one that is there, or a file of SQL, and not both",
            named or None,
            "a file on this machine",
        )
    elif named == ["sql"]:
        yield from complaints_about_sql(given, cluster, pointer)
    elif named == ["jar"] and not Path(str(given["jar"])).is_file():
        yield Complaint(
            f"{pointer}/jar", "there is no such file", given["jar"], "a file on this machine"
        )


def _about_claim(given: Options, pointer: str) -> list[Complaint]:
    claim = given.get("claim_mode", "no_claim")
    if claim in _CLAIMS:
        return []
    why = "does not fit"
    if claim == "claim":
        why = "lets Flink delete the image, which may be the only copy"
    return [Complaint(f"{pointer}/claim_mode", why, claim, ", ".join(_CLAIMS))]


def _digest(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
