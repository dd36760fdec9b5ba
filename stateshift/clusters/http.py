"""Requests to a service over HTTP that answers in JSON: its answer, its refusal, or no answer; and
the machine that its URL leads to.

Whether a request has had an effect is not known where its answer did not come, and where the server
failed (5xx): `Unanswered`. A refusal (4xx) has had none: `Refused`. No message has a credential in
it: secrets are read from files and environment when they are sent, and are kept nowhere.

Options of a cluster: ca_file, whose authority the server's certificate is of; cert_file and
key_file, our own; request_seconds; auth (none, basic, kerberos), user, password_file; token_file
(sent as a bearer's); header_files, from the header's name to the file that has its value.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, TypedDict, TypeVar, Unpack

from stateshift.clusters.options import Options
from stateshift.clusters.protocol import Silence, Silent
from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError

if TYPE_CHECKING:
    from requests import PreparedRequest, Response
    from requests.auth import AuthBase


T = TypeVar("T")

# An object that a service answered, or is sent. Nothing is known of its fields before they are
# read: whoever reads them expects OTHER_FIELDS, and reports the service then.
Json: TypeAlias = dict[str, Any]
OTHER_FIELDS: Final = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    OverflowError,  # JSON may hold an infinite number
)

# The argument `auth` of `requests`.
Signs: TypeAlias = "Callable[[PreparedRequest], PreparedRequest]"
Authentication: TypeAlias = "tuple[str, str] | AuthBase | Signs | None"


class Query(TypedDict, total=False):
    """The arguments of a request that go to `requests` as they are."""

    params: Mapping[str, str | int]
    json: Json
    data: Iterable[bytes]
    headers: dict[str, str]


class Where(TypedDict, total=False):
    """The arguments of every ClusterError besides its fact."""

    cluster: str | None
    job: str | None
    hint: str | None


_log = logging.getLogger(__name__)

SECONDS_TO_CONNECT: Final = 10.0
REQUEST_SECONDS: Final = 60.0
_CHUNK: Final = 1 << 18
_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^/@]*@)?(\[[^\]]*\]|[^/:,\[\]]+)")
_HERE = ("localhost", "0.0.0.0", "::1")


class Unanswered(Silent):
    """No answer, or one that does not say whether the request had an effect."""

    def __init__(
        self, fact: str, status: int | None = None, answer: object = None, **where: Unpack[Where]
    ) -> None:
        super().__init__(fact, **where)
        self.status, self.answer = status, answer


class Over(Unanswered):
    """No answer, from one that is known to have ended: there will be none."""


class Refused(ClusterError):
    """An answer that says no. `status` is HTTP's."""

    def __init__(
        self, fact: str, status: int, answer: object = None, **where: Unpack[Where]
    ) -> None:
        super().__init__(fact, **where)
        self.status, self.answer = status, answer


