"""Livy's REST API for batches (0.7, and later ones that keep it), as plain values.

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Unpack

from stateshift.clusters.http.credentials import authentication
from stateshift.clusters.http.rest import OTHER_FIELDS, Json, Query, Refused, Service, Unanswered
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import JobState
from stateshift.clusters.redaction import redact

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
    """`options` are the cluster's, checked (see `livy`)."""

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
        """Return the ids of the first interactive sessions that are alive."""
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
        """Delete a batch; one that is not there is fine."""
        try:
            self._call("DELETE", f"/batches/{id}")
        except Refused as refused:
            if refused.status != 404:
                raise

    def log(self, id: int, lines_max: int) -> list[str]:
        """Return the end of a log. Livy keeps but the last lines, and counts those: so its number
        is asked for first.
        """
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
