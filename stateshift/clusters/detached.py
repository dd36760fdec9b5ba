"""Processes that outlive us, and what anybody can learn of them afterwards.

    <stem>.lock  held (flock) as long as the process, or anything it left running, lives
    <stem>.pid   written by the process itself as the first thing it does; its process group has the
                 same number
    <stem>.exit  its exit code, written when it ends
    <stem>.log   its output (if one file takes both), or <stem>.out and <stem>.err

The lock belongs to an open file description that the child inherits. We take it, look whether the
process was started before, and start it; killed at any instant in between, we leave either no
process and a free lock, or a process that holds the lock from the fork on. A free lock without a
`.pid` means that nothing was started, and nothing will be. The lock is never unlocked, only closed:
unlocking would take it from the child as well.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# The wrapper lives through the signals that end what it wraps, to write down how it ended. A signal
# that is caught (rather than ignored) is reset to its default in what the shell starts.
_WRAPPER = """
trap : TERM INT HUP
echo $$ >"$1.pid" || exit 125
stem=$1; shift
"$@"
code=$?
echo $code >"$stem.exit.tmp" && mv "$stem.exit.tmp" "$stem.exit"
exit $code
"""

_PROC = Path("/proc")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Trace:
    """What a stem's files say; `code` is None for one that runs, or was killed with its wrapper."""

    held: bool
    pid: int | None
    code: int | None

    @property
    def started(self) -> bool:
        return self.pid is not None


def file_name(tag: str) -> str:
    """Return the tag if a file may be called that, else the rest of it with a digest."""
    if _PLAIN_NAME.fullmatch(tag):
        return tag
    left = re.sub(r"[^A-Za-z0-9_-]+", "-", tag).strip("-")[:60]
    return f"{left}-{hashlib.sha256(tag.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def trace(stem: Path) -> Trace:
    """Look at the lock first: what its holder writes before it lets go is then seen for certain."""
    held = is_held(stem)
    return Trace(held, _number(_beside(stem, "pid")), _number(_beside(stem, "exit")))


def is_held(stem: Path) -> bool:
    """Whether somebody holds the lock: the process runs, or is being started."""
    try:
        lock = os.open(_beside(stem, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


@contextmanager
def take_lock(stem: Path) -> Iterator[int | None]:
    """Give the lock's descriptor, to be handed to `start`; None if somebody else holds it."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(_beside(stem, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock
    finally:
        os.close(lock)


@dataclass(frozen=True, slots=True)
class DetachedCommand:
    """A command, its environment, and its directory."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str | None = None


def start(
    stem: Path, command: DetachedCommand, lock: int, *, one_log: bool = True
) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own, without a terminal, holding the lock."""
    forget(stem)
    out = _log(stem, "log" if one_log else "out")
    err = out if one_log else _log(stem, "err")
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _WRAPPER, "sh", str(stem.absolute()), *command.arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(command.environment),
            cwd=command.directory,
            pass_fds=(lock,),
            start_new_session=True,
        )
    finally:
        os.close(out)
        if err != out:
            os.close(err)


def leave(process: subprocess.Popen[bytes]) -> int:
    """Leave a process alone, and return its number; a thread reaps it, so that no zombie stays."""
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


def forget(stem: Path) -> None:
    """Take away what an earlier process of this stem left. Only for whoever has the lock."""
    for suffix in ("pid", "exit", "exit.tmp", "stopped"):
        _beside(stem, suffix).unlink(missing_ok=True)


def note_stopped(stem: Path) -> None:
    """Note that somebody was asked to end it."""
    _beside(stem, "stopped").touch()


def was_stopped(stem: Path) -> bool:
    """Whether it is noted that we asked the process to stop."""
    return _beside(stem, "stopped").exists()


def output_of(stem: Path, suffix: str = "log", bytes_max: int = 1 << 16) -> str:
    """Return the end of the process's output."""
    try:
        with _beside(stem, suffix).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - bytes_max))
            return log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def is_over(stem: Path) -> bool:
    """Whether the process has ended, also as seen by whoever still holds its lock."""
    seen = trace(stem)
    if seen.code is not None or seen.pid is None:
        return seen.pid is not None
    try:
        os.kill(seen.pid, 0)
    except ProcessLookupError:
        return True
    return False


def holders(stem: Path) -> tuple[int, ...]:
    """Return the processes that hold the lock, as far as we see them; else that of `.pid`."""
    lock, holding = os.path.realpath(_beside(stem, "lock")), set()
    for process in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is somebody else's
            if any(os.path.realpath(link) == lock for link in (process / "fd").iterdir()):
                holding.add(int(process.name))
    others = sorted(holding - {os.getpid()})
    if others:
        return tuple(others)
    pid = _number(_beside(stem, "pid"))
    return () if pid is None else (pid,)


def _log(stem: Path, suffix: str) -> int:
    return os.open(
        _beside(stem, suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
    )


def _beside(stem: Path, suffix: str) -> Path:
    return stem.with_name(f"{stem.name}.{suffix}")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
