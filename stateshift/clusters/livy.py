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

The REST API for batches (0.7, and later ones that keep it):

    GET    /batches?from=0&size=N   {"from": 0, "total": 3, "sessions": [BATCH, ...]}
    POST   /batches                 201 BATCH; 400 {"msg": "Duplicate session name: Some(x) ..."}
    GET    /batches/7               BATCH; 404 {"msg": "Session '7' not found."}
    GET    /batches/7/log           {"id": 7, "from": 0, "total": 9, "log": ["...", ...]}
    DELETE /batches/7               {"msg": "deleted"}
    GET    /version                 {"version": "0.7.1-incubating", ...}: Livy's, not Spark's

A BATCH is {"id": 7, "name": "x", "state": "running", "appId": null, "log": [...]}. Its name is
given to one batch at a time: to another only when the first was deleted, or has ended and was
forgotten.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final, Unpack

from stateshift.clusters.http import (
    OTHER_FIELDS,
    Json,
    Query,
    Refused,
    Service,
    Unanswered,
    authentication,
)
from stateshift.clusters.kind import ClusterKind, submit_options
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

PAGE: Final = 100
_LIVY, _EXAMPLE = "Livy", "http://host:8998"
_PASSWORD: Final = "STATESHIFT_LIVY_PASSWORD"
_STATES: Final[Mapping[str, JobState]] = {
    "not_started": JobState.QUEUED,
    "starting": JobState.QUEUED,
    "recovering": JobState.QUEUED,
    "idle": JobState.RUNNING,
    "running": JobState.RUNNING,
    "busy": JobState.RUNNING,
    "shutting_down": JobState.RUNNING,
    "success": JobState.FINISHED,
    "error": JobState.FAILED,
    "dead": JobState.FAILED,
    "killed": JobState.FAILED,
}


@dataclass(frozen=True, slots=True)
class LivyBatch:
    """A batch of Livy's: one Spark application."""

    id: int
    name: str | None
    state: JobState
    word: str  # the state in Livy's own word
    application: str | None


@dataclass(frozen=True)
class LivyCalls:
    """The calls of Livy. `options` are the cluster's, checked."""

    cluster: str
    url: str
    options: Options

    def batches(self) -> Iterator[LivyBatch]:
        """Yield all batches, page by page; one that ends meanwhile may come twice."""
        start = 0
        while True:
            answer = self._call("GET", "/batches", params={"from": start, "size": PAGE})
            sessions = _list(answer, "sessions", self)
            for session in sessions:
                yield batch_of(session, self)
            start += PAGE
            if len(sessions) < PAGE:
                return

    def sessions(self) -> tuple[int, ...]:
        sessions = _list(self._call("GET", "/sessions"), "sessions", self)
        alive = [word for word, state in _STATES.items() if state.alive]
        return tuple(int(each["id"]) for each in sessions if str(each.get("state")) in alive)

    def batch(self, id: int) -> LivyBatch | None:
        try:
            return batch_of(self._call("GET", f"/batches/{id}"), self)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def create(self, body: Json) -> LivyBatch:
        return batch_of(self._call("POST", "/batches", json=body), self)

    def delete(self, id: int) -> None:
        try:
            self._call("DELETE", f"/batches/{id}")
        except Refused as refused:
            if refused.status != 404:
                raise

    def log(self, id: int, lines_max: int) -> list[str]:
        """Return a log's end; its length is asked for first: Livy counts the lines that it kept."""
        path = f"/batches/{id}/log"
        total = int(self._call("GET", path, params={"from": 0, "size": 0}).get("total", 0))
        params = {"from": max(0, total - lines_max), "size": lines_max}
        lines = _list(self._call("GET", path, params=params), "log", self)
        return [str(line) for line in lines]

    def _call(self, method: str, path: str, **query: Unpack[Query]) -> Json:
        service = Service(
            cluster=self.cluster,
            words=_LIVY,
            example=_EXAMPLE,
            said="msg",
            ways_out=_WAYS_OUT,
            options=self.options,
            # Livy's protection against forged requests asks for it.
            headers={"X-Requested-By": "stateshift"},
            authentication=authentication(self.options, self.cluster, _PASSWORD),
        )
        return service.json(method, self.url.rstrip("/") + path, **query)


_WAYS_OUT: Final[Mapping[int, str]] = {
    401: (
        'give the cluster "auth" and "user", and the password in STATESHIFT_LIVY_PASSWORD or '
        'a "password_file"'
    ),
    403: "this user may not do that on Livy: ask its operator (livy.server.access-control)",
    404: '"url" has to be that of Livy\'s REST API, such as http://host:8998',
}


def batch_of(answer: Json, calls: LivyCalls) -> LivyBatch:
    """Return the batch that Livy's answer describes; raise Unanswered if it describes none."""
    try:
        word, name, application = str(answer["state"]), answer.get("name"), answer.get("appId")
        state = _STATES.get(word, JobState.UNKNOWN)
        return LivyBatch(int(answer["id"]), name, state, word, application)
    except OTHER_FIELDS as error:
        raise Unanswered(
            f"{redact(calls.url)} describes a batch in a way that Livy does not: "
            f"{str(answer)[:200]}",
            cluster=calls.cluster,
            hint=f'"url" has to be that of Livy\'s REST API, such as {_EXAMPLE}',
        ) from error


def _list(answer: Json, key: str, calls: LivyCalls) -> list[Json]:
    listed = answer.get(key)
    if not isinstance(listed, list):
        raise Unanswered(f"{redact(calls.url)} has no {key!r} in its answer", cluster=calls.cluster)
    return listed


class Livy(RemoteCluster[LivyCalls]):
    """See the module."""

    takes: ClassVar[KindOptions] = options_of("livy")
    forgotten = "Livy does not know it any more: it ended a while ago, or Livy was restarted"

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
        """Return one alive, if any: by the spec's id or name, else by location or job name."""
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
        calls = self.calls(None)
        batches = [batch for batch in calls.batches() if batch.state.alive]
        named = [f"{batch.name or 'batch'} ({batch.id})" for batch in batches]
        return (*named, *(f"session {id}" for id in calls.sessions()))

    def try_start(self, submission: Submission) -> Trial:
        given = read_options(submission.options, self.takes.submit, "/submit")
        record = {"url": submission_url(submission, str(self.options["url"]))}
        try:
            next(self.calls(record).batches(), None)  # a generator asks when it is read
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
        """Livy tells no file and no arguments of a batch: our own notes do, if we started it."""
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
        for option, value in given.items():
            if option not in ("application", "arguments", "conf"):
                first, *words = option.split("_")  # py_files is pyFiles there
                name = first + "".join(word.title() for word in words)
                body["className" if name == "class" else name] = value
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
        calls = self.calls(self.notes.read(request.tag))
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
    return [batch for batch in calls.batches() if (batch.name or "").rpartition("@")[0] == tag]


def _place(location: str) -> str:
    return hashlib.sha256(location.rstrip("/").encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _status(batch: LivyBatch) -> JobStatus:
    detail = batch.application
    if batch.state in (JobState.FAILED, JobState.UNKNOWN):
        detail = batch.word
    return JobStatus(batch.state, str(batch.id), detail)


KIND = ClusterKind("livy", Livy.takes.cluster, Livy.open, submit_options(Livy.takes.submit))
