"""Spark jobs behind Apache Livy: a job is a batch, and its tag is in the batch's name, which Livy
gives to one at a time: TAG@PLACE. The place is a digest of the location, by which any run finds the
job that has its checkpoint there.

    options     url, auth (none, basic, kerberos), user, password_file, ca_file, request_seconds,
                settle_seconds, conf, proxy_user, graceful_seconds, state_dir
    submission  application (needed: a file that the cluster can read), class, arguments, conf,
                py_files, jars, files, and Livy's own queue, driver_memory, driver_cores,
                executor_memory, executor_cores, num_executors
    stopping    batch (an id) or batch_name, of a job that we did not submit, else it has the job's
                name; graceful_seconds

The image's location is handed over as `spark.stateshift.checkpoint`, which `stateshift.job` reads,
beside `spark.stateshift.job` and `.tag`; and wherever `{checkpoint}`, `{job}` or `{tag}` stands in
an argument or a value of `conf` (IS-6).

An answer may be lost, and we may be killed, after Livy has taken a batch. So what is begun is
written down first, and until `settle_seconds` later a batch that Livy does not list may still
appear: `find` waits for that long before it says `absent`. Livy forgets batches a while after they
ended, and all of them when it is restarted without recovery: one that we know of and it does not is
`unknown`.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stateshift.clusters.http.credentials import AUTHENTICATION
from stateshift.clusters.http.hosts import host_of
from stateshift.clusters.http.rest import Json, Refused, Unanswered
from stateshift.clusters.kind import ClusterKind, Surroundings, submit_options
from stateshift.clusters.livy.calls import Batch, LivyCalls
from stateshift.clusters.logged import logs_stop, logs_submission
from stateshift.clusters.noted import (
    Notes,
    Record,
    Stopping,
    filled_arguments,
    filled_values,
    handed_over,
    noted_origin,
    reached_at,
)
from stateshift.clusters.options import (
    ARGUMENTS,
    COUNT,
    NEEDED_TEXT,
    SECONDS,
    SETTINGS,
    TEXT,
    TEXTS,
    Options,
    read_options,
)
from stateshift.clusters.options import settings as texts
from stateshift.clusters.protocol import (
    Failure,
    JobState,
    JobStatus,
    Origin,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.spark_causes import LOG_LINES, failure_of
from stateshift.clusters.spark_trial import try_application
from stateshift.clusters.stopping import OpenStorage, forget_marker
from stateshift.clusters.waiting import wait_until_settled

CLUSTER_OPTIONS = {
    "url": NEEDED_TEXT,
    "auth": AUTHENTICATION,
    "user": TEXT,
    "password_file": TEXT,
    "ca_file": TEXT,
    "request_seconds": SECONDS,
    "settle_seconds": SECONDS,
    "conf": SETTINGS,
    "proxy_user": TEXT,
    "graceful_seconds": SECONDS,
    "state_dir": TEXT,
}
# Ours -> Livy's own word.
_PLAIN = {
    "class": "className",
    "py_files": "pyFiles",
    "jars": "jars",
    "files": "files",
    "queue": "queue",
    "driver_memory": "driverMemory",
    "driver_cores": "driverCores",
    "executor_memory": "executorMemory",
    "executor_cores": "executorCores",
    "num_executors": "numExecutors",
}
SUBMIT_OPTIONS = {
    "application": NEEDED_TEXT,
    "arguments": ARGUMENTS,
    "conf": SETTINGS,
    "class": TEXT,
    "py_files": TEXTS,
    "jars": TEXTS,
    "files": TEXTS,
    "queue": TEXT,
    "driver_memory": TEXT,
    "executor_memory": TEXT,
    "driver_cores": COUNT,
    "executor_cores": COUNT,
    "num_executors": COUNT,
}
STOP_OPTIONS = {"batch": COUNT, "batch_name": TEXT, "graceful_seconds": SECONDS}

_SETTLE_SECONDS = 60.0
_FORGOTTEN = "Livy does not know it any more: it ended a while ago, or Livy was restarted"


@dataclass(frozen=True)
class Livy:
    """See the module. `options` are checked already (CLUSTER_OPTIONS)."""

    name: str
    state_dir: Path
    options: Options
    open_storage: OpenStorage | None = None
    interrupt: threading.Event | None = None

    @property
    def kind(self) -> str:
        return "livy"

    def version(self) -> str | None:
        """Livy tells its own, not Spark's."""
        return None

    def host(self, connection: str | None = None) -> str | None:
        return host_of(connection or str(self.options["url"]))

    def reaches(self, location: str) -> bool | None:
        return None

    def find(self, tag: str) -> JobStatus:
        record = self._notes.read(tag)
        calls = self._calls(record)
        if record is not None and record.get("id") is not None:
            return _of_id(calls, int(record["id"]), bool(record.get("stopped")))
        settle = float(self.options.get("settle_seconds", _SETTLE_SECONDS))
        settled = 0.0 if record is None else float(record["begun"]) + settle

        def look(over: bool) -> JobStatus | None:
            batches = _tagged(calls, tag)
            if batches:
                return _status(batches[-1])
            return JobStatus(JobState.ABSENT) if over else None

        return wait_until_settled(look, settled, self.interrupt) or JobStatus(JobState.ABSENT)

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        batch = self._source(request)
        return JobStatus(JobState.ABSENT) if batch is None else _status(batch)

    def occupants(self) -> tuple[str, ...]:
        """Return the batches and the interactive sessions that run there, by their names."""
        calls = self._calls(None)
        batches = [batch for batch in calls.batches() if batch.state.alive]
        named = [f"{batch.name or 'batch'} ({batch.id})" for batch in batches]
        return (*named, *(f"session {id}" for id in calls.sessions()))

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, SUBMIT_OPTIONS, "/submit")
        record = {"url": reached_at(submission, str(self.options["url"]))}
        try:
            self._calls(record).batches()
        except Refused as refused:
            return Trial(refused.fact, refused.hint)
        except Unanswered as silent:
            return Trial(f"Livy gives no answer: {silent.fact}", silent.hint)
        trial = try_application(str(given["application"]), None, self.open_storage, is_here=False)
        if trial.refused:
            return trial
        untried = "whether the program takes its arguments shows when Livy runs it"
        return Trial(untried=trial.untried or untried)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        """Livy tells no file and no arguments of a batch: our own notes do, of those that we
        started.
        """
        id = self.find_source(request).id
        return noted_origin(self._notes, id, "Livy tells neither a batch's file nor its arguments")

    @logs_submission
    def submit(self, submission: Submission) -> str:
        body = self._body(submission, read_options(submission.options, SUBMIT_OPTIONS, "/submit"))
        status = self.find(submission.tag)
        if status.state is not JobState.ABSENT:
            return status.id or submission.tag
        forget_marker(submission, self.open_storage)
        record = {
            "begun": time.time(),
            "url": reached_at(submission, str(self.options["url"])),
            "options": dict(submission.options),
        }
        self._notes.add(submission.tag, **record)
        calls = self._calls(record)
        try:
            id = calls.create(body).id
        except Refused as refused:
            taken = _tagged(calls, submission.tag) if refused.status == 400 else []
            if not taken:
                raise
            id = taken[-1].id  # somebody was first: the name is the tag
        except Unanswered as unanswered:
            status = self.find(submission.tag)  # waits until it is settled
            if status.id is None:
                raise unanswered
            id = int(status.id)
        self._notes.add(submission.tag, id=id)
        return str(id)

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        record = self._notes.read(request.tag) if request.tag is not None else None
        look = f"curl {redact(str(self.options['url']).rstrip('/'))}/batches/{{id}}"
        return self._stopping.stop(request, lambda id: self._calls(record).delete(int(id)), look)

    def log(self, tag: str, lines_max: int = 50) -> str:
        id = self.find(tag).id
        if id is None or lines_max <= 0:
            return ""
        try:
            lines = self._calls(self._notes.read(tag)).log(int(id), lines_max)
        except Refused:  # it is forgotten
            return ""
        return last_lines(redact("\n".join(lines), os.environ), lines_max)

    def failure(self, tag: str, alive: bool = False) -> Failure | None:
        return failure_of(self.log(tag, LOG_LINES), alive)

    def _source(self, request: StopRequest) -> Batch | None:
        """Return one that is alive, if there is: by the id or the name that the spec gives it; else
        what any run of ours has submitted for this location, or somebody else under the job's name.
        """
        options, calls = self._stopping.asked(request), self._calls(None)
        if "batch" in options:
            return calls.batch(int(options["batch"]))
        name = options.get("batch_name")
        is_source = partial(_has_name, name) if name else partial(_is_source, request)
        sources = list(filter(is_source, calls.batches()))
        alive = [batch for batch in sources if batch.state.alive]
        last = alive[-1:] or sources[-1:]
        return last[0] if last else None

    def _body(self, submission: Submission, given: Options) -> Json:
        conf = {**texts(self.options.get("conf")), **texts(given.get("conf"))}
        body: Json = {
            "file": given["application"],
            "name": f"{submission.tag}@{_place(submission.location)}",
            "args": filled_arguments(given.get("arguments", ()), submission),
            "conf": {**filled_values(conf, submission), **handed_over(submission)},
        }
        if "proxy_user" in self.options:
            body["proxyUser"] = self.options["proxy_user"]
        for option, field in _PLAIN.items():
            if option in given:
                body[field] = given[option]
        return body

    @property
    def _notes(self) -> Notes:
        return Notes(self.state_dir)

    @property
    def _stopping(self) -> Stopping:
        known = (STOP_OPTIONS, SUBMIT_OPTIONS)
        return Stopping(self, self._notes, self.options, *known, self.open_storage, self.interrupt)

    def _calls(self, record: Record | None) -> LivyCalls:
        """Return the calls of where the record's batch was submitted, else of the cluster."""
        url = (record or {}).get("url") or self.options["url"]
        return LivyCalls(self.name, str(url), self.options)


