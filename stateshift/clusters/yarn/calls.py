"""A ResourceManager as plain values, over REST; and the NodeManager of a driver, for its log.

    GET <url>/ws/v1/cluster/apps?applicationTags=T   {"apps": {"app": [APP, ...]}}, {"apps": {}} or
                                                     {"apps": null} where there is none
    GET <url>/ws/v1/cluster/apps/<id>                {"app": APP}; 404 if it is not known (any more)
    PUT <url>/ws/v1/cluster/apps/<id>/state          {"state": "KILLED"}: 202 until it is, then 200;
                                                     403 for nobody known and for who may not
    GET <url>/ws/v1/cluster/metrics                  {"clusterMetrics": {"totalMB", "allocatedMB",
                                                     "availableMB", "totalVirtualCores", ...}}
    GET <url>/ws/v1/cluster/nodes?states=RUNNING     {"nodes": {"node": [{"id", "usedMemoryMB",
                                                     "availMemoryMB", "nodeLabels"}]}}
    GET <url>/ws/v1/cluster/userinfo                 {"requestedUser"}: who asks; of later ones
    GET <url>/conf?name=KEY                          {"property": {"key", "value"}}
    GET <url>/ws/v1/cluster/scheduler                {"scheduler": {"schedulerInfo": a tree of
                                                     queues}}, another for each scheduler
    GET http://<amHostHttpAddress>/ws/v1/node/containerlogs/<container>/<file>?size=-N

An APP is {"id", "name", "user", "applicationType", "queue", "state", "finalStatus", "diagnostics",
"applicationTags": "a,b", "startedTime": ms, "amHostHttpAddress", "amContainerLogs",
"amRPCAddress": "host:port", "logAggregationStatus"}. Tags are kept and compared in lower case. The
type is SPARK, or what `spark.yarn.applicationType` says, which begins with it; "Apache Flink" of
Flink. The number of the attempt is in the driver's container, which amContainerLogs names:
container_<cluster>_<application>_<attempt>_<container>. (apache/hadoop: RMWebServices, AppInfo,
NMWebServices.)

The standby of a pair answers 307 with the address of the active one, which is not followed: it may
be a name that is not known here, and the credentials are for those that the spec names. All of them
are asked in turn, for `outage_seconds` while none is active: each request may be repeated. What
one refuses, the other may know: it is a refusal once both were asked.
"""

from __future__ import annotations

import getpass
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from threading import Event
from typing import Final, Unpack
from urllib.parse import urlsplit

from stateshift.clusters.http import (
    OTHER_FIELDS,
    Authentication,
    Json,
    Query,
    Refused,
    Service,
    Unanswered,
    authentication,
    through_outages,
)
from stateshift.clusters.options import Options, settings
from stateshift.clusters.placement import Node
from stateshift.clusters.protocol import JobState, Room
from stateshift.clusters.redaction import redact
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError

_PASSWORD: Final = "STATESHIFT_YARN_PASSWORD"
_OUTAGE_SECONDS: Final = 60.0
_ALLOCATION_MIN: Final = 1024
_ALIVE: Final = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
_STANDBY: Final = 307
_SAID: Final = "RemoteException"  # the field of a refusal in YARN's own words
_BEFORE_LOG, _AFTER_LOG = "LogContents:\n", "End of LogType:"  # the frame of a log since 3.0
_CONTAINER: Final = re.compile(r"/containerlogs/(container_\w+_(\d+)_\d+)/")
_ADDRESS: Final = re.compile(r"[^/@?#\s]+:[1-9]\d*")
_NO_TICKET: Final = "klist shows the tickets of this account, and kinit gets one"
_WAYS_OUT: Final[Mapping[int, str]] = {
    401: 'give the cluster "auth": "kerberos" (kinit first), or "basic" behind a gateway',
    403: 'the "user" of the cluster may not do that: see the ACLs of the queue and of the job',
    404: '"url" has to be that of a ResourceManager, such as http://host:8088',
}


