"""The address of an API server and our identity there, found as kubectl finds them.

    kubeconfig   the cluster's "kubeconfig", else $KUBECONFIG (several, by ":": the first that has a
                 name wins), else ~/.kube/config; "context" names one of its contexts
    in a pod     if there is no kubeconfig: https://$KUBERNETES_SERVICE_HOST:<..._PORT>, with
                 /var/run/secrets/kubernetes.io/serviceaccount/{token, ca.crt, namespace}

A user of a kubeconfig has a token, a file of one, a client certificate, or a program (exec) that
prints an ExecCredential, which is in no message:

    {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token",
     "clientCertificateData", "clientKeyData", "expirationTimestamp": "2026-11-30T10:00:00Z"}}

Files of tokens are read for each request, for Kubernetes replaces them. The program is run again
once its answer has expired, and when the API server refuses it. The server's certificate is always
verified. Keys from a kubeconfig are in no file of ours: OpenSSL, which takes only files, reads them
from memory. (kubernetes/client-go: clientcmd/api, rest, plugin/pkg/client/auth/exec.)
"""

from __future__ import annotations

import atexit
import base64
import binascii
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stateshift.clusters.http import OTHER_FIELDS, Json, host_of, read_secret
from stateshift.clusters.options import Options
from stateshift.clusters.redaction import last_lines, redact
from stateshift.errors import ClusterError

if TYPE_CHECKING:
    from requests import PreparedRequest

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_IN_POD: Final = "kubernetes.default"  # the names of the API server within its cluster
_EXEC: Final = "client.authentication.k8s.io/"
_EXEC_VERSIONS: Final = (f"{_EXEC}v1", f"{_EXEC}v1beta1")
_PLUGIN_SECONDS_MAX: Final = 60.0
_EARLY_SECONDS: Final = 10.0  # a token that expires sooner may not outlast its request
# Keys of a kubeconfig that are not supported: without them we would be somebody else.
_NOT_DONE: Final = {
    "auth-provider": "kubectl has none since 1.26: use an exec plug-in",
    "username": "API servers take no passwords: use a token, a certificate or an exec plug-in",
    "as": "give stateshift an account of its own",
    "proxy-url": "set HTTPS_PROXY in the environment",
    "tls-server-name": "name the server as its certificate does",
}


