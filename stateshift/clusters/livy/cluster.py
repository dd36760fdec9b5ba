"""Spark jobs behind Apache Livy: a job is a batch, and its tag is in the batch's name, which Livy
gives to one at a time: TAG@PLACE. The place is a digest of the location, by which any run finds the
job that has its checkpoint there.

The image's location is handed over as `spark.stateshift.checkpoint`, which `stateshift.job` reads,
beside `spark.stateshift.job` and `.tag`; and wherever `{checkpoint}`, `{job}` or `{tag}` stands in
an argument or a value of `conf` (IS-6).

An answer may be lost, and we may be killed, after Livy has taken a batch. A start is written down
before it is begun, and until `settle_seconds` later a batch that Livy does not list may still
appear: `find` waits for that long before it says `absent`. Livy forgets batches a while after they
ended, and all of them when it is restarted without recovery: one that we know of and it does not is
`unknown`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from stateshift.clusters.http.rest import Json, Refused, Unanswered
from stateshift.clusters.kind import ClusterKind, submit_options
from stateshift.clusters.livy.calls import LivyBatch, LivyCalls
from stateshift.clusters.logged import logs_stop
from stateshift.clusters.noted import (
    Record,
    fill_arguments,
    fill_values,
    identity_settings,
    noted_origin,
    submission_url,
)
from stateshift.clusters.options import Options, read_options
from stateshift.clusters.options import settings as texts
from stateshift.clusters.protocol import JobState, JobStatus, Origin, StopRequest, Submission, Trial
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.tagged import RemoteCluster
from stateshift.clusters.waiting import wait_until_settled
from stateshift.specification.options import KindOptions, options_of

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


class Livy(RemoteCluster[LivyCalls]):
    """See the module."""

    takes: ClassVar[KindOptions] = options_of("livy")
    forgotten = "Livy does not know it any more: it ended a while ago, or Livy was restarted"

    def version(self) -> str | None:
        """Livy tells its own, not Spark's."""
        return None

    def calls(self, record: Record | None) -> LivyCalls:
        url = (record or {}).get("url") or self.options["url"]
        return LivyCalls(self.name, str(url), self.options)

    def status_of(self, calls: LivyCalls, id: str) -> JobStatus | None:
        batch = calls.batch(int(id))
        return None if batch is None else _status(batch)

    def find_unanswered(self, calls: LivyCalls, tag: str, begun: float | None) -> JobStatus:
        settled = 0.0 if begun is None else begun + self.settle_seconds

        def look(over: bool) -> JobStatus | None:
            batches = _tagged(calls, tag)
            if batches:
                return _status(batches[-1])
            return JobStatus(JobState.ABSENT) if over else None

        return wait_until_settled(look, settled, self.interrupt) or JobStatus(JobState.ABSENT)

    def find_untagged(self, request: StopRequest) -> JobStatus:
        """Return the status of one that is alive, if there is: by the id or the name that the spec
        gives it. Else any run of ours has submitted it for this location, or somebody else under
        the job's name.
        """
        options, calls = self.stop_options(request), self.calls(None)
        if "batch" in options:
            return self.status_of(calls, str(options["batch"])) or JobStatus(JobState.ABSENT)
        place, name = f"@{_place(request.location)}", options.get("batch_name")

        def is_source(batch: LivyBatch) -> bool:
            if name:
                return bool(batch.name == name)
            return batch.name == request.job or (batch.name or "").endswith(place)

        sources = [batch for batch in calls.batches() if is_source(batch)]
        alive = [batch for batch in sources if batch.state.alive]
        last = alive or sources
        return _status(last[-1]) if last else JobStatus(JobState.ABSENT)

    def occupants(self) -> tuple[str, ...]:
        """Return the batches and the interactive sessions that run there, by their names."""
        calls = self.calls(None)
        batches = [batch for batch in calls.batches() if batch.state.alive]
        named = [f"{batch.name or 'batch'} ({batch.id})" for batch in batches]
        return (*named, *(f"session {id}" for id in calls.sessions()))

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, self.takes.submit, "/submit")
        record = {"url": submission_url(submission, str(self.options["url"]))}
        try:
            self.calls(record).batches()
        except Refused as refused:
            return Trial(refused.fact, refused.hint)
        except Unanswered as silent:
            return Trial(f"Livy gives no answer: {silent.fact}", silent.hint)
        trial = self.try_application(str(given["application"]), None, is_here=False)
        if trial.refused:
            return trial
        untried = "whether the program takes its arguments shows when Livy runs it"
        return Trial(untried=trial.untried or untried)

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        """Livy tells no file and no arguments of a batch: our own notes do, of those that we
        started.
        """
        id = self.find_source(request).id
        return noted_origin(self.notes, id, "Livy tells neither a batch's file nor its arguments")

    @contextmanager
    def turn(self, submission: Submission) -> Iterator[tuple[JobStatus, int | None]]:
        """Give the status as it is: Livy starts one batch of a name, whoever comes first."""
        yield self.find(submission.tag), None

    def body(self, calls: LivyCalls, submission: Submission, given: Options) -> Json:
        conf = {**texts(self.options.get("conf")), **texts(given.get("conf"))}
        body: Json = {
            "file": given["application"],
            "name": f"{submission.tag}@{_place(submission.location)}",
            "args": fill_arguments(given, submission),
            "conf": {**fill_values(conf, submission), **identity_settings(submission)},
        }
        if "proxy_user" in self.options:
            body["proxyUser"] = self.options["proxy_user"]
        for option, field in _PLAIN.items():
            if option in given:
                body[field] = given[option]
        return body

    def create(self, calls: LivyCalls, tag: str, body: Json) -> str:
        try:
            return str(calls.create(body).id)
        except Refused as refused:
            taken = _tagged(calls, tag) if refused.status == 400 else []
            if not taken:
                raise
            return str(taken[-1].id)  # somebody was first: the name is the tag

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        calls = self.calls(self.notes.read(request.tag) if request.tag is not None else None)
        look = f"curl {redact(str(self.options['url']).rstrip('/'))}/batches/{{id}}"
        return self.end(request, lambda id: calls.delete(int(id)), look)

    def log(self, tag: str, lines_max: int = 50) -> str:
        id = self.find(tag).id
        if id is None or lines_max <= 0:
            return ""
        try:
            lines = self.calls(self.notes.read(tag)).log(int(id), lines_max)
        except Refused:  # it is forgotten
            return ""
        return last_lines(redact("\n".join(lines), os.environ), lines_max)


def _tagged(calls: LivyCalls, tag: str) -> list[LivyBatch]:
    """Return the batches whose names have this tag before their last @."""
    return [batch for batch in calls.batches() if (batch.name or "").rpartition("@")[0] == tag]


def _place(location: str) -> str:
    """Return the digest of a location for a name, the only thing of ours that Livy tells of a
    batch.
    """
    return hashlib.sha256(location.rstrip("/").encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _status(batch: LivyBatch) -> JobStatus:
    detail = batch.application
    if batch.state in (JobState.FAILED, JobState.UNKNOWN):
        detail = batch.word
    return JobStatus(batch.state, str(batch.id), detail)


KIND = ClusterKind("livy", Livy.takes.cluster, Livy.open, submit_options(Livy.takes.submit))
