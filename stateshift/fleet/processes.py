"""The carrier of one machine: processes of our own, each with a Python of its own.

    carry ──order, a line──▶ stdin of a process that is idle ──▶ worker.serve
    answer ◀───a line─────── its stdout

A process is started when an order finds none idle, up to as many as there may be: a run whose steps
are small starts none. They are started anew, never forked: threads and locks of this process stay
here. One that ends with an order is Lost, and the next order starts another. All of them heed a
request to stop between two writes. They end when their stdin does, whatever becomes of us, and the
directory of their temporary files goes with the last of them.

As many are at work as fit into the memory of all at PROCESS_BYTES each. Once one has taken more,
each is counted as that: fewer are at work then, and those that are too many end. A line says that
fewer are at work than there are cores.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO

from stateshift.errors import ClusterError, Interrupted, StateshiftError
from stateshift.fleet.carrier import Lost
from stateshift.formats import bounds
from stateshift.machine import PROCESS_BYTES, fitting

MASTER = "this machine"
STOP = b"stop\n"
MILLISECONDS_BETWEEN_LOOKS = 200
SECONDS_TO_END = 5.0
READ_BYTES = 1024 * 1024

# The path is this process's own: what it can import, the others can. Ctrl-C is ours alone, from the
# first moment on.
_PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.path[:] = {path!r}; from "
    "stateshift.formats import bounds; bounds.own_process(); from {worker} import serve; serve()"
)
_WORKER = "stateshift.fleet.worker"

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Process:
    """One process, and its work so far."""

    number: int
    popen: subprocess.Popen[bytes]
    errors: IO[bytes]
    orders: int = 0
    cpu_seconds: float = 0.0
    memory: int = 0
    told_to_stop: bool = False
    rest: bytearray = field(default_factory=bytearray)

    def send(self, line: bytes) -> None:
        assert self.popen.stdin is not None, "it was started with pipes"
        # Its end shows itself where it should answer; ValueError is our own `end`.
        with contextlib.suppress(OSError, ValueError):
            self.popen.stdin.write(line)
            self.popen.stdin.flush()

    def line(self, stop: threading.Event) -> str | None:
        """Return the next line; None if it ended before. Once `stop` is set it is told."""
        while b"\n" not in self.rest:
            if stop.is_set() and not self.told_to_stop:
                self.told_to_stop = True
                self.send(STOP)
            assert self.popen.stdout is not None, "it was started with pipes"
            poll = select.poll()
            poll.register(self.popen.stdout, select.POLLIN | select.POLLHUP)
            if not poll.poll(MILLISECONDS_BETWEEN_LOOKS):
                continue
            some = os.read(self.popen.stdout.fileno(), READ_BYTES)
            if not some:
                return None
            self.rest += some
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def end(self) -> None:
        """End it, also in the middle of an order."""
        assert self.popen.stdin is not None, "it was started with pipes"
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        try:
            self.popen.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def let_go(self) -> None:
        """Close its pipes, once it has ended."""
        assert self.popen.stdin is not None and self.popen.stdout is not None
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        self.popen.stdout.close()
        self.errors.close()

    def last_words(self) -> str:
        """Return the reason of its end, in a few words."""
        code = self.popen.wait()
        if code < 0:
            name = f"signal {-code}"
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
            return f"process {self.popen.pid} was ended by {name}"
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"process {self.popen.pid} ended with exit code {code}: {said[-1] if said else '-'}"


class ProcessCarrier:
    """Keeps up to `count` processes until `close`, as many as fit into `together` bytes."""

    far = False
    master = MASTER

    def __init__(
        self,
        count: int,
        stop: threading.Event,
        together: int | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._count, self._stop = count, stop
        self._together, self._say = together, say
        self._changed = threading.Condition()
        self._idle: list[_Process] = []
        self._busy: set[int] = set()
        self._started = 0
        self._closed = False
        self._all: dict[int, _Process] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def description(self) -> str:
        return f"{self._count} processes"

    def slots(self, waiting: int) -> int:
        return self._count

    @property
    def pids(self) -> list[int]:
        """Return the processes that there are now."""
        with self._changed:
            return [process.popen.pid for process in self._all.values()]

    def carry(self, order: str, label: str) -> str:
        process = self._take()
        _log.info("%s goes to process %d (pid %d)", label, process.number, process.popen.pid)
        process.send(order.encode() + b"\n")
        used, answer = process.line(self._stop), process.line(self._stop)
        if used is None or answer is None:
            raise self._loss(process)
        self._give_back(process, label, json.loads(used))
        return answer

    def _loss(self, process: _Process) -> Exception:
        """Let one go that ended with an order; return the error for that."""
        with self._changed:
            self._busy.discard(process.number)
            self._all.pop(process.number, None)
            self._changed.notify()
        reason = process.last_words()
        process.let_go()
        try:
            self._check()
        except StateshiftError as error:
            return error
        return Lost(reason)

    def close(self) -> None:
        """End all of them. One that is at work ends, too: its order raises an error."""
        with self._changed:
            self._closed = True
            processes = list(self._all.values())
            idle = list(self._idle)
            self._all.clear()
            self._idle.clear()
            self._changed.notify_all()
        for process in processes:
            process.end()
            if process in idle:
                process.let_go()
            _log.info(
                "process %d (pid %d): %d orders, %.2f s of CPU, %d MiB at most",
                process.number,
                process.popen.pid,
                process.orders,
                process.cpu_seconds,
                process.memory >> 20,
            )
        if self._scratch is not None:
            self._scratch.cleanup()

    def _check(self) -> None:
        if self._stop.is_set():
            raise Interrupted("interrupted; what was done is written down")
        if self._closed:
            raise ClusterError("the processes of this run were ended", cluster=MASTER)

    def _take(self) -> _Process:
        """Return a process that is idle; start one if there may be one more, else wait."""
        with self._changed:
            while True:
                self._check()
                if self._idle:
                    process = self._idle.pop()
                    break
                if len(self._busy) < self._count:
                    process = self._start()
                    break
                self._changed.wait(MILLISECONDS_BETWEEN_LOOKS / 1000)
            self._busy.add(process.number)
        return process

    def _start(self) -> _Process:
        self._started += 1
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - let go of with the process
        popen = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(path=sys.path, worker=_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        process = _Process(self._started, popen, errors)
        self._all[process.number] = process
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(
                prefix="stateshift-", ignore_cleanup_errors=True
            )
        settings = {"memory": bounds.total(), "scratch": self._scratch.name}
        process.send(json.dumps(settings).encode() + b"\n")
        return process

    def _give_back(self, process: _Process, label: str, used: Mapping[str, float]) -> None:
        process.orders += 1
        process.cpu_seconds += used["cpu"]
        process.memory = int(used["memory"])
        _log.info("%s: process %d took %.2f s of CPU", label, process.number, used["cpu"])
        with self._changed:
            if self._together is not None:
                # No more are at work than fit, where each takes as much as the largest.
                count = fitting(max(process.memory, PROCESS_BYTES), self._together)
                if count < self._count:
                    self._count = count
                    self._say(
                        f"processes: {count} at once from now on: one has taken "
                        f"{process.memory >> 20} MiB, and {self._together >> 20} MiB are for all "
                        "(STATESHIFT_MEMORY)"
                    )
            self._busy.discard(process.number)
            if process.number in self._all:
                self._idle.append(process)
            while self._idle and len(self._all) > self._count:
                # Killed: one whose stdin ends would remove the temporary files of all.
                dismissed = self._idle.pop(0)
                del self._all[dismissed.number]
                dismissed.popen.kill()
                dismissed.popen.wait()
                dismissed.let_go()
            self._changed.notify()
