"""Kubernetes' own API server for custom resources, with the definitions of Flink's operator and of
Spark's; see kubernetes/main.go. No operator is there: tests script one. Authentication and its words are
Kubernetes' own, and rights are a file: `allow(place, rules)` writes those of the user "us".
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from servers import downloads
from servers.faults import Failed
from servers.place import Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

NAMESPACE = "shop"
DEFINED_SECONDS_MAX = 60.0
ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


@dataclass(frozen=True)
class Kubernetes(Server):
    name: str = "kubernetes"
    built: bool = True

    @property
    def ports(self) -> tuple[str, ...]:
        return ("api", "etcd", "etcd-peer")

    def fetch(self) -> None:
        downloads.program("kubernetes")

    def configure(self, place: Place) -> None:
        if (place.folder / "conf" / "tokens.csv").exists():
            return
        admin, ours = secrets.token_hex(), secrets.token_hex()
        place.write("conf/tokens.csv", f'{admin},admin,1,"system:masters"\n{ours},us,2\n')
        allow(place, ALL)

    def stages(self, place: Place) -> tuple[Stage, ...]:
        command = (
            str(downloads.program("kubernetes")),
            f"--folder={place.folder / 'conf'}",
            f"--port={place.ports['api']}",
            f"--etcd-port={place.ports['etcd']}",
            f"--etcd-peer-port={place.ports['etcd-peer']}",
        )
        return (Stage((Role("apiserver", command, lambda: _answers(place)),)),)

    def settle(self, place: Place) -> None:
        """The definitions are there, and served."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        definitions: list[dict[str, Any]] = []
        for file in ("crds.json", "spark_crds.json"):
            text = (downloads.HERE / "kubernetes" / file).read_text("utf-8")
            definitions += json.loads(text)["items"]
        for definition in definitions:
            try:
                ask(place, path, "POST", definition)
            except urllib.error.HTTPError as error:
                if error.code != 409:
                    raise Failed(f"{self.name}: {error.read().decode()}") from error
        until = time.monotonic() + DEFINED_SECONDS_MAX
        specs = [definition["spec"] for definition in definitions]
        while specs:
            version, plural = specs[-1]["versions"][0]["name"], specs[-1]["names"]["plural"]
            path = f"/apis/{specs[-1]['group']}/{version}/namespaces/{NAMESPACE}/{plural}"
            try:
                ask(place, path)
                specs.pop()
            except urllib.error.HTTPError as error:
                if time.monotonic() > until:
                    raise Failed(f"{self.name} does not serve {plural}") from error
                time.sleep(0.2)
        for user in ("admin", "us"):
            place.write(f"conf/{user}.kubeconfig", json.dumps(kubeconfig(place, user), indent=1))

    def exports(self, place: Place) -> dict[str, str]:
        return {
            "STATESHIFT_KUBERNETES": f"https://{HOST}:{place.ports['api']}",
            "STATESHIFT_KUBERNETES_CONFIG": str(place.folder / "conf" / "us.kubeconfig"),
            "STATESHIFT_KUBERNETES_ADMIN": str(place.folder / "conf" / "admin.kubeconfig"),
        }


def allow(place: Place, rules: list[dict[str, Any]]) -> None:
    """Give the user "us" these rights, as a role has them."""
    place.write("conf/rules.json", json.dumps({"us": rules}))


def token(place: Place, user: str) -> str:
    for line in (place.folder / "conf" / "tokens.csv").read_text("utf-8").splitlines():
        words = line.split(",")
        if words[1] == user:
            return words[0]
    raise AssertionError(user)


def kubeconfig(place: Place, user: str) -> dict[str, Any]:
    authority = (place.folder / "conf" / "apiserver.crt").read_bytes()
    cluster = {
        "server": f"https://{HOST}:{place.ports['api']}",
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    context = {"cluster": "here", "user": user, "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token(place, user)}}],
        "contexts": [{"name": "here", "context": context}],
    }


def ask(place: Place, path: str, method: str = "GET", body: Any = None) -> Any:
    """What the API server answers to the administrator."""
    return json.loads(text(place, path, method, body))


def requests(place: Place, group: str) -> int:
    """How many requests for single resources of an API group the server has answered so far. An
    operator, which lists them and patches their status, is not counted.
    """
    count = 0.0
    for line in text(place, "/metrics").decode().splitlines():
        name, _, number = line.rpartition(" ")
        is_counted = f'group="{group}"' in name and 'subresource=""' in name
        if name.startswith("apiserver_request_total{") and is_counted:
            count += float(number) if re.search('verb="(GET|POST|PUT)"', name) else 0.0
    return int(count)


def text(place: Place, path: str, method: str = "GET", body: Any = None) -> bytes:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = urllib.request.Request(
        f"https://{HOST}:{place.ports['api']}{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {token(place, 'admin')}", "Content-Type": kind},
        method=method,
    )
    context = ssl.create_default_context(cafile=str(place.folder / "conf" / "apiserver.crt"))
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    with urllib.request.build_opener(*handlers).open(request, timeout=10.0) as response:
        return bytes(response.read())


def _answers(place: Place) -> bool:
    if not (place.folder / "conf" / "apiserver.crt").exists():
        return False
    try:
        ask(place, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    except urllib.error.HTTPError:
        return False
    return True