@dataclass(frozen=True, slots=True)
class Application:
    """An application as YARN tells it. `final`: its own word on its end; `attempt` counts from 1;
    `driver` is the container of its last attempt, at the NodeManager `node`.
    """

    id: str
    name: str
    user: str
    type: str
    queue: str
    state: str
    final: str
    diagnostics: str
    tags: frozenset[str]
    started: float
    attempt: int
    driver: str | None
    node: str | None
    aggregation: str
    address: str | None = None  # of its master, as that has told it: of Flink, its REST API

    @property
    def job_state(self) -> JobState:
        match self.state:
            case "NEW" | "NEW_SAVING" | "SUBMITTED" | "ACCEPTED":
                return JobState.QUEUED
            case "RUNNING":
                return JobState.RUNNING
            case "FINISHED" if self.final == "SUCCEEDED":
                return JobState.FINISHED
            case "FINISHED" | "FAILED" | "KILLED":
                return JobState.FAILED
        return JobState.UNKNOWN


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The memory (MB) of a queue in the nodes without a label: what is used, by each user too; the
    most that it, one user, and the masters of its applications together may have. The first master
    is always let in. `container_max` is the largest container.
    """

    used: int
    most: int
    user_most: float
    users: Mapping[str, int]
    masters_used: int
    masters_most: float
    has_masters: bool
    container_max: int | None

    @staticmethod
    def of(queue: Json) -> QueueLimits | None:
        """Return the limits of a queue, if they are told as YARN tells them. One whose jobs go to
        nodes with a label has others.
        """
        label = queue.get("defaultNodeLabelExpression")
        if label not in (None, "", "<DEFAULT_PARTITION>"):
            return None
        try:
            factor = float(queue.get("userLimitFactor", -1))
            whole = int(queue["minEffectiveCapacity"]["memory"])
            masters, largest = queue.get("AMResourceLimit"), queue.get("maximumAllocation")
            return QueueLimits(
                used=int(queue["resourcesUsed"]["memory"]),
                most=int(queue["maxEffectiveCapacity"]["memory"]),
                # A queue without a capacity of its own bounds no user.
                user_most=whole * factor if factor >= 0 and whole > 0 else math.inf,
                users={
                    str(user["username"]): int(user["resourcesUsed"]["memory"])
                    for user in (queue.get("users") or {}).get("user") or ()
                },
                masters_used=int((queue.get("usedAMResource") or {}).get("memory", 0)),
                masters_most=math.inf if masters is None else int(masters["memory"]),
                has_masters=int(queue.get("numActiveApplications") or 0) > 0,
                container_max=None if largest is None else int(largest["memory"]),
            )
        except OTHER_FIELDS:
            return None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of the scheduler's tree. `makes_queues`: it may make one below it that does not exist
    yet. `is_parent`: it takes no job.
    """

    name: str
    path: str
    is_open: bool
    makes_queues: bool
    is_parent: bool
    limits: QueueLimits | None = None


