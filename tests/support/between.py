"""Somebody between a client and an HTTP server, who passes everything on but what a test wants
spoiled.

    with between(endpoint, first(3, "GET", SLOW_DOWN)) as (address, asked):
        ...                                     asked: the method and path of every request that
                                                came

A `Spoiling` looks at a request and says what is to happen to it, None for nothing:

    SLOW_DOWN  503 with S3's own words; the server is not asked
    BROKEN     500 likewise
    CUT        half the body, under the length of the whole, and no more
    SHORT      half the body, under the length of that half
    WHOLE      the request goes on without its Range
    LOST       the server is asked, and its answer kept
    SILENT     no answer for a while
    HTML       a page, with status 200; the server is not asked
    DENIED     403, as once a policy has changed; the server is not asked
    NO_BUCKET  404, as once the bucket is deleted; the server is not asked
    INSIDE     an error inside an answer with status 200, as S3 ends a multipart upload; the server
               is not asked
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.support.listening import listening

SLOW_DOWN, CUT, SHORT, WHOLE = "slow down", "cut", "short", "whole"
LOST, SILENT, HTML, INSIDE = "lost", "silent", "html", "inside"
DENIED, NO_BUCKET, BROKEN = "denied", "no bucket", "broken"
SECONDS_SILENT = 3.0

Asked = tuple[str, str]
Spoiling = Callable[[Asked], str | None]

ERROR = (
    b"<?xml "
    b'version="1.0"?><Error><Code>%s</Code><Message>%s</Message><RequestId>1</RequestId></Error>'
)
ANSWERS = {
    SLOW_DOWN: (503, ERROR % (b"SlowDown", b"Please reduce your request rate.")),
    BROKEN: (500, ERROR % (b"InternalError", b"We encountered an internal error.")),
    DENIED: (403, ERROR % (b"AccessDenied", b"Access Denied")),
    NO_BUCKET: (404, ERROR % (b"NoSuchBucket", b"The specified bucket does not exist.")),
    HTML: (200, b"<html><body>Down for maintenance<br></body></html>"),
    INSIDE: (
        200,
        ERROR % (b"InternalError", b"We encountered an internal error. Please try again."),
    ),
}


def first(count: int, method: str, fault: str, holding: str = "") -> Spoiling:
    """The first so many requests of a method whose path holds something."""
    left, lock = [count], threading.Lock()

    def spoil(asked: Asked) -> str | None:
        with lock:
            if asked[0] != method or holding not in asked[1] or not left[0]:
                return None
            left[0] -= 1
            return fault

    return spoil


def always(fault: str) -> Spoiling:
    return lambda asked: fault


@contextmanager
def between(endpoint: str, spoil: Spoiling) -> Iterator[tuple[str, list[Asked]]]:
    """The address to ask instead, and what was asked there."""
    asked: list[Asked] = []
    with listening(_handler(urlsplit(endpoint).netloc, spoil, asked)) as address:
        yield f"http://{address}", asked


def _handler(server: str, spoil: Spoiling, asked: list[Asked]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path))
            fault = spoil(asked[-1])
            if fault == SILENT:
                threading.Event().wait(SECONDS_SILENT)
                self.close_connection = True
            elif fault in ANSWERS:
                status, content = ANSWERS[fault]
                self.answer(status, [("Content-Type", "application/xml")], content, len(content))
            else:
                self.pass_on(body, fault)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        def pass_on(self, body: bytes, fault: str | None) -> None:
            status, headers, content = self.ask(body, fault)
            told = next(
                (int(value) for key, value in headers if key.lower() == "content-length"),
                len(content),
            )
            if fault == LOST:
                self.close_connection = True
                return
            if fault in (CUT, SHORT):
                content = content[: len(content) // 2]
                told = told if fault == CUT else len(content)
                self.close_connection = True
            self.answer(status, headers, content, told)

        def ask(self, body: bytes, fault: str | None) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(server, timeout=60)
            try:
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for (
                    key,
                    value,
                ) in self.headers.items():  # with Host, which is part of what is signed
                    if not (fault == WHOLE and key.lower() == "range"):
                        connection.putheader(key, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                connection.close()

        def answer(
            self, status: int, headers: list[tuple[str, str]], content: bytes, length: int
        ) -> None:
            self.send_response_only(status)
            for key, value in headers:
                if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(key, value)
            if status != 204:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    return Handler
