"""The listeners of a buffer, for producers and for readers.

    tcp://HOST:PORT      each line is a record. Nothing is answered. At a bound, and while the disk
                         fails, the socket is not read
    tcp://HOST:PORT?ack  the same, and whenever lines became durable a line with their number, as
                         counted in this connection
    http://HOST:PORT     POST: the body is a record. POST /lines: each line is one, all or none

HTTP answers 200 with the numbers `{"first": 17, "count": 1}` when the records are durable (with
`--ack memory`: when they are accepted), 413 if they are too large, 411 for a body without a length,
and 503 if they are refused for now: nothing of it was kept.

Readers speak HTTP:

    GET    /status                   the buffer as it is
    GET    /records?from=N&until=M   records as frames.py has them, from N on: one at least, not all
                                     if they are many; none if N is the next one
    PUT    /readers/NAME?next=N      the reader needs nothing before N
    DELETE /readers/NAME             nothing is kept for it any more

410 answers a record that is not there any more, or was never promised; all errors are JSON with
`error` and `hint`.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler
from socketserver import BaseRequestHandler, BaseServer, ThreadingTCPServer
from urllib.parse import parse_qs, urlsplit

from stateshift.errors import Complaint, PlanError, SpecError, StateshiftError
from stateshift.live.buffer.buffer import Buffer, GoneError
from stateshift.live.buffer.queue import RefusedError
from stateshift.plain import to_plain

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18
AGAIN_SECONDS = 0.05  # until lines that found no room are offered again
UNREAD_SECONDS = 30.0  # a producer that does not read its acknowledgements so long is closed
ANSWER_BYTES = 4 << 20
RECORDS_TYPE = "application/octet-stream"
NUMBER = re.compile(r"[0-9]{1,18}")
CONNECTIONS_MAX = 256  # further ones wait until one of these ends
IDLE_SECONDS = 60.0  # after which a connection of HTTP that says nothing is closed
WAIT_SECONDS = 0.2  # how often a listener that is full looks whether it has to end
LINGER_SECONDS = 30.0  # how long a connection that was answered is read on, until its peer ends it
LINGER_IDLE_SECONDS = 5.0  # within which the peer sends something, or it is closed
LINGER_BYTES = 1 << 16  # read at once, and dropped

# A connection, as socketserver hands it over.
Request = socket.socket | tuple[bytes, socket.socket]


def listen(buffer: Buffer, address: Address) -> Server:
    """Listen for producers; the server is not run yet."""
    if address.scheme == "tcp":
        is_answered = address.option == "ack"
        return Server(address, partial(_Lines, buffer=buffer, is_answered=is_answered))
    return Server(address, partial(_Posts, buffer=buffer))


def serve(buffer: Buffer, address: Address) -> Server:
    """Listen for readers; the server is not run yet."""
    return Server(address, partial(_Reads, buffer=buffer))


class _Lines(BaseRequestHandler):
    """One producer of lines."""

    def __init__(
        self,
        request: Request,
        client: object,
        server: BaseServer,
        buffer: Buffer,
        is_answered: bool,
    ) -> None:
        self._buffer = buffer
        self._is_answered = is_answered
        self._count = 0
        super().__init__(request, client, server)

    def handle(self) -> None:
        """Take lines until the producer ends; one without its end counts, if nothing broke."""
        self.request.settimeout(None)
        rest = b""
        while chunk := self.request.recv(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            too_long = max(map(len, (*lines, rest)), default=0)
            if too_long > self._buffer.request_bytes_max:
                # Close the connection of a line that is too long: it is the first one not kept.
                largest = self._buffer.request_bytes_max
                words = "%s: a line of %d bytes or more; the longest is %d: closed"
                logger.error(words, self.client_address, too_long, largest)
                if self._is_answered:
                    self.request.sendall(b"error: a line is longer than %d bytes\n" % largest)
                self.request.shutdown(socket.SHUT_WR)
                return
            values = [line.removesuffix(b"\r") for line in lines]
            lines_max = self._buffer.request_lines_max
            for first in range(0, len(values), lines_max):
                self._put(values[first : first + lines_max])
        if rest:
            self._put([rest])

    def _put(self, lines: Sequence[bytes]) -> None:
        """Put lines in, however long it takes; meanwhile nothing is read from the socket."""
        while True:
            try:
                batch = self._buffer.offer(lines)
                if self._buffer.limits.ack == "disk" or self._is_answered:
                    self._buffer.wait(batch)
                break
            except RefusedError:
                time.sleep(AGAIN_SECONDS)
        self._count += len(lines)
        if self._is_answered:
            self.request.settimeout(UNREAD_SECONDS)
            self.request.sendall(b"%d\n" % self._count)
            self.request.settimeout(None)


class _BufferHandler(BaseHTTPRequestHandler):
    """A connection of HTTP/1.1 to a buffer, quietly."""

    protocol_version = "HTTP/1.1"
    server_version = "stateshift"
    sys_version = ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def __init__(
        self, request: Request, client: object, server: BaseServer, buffer: Buffer
    ) -> None:
        self._buffer = buffer
        super().__init__(request, client, server)

    def log_message(self, *words: object) -> None:
        """Say nothing for each request."""

    def answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)


class _Posts(_BufferHandler):
    """One producer that posts."""

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        is_lines = self.path.partition("?")[0] == "/lines"
        values = lines_of(body) if is_lines else [body]
        if len(values) > self._buffer.request_lines_max:
            fact = f"the body has more than {self._buffer.request_lines_max} lines"
            self.answer(413, problem(fact))
            return
        try:
            batch = self._buffer.offer(values)
            if self._buffer.limits.ack == "disk":
                self._buffer.wait(batch)
        except RefusedError as error:
            self.answer(503, problem(error.fact))
            return
        accepted = {"first": batch.first, "count": len(batch.values)}
        self.answer(200, json.dumps(accepted).encode() + b"\n")

    def _body(self) -> bytes | None:
        """Return the whole body; None where it was refused, or broke off."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            self.answer(411, problem("send the body with a Content-Length"))
            return None
        largest = self._buffer.request_bytes_max
        if int(length) > largest:
            self.close_connection = True
            self.answer(413, problem(f"the body is larger than {largest} bytes"))
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return None
        return body


