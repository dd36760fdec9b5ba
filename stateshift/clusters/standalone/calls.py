"""A standalone Spark master, as plain values: its REST API for submissions, and the pages of master
and workers.

    POST <url>/v1/submissions/create           {"success": true, "submissionId":
                                               "driver-20261121213711-0000", ...}
    GET  <url>/v1/submissions/status/<id>      {"success": true, "driverState": "RUNNING",
                                               "workerId": ...}; of one that it does not know
                                               {"success": false}; always "serverSparkVersion"; of
                                               one that could not be started "message", with the
                                               exception
    POST <url>/v1/submissions/kill/<id>        {"success": false, ...} where there is nothing to
                                               kill
    GET  <ui_url>/json/                        {"workers": [{"id", "webuiaddress", "state", "cores",
                                               "coresused", "memory", "memoryused"}],
                                               "activedrivers": [DRIVER, ...],
                                                "completeddrivers": [...]}
    GET  <webuiaddress>/log/?driverId=<id>&logType=stderr     what the driver said, its launch
                                                              command first

A DRIVER is {"id", "starttime": "1795297031716", "state", "worker", "mainclass"}, and says nothing
of who submitted it: that stands in its launch command, where Spark writes the submission's settings
(hiding those that look like secrets).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Unpack
from urllib.parse import urlsplit

from stateshift.clusters.http import (
    OTHER_FIELDS,
    Json,
    Query,
    Refused,
    Service,
    Unanswered,
    read_secret,
)
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import JobState, Origin
from stateshift.clusters.redaction import redact

_STATES: Final[Mapping[str, JobState]] = {
    "SUBMITTED": JobState.QUEUED,
    "RELAUNCHING": JobState.QUEUED,
    "RUNNING": JobState.RUNNING,
    "FINISHED": JobState.FINISHED,
    "KILLED": JobState.FAILED,
    "FAILED": JobState.FAILED,
    "ERROR": JobState.FAILED,
}
_SPARK, _EXAMPLE = "a standalone Spark", "http://master:6066"
_PAGE, _PAGE_EXAMPLE = "the master's page", "http://master:8080"
_LAUNCH_BYTES: Final = 64 * 1024  # a launch command is 3 to 30 KB
UI_PORT: Final = 8080
_WRAPPER: Final = "org.apache.spark.deploy.worker.DriverWrapper"
_HIDDEN: Final = "(redacted)"
# A submission sets these by itself, or they belong to the one driver.
_ITS_OWN: Final = (
    "spark.app.name",
    "spark.app.submitTime",
    "spark.driver.port",
    "spark.master",
    "spark.submit.",
    "spark.stateshift.",
)
REASON_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver as its master describes it."""

    id: str
    state: JobState
    message: str  # the state in Spark's own word, and why it could not start a driver
    submitted: float = 0.0
    page: str | None = None  # of the worker that runs it


@dataclass(frozen=True, slots=True)
class Resources:
    """The cores, and the bytes of memory, of the workers of a master that are alive."""

    cores: int
    cores_used: int
    memory: int
    memory_used: int


