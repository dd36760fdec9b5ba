"""Small objects of S3, without the long way through its packages.

s3fs asks by aiobotocore, which takes two thousandths of a second of one thread to make one request
of any size: nothing for a large object, and most of the time for small ones. The first request of
a kind goes that way, and is looked at as it is sent: to which URL, with which headers, by whom
and how it is signed. Those after it are made from that one, with botocore's own signature, and sent
from the thread that asks.

An error that may pass is raised as it is, and retried by whoever always does. Any other answer
than the expected one is left to the package, which is asked as if nothing had been: its errors,
regions and credentials are the usual ones. After some in a row it is left at that for a while; and
always if something is set up that is not known here: a proxy, a client's certificate, another
signature, other sums than these.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from stateshift.storage.fsspec.failures import STATUS_PASSING
from stateshift.storage.fsspec.ways import Botocore, FileSystem, Info

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

_log = logging.getLogger(__name__)

_FAILURES_MAX = 3  # in a row; then not for
_PAUSE_SECONDS = 60.0
_CREDENTIALS_SECONDS = 60.0  # those that expire are renewed a quarter of an hour before
_KEPT = 256  # connections: more than are at work at once

_NONE: Final[Mapping[str, str]] = {}

_SIGNED: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/\d{8}/([^/,]+)/s3/aws4_request,")

# Made for each request, by us, the signature or who sends it; every other header belongs to the
# object.
_PER_REQUEST: Final = re.compile(
    r"host|content-length|authorization|expect|range|transfer-encoding|accept-encoding|connection"
    r"|x-amz-date|amz-sdk-.*|x-amz-content-sha256|x-amz-security-token|x-amz-checksum-(?!mode).*"
    r"|x-amz-trailer|x-amz-decoded-content-length|content-md5"
)


class _Operation(NamedTuple):
    method: str
    statuses: tuple[int, ...]


_OPERATIONS: Final[Mapping[str, _Operation]] = {
    "PutObject": _Operation("PUT", (200,)),
    "GetObject": _Operation("GET", (206,)),
    "HeadObject": _Operation("HEAD", (200, 404)),
}

_SUMS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "x-amz-checksum-crc32": lambda content: zlib.crc32(content).to_bytes(4, "big"),
    "x-amz-checksum-sha256": lambda content: hashlib.sha256(content).digest(),
    "content-md5": lambda content: hashlib.md5(content, usedforsecurity=False).digest(),
}


class Usual:
    """Objects, through the file system's own calls."""

    def __init__(self, file_system: FileSystem) -> None:
        self.file_system = file_system

    def put(self, full: str, content: bytes) -> None:
        self.file_system.pipe_file(full, content)

    def get(self, full: str, start: int, end: int) -> bytes:
        return bytes(self.file_system.cat_file(full, start=start, end=end))

    def info(self, full: str) -> Info:
        return self.file_system.info(full)


class Directly(Usual):
    """The objects of one bucket, asked for by requests of our own."""

    def __init__(self, file_system: Botocore) -> None:
        super().__init__(file_system)
        self._s3fs = file_system
        self._lock = threading.Lock()
        self._ways: dict[str, _Way | None] = {}  # by operation; None where it is not known how
        self._failures = 0
        self._not_before = 0.0

    def put(self, full: str, content: bytes) -> None:
        answer = self._answer("PutObject", full, content)
        if answer is not None and "ETag" in answer.headers:  # a proxy's error page has none
            return
        with self._looking("PutObject", full):
            super().put(full, content)

    def get(self, full: str, start: int, end: int) -> bytes:
        answer = self._answer("GetObject", full, headers={"Range": f"bytes={start}-{end - 1}"})
        if answer is not None:
            return bytes(answer.data)
        with self._looking("GetObject", full):
            return super().get(full, start, end)

    def info(self, full: str) -> Info:
        """Return S3's answer on an object. If there is none, the package looks for a directory."""
        answer = self._answer("HeadObject", full)
        if answer is not None and answer.status != 404:
            headers = answer.headers
            if {"Content-Length", "ETag", "Last-Modified"} <= headers.keys():
                return {
                    "name": full,
                    "type": "file",
                    "size": int(headers["Content-Length"]),
                    "ETag": headers["ETag"],
                    "LastModified": parsedate_to_datetime(headers["Last-Modified"]),
                }
        with self._looking("HeadObject", full):
            return super().info(full)

    def _answer(
        self, operation: str, full: str, content: bytes = b"", headers: Mapping[str, str] = _NONE
    ) -> BaseHTTPResponse | None:
        """Return the answer if its status is an expected one, else None. Raise what may pass."""
        way, key = self._ways.get(operation), self._key(full)
        if way is None or not key or time.monotonic() < self._not_before:
            return None
        method, statuses = _OPERATIONS[operation]
        answer = _asked(way, method, key, content, headers)
        if answer is not None and answer.status in STATUS_PASSING:
            # That to a HEAD has no body.
            from botocore.exceptions import ClientError

            page = _text(answer.data)
            described = {
                "Code": _element(page, "Code") or str(answer.status),
                "Message": _element(page, "Message") or answer.reason,
            }
            response = {"Error": described, "ResponseMetadata": {"HTTPStatusCode": answer.status}}
            error: Exception = ClientError(response, method)
            raise error
        if answer is not None and answer.status in statuses:
            self._failures = 0
            return answer
        self._failures += 1
        if self._failures >= _FAILURES_MAX:
            self._failures = 0
            self._not_before = time.monotonic() + _PAUSE_SECONDS
        return None

    @contextlib.contextmanager
    def _looking(self, operation: str, full: str) -> Iterator[None]:
        """Look at the request that is made for this object meanwhile, if it is the first one."""
        with self._lock:
            first = operation not in self._ways
            self._ways.setdefault(operation, None)
        client = self._client(full) if first else None
        if client is None:
            yield
            return
        name, key, seen = f"before-send.s3.{operation}", self._key(full), threading.Event()

        def look(request: Botocore, **_: object) -> None:
            """Learn from a request, in the package's own thread; without it if that fails."""
            with contextlib.suppress(Exception):
                if request.url.endswith(f"/{_quoted(key)}"):  # and not another thread's
                    seen.set()
                    self._ways[operation] = _way_of(request, key, client, self._s3fs.loop)

        client.meta.events.register(name, look)
        try:
            yield
        finally:
            client.meta.events.unregister(name, look)
            if not seen.is_set():
                with self._lock:
                    self._ways.pop(operation, None)  # so that the next one is looked at

    def _client(self, full: str) -> Botocore:
        """Return aiobotocore's client, None if there is none: whoever asks next gets the reason."""
        try:
            from fsspec.asyn import sync

            files = self._s3fs
            sync(files.loop, files.set_session)
            return sync(files.loop, files.get_s3, files.split_path(full)[0])
        except Exception:
            return None

    def _key(self, full: str) -> str:
        return str(self._s3fs.split_path(full)[1])


