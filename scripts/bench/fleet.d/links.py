"""Throttled links: what a machine's connection to a storage is, on one machine.

    with links(3, "127.0.0.1:8333") as ports: ...

Each port leads to the same server. All connections of a port share its bytes, each direction for
itself, and its operations: a request waits for its turn before its head is passed on. Bytes are
passed on as they are, so that signed requests stay signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

BYTES_PER_SECOND = 20_000_000
OPERATIONS_PER_SECOND = 50
SLACK = 0.1
PIECE = 64 * 1024
HEAD_MAX = 64 * 1024


class Turns:
    """So many a second, in the order in which they are asked for. What was not used within SLACK
    seconds is lost.
    """

    def __init__(self, per_second: float) -> None:
        self._each, self._next = 1 / per_second, 0.0

    async def take(self, count: int = 1) -> None:
        now = time.monotonic()
        begins = max(now - SLACK, self._next)
        self._next = begins + count * self._each
        if self._next > now:
            await asyncio.sleep(self._next - now)


class Link:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._up, self._down = Turns(BYTES_PER_SECOND), Turns(BYTES_PER_SECOND)
        self._operations = Turns(OPERATIONS_PER_SECOND)
        self.operations = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(
                self._host, self._port, limit=HEAD_MAX
            )
        except OSError:
            writer.close()
            return
        both = (
            asyncio.create_task(self._requests(reader, there_writer)),
            asyncio.create_task(self._answers(there_reader, writer)),
        )
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        for end in (writer, there_writer):
            with contextlib.suppress(OSError):
                end.close()

    async def _requests(self, here: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        while True:
            head = await here.readuntil(b"\r\n\r\n")
            self.operations += 1
            await self._operations.take()
            there.write(head)
            await there.drain()
            fields = _fields(head)
            if "chunked" in fields.get("transfer-encoding", ""):
                await self._chunks(here, there)
            else:
                await self._body(here, there, int(fields.get("content-length", "0")))

    async def _body(
        self, here: asyncio.StreamReader, there: asyncio.StreamWriter, left: int
    ) -> None:
        while left:
            piece = await here.read(min(PIECE, left))
            if not piece:
                raise ConnectionError
            left -= len(piece)
            await self._up.take(len(piece))
            there.write(piece)
            await there.drain()

    async def _chunks(self, here: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        while True:
            line = await here.readuntil(b"\r\n")
            there.write(line)
            size = int(line.partition(b";")[0], 16)
            await self._body(here, there, size + 2 if size else 0)
            if not size:
                while line != b"\r\n":  # trailers
                    line = await here.readuntil(b"\r\n")
                    there.write(line)
                return

    async def _answers(self, there: asyncio.StreamReader, here: asyncio.StreamWriter) -> None:
        while piece := await there.read(PIECE):
            await self._down.take(len(piece))
            here.write(piece)
            await here.drain()


@contextlib.contextmanager
def links(count: int, server: str) -> Iterator[list[int]]:
    """The ports of so many links to a server, on a thread of their own."""
    host, _, port = server.rpartition(":")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="links", daemon=True)
    thread.start()

    async def opened() -> list[int]:
        ports = []
        for _ in range(count):
            link = Link(host, int(port))
            listening = await asyncio.start_server(link.serve, "127.0.0.1", 0, limit=HEAD_MAX)
            ports.append(int(listening.sockets[0].getsockname()[1]))
        return ports

    try:
        yield asyncio.run_coroutine_threadsafe(opened(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def _fields(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines if name}
