"""What producers speak.

    tcp://HOST:PORT      each line is a record. Nothing is answered. At a bound, and while the disk
                         fails, the socket is not read
    tcp://HOST:PORT?ack  the same, and whenever lines became durable a line with their number, as
                         counted in this connection
    http://HOST:PORT     POST: the body is a record. POST /lines: each line is one, all or none

HTTP answers 200 with the numbers `{"first": 17, "count": 1}` when the records are durable (with
`--ack memory`: when they are accepted), 413 what is too large, 411 a body without a length, and 503
what is refused for now: nothing of it was kept.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Sequence
from functools import partial
from socketserver import BaseRequestHandler, BaseServer

from stateshift.live.buffer.buffer import Buffer
from stateshift.live.buffer.queue import Batch, RefusedError
from stateshift.live.buffer.sockets import Address, HttpHandler, Request, Server

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18
AGAIN_SECONDS = 0.05  # until lines that found no room are offered again
UNREAD_SECONDS = 30.0  # a producer that does not read its acknowledgements so long is closed


def listen(buffer: Buffer, address: Address) -> Server:
    """Listen for producers; the server is not run yet."""
    if address.scheme == "tcp":
        is_answered = address.option == "ack"
        return Server(address, partial(_Lines, buffer=buffer, is_answered=is_answered))
    return Server(address, partial(_Posts, buffer=buffer))


def must_wait(buffer: Buffer) -> bool:
    """Whether producers are answered only once their records are durable."""
    return buffer.limits.ack == "disk"


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
        """Take lines until the producer ends. A last line without its end counts, unless the
        connection broke.
        """
        self.request.settimeout(None)
        rest = b""
        while chunk := self.request.recv(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            too_long = max(map(len, (*lines, rest)), default=0)
            if too_long > self._buffer.request_bytes_max:
                self._refuse(too_long)
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
                if must_wait(self._buffer) or self._is_answered:
                    self._buffer.wait(batch)
                break
            except RefusedError:
                time.sleep(AGAIN_SECONDS)
        self._count += len(lines)
        if self._is_answered:
            self.request.settimeout(UNREAD_SECONDS)
            self.request.sendall(b"%d\n" % self._count)
            self.request.settimeout(None)

    def _refuse(self, size: int) -> None:
        """Close the connection of a producer whose line is too long: it is the first one that is
        not kept.
        """
        largest = self._buffer.request_bytes_max
        logger.error(
            "%s: a line of %d bytes or more; the longest is %d: closed",
            self.client_address,
            size,
            largest,
        )
        if self._is_answered:
            self.request.sendall(b"error: a line is longer than %d bytes\n" % largest)
        self.request.shutdown(socket.SHUT_WR)


class _Posts(HttpHandler):
    """One producer that posts."""

    def __init__(
        self, request: Request, client: object, server: BaseServer, buffer: Buffer
    ) -> None:
        self._buffer = buffer
        super().__init__(request, client, server)

    def do_POST(self) -> None:
        """Take the body: a record, or lines of them."""
        body = self._body()
        if body is None:
            return
        path = self.path.partition("?")[0]
        values = [body]
        if path == "/lines":
            values = lines_of(body)
        if len(values) > self._buffer.request_lines_max:
            fact = f"the body has more than {self._buffer.request_lines_max} lines"
            self.answer(413, problem(fact))
            return
        try:
            batch = self._buffer.offer(values)
            if must_wait(self._buffer):
                self._buffer.wait(batch)
        except RefusedError as error:
            self.answer(503, problem(error.fact))
            return
        self.answer(200, _accepted(batch))

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


def lines_of(body: bytes) -> list[bytes]:
    """Return the lines of a body; its last one may lack its end."""
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _accepted(batch: Batch) -> bytes:
    return json.dumps({"first": batch.first, "count": len(batch.values)}).encode() + b"\n"


def problem(fact: str, hint: str | None = None) -> bytes:
    """Return an error as HTTP answers it."""
    return json.dumps({"error": fact, "hint": hint}).encode() + b"\n"
