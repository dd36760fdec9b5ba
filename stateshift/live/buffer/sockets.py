"""Addresses, and servers that give each connection a thread and take only so many at a time."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from stateshift.errors import Complaint, PlanError, SpecError

CONNECTIONS_MAX = 256  # further ones wait until one of these ends
IDLE_SECONDS = 60.0  # after which a connection of HTTP that says nothing is closed
WAIT_SECONDS = 0.2  # how often a listener that is full looks whether it has to end
LINGER_SECONDS = 30.0  # how long a connection that was answered is read on, until its peer ends it
LINGER_IDLE_SECONDS = 5.0  # within which the peer sends something, or it is closed
LINGER_BYTES = 1 << 16  # read at once, and dropped

# A connection, as socketserver hands it over.
Request = socket.socket | tuple[bytes, socket.socket]


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


class Server(socketserver.ThreadingTCPServer):
    """A listener; each connection has a thread, and at most so many at a time."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, address: Address, handler: Callable[..., socketserver.BaseRequestHandler]
    ) -> None:
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
                _read_on(request)
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


def _read_on(connection: socket.socket) -> None:
    """Read and drop what a peer still sends, until it ends or for as long as is waited."""
    ends = time.monotonic() + LINGER_SECONDS
    while (left := ends - time.monotonic()) > 0:
        connection.settimeout(min(left, LINGER_IDLE_SECONDS))
        if not connection.recv(LINGER_BYTES):
            return


class HttpHandler(BaseHTTPRequestHandler):
    """HTTP/1.1, quietly."""

    protocol_version = "HTTP/1.1"
    server_version = "stateshift"
    sys_version = ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

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
