"""Spark jobs behind Apache Livy: a job is a batch, and its tag the batch's name, which Livy gives to one at a time.

    <state_dir>/<tag>.json    {"begun": seconds, "url": where, "id": 7 once it is known, "stopped": true}

    options      url, auth (none, basic, kerberos), user, password_file, ca_file, request_seconds, settle_seconds,
                 conf, proxy_user, graceful_seconds, state_dir
    submission   application (needed: a file that the cluster can read), class, arguments, conf, py_files, jars, files,
                 and Livy's own queue, driver_memory, driver_cores, executor_memory, executor_cores, num_executors
    stopping     batch (an id) or batch_name, of a job that we did not submit; graceful_seconds

The image's location is handed over as `spark.stateshift.checkpoint`, which `stateshift.job` reads, beside
`spark.stateshift.job` and `.tag`; and wherever `{checkpoint}`, `{job}` or `{tag}` stands in an argument (IS-6).

An answer may be lost, and we may be killed, after Livy has taken a batch. So what is begun is written down first, and
until `settle_seconds` later a batch that Livy does not list may still appear: `find` waits for that long before it says
`absent`. Livy forgets batches a while after they ended, and all of them when it is restarted without recovery: one that
we know of and it does not is `unknown`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateshift.clusters.detached import file_name
from stateshift.clusters.livy_calls import Batch, LivyCalls, Refused, Unanswered
from stateshift.clusters.options import ARGUMENTS, NEEDED_TEXT, SECONDS, SETTINGS, TEXT, TEXTS, Expected, read_options
from stateshift.clusters.options import settings as texts
from stateshift.clusters.protocol import JobState, JobStatus, StopRequest, Submission
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.stopping import (
    GRACEFUL_SECONDS,
    OpenStorage,
    StopMarker,
    forget_marker,
    stop_options,
    stopped_gracefully,
)
from stateshift.clusters.waiting import wait_for
from stateshift.clusters.whole_files import write_whole
from stateshift.errors import ClusterError

COUNT = Expected("a whole number, not negative", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0)
AUTHENTICATION = Expected("none, basic or kerberos", lambda v: v in ("none", "basic", "kerberos"))

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
_FORGOTTEN = "Livy does not know it any more: it ended a while ago, or Livy was started anew"


@dataclass(frozen=True)
class Livy:
    """See the module. `options` are checked already (CLUSTER_OPTIONS)."""

    name: str
    state_dir: Path
    options: Mapping[str, Any]
    open_storage: OpenStorage | None = None
    interrupt: threading.Event | None = None

    @property
    def kind(self) -> str:
        return "livy"

    def version(self) -> str | None:
        """Livy tells its own, not Spark's."""
        return None

    def find(self, tag: str) -> JobStatus:
        record = self._record(tag)
        calls = self._calls(record)
        if record is not None and record.get("id") is not None:
            return _of_id(calls, int(record["id"]), bool(record.get("stopped")))
        # What was begun and is not listed may be on its way.
        settle = float(self.options.get("settle_seconds", _SETTLE_SECONDS))
        settled = 0.0 if record is None else float(record["begun"]) + settle

        def look() -> JobStatus | None:
            over = time.time() >= settled
            found = _named(calls, tag)
            return _status(found[-1]) if found else JobStatus(JobState.ABSENT) if over else None

        found = wait_for(look, max(0.0, settled - time.time()) + 1.0, self.interrupt)
        return found or JobStatus(JobState.ABSENT)

    def find_source(self, request: StopRequest) -> JobStatus:
        if request.tag is not None:
            status = self.find(request.tag)
            if status.state is not JobState.ABSENT:
                return status
        batch = self._source(request)
        return JobStatus(JobState.ABSENT) if batch is None else _status(batch)

    def submit(self, submission: Submission) -> str:
        body = self._body(submission, read_options(submission.options, SUBMIT_OPTIONS, "/submit"))
        status = self.find(submission.tag)
        if status.state is not JobState.ABSENT:
            return status.id or submission.tag
        forget_marker(submission, self.open_storage)
        record = {"begun": time.time(), "url": self._url(submission)}
        self._note(submission.tag, **record)
        calls = self._calls(record)
        try:
            id = calls.create(body).id
        except Refused as refused:
            taken = _named(calls, submission.tag) if refused.status == 400 else []
            if not taken:
                raise
            id = taken[-1].id  # somebody was first: the name is the tag
        except Unanswered as unanswered:
            status = self.find(submission.tag)  # waits until it is settled
            if status.id is None:
                raise unanswered
            id = int(status.id)
        self._note(submission.tag, id=id)
        return str(id)

    def stop(self, request: StopRequest) -> JobStatus:
        status = self.find_source(request)
        if status.state is JobState.UNKNOWN:
            raise ClusterError(
                f"cannot tell whether {request.job} runs: {status.detail}",
                cluster=self.name,
                job=request.job,
                hint="see that it does not run, and use a cluster of kind manual for the source",
            )
        if request.tag is not None and self._record(request.tag) is not None:
            self._note(request.tag, stopped=True)  # before it is: Livy forgets at once what it deletes
        if status.state.alive and status.id is not None:
            if not self._stop_gracefully(request):
                record = self._record(request.tag) if request.tag is not None else None
                self._calls(record).delete(int(status.id))
            self._until_ended(request)
        return self.find_source(request)

    def log(self, tag: str, lines_max: int = 50) -> str:
        id = self.find(tag).id
        if id is None or lines_max <= 0:
            return ""
        try:
            lines = self._calls(self._record(tag)).log(int(id), lines_max)
        except Refused:  # it is forgotten
            return ""
        return last_lines(redact("\n".join(lines), os.environ), lines_max)

    def _source(self, request: StopRequest) -> Batch | None:
        """A batch that somebody else submitted: by its id, else by its name, else by the job's; one that is alive."""
        asked, calls = self._stop_options(request), self._calls(None)
        if "batch" in asked:
            return calls.batch(int(asked["batch"]))
        found = _named(calls, asked.get("batch_name", request.job))
        alive = [batch for batch in found if batch.state.alive]
        return next(iter([*alive[-1:], *found[-1:]]), None)

    def _stop_gracefully(self, request: StopRequest) -> bool:
        marker = StopMarker(request, request.seconds_max, self.open_storage)
        patience = float(self._stop_options(request).get("graceful_seconds", GRACEFUL_SECONDS))
        return stopped_gracefully(marker, lambda: not self.find_source(request).state.alive, patience, self.interrupt)

    def _until_ended(self, request: StopRequest) -> None:
        def ended() -> bool | None:
            return None if self.find_source(request).state.alive else True

        if not wait_for(ended, request.seconds_max, self.interrupt):
            status = self.find_source(request)
            raise ClusterError(
                f"batch {status.id} of {request.job} is {status.state} {request.seconds_max:g} s after it was stopped",
                cluster=self.name,
                job=request.job,
                hint=f"look at it: curl {redact(str(self.options['url']).rstrip('/'))}/batches/{status.id}",
            )

    def _body(self, submission: Submission, given: Mapping[str, Any]) -> dict[str, Any]:
        handed = {"checkpoint": submission.location, "job": submission.job, "tag": submission.tag}
        conf = {**texts(self.options.get("conf")), **texts(given.get("conf"))}
        arguments = [_filled(str(argument), handed) for argument in given.get("arguments", ())]
        return {
            "file": given["application"],
            "name": submission.tag,
            "args": arguments,
            "conf": {**conf, **{f"spark.stateshift.{key}": value for key, value in handed.items()}},
            **({"proxyUser": self.options["proxy_user"]} if "proxy_user" in self.options else {}),
            **{theirs: given[ours] for ours, theirs in _PLAIN.items() if ours in given},
        }

    def _stop_options(self, request: StopRequest) -> dict[str, Any]:
        return stop_options(request, self.options, STOP_OPTIONS, SUBMIT_OPTIONS)

    def _calls(self, record: Mapping[str, Any] | None) -> LivyCalls:
        """Where the record's batch was submitted, else where the cluster is."""
        return LivyCalls(self.name, str((record or {}).get("url") or self.options["url"]), self.options)

    def _url(self, submission: Submission) -> str:
        """The connection of the job overrides the cluster's (IS-4); host:port is reached by the same protocol."""
        reached = submission.connection
        if not reached:
            return str(self.options["url"])
        return reached if "://" in reached else f"{str(self.options['url']).partition('://')[0]}://{reached}"

    def _record(self, tag: str) -> dict[str, Any] | None:
        try:
            plain = json.loads(self._path(tag).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return plain if isinstance(plain, dict) and isinstance(plain.get("begun"), int | float) else None

    def _note(self, tag: str, **more: Any) -> None:
        write_whole(self._path(tag), json.dumps({**(self._record(tag) or {}), **more}, sort_keys=True).encode())

    def _path(self, tag: str) -> Path:
        return self.state_dir / f"{file_name(tag)}.json"


def _named(calls: LivyCalls, name: str) -> list[Batch]:
    return [batch for batch in calls.batches() if batch.name == name]


def _of_id(calls: LivyCalls, id: int, stopped: bool) -> JobStatus:
    batch = calls.batch(id)
    if stopped and (batch is None or batch.state is JobState.FAILED):
        return JobStatus(JobState.FINISHED, str(id), "stopped")
    return JobStatus(JobState.UNKNOWN, str(id), _FORGOTTEN) if batch is None else _status(batch)


def _status(batch: Batch) -> JobStatus:
    detail = batch.told if batch.state in (JobState.FAILED, JobState.UNKNOWN) else batch.application
    return JobStatus(batch.state, str(batch.id), detail)


def _filled(argument: str, handed: Mapping[str, str]) -> str:
    for key, value in handed.items():
        argument = argument.replace(f"{{{key}}}", value)
    return argument