@dataclass(frozen=True)
class YarnCalls:
    """The calls of a ResourceManager. `options` are the cluster's, checked."""

    cluster: str
    options: Options
    interrupt: Event | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(url.strip().rstrip("/") for url in str(self.options["url"]).split(","))

    def tagged(self, tag: str) -> list[Application]:
        """Return the applications with this tag, the newest last."""
        return self._applications({"applicationTags": tag.lower()})

    def alive(self) -> list[Application]:
        return self._applications({"states": _ALIVE})

    def application(self, id: str) -> Application | None:
        try:
            return self._application(self._call("GET", f"/apps/{id}").get("app", {}))
        except Refused as refused:
            if refused.status == 404 and _is_yarns_word(refused):
                return None
            raise

    def kill(self, id: str) -> None:
        self._call("PUT", f"/apps/{id}/state", json={"state": "KILLED"})

    def room(self) -> Room:
        answer = self._call("GET", "/metrics")
        try:
            metrics = answer["clusterMetrics"]
            return Room(
                int(metrics["totalMB"]),
                int(metrics["totalVirtualCores"]),
                int(metrics["availableMB"]),
                int(metrics["availableVirtualCores"]),
            )
        except OTHER_FIELDS as error:
            raise self._odd("metrics", answer) from error

    def nodes(self) -> list[Node]:
        """Return the nodes that run, but for those with a label, which take who asks for it."""
        answer = self._call("GET", "/nodes", params={"states": "RUNNING"})
        nodes = []
        try:
            for plain in (answer["nodes"] or {}).get("node") or []:
                if any(plain.get("nodeLabels") or ()):
                    continue
                free = Decimal(int(plain["availMemoryMB"]) << 20)
                every = free + (int(plain["usedMemoryMB"]) << 20)
                nodes.append(Node({"memory": every}, {"memory": free}))
        except OTHER_FIELDS as error:
            raise self._odd("nodes", answer) from error
        return nodes

    def allocation_min(self) -> int:
        """Return the memory (MB) of which each container gets a multiple: Hadoop's own default
        where this user may not see the configuration.
        """
        key = "yarn.scheduler.minimum-allocation-mb"
        try:
            answer = self._call("GET", "/conf", params={"name": key}, root="")
            return max(1, int(answer["property"]["value"]))
        except (ClusterError, *OTHER_FIELDS):
            return _ALLOCATION_MIN

    def queues(self) -> list[Queue]:
        """Return all queues; of a Fair scheduler none, which makes those that it does not have."""
        answer = self._call("GET", "/scheduler")
        try:
            info = answer["scheduler"]["schedulerInfo"]
            if info["type"] == "fifoScheduler":
                return [Queue("default", "root.default", True, False, False)]
            if info["type"] != "capacityScheduler":
                return []
            return list(_queues_below(info))
        except OTHER_FIELDS as error:
            raise self._odd("scheduler", answer) from error

    def said(self, application: Application, file: str, bytes_max: int) -> str:
        """Return the end of a driver's stdout or stderr, as its NodeManager has it."""
        if application.node is None or application.driver is None:
            return ""
        scheme = urlsplit(self.urls[0]).scheme
        place = f"{scheme}://{application.node}/ws/v1/node/containerlogs/{application.driver}"
        # A password is for those that the spec names: no node is given it.
        known = self._authentication if self._has_ticket else None
        # A NodeManager answers 503 to whoever takes JSON alone.
        query: Query = {"headers": {"Accept": "*/*"}, "params": {"size": -bytes_max, **self._user}}
        text = self._service(known).text(f"{place}/{file}", **query)
        _, framed, content = text.partition(_BEFORE_LOG)
        return content.rpartition(_AFTER_LOG)[0] if framed else text

    def _applications(self, params: Mapping[str, str]) -> list[Application]:
        answer = self._call("GET", "/apps", params=params)
        try:
            listed = [] if answer["apps"] is None else answer["apps"].get("app") or []
        except OTHER_FIELDS as error:
            raise self._odd("applications", answer) from error
        applications = [self._application(plain) for plain in listed]
        return sorted(applications, key=lambda each: (each.started, each.id))

    def _application(self, plain: Json) -> Application:
        try:
            container = _CONTAINER.search(plain.get("amContainerLogs") or "")
            address = str(plain.get("amRPCAddress") or "")
            return Application(
                id=str(plain["id"]),
                name=str(plain["name"]),
                user=str(plain["user"]),
                type=str(plain.get("applicationType") or ""),
                queue=str(plain.get("queue") or ""),
                state=str(plain["state"]),
                final=str(plain["finalStatus"]),
                diagnostics=str(plain.get("diagnostics") or "").strip(),
                tags=frozenset(str(plain.get("applicationTags") or "").split(",")),
                started=int(plain["startedTime"]) / 1000,
                attempt=int(container[2]) if container else 1,
                driver=container[1] if container else None,
                node=plain.get("amHostHttpAddress"),
                aggregation=str(plain.get("logAggregationStatus") or ""),
                address=address if _ADDRESS.fullmatch(address) else None,
            )
        except OTHER_FIELDS as error:
            raise self._odd("application", plain) from error

    def _odd(self, what: str, plain: object) -> Unanswered:
        shown = redact(str(plain), os.environ)[:200]
        fact = f"describes its {what} in a way that YARN does not: {shown}"
        return self._service(None).odd(self.urls[0], fact)

    def _call(
        self, method: str, path: str, root: str = "/ws/v1/cluster", **query: Unpack[Query]
    ) -> Json:
        """Return the answer of the active ResourceManager."""
        usual = _OUTAGE_SECONDS if len(self.urls) > 1 else 0.0
        seconds = float(self.options.get("outage_seconds", usual))
        query["params"] = {**query.get("params", {}), **self._user}

        def ask() -> Json:
            silent: list[Unanswered] = []
            refusals: list[Refused] = []
            for url in self.urls:
                try:
                    return self._service(self._authentication).json(
                        method, f"{url}{root}{path}", **query
                    )
                except Unanswered as error:
                    silent.append(error)
                except Refused as error:
                    refusals.append(error)
            if refusals:  # YARN's own words go before those of whatever else answers there
                raise min(refusals, key=lambda each: not _is_yarns_word(each))
            if all(error.status == _STANDBY for error in silent):
                fact = f"{redact(', '.join(self.urls))}: a standby, and no active ResourceManager"
                hint = '"url" names both of a pair, by comma; then: stateshift resume WORKDIR'
                raise Unanswered(fact, cluster=self.cluster, hint=hint)
            facts = "; ".join(error.fact for error in silent)
            raise Unanswered(facts, cluster=self.cluster, hint=silent[0].hint)

        answer = wait_for(through_outages(ask, seconds), seconds + 3600.0, self.interrupt)
        assert answer is not None
        return answer

    @cached_property
    def user(self) -> str:
        """Return the user as whom we ask and start jobs, who of a ticket is whom YARN says."""
        user = self.options.get("user")
        if user is None and self._has_ticket:
            with suppress(Refused):  # an older YARN does not say it
                user = self._call("GET", "/userinfo").get("requestedUser")
        environment = {**os.environ, **settings(self.options.get("environment"))}
        return str(user or environment.get("HADOOP_USER_NAME") or getpass.getuser())

    @property
    def _has_ticket(self) -> bool:
        return self.options.get("auth") == "kerberos"

    @property
    def _user(self) -> dict[str, str]:
        """Return the parameter that names us where YARN believes it (simple authentication)."""
        is_simple = self.options.get("auth", "simple") == "simple"
        return {"user.name": self.user} if is_simple else {}

    @cached_property
    def _authentication(self) -> Authentication:
        return authentication(self.options, self.cluster, _PASSWORD)

    def _service(self, known: Authentication) -> Service:
        return Service(
            cluster=self.cluster,
            words="a ResourceManager",
            example="http://host:8088, or both of a pair, by comma",
            said=_SAID,
            ways_out={**_WAYS_OUT, 401: _NO_TICKET} if self._has_ticket else _WAYS_OUT,
            options=self.options,
            headers={"Accept": "application/json"},
            authentication=known,
        )


def _queues_below(info: Json) -> Iterator[Queue]:
    for queue in (info.get("queues") or {}).get("queue") or []:
        made = queue.get("autoCreationEligibility", "off") != "off"
        below = list(_queues_below(queue))
        yield Queue(
            name=str(queue["queueName"]),
            path=str(queue.get("queuePath") or queue["queueName"]),
            is_open=queue.get("state", "RUNNING") == "RUNNING",
            makes_queues=made or bool(queue.get("autoCreateChildQueueEnabled")),
            is_parent=bool(below) or queue.get("queueType") == "parent",
            limits=QueueLimits.of(queue),
        )
        yield from below


def _is_yarns_word(refused: Refused) -> bool:
    return isinstance(refused.answer, dict) and _SAID in refused.answer
