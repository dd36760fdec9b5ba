"""Submission of a job of SQL: its file read and checked, and run by the SQL gateway.

All but the last statement are run before the job is begun, in a session with the spec's
configuration; after a crash they are run again. The last one goes with the settings that make the
job ours, for itself alone: its id, the image that it is restored from, and the cluster where it is
to run. That is the one at "url", unless "flink_configuration" says otherwise, for a gateway that
reaches it under another address.

The REST API of the gateway, in its first version, which all of them answer (1.16 to 2.3):

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Unpack
from urllib.parse import quote, urlsplit

from stateshift.clusters.flink.calls import Asking, FlinkCalls
from stateshift.clusters.flink.sql import (
    BrokenSql,
    Statement,
    faults_of,
    refused_setting,
    statements_of,
)
from stateshift.clusters.flink.values import release_of
from stateshift.clusters.http import (
    REQUEST_SECONDS,
    Json,
    Query,
    Refused,
    Unanswered,
    through_outages,
)
from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import Submission
from stateshift.clusters.redaction import redact
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError, Complaint

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
            """Return an operation's end; a gateway restarted since knows nothing of it."""
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


_OF_JARS: Final = ("entry_class", "arguments")
_GATEWAY_SINCE: Final = (1, 16)
_RECOVERY: Final = tuple(
    f"execution.state-recovery.{key}" for key in ("path", "claim-mode", "ignore-unclaimed-state")
)
_RECOVERY_ONCE: Final = (
    "execution.savepoint.path",
    "execution.savepoint-restore-mode",
    "execution.savepoint.ignore-unclaimed-state",
)
_SECONDS_TO_APPEAR: Final = 5.0
# A gateway tries for a minute to reach a cluster that is not there; a request is given as long by
# default.
_REQUESTS: Final = 3


def complaints_about_sql(given: Options, cluster: Options, pointer: str) -> Iterator[Complaint]:
    """Yield the reasons for which no job could be submitted by it."""
    place = f"{pointer}/sql"
    for option in [option for option in _OF_JARS if option in given]:
        why = "is of a jar, and there is none"
        yield Complaint(f"{pointer}/{option}", why, given[option], 'nothing, beside "sql"')
    if "sql_gateway" not in cluster:
        expected = '"sql_gateway" in the cluster, such as http://gateway:8083'
        yield Complaint(place, "the cluster has no gateway that takes SQL", given["sql"], expected)
    for key, value in _configuration(given, cluster).items():
        refusal = refused_setting(key, value)
        if refusal is not None:
            configuration = f"{pointer}/flink_configuration"
            yield Complaint(configuration, f"{key}: {refusal}", value, "nothing about it")
    try:
        statements = _statements(given)
        faults = tuple(faults_of(statements, _of_submission(given)))
    except BrokenSql as broken:
        faults = (broken.fault,)
    except (OSError, UnicodeDecodeError) as error:
        why = str(error.strerror) if isinstance(error, OSError) else "it is no UTF-8"
        expected = "a file of SQL on this machine"
        yield Complaint(place, f"cannot be read: {why}", given["sql"], expected)
        return
    for fault in faults:
        yield Complaint(place, fault.message, given["sql"], fault.expected)


def explain(
    calls: FlinkCalls, submission: Submission, given: Options, interrupt: threading.Event | None
) -> str:
    """Run all statements but the last one, and explain that. Return the reason if Flink cannot."""
    with sql_ready(calls, submission, given, interrupt, explained=True):
        last = _statements(given)[-1]
    if last.words[0] in ("INSERT", "EXECUTE") and last.words[:2] != ("EXECUTE", "PLAN"):
        return ""
    return f"Flink does not explain {last.called}"