@dataclass(frozen=True)
class StandaloneCalls:
    """`options` are the cluster's, checked (see `standalone`)."""

    cluster: str
    url: str
    options: Options

    def version(self) -> str | None:
        version = self._rest("GET", "status/stateshift").get("serverSparkVersion")
        return str(version) if version else None

    def create(self, body: Json) -> str:
        answer = self._rest("POST", "create", json=body)
        id = answer.get("submissionId")
        if answer.get("success") is not True or not id:
            fact = f"{self._place('create')}: {str(answer.get('message') or answer)[:500]}"
            hint = "look at the master's page; then: stateshift resume WORKDIR"
            raise Refused(fact, 200, cluster=self.cluster, hint=hint)
        return str(id)

    def driver(self, id: str) -> Driver | None:
        answer = self._rest("GET", f"status/{id}")
        if answer.get("success") is not True:
            return None
        word = str(answer.get("driverState", "UNKNOWN"))
        message = word + _reason(answer.get("message"))
        return Driver(id, _STATES.get(word, JobState.UNKNOWN), message)

    def kill(self, id: str) -> None:
        self._rest("POST", f"kill/{id}", json={})

    def drivers(self, active: bool = False) -> list[Driver]:
        answer = self._pages.json("GET", f"{self.ui_url}/json/")
        listed = list(_list(answer, "activedrivers", self))
        if not active:
            listed += _list(answer, "completeddrivers", self)
        workers = _list(answer, "workers", self)
        pages = {str(worker.get("id")): worker.get("webuiaddress") for worker in workers}
        drivers = []
        try:
            for each in listed:
                word, page = str(each["state"]), pages.get(str(each.get("worker")))
                state = _STATES.get(word, JobState.UNKNOWN)
                submitted = float(each.get("starttime") or 0) / 1000
                drivers.append(Driver(str(each["id"]), state, word, submitted, page))
        except OTHER_FIELDS as error:
            fact = "describes a driver in a way that Spark does not"
            raise self._pages.odd(self.ui_url, fact) from error
        return sorted(drivers, key=lambda driver: driver.submitted, reverse=True)

    def applications(self, name: str) -> list[str]:
        """Return the ids of those that run under this name, wherever their drivers do."""
        return [id for id, called in self.running() if called == name]

    def running(self) -> list[tuple[str, str]]:
        active = self._pages.json("GET", f"{self.ui_url}/json/").get("activeapps")
        if not isinstance(active, list):
            return []
        running = [application for application in active if isinstance(application, dict)]
        return [(str(one.get("id")), str(one.get("name"))) for one in running]

    def resources(self) -> Resources:
        answer = self._pages.json("GET", f"{self.ui_url}/json/")
        workers = _list(answer, "workers", self)
        alive = [worker for worker in workers if worker.get("state") == "ALIVE"]
        try:
            return Resources(
                cores=sum(int(worker["cores"]) for worker in alive),
                cores_used=sum(int(worker["coresused"]) for worker in alive),
                memory=sum(int(worker["memory"]) for worker in alive) << 20,
                memory_used=sum(int(worker["memoryused"]) for worker in alive) << 20,
            )
        except OTHER_FIELDS as error:
            fact = "describes a worker in a way that Spark does not"
            raise self._pages.odd(self.ui_url, fact) from error

    def without_room(self, cores: int, memory: int | None) -> str | None:
        """Return the reason why no worker will ever have room for a driver; None if unknown."""
        try:
            answer = self._pages.json("GET", f"{self.ui_url}/json/")
            workers = [each for each in answer["workers"] if each["state"] == "ALIVE"]
            sizes = [(int(each["cores"]), int(each["memory"]) << 20) for each in workers]
        except (Refused, Unanswered, *OTHER_FIELDS):
            return None
        if any(has >= cores and free >= (memory or 0) for has, free in sizes):
            return None
        largest = max(sizes, default=(0, 0))
        return (
            f"none of {len(sizes)} workers has {cores} cores and {(memory or 0) >> 20} MiB for the "
            f"driver (the largest: {largest[0]} cores, {largest[1] >> 20} MiB)"
        )

    def launch_command(self, driver: Driver) -> str | None:
        """Return the line by which its worker started a driver; None if no worker has, or says."""
        try:
            text = self._said(driver, "stderr", {"offset": "0", "byteLength": str(_LAUNCH_BYTES)})
        except (Refused, Unanswered):
            return None
        commands = (line for line in text.splitlines() if line.startswith("Launch Command:"))
        return next(commands, None)

    def said(self, driver: Driver, kind: str, bytes_max: int) -> str:
        """Return the end of its stdout or stderr; nothing if its worker does not say."""
        try:
            said = self._said(driver, kind, {"byteLength": str(bytes_max)})
        except (Refused, Unanswered):
            return ""
        return said.partition("\n")[2]  # behind a line that counts the bytes

    def _said(self, driver: Driver, kind: str, part: Mapping[str, str]) -> str:
        if not driver.page:
            raise Unanswered(f"no worker tells of {driver.id}", cluster=self.cluster)
        return self._pages.text(
            f"{driver.page}/log/", params={"driverId": driver.id, "logType": kind, **part}
        )

    def _rest(self, method: str, path: str, **asked: Unpack[Query]) -> Json:
        return self._service.json(method, self._place(path), **asked)

    def _place(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/v1/submissions/{path}"

    @property
    def ui_url(self) -> str:
        """Return the URL of the master's page: the cluster's option, else its usual port."""
        named = self.options.get("ui_url")
        if named:
            return str(named).rstrip("/")
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}:{UI_PORT}"

    @property
    def _pages(self) -> Service:
        """The pages of the master and its workers, which want no token."""
        return Service(
            self.cluster, _PAGE, _PAGE_EXAMPLE, "message", {}, self.options, {}, option="ui_url"
        )

    @property
    def _service(self) -> Service:
        file = self.options.get("token_file")
        headers = {}
        if file:
            headers["Authorization"] = f"Bearer {read_secret(file, 'token', self.cluster)}"
        return Service(self.cluster, _SPARK, _EXAMPLE, "message", _WAYS_OUT, self.options, headers)