@dataclass(frozen=True, slots=True)
class Proof:
    """Our identity, as a request carries it; certificate and key are files."""

    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = None
    until: float | None = None

    @property
    def is_over(self) -> bool:
        return self.until is not None and self.until < time.time() + _EARLY_SECONDS

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request of `requests`, which else would look for a password in ~/.netrc."""
        if self.token is not None:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request


@dataclass(frozen=True, slots=True)
class Access:
    """An API server, the namespace of its jobs, and a proof for each request: `prove(True)` makes
    another one than before, where it can. `words` say where all this is from.
    """

    server: str
    namespace: str
    ca_file: str | None
    prove: Callable[[bool], Proof]
    words: str


def access_of(cluster: str, options: Options) -> Access:
    """Return the access that a cluster's options name, else kubectl's own. "server", which is in no
    spec, goes before that of the kubeconfig. A context that nobody has named goes to its own alone.
    """
    named = options.get("kubeconfig") or os.environ.get("KUBECONFIG")
    if named:
        paths = [Path(each).expanduser() for each in str(named).split(os.pathsep) if each]
        there = [path for path in paths if path.is_file()]
        files = there or paths[:1]
    else:
        usual = Path("~/.kube/config").expanduser()
        files = [usual] if usual.is_file() or options.get("context") else []
    if files:
        return _Kubeconfig(cluster, files).access(options)
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if not host or not (_ACCOUNT / "token").is_file():
        fact = "there is no kubeconfig, and this is no pod with a service account"
        raise ClusterError(fact, cluster=cluster, hint='name a "kubeconfig", or set KUBECONFIG')
    bracketed = f"[{host}]" if ":" in host else host
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = options.get("namespace") or read_secret(
        _ACCOUNT / "namespace", "namespace", cluster
    )
    own, words = f"https://{bracketed}:{port}", "the pod's service account"
    named_server = str(options.get("server") or "")
    if _address(named_server)[0].startswith(_IN_POD):
        own = named_server
    return Access(
        _server(cluster, options, own, words),
        str(namespace).strip(),
        str(_ACCOUNT / "ca.crt"),
        lambda _: Proof(read_secret(_ACCOUNT / "token", "token", cluster).strip()),
        words,
    )


def _server(cluster: str, options: Options, own: str, words: str) -> str:
    """Return the server that options name, else our own. Another one is shown who we are only where
    somebody has named the context for it.
    """
    url = str(options.get("server") or own).rstrip("/")
    if options.get("context") or _address(url) == _address(own):
        return url
    fact = f"{words} is for {redact(own)}, and its token is not shown to {redact(url)}"
    hint = "name the context that is for it: spark.kubernetes.context"
    raise ClusterError(fact, cluster=cluster, hint=hint)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    try:
        return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:  # a port that is no number
        return "", 0


@dataclass(frozen=True)
class _Kubeconfig:
    cluster: str
    files: list[Path]

    def access(self, options: Options) -> Access:
        import yaml

        plains: list[tuple[Path, Json]] = []
        for path in self.files:
            try:
                plain = yaml.safe_load(path.read_text("utf-8"))
            except OSError as error:
                raise self._error(f"cannot be read: {error.strerror}", "name another") from error
            except (yaml.YAMLError, ValueError) as error:  # its message may quote a secret
                raise self._error("is no YAML", "kubectl config view") from error
            plains.append((path, plain if isinstance(plain, dict) else {}))
        currents = [plain.get("current-context") for _, plain in plains]
        name = options.get("context") or next(filter(None, currents), None)
        if not name:
            raise self._error("names no current context", 'name a "context" of the cluster')
        try:
            _, context = self._named(plains, "contexts", "context", str(name))
            folder, server = self._named(plains, "clusters", "cluster", str(context["cluster"]))
            its_folder, user = self._named(plains, "users", "user", str(context["user"]))
            for key, way_out in _NOT_DONE.items():
                if server.get(key) or user.get(key):
                    raise self._error(f'asks for "{key}", which is not done', way_out)
            words = f"the context {name} of {', '.join(map(str, self.files))}"
            url = _server(self.cluster, options, str(server["server"]), words)
            if server.get("insecure-skip-tls-verify"):
                fact = '"insecure-skip-tls-verify" would show our token to whoever answers'
                raise self._error(fact, 'name its "certificate-authority" there')
            if urlsplit(url).scheme != "https" and host_of(url) != "":
                raise self._error(f"{redact(url)} is not https", "tokens go over TLS alone")
            return Access(
                url,
                str(options.get("namespace") or context.get("namespace") or "default"),
                self._file(folder, server, "certificate-authority"),
                self._proving(its_folder, user, {**server, "server": url}),
                words,
            )
        except OTHER_FIELDS as error:
            fact = f"is not one that kubectl would read: {type(error).__name__} {error}"
            raise self._error(fact, f"kubectl --context {name} get ns") from error

    def _named(
        self, plains: list[tuple[Path, Json]], table: str, key: str, name: str
    ) -> tuple[Path, Json]:
        """Return an entry of a table and the folder that its paths begin at."""
        names: list[str] = []
        for path, plain in plains:
            for entry in plain.get(table) or ():
                if entry["name"] == name:
                    return path.absolute().parent, dict(entry[key] or {})
                names.append(str(entry["name"]))
        there = ", ".join(names) or "none"
        raise self._error(f"has no {key} {name}, but {there}", f"kubectl config get-{table}")

    def _file(self, folder: Path, plain: Json, key: str) -> str | None:
        """Return the file of a certificate or key, which may be in the kubeconfig itself."""
        if plain.get(f"{key}-data"):
            try:
                return memory_file(base64.b64decode(plain[f"{key}-data"], validate=True))
            except binascii.Error as error:
                raise self._error(f'"{key}-data" is no base64', "kubectl config view") from error
        return str(folder / plain[key]) if plain.get(key) else None

    def _proving(self, folder: Path, user: Json, server: Json) -> Callable[[bool], Proof]:
        certificate = self._file(folder, user, "client-certificate")
        key = self._file(folder, user, "client-key")
        if user.get("exec"):
            info: Json = {"server": server["server"]}
            authority = self._file(folder, server, "certificate-authority")
            if authority is not None:
                content = Path(authority).read_bytes()
                info["certificate-authority-data"] = base64.b64encode(content).decode()
            for extension in server.get("extensions") or ():
                if extension.get("name") == f"{_EXEC}exec":
                    info["config"] = extension.get("extension")
            return ExecPlugin(self.cluster, dict(user["exec"]), folder, info)
        if user.get("tokenFile"):
            file = folder / user["tokenFile"]
            return lambda _: Proof(
                read_secret(file, "token", self.cluster).strip(), certificate, key
            )
        proof = Proof(user.get("token"), certificate, key)
        return lambda _: proof

    def _error(self, fact: str, hint: str) -> ClusterError:
        of_files = ", ".join(map(str, self.files))
        return ClusterError(f"the kubeconfig {of_files}: {fact}", cluster=self.cluster, hint=hint)


@dataclass
class ExecPlugin:
    """A program that says who we are, run as kubectl does; its answer is kept until it expires."""

    cluster: str
    plain: Json
    folder: Path
    info: Json
    _proof: Proof | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, renew: bool) -> Proof:
        with self._lock:
            if renew or self._proof is None or self._proof.is_over:
                self._proof = self._asked()
            return self._proof

    def _asked(self) -> Proof:
        version = self.plain.get("apiVersion")
        if version not in _EXEC_VERSIONS:
            known = ", ".join(_EXEC_VERSIONS)
            raise self._error(f"speaks {version}", f"update it to one of {known}")
        if self.plain.get("interactiveMode") == "Always":
            raise self._error("asks a person at the terminal", "name a context that does not")
        spec: Json = {"interactive": False}
        if self.plain.get("provideClusterInfo"):
            spec["cluster"] = self.info
        told = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        given = {str(each["name"]): str(each["value"]) for each in self.plain.get("env") or ()}
        environment = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(told)}
        answer = self._run(environment)
        try:
            credential = json.loads(answer)
            if credential["kind"] != "ExecCredential" or credential["apiVersion"] != version:
                raise ValueError("another kind")
            return _proof_of(credential["status"])
        except (*OTHER_FIELDS, binascii.Error):
            # Without the cause: the answer is a secret.
            way_out = "run it by hand and compare: kubectl does the same"
            raise self._error(f"prints no ExecCredential of {version}", way_out) from None

    def _run(self, environment: dict[str, str]) -> str:
        command = str(self.plain["command"])
        program = str(self.folder / command) if os.sep in command else command
        words = [program, *map(str, self.plain.get("args") or ())]
        install = str(self.plain.get("installHint") or "").strip()
        try:
            ended = subprocess.run(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_PLUGIN_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            fact = f"has not ended in {_PLUGIN_SECONDS_MAX:g} s"
            raise self._error(fact, "does it ask for something? sign in first") from None
        except OSError as error:
            fact = f"cannot be run: {error.strerror}"
            raise self._error(fact, install or "is it on the PATH?") from None
        if ended.returncode != 0:
            said = redact(last_lines(ended.stderr, 3), environment)
            fact = f"ended with {ended.returncode}: {said}"
            raise self._error(fact, install or "sign in again, then: stateshift resume WORKDIR")
        return ended.stdout

    def _error(self, fact: str, hint: str) -> ClusterError:
        words = f"the exec plug-in {self.plain.get('command')} of the kubeconfig {fact}"
        return ClusterError(words, cluster=self.cluster, hint=hint)


def _proof_of(status: Json) -> Proof:
    until = status.get("expirationTimestamp")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not status.get("token") and not (certificate and key):
        raise ValueError("neither a token nor a certificate with its key")
    return Proof(
        status.get("token"),
        memory_file(certificate.encode()) if certificate else None,
        memory_file(key.encode()) if key else None,
        datetime.fromisoformat(until).timestamp() if until else None,
    )


@cache
def memory_file(content: bytes) -> str:
    """Return the path of a file with this content, which lasts as long as this process; it is in
    memory where the system has such files.
    """
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("stateshift")
        os.write(number, content)
        return f"/proc/self/fd/{number}"
    number, path = tempfile.mkstemp()
    atexit.register(Path(path).unlink, missing_ok=True)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    return path
