"""A process that outlives us, told from any other by its pid and its start time, and ended by
nothing else.

    spawn(command, ...) -> Process  in a session of its own; who it is, is in a file before it is
                                    the server
    read(file) -> Process | None
    alive(process)                  that very process, and no zombie
    members(process)                it and what it started, and those started: who is in its session
    end(process)                    asked first, killed after a while, with what it started
    kill(process), wipe(process)    at once: it alone, or with what it started

A pid that belongs to somebody else by now is never signalled: the start time (in ticks since boot)
is another. What a server started is found by its session. A session keeps its number for as long as
anybody is in it, so once its leader is gone nobody new can have that number; if there is a process
of that number with another start time, then nobody of the old session was left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from servers.faults import Unavailable

BIRTH = Path(__file__).with_name("birth.py")
GRACE_SECONDS = 15.0
WIPE_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Process:
    pid: int
    started: int


@dataclass(frozen=True)
class Stat:
    """A line of /proc/PID/stat, as far as it matters."""

    state: str
    session: int
    threads: int
    started: int

    @property
    def lives(self) -> bool:
        """A zombie whose other threads are still about has not let go of its ports and files."""
        return self.state not in "ZX" or self.threads > 1


def spawn(
    command: Sequence[str], file: Path, log: Path, cwd: Path, env: Mapping[str, str]
) -> Process:
    if not Path("/proc/self/stat").exists():
        raise Unavailable(
            "processes are told apart by /proc, which this system does not have: Linux is needed"
        )
    file.unlink(missing_ok=True)
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-S", "-E", str(BIRTH), str(file), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
    _keep(child)
    while (born := read(file)) is None:
        if child.poll() is not None:
            raise OSError(f"{command[0]} did not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.005)
    return born


def read(file: Path) -> Process | None:
    try:
        pid, started = file.read_text().split()
        return Process(int(pid), int(started))
    except (OSError, ValueError):
        return None


def alive(process: Process) -> bool:
    found = _stat(process.pid)
    return found is not None and found.started == process.started and found.lives


def members(process: Process) -> list[int]:
    """It, if it lives, and all it left in its session."""
    leader = _stat(process.pid)
    if leader is not None and leader.started != process.started:
        return []
    return [pid for pid, stat in _all() if stat.session == process.pid and stat.lives]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def resident_mib(process: Process) -> int:
    """What it and what it started hold in memory."""
    pages = 0
    for pid in members(process):
        with suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def end(process: Process, grace_seconds: float = GRACE_SECONDS) -> None:
    if alive(process):
        _signal(process.pid, signal.SIGTERM)
        _wait(process, grace_seconds)
    wipe(process)


def wipe(process: Process) -> None:
    """At once, with all it started: as when its machine goes."""
    until = time.monotonic() + WIPE_SECONDS_MAX
    while left := members(process):
        for pid in left:
            _signal(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise OSError(f"processes {left} do not end")
        _reap()
        time.sleep(0.02)


def kill(process: Process) -> None:
    """At once, and it alone: as when it crashes."""
    if alive(process):
        _signal(process.pid, signal.SIGKILL)
        _wait(process, GRACE_SECONDS)


def _wait(process: Process, seconds: float) -> None:
    until = time.monotonic() + seconds
    while alive(process) and time.monotonic() < until:
        _reap()
        time.sleep(0.02)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _stat(pid: int) -> Stat | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return Stat(fields[0], int(fields[3]), int(fields[17]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def _all() -> Iterator[tuple[int, Stat]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _stat(int(name))) is not None:
            yield int(name), stat


# Children of ours become zombies unless somebody waits for them; in the command they outlive us, in
# a test they do not.
_children: list[subprocess.Popen[bytes]] = []


def _keep(child: subprocess.Popen[bytes]) -> None:
    _reap()
    _children.append(child)


def _reap() -> None:
    for child in [child for child in _children if child.poll() is not None]:
        _children.remove(child)