_WAYS_OUT: Final[Mapping[int, str]] = {
    401: 'the master asks who we are: give the cluster a "token_file"',
    403: 'the master refuses this token: give the cluster another "token_file"',
    404: (
        f'"url" has to be that of the REST server, such as {_EXAMPLE} '
        "(spark.master.rest.enabled is to be true)"
    ),
}


def _reason(message: object) -> str:
    """Return the first words of "Exception from the cluster:" and a stack."""
    lines = [line.strip() for line in str(message or "").splitlines()]
    telling = (line for line in filter(None, lines) if not line.endswith("cluster:"))
    reason = next(telling, "")
    return f": {redact(reason, os.environ)[:REASON_MAX]}" if reason else ""


def _list(answer: Json, key: str, calls: StandaloneCalls) -> list[Json]:
    listed = answer.get(key)
    if not isinstance(listed, list):
        raise Unanswered(
            f"{calls.ui_url}/json/ has no {key!r} in its answer",
            cluster=calls.cluster,
            hint=f'"ui_url" has to be that of {_PAGE}, such as {_PAGE_EXAMPLE}',
        )
    return listed


def origin_of(command: str | None) -> Origin:
    """Return the origin of a driver, by the launch command that its worker shows:

        Launch Command: "java" "-cp" … "-Dspark.k=v" …
        "org.apache.spark.deploy.worker.DriverWrapper" "spark://Worker@…"
        "/work/driver-…/app.jar" "org.shop.Orders" "a" "b"

    Spark hides the values of settings that look like credentials: such a driver cannot be started
    again from here. The application's own place is among `spark.jars`, where a worker's copy has
    its name.
    """
    if command is None:
        return Origin(why="no worker shows how its driver was launched")
    try:
        words = shlex.split(command.partition(":")[2])
    except ValueError:
        return Origin(why="its launch command cannot be read")
    if _WRAPPER not in words or _HIDDEN in command:
        return Origin(why="its launch command does not show all that it was started with")
    at = words.index(_WRAPPER)
    if at + 3 >= len(words):
        return Origin(why="its launch command is cut short")
    _, copy, main, *arguments = words[at + 1 :]
    conf = dict(word[2:].partition("=")[::2] for word in words[:at] if word.startswith("-Dspark."))
    name = copy.rpartition("/")[2]
    jars = conf.get("spark.jars", "").split(",")
    places = [jar for jar in jars if jar.rpartition("/")[2] == name]
    if not places:
        return Origin(why=f"its launch command does not say where {name} came from")
    kept = {key: value for key, value in conf.items() if not key.startswith(_ITS_OWN)}
    kept.pop("spark.jars")
    others = [jar for jar in jars if jar not in places]
    if others:
        kept["spark.jars"] = ",".join(others)
    return Origin({"application": places[0], "class": main, "arguments": arguments, "conf": kept})
