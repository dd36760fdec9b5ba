"""A buffer in a folder, producers and readers of it, and a disk that is slow or full."""

from __future__ import annotations

import errno
import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stateshift.live.buffer.buffer import Buffer, open_buffer
from stateshift.live.buffer.client import Client
from stateshift.live.buffer.folder import Folder
from stateshift.live.buffer.frames import decode_records
from stateshift.live.buffer.listeners import Address
from stateshift.live.buffer.log import Files
from stateshift.live.buffer.queue import Limits
from stateshift.live.buffer.runner import RunningBuffer, run_buffer

LIMITS = Limits(memory=1 << 20, disk=16 << 20)
SECONDS_MAX = 120.0
FREE = "127.0.0.1"


class HeldDisk(Files):
    """A disk that writes nothing until it is let go, or fails as long as it is full."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.began = threading.Event()
        self.is_full = False

    def write(self, descriptor: int, content: bytes) -> None:
        self.began.set()
        assert self.free.wait(SECONDS_MAX)
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, content)


@contextmanager
def buffering(path: Path, limits: Limits = LIMITS, files: Files | None = None) -> Iterator[Buffer]:
    """A buffer without listeners."""
    with open_buffer(Folder(path), limits, files) as buffer:
        yield buffer


@contextmanager
def serving(
    path: Path, *schemes: str, limits: Limits = LIMITS, files: Files | None = None
) -> Iterator[RunningBuffer]:
    """A buffer with a listener of each of these schemes, `tcp`, `tcp?ack` or `http`."""
    listens = []
    for scheme in schemes:
        name, _, option = scheme.partition("?")
        listens.append(Address(name, FREE, 0, option))
    with run_buffer(path, listens, Address("http", FREE, 0), limits, files) as at_work:
        yield at_work


def put(buffer: Buffer, *values: bytes) -> int:
    """Put records in and wait until they are durable; return the first one's number."""
    batch = buffer.offer(values)
    buffer.wait(batch)
    return batch.first


def values_in(buffer: Buffer, number: int = 0) -> list[bytes]:
    """Every record that a reader may see."""
    values: list[bytes] = []
    while content := buffer.read(number, 1 << 40, 1 << 16):
        records = list(decode_records(content, number))
        values += [record.value for record in records]
        number += len(records)
    return values


def values_at(place: str) -> list[bytes]:
    """Every record that a client sees."""
    client = Client(place, SECONDS_MAX)
    status = client.status()
    parts = list(client.records(status.first, status.next))
    return [record.value for records in parts for record in records]


def posted(address: str, body: bytes, path: str = "/", **headers: str) -> tuple[int, bytes]:
    """Post a body, and return the answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS_MAX)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """A producer's connection."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), SECONDS_MAX) as connection:
        yield connection


def told(connection: Any, until: bytes = b"") -> bytes:
    """What the buffer says, until it says this, or ends."""
    said = b""
    while not (until and said.endswith(until)) and (chunk := connection.recv(1 << 16)):
        said += chunk
    return said