class _Reads(_BufferHandler):
    """One reader's connection."""

    def do_GET(self) -> None:
        path, values = self._asked()
        if path == "/status":
            self.answer(200, json.dumps(to_plain(self._buffer.status())).encode())
        elif path == "/records" and {"from", "until"} <= values.keys():
            first, until = values["from"], values["until"]
            self._act(lambda: self._buffer.read(first, until - first, ANSWER_BYTES))
        else:
            self.answer(404, problem(f"nothing is at {self.path}"))

    def do_PUT(self) -> None:
        path, values = self._asked()
        if path.startswith("/readers/") and "next" in values:
            name = path.removeprefix("/readers/")
            self._act(lambda: self._buffer.set_position(name, values["next"]))
        else:
            self.answer(404, problem(f"nothing is at {self.path}"))

    def do_DELETE(self) -> None:
        path, _ = self._asked()
        self._act(lambda: self._buffer.forget(path.removeprefix("/readers/")))

    def _asked(self) -> tuple[str, dict[str, int]]:
        """Return the path, and the numbers that the query names."""
        parts = urlsplit(self.path)
        words = parse_qs(parts.query).items()
        return parts.path, {key: int(said[-1]) for key, said in words if NUMBER.fullmatch(said[-1])}

    def _act(self, act: Callable[[], bytes | None]) -> None:
        try:
            content = act()
        except GoneError as error:
            self.answer(410, problem(error.fact, error.hint))
        except StateshiftError as error:
            self.answer(400, problem(str(error), error.hint))
        except OSError as error:
            self.answer(500, problem(f"the disk of the buffer fails: {error.strerror or error}"))
        else:
            self.answer(200, content or b"", RECORDS_TYPE)


def lines_of(body: bytes) -> list[bytes]:
    """Return the lines of a body; its last one may lack its end."""
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def problem(fact: str, hint: str | None = None) -> bytes:
    """Return an error as HTTP answers it."""
    return json.dumps({"error": fact, "hint": hint}).encode() + b"\n"


# ------------------------------------------------------------------------------------ sockets


@dataclass(frozen=True, slots=True)
class Address:
    """An address, `tcp://127.0.0.1:9000` or `http://127.0.0.1:0`; port 0 is any free one."""

    scheme: str
    host: str
    port: int
    option: str = ""

    def __str__(self) -> str:
        option = f"?{self.option}" if self.option else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{option}"


def parse_address(text: str, schemes: tuple[str, ...], option: str) -> Address:
    """Return an address as it is typed."""
    hint = f"{option} {schemes[0]}://127.0.0.1:0"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise SpecError((Complaint(option, f"{text!r}: {error}", text),), hint=hint) from None
    if parts.scheme not in schemes or not parts.hostname or port is None:
        complaint = Complaint(option, f"{text!r} is no {' or '.join(schemes)}://HOST:PORT", text)
        raise SpecError((complaint,), hint=hint)
    if parts.path.strip("/") or parts.query not in ("", "ack") or parts.username:
        complaint = Complaint(option, f"{text!r} says more than HOST:PORT", text)
        raise SpecError((complaint,), hint=hint)
    if parts.query and parts.scheme != "tcp":
        complaint = Complaint(option, f"{text!r}: only tcp has ?ack; HTTP always answers", text)
        raise SpecError((complaint,), hint=hint)
    return Address(parts.scheme, parts.hostname, port, parts.query)


class Server(ThreadingTCPServer):
    """A listener; each connection has a thread, and at most so many at a time."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: Address, handler: Callable[..., BaseRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._is_ending = False
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((address.host, address.port), handler)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise PlanError(
                f"cannot listen at {address}: {reason}",
                hint="name a free port of this machine, or port 0 for any",
            ) from None
        port = int(self.server_address[1])
        self.address = Address(address.scheme, address.host, port, address.option)

    def process_request(self, request: Request, client_address: object) -> None:
        """Give a connection a thread, once one is free."""
        while not self._free.acquire(timeout=WAIT_SECONDS):
            if self._is_ending:
                raise ConnectionAbortedError("the buffer ends")
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Request, client_address: object) -> None:
        """Serve a connection, and let the next one in."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Request) -> None:
        """Say that nothing more is answered, and close once the peer has ended or time is up.

        A connection that is closed with unread bytes is reset, and a reset takes the answer away
        that the peer has not read yet: a producer whose body is refused would see a broken pipe.
        """
        if isinstance(request, socket.socket):
            with suppress(OSError):
                request.shutdown(socket.SHUT_WR)
                ends = time.monotonic() + LINGER_SECONDS
                while (left := ends - time.monotonic()) > 0:
                    request.settimeout(min(left, LINGER_IDLE_SECONDS))
                    if not request.recv(LINGER_BYTES):
                        break
        self.close_request(request)

    def handle_error(self, request: Request, client_address: object) -> None:
        """Pass over connections that break: their producers and readers see it themselves."""

    def shutdown(self) -> None:
        self._is_ending = True
        super().shutdown()

    def run(self) -> threading.Thread:
        """Serve, in a thread, until `shutdown`."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        return thread