def _tagged(calls: LivyCalls, tag: str) -> list[Batch]:
    return [batch for batch in calls.batches() if _tag_of(batch) == tag]


def _tag_of(batch: Batch) -> str:
    """Return what stands before the last @ of a batch's name; nothing where there is none."""
    return "" if batch.name is None else batch.name.rpartition("@")[0]


def _has_name(name: str, batch: Batch) -> bool:
    return batch.name == name


def _is_source(request: StopRequest, batch: Batch) -> bool:
    """Whether any run of ours submitted the batch for this location, or somebody else under the
    job's name.
    """
    ours = f"@{_place(request.location)}"
    return batch.name == request.job or (batch.name or "").endswith(ours)


def _place(location: str) -> str:
    """Return what stands for a location in a name, the only thing of ours that Livy tells of a
    batch.
    """
    return hashlib.sha256(location.rstrip("/").encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _of_id(calls: LivyCalls, id: int, stopped: bool) -> JobStatus:
    batch = calls.batch(id)
    if stopped and (batch is None or batch.state is JobState.FAILED):
        return JobStatus(JobState.FINISHED, str(id), "stopped")
    return JobStatus(JobState.UNKNOWN, str(id), _FORGOTTEN) if batch is None else _status(batch)


def _status(batch: Batch) -> JobStatus:
    detail = batch.application
    if batch.state in (JobState.FAILED, JobState.UNKNOWN):
        detail = batch.word
    return JobStatus(batch.state, str(batch.id), detail)


def _open(name: str, options: Options, surroundings: Surroundings) -> Livy:
    return Livy(
        name,
        surroundings.state_dir,
        options,
        surroundings.open_storage,
        surroundings.interrupt,
    )


KIND = ClusterKind("livy", CLUSTER_OPTIONS, _open, submit_options(SUBMIT_OPTIONS))
