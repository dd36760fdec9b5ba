"""Small objects of S3, without the long way through its packages.

s3fs asks by aiobotocore, which takes two thousandths of a second of one thread to make one request
of any size: nothing for a large object, and most of the time for small ones. So the first request
of a kind goes that way, and is looked at as it is sent: to which URL, with which headers, by whom
and how it is signed. Those after it are made from that one, with botocore's own signature, and sent
from the thread that asks.

What may pass is told as it is, and asked again by who always does. Any other answer than the
expected one is left to the package, which is asked as if nothing had been: its errors, regions and
credentials are the usual ones. After some in a row it is left at that for a while; and always where
something is set up that is not known here: a proxy, a client's certificate, another signature,
other sums than these.
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
from typing import Any, Final
from urllib.parse import quote, urlsplit

from stateshift.storage.fsspec.failures import STATUS_PASSING

_log = logging.getLogger(__name__)

_FAILURES_MAX = 3  # in a row; then not for
_PAUSE_SECONDS = 60.0
_CREDENTIALS_SECONDS = 60.0  # those that expire are renewed a quarter of an hour before
_KEPT = 256  # connections: more than are at work at once

_NONE: Final[Mapping[str, str]] = {}

_SIGNED: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/\d{8}/([^/,]+)/s3/aws4_request,")

# Made anew for each request, by us, the signature or who sends it; whatever else there is belongs
# to the object.
_ANEW: Final = re.compile(
    r"host|content-length|authorization|expect|range|transfer-encoding|accept-encoding|connection|x-amz-date|amz-sdk-.*"
    r"|x-amz-content-sha256|x-amz-security-token|x-amz-checksum-(?!mode).*|x-amz-trailer|x-amz-decoded-content-length"
    r"|content-md5"
)

# How each is asked for, and what is answered where all is well.
_ASKED: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "PutObject": ("PUT", (200,)),
    "GetObject": ("GET", (206,)),
    "HeadObject": ("HEAD", (200, 404)),
}

_SUMS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "x-amz-checksum-crc32": lambda content: zlib.crc32(content).to_bytes(4, "big"),
    "x-amz-checksum-sha256": lambda content: hashlib.sha256(content).digest(),
    "content-md5": lambda content: hashlib.md5(content, usedforsecurity=False).digest(),
}


class Usual:
    """By the file system's own calls."""

    def __init__(self, file_system: Any) -> None:
        self.file_system = file_system

    def put(self, full: str, content: bytes) -> None:
        self.file_system.pipe_file(full, content)

    def get(self, full: str, start: int, end: int) -> bytes:
        return bytes(self.file_system.cat_file(full, start=start, end=end))

    def info(self, full: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.file_system.info(full)
        return found


class Directly(Usual):
    """For the objects of one bucket."""

    def __init__(self, file_system: Any) -> None:
        super().__init__(file_system)
        self._lock = threading.Lock()
        self._ways: dict[str, _Way | None] = {}  # by operation; None where it is not known how
        self._failures = 0
        self._not_before = 0.0

    def put(self, full: str, content: bytes) -> None:
        answer = self._asked("PutObject", full, content)
        if (
            answer is None or "ETag" not in answer.headers
        ):  # a page of whoever stands between has none
            with self._looking("PutObject", full):
                super().put(full, content)

    def get(self, full: str, start: int, end: int) -> bytes:
        answer = self._asked("GetObject", full, headers={"Range": f"bytes={start}-{end - 1}"})
        if answer is not None:
            return bytes(answer.data)
        with self._looking("GetObject", full):
            return super().get(full, start, end)

    def info(self, full: str) -> Mapping[str, Any]:
        """That nothing is there is left to the package to tell: it looks for a directory of that
        name, too.
        """
        answer = self._asked("HeadObject", full)
        told = {} if answer is None or answer.status == 404 else answer.headers
        if {"Content-Length", "ETag", "Last-Modified"} <= told.keys():
            return {
                "name": full,
                "type": "file",
                "size": int(told["Content-Length"]),
                "ETag": told["ETag"],
                "LastModified": parsedate_to_datetime(told["Last-Modified"]),
            }
        with self._looking("HeadObject", full):
            return super().info(full)

    def _asked(
        self, operation: str, full: str, content: bytes = b"", headers: Mapping[str, str] = _NONE
    ) -> Any:
        """The answer, where its status is an expected one; else None. Raises what may pass."""
        way, key = self._ways.get(operation), self._key(full)
        if way is None or not key or time.monotonic() < self._not_before:
            return None
        from urllib3.exceptions import HTTPError, SSLError

        found, (method, expected) = None, _ASKED[operation]
        try:
            answer = way.ask(method, key, content, headers)
            found = answer if answer.status in expected else None
        except SSLError:
            answer = None
        except HTTPError:
            raise
        except Exception:  # whatever it is, the usual way meets it too, and tells it
            answer = None
        if answer is not None and answer.status in STATUS_PASSING:
            raise _error_of(answer, method)
        self._failures = 0 if found is not None else self._failures + 1
        if self._failures >= _FAILURES_MAX:
            self._failures, self._not_before = 0, time.monotonic() + _PAUSE_SECONDS
        return found

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

        def look(request: Any, **_: Any) -> None:
            """In the package's own thread. What it does not find there, it does without."""
            with contextlib.suppress(Exception):
                if request.url.endswith(f"/{_quoted(key)}"):  # and not another thread's
                    seen.set()
                    self._ways[operation] = _way_of(request, key, client, self.file_system.loop)

        client.meta.events.register(name, look)
        try:
            yield
        finally:
            client.meta.events.unregister(name, look)
            if not seen.is_set():
                with self._lock:
                    self._ways.pop(operation, None)  # so that the next one is looked at

    def _client(self, full: str) -> Any:
        """Of aiobotocore's. None where there is none: why, is told by what asks next."""
        try:
            from fsspec.asyn import sync

            files = self.file_system
            sync(files.loop, files.set_session)
            return sync(files.loop, files.get_s3, files.split_path(full)[0])
        except Exception:
            return None

    def _key(self, full: str) -> str:
        return str(self.file_system.split_path(full)[1])


def objects_of(file_system: Any) -> Usual:
    return (
        Directly(file_system)
        if type(file_system).__module__.partition(".")[0] == "s3fs"
        else Usual(file_system)
    )


@dataclass(frozen=True)
class _Way:
    """How objects of a bucket are asked for: `top` and a key are an object's URL."""

    top: str
    pool: Any
    headers: Mapping[str, str]
    sums: tuple[str, ...]
    region: str
    credentials: Callable[[], Any]

    def ask(self, method: str, key: str, content: bytes, headers: Mapping[str, str]) -> Any:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        name, sums = (
            _quoted(key),
            {one: base64.b64encode(_SUMS[one](content)).decode() for one in self.sums},
        )
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
            url = self.top + name
            _log.debug(
                "%s %s: HTTP %d, %.1f ms, %d bytes", method, url, answer.status, milliseconds, size
            )
        return answer


def _way_of(request: Any, key: str, client: Any, loop: Any) -> _Way | None:
    """None where something of it is not known to us."""
    headers = {name.lower(): _text(value) for name, value in request.headers.items()}
    signed = _SIGNED.match(headers.get("authorization", ""))
    pool = _pool(client, request.url) if signed is not None else None
    if signed is None or pool is None:
        return None
    trailer = [name.strip() for name in headers.get("x-amz-trailer", "").split(",") if name.strip()]
    sums = {
        name
        for name in (*headers, *trailer)
        if name.startswith("x-amz-checksum-") or name == "content-md5"
    }
    sums -= {"x-amz-checksum-mode"}
    encoded = headers.pop("content-encoding", "aws-chunked")
    if sums - _SUMS.keys() or encoded != "aws-chunked":
        return None
    kept = {name: value for name, value in headers.items() if not _ANEW.fullmatch(name)}
    top = request.url[: -len(_quoted(key))]
    return _Way(top, pool, kept, tuple(sorted(sums)), signed[1], _credentials(client, loop))


def _pool(client: Any, url: str) -> Any:
    import urllib3
    from botocore.httpsession import get_cert_path

    session, config = client._endpoint.http_session, client.meta.config
    if session._proxy_config.proxy_url_for(url) or session._cert_file:
        return None
    tls: dict[str, Any] = {}
    if url.startswith("https:"):
        known = {"cert_reqs": "CERT_REQUIRED", "ca_certs": get_cert_path(session._verify)}
        tls = known if session._verify else {"cert_reqs": "CERT_NONE"}
    timeout = urllib3.Timeout(connect=config.connect_timeout, read=config.read_timeout)
    return urllib3.connection_from_url(url, maxsize=_KEPT, timeout=timeout, retries=False, **tls)


def _credentials(client: Any, loop: Any) -> Callable[[], Any]:
    """As the client has them, renewed by it."""
    from fsspec.asyn import sync

    own, lock = client._request_signer._credentials, threading.Lock()
    taken: list[tuple[float, Any]] = []

    def current() -> Any:
        with lock:
            if not taken or time.monotonic() - taken[0][0] > _CREDENTIALS_SECONDS:
                taken[:] = [(time.monotonic(), sync(loop, own.get_frozen_credentials))]
            return taken[0][1]

    return current


def _error_of(answer: Any, method: str) -> Exception:
    """As botocore has it. The answer to a HEAD has no words of its own."""
    from botocore.exceptions import ClientError

    code, message = (
        re.search(rf"<{word}>(.*?)</{word}>", _text(answer.data)) for word in ("Code", "Message")
    )
    told = {
        "Code": code[1] if code else str(answer.status),
        "Message": message[1] if message else answer.reason,
    }
    error: Exception = ClientError(
        {"Error": told, "ResponseMetadata": {"HTTPStatusCode": answer.status}}, method
    )
    return error


def _quoted(key: str) -> str:
    """As botocore has it in a URL."""
    return quote(key, safe="/~")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
