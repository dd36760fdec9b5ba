"""The REST API of Flink's SQL gateway, in its first version, which all of them answer (1.16 to
2.3).

    POST   /v1/sessions               {"properties": {...}} -> {"sessionHandle": S}; gone after ten
                                      idle minutes
    DELETE /v1/sessions/<S>           what the session has started goes on

Below /v1/sessions/<S>:

    POST   /statements                {"statement", "executionConfig": {...}} ->
                                      {"operationHandle": O}
    GET    /operations/<O>/status     {"status": "PENDING", "RUNNING", "FINISHED", "ERROR", ...}
    GET    /operations/<O>/result/0   its result: of an ERROR, 500 with the stack

`executionConfig` is for its statement alone, and goes before what the session and its SETs say.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Unpack
from urllib.parse import quote

from stateshift.clusters.flink.asking import Asking
from stateshift.clusters.flink.sql import Statement
from stateshift.clusters.http.rest import Json, Query, Refused, Unanswered, through_outages
from stateshift.clusters.options import Options
from stateshift.clusters.redaction import redact
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError

_UNDER_WAY: Final = ("INITIALIZED", "PENDING", "RUNNING")


@dataclass(frozen=True)
class Gateway:
    """`options` are the cluster's, checked. A statement may take `seconds_max`."""

    cluster: str
    url: str
    options: Options
    file: str
    seconds_max: float
    outage_seconds: float
    interrupt: threading.Event | None = None

    @contextmanager
    def session(self, properties: Mapping[str, str]) -> Iterator[Session]:
        path = "/v1/sessions"
        with self.asking.read(path):
            body: Json = {"properties": dict(properties)}
            handle = self.asking.call("POST", path, json=body)["sessionHandle"]
            path = f"{path}/{quote(str(handle), safe='')}"
        try:
            yield Session(self, path)
        finally:
            with suppress(ClusterError):  # it ends by itself
                self.asking.call("DELETE", path)

    @property
    def asking(self) -> Asking:
        words = "Flink's SQL gateway"
        return Asking(
            self.cluster, self.url, self.options, words, words, "http://gateway:8083", "sql_gateway"
        )


@dataclass(frozen=True)
class Session:
    """An open session of an SQL gateway: its settings hold for its statements only."""

    gateway: Gateway
    path: str

    def run(self, statement: Statement, configuration: Mapping[str, str] | None = None) -> None:
        """Run a statement to its end.

        Raises:
            Unanswered: it was taken, and nobody knows what came of it.
        """
        operation = self._begin(statement, configuration or {})

        def has_ended() -> str | Refused | None:
            """Return the end of the operation, if it has ended. A gateway that was restarted knows
            neither session nor operation.
            """
            path = f"{operation}/status"
            with self.gateway.asking.read(path):
                try:
                    status = str(self.gateway.asking.call("GET", path)["status"])
                except Refused as refused:
                    return refused
            return None if status in _UNDER_WAY else status

        look = through_outages(has_ended, self.gateway.outage_seconds)
        ended = wait_for(look, self.gateway.seconds_max, self.gateway.interrupt)
        if ended == "FINISHED":
            return
        if ended == "ERROR":
            self._call(statement, "GET", f"{operation}/result/0")  # which says why
        if isinstance(ended, Refused):
            fact = f"it was taken, and then the gateway did not know it any more: {ended.fact}"
            raise self._unanswered(statement, fact) from ended
        outcome = f"it has taken more than {self.gateway.seconds_max:g} s"
        if ended:
            outcome = f"it ended as {ended}"
        raise self._unanswered(statement, f"{redact(self.gateway.url)}: {outcome}")

    def _begin(self, statement: Statement, configuration: Mapping[str, str]) -> str:
        """Begin a statement. Return the path of the operation that carries it out."""
        body: Json = {"statement": statement.text}
        if configuration:
            body["executionConfig"] = dict(configuration)
        path = f"{self.path}/statements"
        with self.gateway.asking.read(path):
            handle = self._call(statement, "POST", path, json=body)["operationHandle"]
            return f"{self.path}/operations/{quote(str(handle), safe='')}"

    def _call(self, statement: Statement, method: str, path: str, **asked: Unpack[Query]) -> Json:
        """Call the gateway; errors say where in the file the statement is."""
        try:
            return self.gateway.asking.call(method, path, **asked)
        except (Refused, Unanswered) as error:
            message = statement.in_file(error.fact.partition(" Was expecting one of")[0])
            fact, status = f"{self._where(statement)}: {message}", error.status or 0
            raise type(error)(
                fact, status, error.answer, cluster=self.gateway.cluster, hint=error.hint
            ) from error

    def _where(self, statement: Statement) -> str:
        return f"{self.gateway.file}, line {statement.line} ({statement.called})"

    def _unanswered(self, statement: Statement, fact: str) -> Unanswered:
        hint = "see the gateway's log; then: stateshift resume WORKDIR"
        return Unanswered(
            f"{self._where(statement)}: {fact}", cluster=self.gateway.cluster, hint=hint
        )
