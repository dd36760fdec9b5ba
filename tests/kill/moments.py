"""The moments at which a process can be killed: before and after every effect, and in the middle of
it.

    Moments        counts them, and kills at one
    watch          every system call of ours that changes something below a directory (as Python's
                   audit events tell)
    Doomed         a storage: before, inside (between pieces of a file, before the first, before the
                   rename), after
    DoomedCluster  before and after it is asked or told something
    DoomedWorkdir  its journal: half a line written, a line written and not synced, a line synced

A moment has a label that a repeat of the same run has as well, so that it can be named: (label, how
manieth).
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from stateshift.clusters.protocol import (
    CheckpointRequest,
    Cluster,
    JobFailure,
    JobProgress,
    JobStatus,
    SavepointCluster,
    SavepointRequest,
    StopRequest,
    Submission,
)
from stateshift.storage.protocol import Content, Storage
from stateshift.workdir import FileLines, Workdir
from tests.contracts.faulty import Stepwise, When

PIECE = 8192
_TEMPORARY = re.compile(r"\.stateshift-[^/]*\.tmp")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Moment(NamedTuple):
    label: str
    times: int

    def __str__(self) -> str:
        return f"{self.label} #{self.times}" if self.times > 1 else self.label


def die(moment: Moment) -> None:
    """As the kernel does it."""
    os.kill(os.getpid(), signal.SIGKILL)


class Moments:
    """Thread-safe. `at` is the moment's name, or how many there are before it; None never comes."""

    def __init__(
        self, at: Moment | int | None = None, then: Callable[[Moment], None] = die
    ) -> None:
        self.at, self.then = at, then
        self.seen: list[Moment] = []
        self._times: Counter[str] = Counter()
        self._lock = threading.RLock()

    def reach(self, label: str) -> None:
        with self._lock:
            self._times[label] += 1
            moment = Moment(label, self._times[label])
            self.seen.append(moment)
            if moment == self.at or len(self.seen) == self.at:
                self.then(moment)


def watch(moments: Moments, root: str) -> None:
    """Reach a moment before every system call that changes something below `root`. For a process
    that ends soon: an audit hook stays.
    """

    def below(path: Any) -> str | None:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if (
            not isinstance(path, str) or not path.startswith(root) or "live.json" in path
        ):  # told now and then
            return None
        return _TEMPORARY.sub("(temporary)", path[len(root) :])

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        match event:
            case "open" if arguments[2] & _WRITING and (path := below(arguments[0])):
                moments.reach(f"open {path}")
            case "os.link" | "os.rename" if path := below(arguments[1]):
                moments.reach(f"{event} to {path}")
            case "os.remove" | "os.mkdir" | "os.rmdir" if path := below(arguments[0]):
                moments.reach(f"{event} {path}")
            case "os.utime" | "os.truncate":
                moments.reach(event)
            case "subprocess.Popen":
                moments.reach(f"run {str(arguments[1][-1]).rsplit(' ', 1)[-1].removeprefix(root)}")
            case "fcntl.flock":
                moments.reach("flock")

    sys.addaudithook(hook)


class Doomed(Stepwise):
    """A storage whose owner can be killed at any moment."""

    def __init__(self, storage: Storage, moments: Moments) -> None:
        super().__init__(storage)
        self._moments = moments

    def _pieces(self, path: str, content: Content) -> Iterator[bytes]:
        number = 0
        self._reach("write, at piece 0 of", "inside", path)
        for chunk in content():
            for start in range(0, len(chunk), PIECE):
                yield chunk[start : start + PIECE]
                number += 1
                self._reach(f"write, at piece {number} of", "inside", path)

    def _reach(self, kind: str, when: When, path: str) -> None:
        self._moments.reach(f"{when} {kind} {self.location.rsplit('/', 1)[-1]}:{path}")


class DoomedCluster:
    """A cluster that is asked by somebody who can be killed at any moment."""

    def __init__(self, cluster: Cluster, moments: Moments) -> None:
        self._cluster, self._moments = cluster, moments

    @property
    def name(self) -> str:
        return self._cluster.name

    @property
    def kind(self) -> str:
        return self._cluster.kind

    def version(self) -> str | None:
        return self._cluster.version()

    def host(self, connection: str | None = None) -> str | None:
        return self._cluster.host(connection)

    def reaches(self, location: str) -> bool | None:
        return self._cluster.reaches(location)

    def find(self, tag: str) -> JobStatus:
        return self._around("find", lambda: self._cluster.find(tag))

    def find_source(self, request: StopRequest) -> JobStatus:
        return self._around("find_source", lambda: self._cluster.find_source(request))

    def submit(self, submission: Submission) -> str:
        return self._around("submit", lambda: self._cluster.submit(submission))

    def stop(self, request: StopRequest) -> JobStatus:
        return self._around("stop", lambda: self._cluster.stop(request))

    def log(self, tag: str, lines_max: int = 50) -> str:
        return self._cluster.log(tag, lines_max)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        return self._cluster.failure(tag, alive)

    def savepoint(self, request: SavepointRequest) -> str:
        return self._around(
            "savepoint", lambda: cast(SavepointCluster, self._cluster).savepoint(request)
        )

    def failed_behind(self, request: SavepointRequest) -> str | None:
        return cast(SavepointCluster, self._cluster).failed_behind(request)

    def is_ending(self, request: SavepointRequest | CheckpointRequest) -> bool:
        return cast(SavepointCluster, self._cluster).is_ending(request)

    def progress(self, tag: str) -> JobProgress:
        return self._around("progress", lambda: cast(SavepointCluster, self._cluster).progress(tag))

    def _around(self, what: str, effect: Callable[[], Any]) -> Any:
        self._moments.reach(f"before {what}")
        result = effect()
        self._moments.reach(f"after {what}")
        return result


class DoomedLines(FileLines):
    """A journal whose writer can be killed in the middle of a line, and between writing and
    syncing it.
    """

    moments: Moments

    def append(self, line: bytes) -> None:
        self._kind = line.split(b'"kind":"', 1)[1].split(b'"', 1)[0].decode()
        super().append(line)
        self.moments.reach(f"after journal {self._kind}")

    def _write(self, descriptor: int, line: bytes) -> None:
        half = len(line) // 2
        super()._write(descriptor, line[:half])
        self.moments.reach(f"in the middle of journal {self._kind}")
        super()._write(descriptor, line[half:])

    def _sync(self, descriptor: int) -> None:
        self.moments.reach(f"before sync of journal {self._kind}")
        super()._sync(descriptor)


class DoomedWorkdir(Workdir):
    def __init__(self, path: str, moments: Moments) -> None:
        super().__init__(path)
        self._moments = moments

    @property
    def lines(self) -> DoomedLines:
        lines = DoomedLines(self.path / "journal")
        lines.moments = self._moments
        return lines