@dataclass(frozen=True)
class Service:
    """Whom we ask. `words` is what it is called, `example` a URL of one, `said` where it says what
    is wrong, `ways_out` a hint for a status. `options` are the cluster's: ca_file, request_seconds,
    and those of `authentication`.
    """

    cluster: str
    words: str
    example: str
    said: str
    ways_out: Mapping[int, str]
    options: Options
    headers: Mapping[str, str]
    authentication: Authentication = None
    option: str = "url"  # of the cluster, where this is to be reached

    def json(self, method: str, url: str, **query: Unpack[Query]) -> Json:
        return self._decoded(dict, method, url, **query)

    def listed(self, method: str, url: str, **query: Unpack[Query]) -> list[Json]:
        return self._decoded(list, method, url, **query)

    def _decoded(self, expected: type[T], method: str, url: str, **query: Unpack[Query]) -> T:
        response = self._asked(method, url, **query)
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            answer = None
        status = response.status_code
        if status < 300 and isinstance(answer, expected):
            return answer
        of_service = isinstance(answer, dict)
        means_something = status >= 500 or status in (401, 403, 404)
        if status < 300 or not (of_service or means_something):
            kind = response.headers.get("Content-Type", "no content type")
            fact = f"does not answer as {self.words} does (HTTP {status}, {kind})"
            raise self.odd(url, fact, status)
        fact = f"{redact(url)}: HTTP {status} for {method}"
        if of_service:
            said = answer.get(self.said, answer.get("message", answer))  # the latter is Jetty's
            said = redact(str(said)[:500], os.environ)
            fact += f": {said}" if said else ""
        raise self._failed(status, fact, answer)

    def text(self, url: str, **query: Unpack[Query]) -> str:
        response = self._asked("GET", url, **query)
        status = response.status_code
        if status >= 300:
            raise self._failed(status, f"{redact(url)}: HTTP {status} for GET")
        return str(response.text)

    def odd(self, url: str, fact: str, status: int | None = None) -> Unanswered:
        return Unanswered(
            f"{redact(url)} {fact}",
            status,
            cluster=self.cluster,
            hint=f'"{self.option}" has to be that of {self.words}, such as {self.example}',
        )

    def _failed(self, status: int, fact: str, answer: object = None) -> ClusterError:
        if status >= 500 or status in (408, 425, 429):
            hint = "try again in a moment: stateshift resume WORKDIR"
            return Unanswered(fact, status, answer, cluster=self.cluster, hint=hint)
        return Refused(fact, status, answer, cluster=self.cluster, hint=self.ways_out.get(status))

    def _asked(self, method: str, url: str, **query: Unpack[Query]) -> Response:
        import requests

        seconds = float(self.options.get("request_seconds", REQUEST_SECONDS))
        headers = {**self.headers, **query.get("headers", {})}
        # Our own certificate, if there is one: a file with its key, or the key in a file beside it.
        file, key = self.options.get("cert_file"), self.options.get("key_file")
        certificate = (str(file), str(key)) if file is not None and key else file
        began = time.perf_counter()
        try:
            answer = requests.request(
                method,
                url,
                auth=self.authentication,
                headers=headers,
                verify=self.options.get("ca_file", True),
                cert=certificate,
                timeout=(SECONDS_TO_CONNECT, seconds),
                allow_redirects=False,
                params=query.get("params"),
                json=query.get("json"),
                data=query.get("data"),
            )
            if _log.isEnabledFor(logging.DEBUG):
                took_ms = (time.perf_counter() - began) * 1000
                status, size = answer.status_code, len(answer.content)
                facts = (method, redact(url), status, took_ms, size)
                _log.debug("%s %s: HTTP %d, %.1f ms, %d bytes", *facts)
            return answer
        except requests.exceptions.RequestException as error:
            _log.debug("%s %s: no answer: %s", method, redact(url), type(error).__name__)
            if isinstance(error, requests.exceptions.SSLError):
                raise self._not_secured(url, _reason(error)) from error
            raise Unanswered(
                f"{redact(_host(url))} does not answer: {type(error).__name__}: {_reason(error)}",
                cluster=self.cluster,
                hint=f'is {self.words} up, and "{self.option}" right? '
                "Then: stateshift resume WORKDIR",
            ) from error
        except OSError as error:  # requests looks for the file before it opens a connection
            raise self._unreadable(error) from error

    def _not_secured(self, url: str, why: str) -> Unanswered:
        if "verif" in why.lower():
            fact = f"{redact(_host(url))} shows a certificate that is not trusted: {why}"
            hint = '"ca_file" of the cluster names the file of the authority that signed it'
            return Unanswered(fact, cluster=self.cluster, hint=hint)
        fact = f"{redact(_host(url))} breaks off the secured connection: {why}"
        hint = (
            'is it https there? and does it ask for our certificate ("cert_file" and '
            '"key_file" of the cluster)?'
        )
        return Unanswered(fact, cluster=self.cluster, hint=hint)

    def _unreadable(self, error: OSError) -> Unanswered:
        """Return the error for a missing certificate file, which only `requests`' words name."""
        option, words = "cert_file", "our own certificate"
        if "CA certificate" in str(error):
            option, words = "ca_file", "the authority's certificate"
        elif "key file" in str(error):
            option, words = "key_file", "our own key"
        hint = f"name the file of {words}"
        return Unanswered(f'"{option}": {redact(str(error))}', cluster=self.cluster, hint=hint)


