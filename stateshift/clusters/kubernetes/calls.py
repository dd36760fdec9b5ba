"""An API server's custom resources as plain values.

    GET   /apis/<group>/<version>/namespaces/<namespace>/<plural>?labelSelector=K=V
                                                    (pods, events: /api/v1/namespaces/...)
                                                    {"items": [...]}
    POST  .../<plural>                              201; 409 AlreadyExists
    DELETE .../<plural>/<name>                      {"preconditions": {"uid"}}: 409 if it is another
    GET  .../<plural>/<name>                        404 with "details" that name the resource
    PUT  .../<plural>/<name>                        409 Conflict unless metadata.resourceVersion is
                                                    that of the stored one
    GET  /apis/<group>                              {"versions": [{"version"}]}, to tell why not
    GET  /api/v1/namespaces/<namespace>/services/<name>:<port>/proxy/<path>

A refusal is {"kind": "Status", "message", "reason", "code", "details": {"kind", "name"}}. A server
without the resource's definition answers 404 as a page. Writes go with fieldValidation=Strict: a
field that the definition there does not have is refused, and not dropped. (kubernetes/apimachinery:
meta/v1 Status; kubernetes/apiserver: endpoints/handlers.)

No client library: the official one brings 40 MB of models of built-in resources and a pool of its
own, and its exec plug-ins and rotated tokens follow kubectl less closely.

A write that got no answer may be made again: it carries the version of what was read, or the name
of what is made, so that at most one of both has an effect. `NEEDS` are all the rights that are
used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from threading import Event
from typing import Final, Literal, TypeAlias, TypeVar, Unpack
from urllib.parse import quote

from stateshift.clusters.http import (
    Json,
    Query,
    Refused,
    Service,
    Unanswered,
    through_outages,
)
from stateshift.clusters.kubernetes.credentials import Access, access_of
from stateshift.clusters.options import Options
from stateshift.clusters.redaction import redact
from stateshift.clusters.waiting import wait_for
from stateshift.errors import ClusterError

T = TypeVar("T")
Verb = Literal["get", "list", "create", "update", "delete"]

_OUTAGE_SECONDS: Final = 60.0
_CHANGE_SECONDS: Final = 3600.0
_CONFLICTS_MAX: Final = 32  # each means that somebody else has written in between
_FLINK: Final = "flink.apache.org"
_SPARK: Final = "sparkoperator.k8s.io"


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind of resource: its API group and version, and its name in paths. `is_everywhere`: not
    those of one namespace.
    """

    group: str
    version: str
    plural: str
    kind: str
    is_everywhere: bool = False

    @property
    def api(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def words(self) -> str:
        return f"{self.plural} ({self.group})" if self.group else self.plural

    @property
    def path(self) -> str:
        return f"apis/{self.api}" if self.group else f"api/{self.api}"


DEPLOYMENT: Final = Definition(_FLINK, "v1beta1", "flinkdeployments", "FlinkDeployment")
SESSION_JOB: Final = Definition(_FLINK, "v1beta1", "flinksessionjobs", "FlinkSessionJob")
SNAPSHOT: Final = Definition(_FLINK, "v1beta1", "flinkstatesnapshots", "FlinkStateSnapshot")

SPARK_APPLICATION: Final = Definition(_SPARK, "v1beta2", "sparkapplications", "SparkApplication")
SPARK_SCHEDULE: Final = Definition(
    _SPARK, "v1beta2", "scheduledsparkapplications", "ScheduledSparkApplication"
)
POD: Final = Definition("", "v1", "pods", "Pod")
POD_LOG: Final = Definition("", "v1", "pods/log", "Pod")
EVENT: Final = Definition("", "v1", "events", "Event")
QUOTA: Final = Definition("", "v1", "resourcequotas", "ResourceQuota")
NODE: Final = Definition("", "v1", "nodes", "Node", is_everywhere=True)
ALL_PODS: Final = Definition("", "v1", "pods", "Pod", is_everywhere=True)

# The rights that an account needs in the namespace of its jobs: (group, resource) -> verbs.
Rights: TypeAlias = Mapping[tuple[str, str], tuple[Verb, ...]]
FLINK_NEEDS: Final[Rights] = {
    (_FLINK, DEPLOYMENT.plural): ("get", "list", "create", "update"),
    (_FLINK, SESSION_JOB.plural): ("get", "list", "create", "update"),
    (_FLINK, SNAPSHOT.plural): ("get", "create"),
    ("", "services/proxy"): ("get",),
    ("", QUOTA.plural): ("list",),
}
SPARK_NEEDS: Final[Rights] = {
    (_SPARK, SPARK_APPLICATION.plural): ("get", "list", "create", "update"),
    (_SPARK, SPARK_SCHEDULE.plural): ("get",),
    ("", POD.plural): ("get",),
    ("", POD_LOG.plural): ("get",),
    ("", EVENT.plural): ("list",),
    ("", QUOTA.plural): ("list",),
}
# The drivers that spark-submit starts. It needs more itself: it makes all that a pod mounts.
POD_NEEDS: Final[Rights] = {
    ("", POD.plural): ("get", "list", "create", "delete"),
    ("", POD_LOG.plural): ("get",),
    ("", EVENT.plural): ("list",),
}
NEEDS: Final[Rights] = {**FLINK_NEEDS, **SPARK_NEEDS, **POD_NEEDS}
# Those in the whole cluster, without which nobody knows whether there is room.
CLUSTER_NEEDS: Final[Rights] = {("", NODE.plural): ("list",), ("", ALL_PODS.plural): ("list",)}


@dataclass(frozen=True)
class KubernetesCalls:
    """The calls of an API server in one namespace. `options` are the cluster's, checked."""

    cluster: str
    options: Options
    interrupt: Event | None = None
    rights: str = "configs/deploy/kubernetes-rbac.yaml"

    @cached_property
    def access(self) -> Access:
        return access_of(self.cluster, self.options)

    def get(self, what: Definition, name: str) -> Json | None:
        try:
            return self._call("get", "GET", what, f"/{quote(name, safe='')}")
        except Refused as refused:
            if refused.status == 404 and _status_of(refused).get("reason") == "NotFound":
                return None
            raise

    def every(
        self, what: Definition, label: str = "", value: str = "", fields: str = ""
    ) -> list[Json]:
        """Return all resources; those with a label, or a field, if one is named."""
        return self.kept(what, lambda plain: plain, label, value, fields)

    def kept(
        self,
        what: Definition,
        keep: Callable[[Json], T],
        label: str = "",
        value: str = "",
        fields: str = "",
    ) -> list[T]:
        """Return the same, made less of as each page comes: there may be many."""
        params: dict[str, str | int] = {"limit": 500}
        if label:
            params["labelSelector"] = f"{label}={value}"
        if fields:
            params["fieldSelector"] = fields
        items: list[T] = []
        while True:
            try:
                answer = self._call("list", "GET", what, "", params=params)
            except Refused as refused:
                if refused.status != 410 or "continue" not in params:
                    raise
                params.pop("continue")  # its first pages are too old by now
                items = []
                continue
            items += map(keep, answer.get("items") or ())
            more = (answer.get("metadata") or {}).get("continue")
            if not more:
                return items
            params["continue"] = str(more)

    def pod_log(self, pod: str, lines_max: int, container: str = "") -> str:
        """Return the end of what a pod's container, else its first or only one, has said."""
        place = f"{self.access.server}/{POD.path}/namespaces/{self.access.namespace}"
        service = self.proven(self._service)
        params: dict[str, str | int] = {"tailLines": lines_max}
        if container:
            params["container"] = container
        return service.text(f"{place}/pods/{quote(pod, safe='')}/log", params=params)

    def create(self, what: Definition, body: Json, trial: bool = False) -> Json:
        """Make a resource; with `trial` only ask whether it would be admitted."""
        return self._call("create", "POST", what, "", json=body, params=_writing(trial))

    def update(self, what: Definition, body: Json, trial: bool = False) -> Json:
        """Replace a resource, unless it has been changed since it was read."""
        name = body["metadata"]["name"]
        return self._call("update", "PUT", what, f"/{name}", json=body, params=_writing(trial))

    def delete(self, what: Definition, stored: Json) -> None:
        """Delete what is stored, unless another one has its name by now; one gone is no fault."""
        metadata = stored["metadata"]
        only = {"uid": metadata["uid"]}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only}
        try:
            self._call("delete", "DELETE", what, f"/{metadata['name']}", json=options)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def change(
        self, what: Definition, name: str, decide: Callable[[Json | None], Json | None]
    ) -> Json | None:
        """Return a resource once `decide` wants nothing of it any more. `decide` is given what is
        stored, and returns what is to be stored instead, or None. It is asked again whenever
        somebody else has written in between, and when an answer was lost.
        """
        conflicts = 0

        def attempt() -> tuple[Json | None] | None:
            nonlocal conflicts
            stored = self.get(what, name)
            wanted = decide(stored)
            if wanted is None:
                return (stored,)
            try:
                if stored is None:
                    self.create(what, wanted)
                else:
                    self.update(what, wanted)
            except Refused as refused:
                is_gone = refused.status == 404 and stored is not None
                if refused.status != 409 and not is_gone:
                    raise
                conflicts += 1
                if conflicts >= _CONFLICTS_MAX:
                    raise
            return None  # what is stored now is looked at once more

        changed = self.wait_for(attempt, _CHANGE_SECONDS)
        if changed is None:
            fact = f"{self.access.server} has not come to an end with it in time"
            raise ClusterError(fact, cluster=self.cluster, hint="stateshift resume WORKDIR")
        return changed[0]

    def wait_for(
        self, look: Callable[[], T | None], seconds_max: float, status: int | None = None
    ) -> T | None:
        """Return the first answer of `look`, which is asked again, also through outages."""
        outage_seconds = float(self.options.get("outage_seconds", _OUTAGE_SECONDS))
        patient = through_outages(look, outage_seconds, status)
        return wait_for(patient, seconds_max, self.interrupt)

    @property
    def place(self) -> str:
        """Return the namespace and the server, for a person."""
        return f"namespace {self.access.namespace} of {redact(self.access.server)}"

    def service_url(self, service: str, port: int) -> str:
        """Return the address at which the API server passes requests on to a service."""
        namespace = self.access.namespace
        return f"{self.access.server}/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy"

    def proven(self, service: Service, renew: bool = False) -> Service:
        """Return a service that shows who we are."""
        ca_file, proof = self.access.ca_file, self.access.prove(renew)
        files = {"ca_file": ca_file, "cert_file": proof.certificate, "key_file": proof.key}
        given = {key: file for key, file in files.items() if file is not None}
        return replace(service, options={**service.options, **given}, authentication=proof)

    def _call(
        self, verb: Verb, method: str, what: Definition, path: str, **query: Unpack[Query]
    ) -> Json:
        rights = CLUSTER_NEEDS if what.is_everywhere else NEEDS
        assert verb in rights[what.group, what.plural], "a right that no page asks for"
        access = self.access
        scope = "" if what.is_everywhere else f"/namespaces/{access.namespace}"
        url = f"{access.server}/{what.path}{scope}/{what.plural}{path}"

        def ask() -> Json:
            try:
                return self._asked(method, url, **query)
            except Refused as refused:
                raise self._explained(refused, verb, what) from refused

        # A server that is busy, or has a definition since a moment ago, does nothing and says 429.
        answer = self.wait_for(ask, inf, status=429)
        assert answer is not None
        return answer

    def _asked(self, method: str, url: str, **query: Unpack[Query]) -> Json:
        """Return the answer; a token that has expired in between is renewed once."""
        try:
            return self.proven(self._service).json(method, url, **query)
        except Refused as refused:
            if refused.status != 401:
                raise
        # kubectl may have signed in again since, and have written another token.
        fresh = access_of(self.cluster, self.options)
        if (fresh.server, fresh.namespace) == (self.access.server, self.access.namespace):
            self.__dict__["access"] = fresh
        return self.proven(self._service, renew=True).json(method, url, **query)

    @property
    def _service(self) -> Service:
        return Service(
            cluster=self.cluster,
            words="an API server of Kubernetes",
            example="a kubeconfig's",
            said="message",
            ways_out={},
            options={"request_seconds": self.options.get("request_seconds", 60.0)},
            headers={"Accept": "application/json"},
            option="kubeconfig",
        )

    def _explained(self, refused: Refused, verb: Verb, what: Definition) -> ClusterError:
        """Return the refusal with its way out."""
        status, said = _status_of(refused), refused.fact
        details, words = status.get("details") or {}, str(status.get("message") or "")
        namespace, hint = self.access.namespace, refused.hint
        match refused.status:
            case 401:
                hint = f"sign in again ({self.access.words}), then: stateshift resume WORKDIR"
            case 403 if f"cannot {verb}" in words:
                hint = (
                    f'the account needs "{verb}" of {what.words} in the namespace '
                    f"{namespace}: bind it to the role in {self.rights}"
                )
            case 403 if "being terminated" in words:
                hint = f"the namespace {namespace} is being deleted: use another one"
            case 403 if "exceeded quota" in words:
                hint = f"free some of it, or raise the quota of the namespace {namespace}"
            case 404 if details.get("kind") == "namespaces":
                hint = f'there is no namespace {namespace}: correct "namespace" or "context"'
            case 404 if not status:
                said = f"{self.place} has no {what.plural} in {what.api}"
                with suppress(Refused, Unanswered):
                    answer = self._asked("GET", f"{self.access.server}/apis/{what.group}")
                    others = [str(each["version"]) for each in answer.get("versions") or ()]
                    said += f", but the group in {', '.join(others)}"
                hint = 'install the operator with its CRDs; or "context" names another cluster'
            case 409:
                hint = "somebody else writes it all the time; then: stateshift resume WORKDIR"
            case 400 | 422 if "admission webhook" not in words:
                hint = f"its definition there is another: kubectl explain {what.plural}.spec"
            case _ if "admission webhook" in words:
                hint = 'correct what it names, in "submit" or in the resource'
        return Refused(said, refused.status, refused.answer, cluster=self.cluster, hint=hint)


def _status_of(refused: Refused) -> Json:
    answer = refused.answer
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else {}


def _writing(trial: bool) -> Mapping[str, str | int]:
    params: dict[str, str | int] = {"fieldValidation": "Strict"}
    return {**params, "dryRun": "All"} if trial else params
