"""A buffer and its listeners, as `stateshift live buffer` runs them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stateshift.errors import Complaint, SpecError, StorageError
from stateshift.live.buffer.buffer import Buffer, Status, open_buffer, readers_of
from stateshift.live.buffer.client import Client
from stateshift.live.buffer.folder import Folder, RunningProcess
from stateshift.live.buffer.listeners import Address, Server, listen, serve
from stateshift.live.buffer.log import Files, found_segments
from stateshift.live.buffer.queue import Limits

MEMORY_LEAST = 1 << 20
DISK_LEAST = 1 << 24
STATUS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RunningBuffer:
    """A buffer that runs in this process, and where it listens."""

    buffer: Buffer
    running: RunningProcess


@dataclass(frozen=True, slots=True)
class BufferSurvey:
    """A buffer as it is; `running` is None where nobody runs it."""

    directory: Path
    status: Status
    running: RunningProcess | None


@contextlib.contextmanager
def run_buffer(
    directory: Path,
    listens: Sequence[Address],
    serves: Address,
    limits: Limits,
    files: Files | None = None,
) -> Iterator[RunningBuffer]:
    """Run a buffer with its listeners. At the end producers are refused, and what was accepted is
    written; StorageError where records that producers were promised could not be.
    """
    complaints = []
    if limits.memory < MEMORY_LEAST:
        complaints.append(Complaint("--memory", "less than 1 MiB", limits.memory))
    if limits.disk < DISK_LEAST:
        complaints.append(Complaint("--disk", "less than 16 MiB", limits.disk))
    if complaints:
        raise SpecError(tuple(complaints), hint="--memory 64MiB --disk 10GiB")
    folder = Folder(directory)
    with open_buffer(folder, limits, files) as buffer, contextlib.ExitStack() as stack:
        servers = [listen(buffer, address) for address in listens]
        reading = serve(buffer, serves)
        for server in (*servers, reading):
            stack.enter_context(server)
        said = RunningProcess(
            id=buffer.id,
            process=os.getpid(),
            listens=tuple(str(server.address) for server in servers),
            serves=str(reading.address),
        )
        threads = [server.run() for server in (*servers, reading)]
        folder.write_running(said)
        try:
            yield RunningBuffer(buffer, said)
        finally:
            _end(buffer, (*servers, reading), threads)
            folder.write_running(None)


def _end(buffer: Buffer, servers: Sequence[Server], threads: Sequence[threading.Thread]) -> None:
    for server in servers:
        server.shutdown()
    for thread in threads:
        thread.join()
    lost = buffer.close()
    if lost:
        raise StorageError(
            f"{lost} records were accepted, and could not be written: {buffer.status().failure}",
            hint="ask their producers for them again",
        )


def look(directory: Path) -> BufferSurvey:
    """Return a buffer as it is, whether it runs or not."""
    folder = Folder(directory)
    buffer_id = folder.check()
    said = folder.running()
    if said is not None:
        with contextlib.suppress(StorageError):
            status = Client(said.serves, STATUS_SECONDS).status()
            if status.id == buffer_id:
                return BufferSurvey(directory, status, said)
    buffer_id = folder.check()
    segments = found_segments(folder.segments)
    return BufferSurvey(
        directory,
        Status(
            id=buffer_id,
            first=segments[0].first if segments else 0,
            next=segments[-1].until if segments else 0,
            waiting=0,
            refused=0,
            memory_bytes=0,
            memory_limit=0,
            disk_bytes=sum(segment.end for segment in segments),
            disk_limit=0,
            refusal=None,
            failure=None,
            readers=readers_of(folder.positions()),
        ),
        None,
    )


def forget(directory: Path, reader: str) -> BufferSurvey:
    """Forget a reader of a buffer, whether it runs or not, and return what is left."""
    seen = look(directory)
    if seen.running is not None:
        Client(seen.running.serves, STATUS_SECONDS).forget(reader)
    else:
        with open_buffer(Folder(directory), Limits(MEMORY_LEAST, DISK_LEAST)) as buffer:
            buffer.forget(reader)
    return look(directory)