@dataclass(frozen=True)
class _Way:
    """How objects of a bucket are asked for: `top` and a key are an object's URL."""

    top: str
    pool: HTTPConnectionPool
    headers: Mapping[str, str]
    sums: tuple[str, ...]
    region: str
    credentials: Callable[[], Botocore]

    def ask(
        self, method: str, key: str, content: bytes, headers: Mapping[str, str]
    ) -> BaseHTTPResponse:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        name = _quoted(key)
        sums = {sum: base64.b64encode(_SUMS[sum](content)).decode() for sum in self.sums}
        request = AWSRequest(method, self.top + name, {**self.headers, **headers, **sums}, content)
        S3SigV4Auth(self.credentials(), "s3", self.region).add_auth(request)
        path = urlsplit(self.top).path + name
        began = time.perf_counter()
        answer = self.pool.urlopen(
            method,
            path,
            content or None,
            dict(request.headers.items()),
            retries=False,
            redirect=False,
            decode_content=False,
        )
        if _log.isEnabledFor(logging.DEBUG):
            milliseconds = (time.perf_counter() - began) * 1000
            size = len(content) or len(answer.data)
            answered = f"HTTP {answer.status}, {milliseconds:.1f} ms, {size} bytes"
            _log.debug("%s %s%s: %s", method, self.top, name, answered)
        return answer


def _asked(
    way: _Way, method: str, key: str, content: bytes, headers: Mapping[str, str]
) -> BaseHTTPResponse | None:
    from urllib3.exceptions import HTTPError, SSLError

    try:
        return way.ask(method, key, content, headers)
    except SSLError:
        return None
    except HTTPError:
        raise
    except Exception:
        return None


def _way_of(request: Botocore, key: str, client: Botocore, loop: object) -> _Way | None:
    """Return the way of this request, None if something of it is not known here."""
    headers = {name.lower(): _text(value) for name, value in request.headers.items()}
    signed = _SIGNED.match(headers.get("authorization", ""))
    if signed is None:
        return None
    pool = _pool(client, request.url)
    names = [*headers, *headers.get("x-amz-trailer", "").replace(" ", "").split(",")]
    sums = {name for name in names if name.startswith("x-amz-checksum-")}
    if "content-md5" in names:
        sums.add("content-md5")
    sums = sums - {"x-amz-checksum-mode"}
    encoding = headers.pop("content-encoding", "aws-chunked")
    if pool is None or encoding != "aws-chunked" or not sums <= _SUMS.keys():
        return None
    return _Way(
        top=request.url[: -len(_quoted(key))],
        pool=pool,
        headers={name: text for name, text in headers.items() if not _PER_REQUEST.fullmatch(name)},
        sums=tuple(sorted(sums)),
        region=signed[1],
        credentials=_credentials(client, loop),
    )


def _pool(client: Botocore, url: str) -> HTTPConnectionPool | None:
    import urllib3
    from botocore.httpsession import get_cert_path

    session, config = client._endpoint.http_session, client.meta.config
    if session._proxy_config.proxy_url_for(url) or session._cert_file:
        return None
    tls = {}
    if url.startswith("https:") and session._verify:
        tls = {"cert_reqs": "CERT_REQUIRED", "ca_certs": get_cert_path(session._verify)}
    elif url.startswith("https:"):
        tls = {"cert_reqs": "CERT_NONE"}
    timeout = urllib3.Timeout(connect=config.connect_timeout, read=config.read_timeout)
    return urllib3.connection_from_url(url, maxsize=_KEPT, timeout=timeout, retries=False, **tls)


def _credentials(client: Botocore, loop: object) -> Callable[[], Botocore]:
    """Return a function that gives the client's credentials, renewed by the client."""
    from fsspec.asyn import sync

    own, lock = client._request_signer._credentials, threading.Lock()
    taken: list[tuple[float, Botocore]] = []

    def current() -> Botocore:
        with lock:
            if not taken or time.monotonic() - taken[0][0] > _CREDENTIALS_SECONDS:
                taken[:] = [(time.monotonic(), sync(loop, own.get_frozen_credentials))]
            return taken[0][1]

    return current


def _element(page: str, name: str) -> str:
    element = re.search(rf"<{name}>(.*?)</{name}>", page)
    return element[1] if element else ""


def _quoted(key: str) -> str:
    return quote(key, safe="/~")


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
