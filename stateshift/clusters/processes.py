"""The running processes of a job, recognised by their environment or a pid file. Only this machine,
only what /proc shows to this user; where there is no /proc, `visible` is false and nothing is
known.

A job is recognised by STATESHIFT_JOB and STATESHIFT_CHECKPOINT in its environment (or by
STATESHIFT_TAG): every process that it starts inherits them. We ourselves and those that started us
are left out: somebody may have exported the variables in the shell that runs stateshift.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from stateshift.specification.location import NoLocation, normal, relation

_PROC = Path("/proc")
_CLOCK_SLACK_SECONDS = 5.0


def visible() -> bool:
    """Whether this system shows processes and their environment, as Linux does."""
    return (_PROC / "self" / "environ").exists()


def of_tag(tag: str) -> tuple[int, ...]:
    """Return the processes that were started under this tag."""
    return _with_environment(lambda e: e.get("STATESHIFT_TAG") == tag)


def of_job(job: str, location: str) -> tuple[int, ...]:
    """Return the processes of a job, also where one says `file:///a/` and the other `/a`."""

    def is_job(environment: Mapping[str, str]) -> bool:
        place = environment.get("STATESHIFT_CHECKPOINT", "")
        return environment.get("STATESHIFT_JOB") == job and _same(place, location)

    return _with_environment(is_job)


def of_spark_naming(job: str, location: str) -> tuple[int, ...]:
    """Return Spark's processes, of any user, whose command line has this job's name or location in
    it, and whose environment does not say which job they are.
    """
    path = re.escape(location.removeprefix("file://").rstrip("/"))
    place = re.compile(rf"(?:^|[=:,/])/*{path.lstrip('/')}(?:/|$)")

    def names_it(words: list[str]) -> bool:
        if ("--name", job) in pairwise(words) or f"spark.app.name={job}" in words:
            return True
        return any(place.search(word) for word in words)

    pids = []
    for process in _others():
        words = _command_line(process)
        spark = any(word.startswith("org.apache.spark.deploy.") for word in words)
        if not spark or "STATESHIFT_CHECKPOINT" in _environment(process):
            continue
        if names_it(words):
            pids.append(int(process.name))
    return _living(pids)


def of_pid_file(path: str) -> tuple[int, ...]:
    """Return the process the file names, unless it began after the file was written: then the
    number was given again.
    """
    try:
        pid, written = int(Path(path).read_text().split()[0]), Path(path).stat().st_mtime
    except (FileNotFoundError, ValueError, IndexError):
        return ()
    began = _began(pid)
    if began is None or began > written + _CLOCK_SLACK_SECONDS:
        return ()
    return (pid,)


def command_line(pid: int) -> list[str]:
    """Return the words that a process was started with; none of one that has ended."""
    return _command_line(_PROC / str(pid))


def environment(pid: int) -> Mapping[str, str]:
    """Return the environment of a process of this user."""
    return _environment(_PROC / str(pid))


def working_folder(pid: int) -> str | None:
    """Return the folder that a process runs in."""
    try:
        return os.readlink(_PROC / str(pid) / "cwd")
    except OSError:
        return None


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each of them; those that are gone by now are fine."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def send_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a group of processes; one that has ended is no error."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _with_environment(wanted: Callable[[Mapping[str, str]], bool]) -> tuple[int, ...]:
    return _living(int(process.name) for process in _others() if wanted(_environment(process)))


def _others() -> Iterator[Path]:
    """Yield the processes that are neither we nor those that started us."""
    ours = _ancestors(os.getpid())
    return (process for process in _PROC.glob("[0-9]*") if int(process.name) not in ours)


def _living(pids: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(pid for pid in pids if _began(pid) is not None))


def _command_line(process: Path) -> list[str]:
    try:
        content = (process / "cmdline").read_bytes().removesuffix(b"\0")
        return [os.fsdecode(word) for word in content.split(b"\0")]
    except OSError:  # it ended while we looked
        return []


def _environment(process: Path) -> Mapping[str, str]:
    try:
        if process.stat().st_uid != os.getuid():
            return {}
        pairs = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended while we looked, or is not ours to see
        return {}
    environment = {}
    for pair in pairs:
        name, _, value = os.fsdecode(pair).partition("=")
        environment[name] = value
    return environment


def _ancestors(pid: int) -> set[int]:
    ancestors: set[int] = set()
    while pid > 0 and pid not in ancestors:
        ancestors.add(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return ancestors


def _began(pid: int) -> float | None:
    """Return seconds since 1970; None if it is not there, or is dead and waits to be reaped."""
    fields = _stat(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    lines = (_PROC / "stat").read_text().splitlines()
    boot = next(line for line in lines if line.startswith("btime "))
    return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str] | None:
    """Return /proc/pid/stat (proc(5)) from the third field (state) on: the second may hold blanks
    and parentheses.
    """
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _same(one: str, other: str) -> bool:
    try:
        return relation(normal(one, os.getcwd()), normal(other, os.getcwd())) == "same"
    except NoLocation:
        return one == other