@contextmanager
def sql_ready(
    calls: FlinkCalls,
    submission: Submission,
    given: Options,
    interrupt: threading.Event | None,
    explained: bool = False,
) -> Iterator[Callable[[str], None]]:
    """Do all but the start, given the job's id; where nothing is started, explain the last one."""
    version = calls.version()
    if release_of(version) < _GATEWAY_SINCE:
        since = ".".join(map(str, _GATEWAY_SINCE))
        fact = f"Flink {version} has no SQL gateway: it came with {since}"
        raise ClusterError(
            fact, cluster=calls.cluster, job=submission.job, hint="submit a jar, or to a newer one"
        )
    *before, last = _statements(given)
    seconds_max = _REQUESTS * float(calls.options.get("request_seconds", REQUEST_SECONDS))
    url, file, outage = str(calls.options["sql_gateway"]), str(given["sql"]), calls.outage_seconds
    gateway = Gateway(calls.cluster, url, calls.options, file, seconds_max, outage, interrupt)
    configuration = _configuration(given, calls.options)
    with gateway.session({"pipeline.name": submission.job, **configuration}) as session:
        for statement in before:
            session.run(statement)
        if explained and last.words[:2] != ("EXECUTE", "PLAN"):
            text = f"EXPLAIN {last.text.removeprefix('EXECUTE ')}"
            session.run(replace(last, text=text))
        ours = {
            **_ours(submission, given, release_of(version)),
            **target_of(calls.url, calls.options, configuration),
        }

        def start(id: str) -> None:
            _start(session, last, {**ours, "$internal.pipeline.job-id": id}, calls, interrupt)

        yield start


def target_of(url: str, options: Options, configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the address that the gateway submits to; nothing if it is set, or known better."""
    place = urlsplit(url)
    if {"execution.target", "rest.address"} & set(configuration):
        return {}
    if options.get("auth", "none") != "none":
        return {}
    if place.scheme != "http" or place.path.strip("/") or place.hostname is None:
        return {}
    return {
        "execution.target": "remote",
        "rest.address": place.hostname,
        "rest.port": str(place.port or 80),
    }


def _start(
    session: Session,
    statement: Statement,
    configuration: Mapping[str, str],
    calls: FlinkCalls,
    stop: threading.Event | None,
) -> None:
    session.run(statement, configuration)
    id = configuration["$internal.pipeline.job-id"]

    settle_seconds = float(calls.options.get("settle_seconds", _SECONDS_TO_APPEAR))
    seconds_max = min(_SECONDS_TO_APPEAR, settle_seconds)
    if wait_for(lambda: calls.job(id), seconds_max, stop) is None:
        try:
            cancelling = Statement(f"STOP JOB '{id}'", statement.line, ("STOP", "JOB"), "")
            session.run(cancelling, configuration)
            after = "it was cancelled there"
        except ClusterError as error:
            after = f"cancel it there, for the gateway does not: {error.fact}"
        fact = (
            f"the SQL gateway has started {id} on another cluster than that at "
            f"{redact(calls.url)}; {after}"
        )
        hint = (
            'say how the gateway reaches that one: "flink_configuration": {"execution.target": '
            '"remote", "rest.address": HOST, "rest.port": PORT}'
        )
        raise Refused(fact, 0, cluster=calls.cluster, hint=hint)


def _ours(submission: Submission, given: Options, release: tuple[int, int]) -> dict[str, str]:
    ours = {"table.dml-sync": "false", "execution.runtime-mode": "streaming"}
    if not submission.location:
        return ours
    allow = str(bool(given.get("allow_non_restored_state", False))).lower()
    claim = str(given.get("claim_mode", "no_claim")).upper()
    path, mode, ignore = _RECOVERY if release >= (1, 20) else _RECOVERY_ONCE
    return {**ours, path: submission.location, mode: claim, ignore: allow}


def _statements(given: Options) -> tuple[Statement, ...]:
    return statements_of(Path(str(given["sql"])).read_text("utf-8-sig"))


def _configuration(given: Options, cluster: Options) -> dict[str, str]:
    return {**settings(cluster.get("flink_configuration")), **_of_submission(given)}


def _of_submission(given: Options) -> dict[str, str]:
    configuration = settings(given.get("flink_configuration"))
    if "parallelism" in given:
        configuration["parallelism.default"] = str(given["parallelism"])
    return configuration