def through_outages(
    look: Callable[[], T | None], seconds_max: float, status: int | None = None
) -> Callable[[], T | None]:
    """Return `look`, with no answer taken for "not yet" until there has been none for that long;
    with a `status` only an answer of that kind.
    """
    silence = Silence(time.monotonic, seconds_max)

    def patient() -> T | None:
        try:
            result = look()
        except Unanswered as error:
            is_other = status not in (None, error.status)
            if is_other or isinstance(error, Over) or silence.is_too_long():
                raise
            return None
        silence.end()
        return result

    return patient


def _reason(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    return redact(str(getattr(inner, "reason", None) or inner)[:300], os.environ)


def read_secret(path: object, words: str, cluster: str) -> str:
    """Return the secret in a file, without the newline at its end."""
    try:
        return Path(str(path)).read_text("utf-8").rstrip("\n")
    except OSError as error:
        fact = f"the {words} file {path} cannot be read: {error.strerror}"
        raise ClusterError(fact, cluster=cluster, hint=f'name another "{words}_file"') from error


def _host(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


@dataclass(frozen=True, slots=True)
class FileForm:
    """A file as a form (RFC 7578) of known length, read while it is sent: a jar may be large."""

    file: BinaryIO
    head: bytes
    tail: bytes
    size: int
    content_type: str

    def __len__(self) -> int:
        return len(self.head) + self.size + len(self.tail)

    def __iter__(self) -> Iterator[bytes]:
        yield self.head
        self.file.seek(0)
        while chunk := self.file.read(_CHUNK):
            yield chunk
        yield self.tail

    @staticmethod
    @contextmanager
    def of(path: Path, field: str, name: str, content_type: str) -> Iterator[FileForm]:
        """Open the form of a file, which has the name `name` there."""
        mark = secrets.token_hex(16)
        quoted = name.replace("\\", "_").replace('"', "_").replace("\n", "_").replace("\r", "_")
        head = (
            f'--{mark}\r\nContent-Disposition: form-data; name="{field}"; filename="{quoted}"\r\n'
            f"Content-Type: {content_type}\r\n\r\n"
        )
        with path.open("rb") as file:
            kind, tail = f"multipart/form-data; boundary={mark}", f"\r\n--{mark}--\r\n".encode()
            yield FileForm(file, head.encode(), tail, path.stat().st_size, kind)


def authentication(options: Options, cluster: str, password_variable: str) -> Authentication:
    """Return the argument `auth` of `requests`."""
    match options.get("auth", "none"):
        case "basic":
            file = options.get("password_file")
            if file is None:
                password = os.environ.get(password_variable, "")
            else:
                password = read_secret(file, "password", cluster)
            return str(options.get("user", "")), password
        case "kerberos":
            try:
                from requests_kerberos import OPTIONAL, HTTPKerberosAuth
            except ImportError as error:
                fact = f'"auth": "kerberos" needs a package that is not installed ({error})'
                hint = "pip install 'stateshift[kerberos]'"
                raise ClusterError(fact, cluster=cluster, hint=hint) from error
            kerberos: Authentication = HTTPKerberosAuth(mutual_authentication=OPTIONAL)
            return kerberos
    return None


def secret_headers(options: Options, cluster: str) -> dict[str, str]:
    """Return the headers whose values lie in files, each read again."""
    files = options.get("header_files") or {}
    headers = {
        str(name): read_secret(file, f"header {name}", cluster) for name, file in files.items()
    }
    token_file = options.get("token_file")
    if token_file:
        token = read_secret(token_file, "token", cluster)
        headers["Authorization"] = f"Bearer {token}"
    return headers


def host_of(url: str) -> str:
    """Return the host in a URL or host:port, empty if that is this machine; none is asked."""
    named = _HOST.match(url)
    host = named[1].strip("[]") if named else url
    if host in _HERE or host.startswith("127."):
        return ""
    own = socket.gethostname().lower()
    return "" if host.lower() in (own, own.partition(".")[0]) else host


def is_local(master: str) -> bool:
    """Whether everything of a job with this master of Spark's runs on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def host_of_master(master: str) -> str:
    """Return the host of one of Spark's masters; empty if that is this machine:

    spark://one:7077,two:7077      one        a master and its spare
    yarn, k8s://https://host:443   the same   hosts are handed out: which, shows later
    """
    if is_local(master):
        return ""
    return host_of(master) if master.startswith("spark://") else master
