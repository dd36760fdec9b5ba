"""The running processes of a job, recognised by their environment or a pid file. Only this machine,
only what /proc shows to this user; where there is no /proc, `visible` is false and nothing is
known.

A job is recognised by STATESHIFT_JOB and STATESHIFT_CHECKPOINT in its environment (or by
STATESHIFT_TAG): every process that it starts inherits them. We ourselves and those that started us
are left out: somebody may have exported the variables in the shell that runs stateshift.

A driver's command line, that of spark-submit, tells its origin:

    java … org.apache.spark.deploy.SparkSubmit --master local[2] --conf k=v --name orders app.py a b
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from stateshift.clusters.protocol import Origin
from stateshift.specification.location import NoLocation, normal, relation

_PROC = Path("/proc")
_CLOCK_SLACK_SECONDS = 5.0
_MAIN: Final = "org.apache.spark.deploy.SparkSubmit"
# Options of spark-submit, and the setting that each is.
_SETTINGS: Final[Mapping[str, str]] = {
    "--name": "spark.app.name",
    "--jars": "spark.jars",
    "--files": "spark.files",
    "--archives": "spark.archives",
    "--packages": "spark.jars.packages",
    "--exclude-packages": "spark.jars.excludes",
    "--repositories": "spark.jars.repositories",
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
    "--total-executor-cores": "spark.cores.max",
    "--queue": "spark.yarn.queue",
    "--principal": "spark.kerberos.principal",
    "--keytab": "spark.kerberos.keytab",
}
_OURS: Final = ("STATESHIFT_", "_", "PWD", "OLDPWD", "SHLVL")


def visible() -> bool:
    """Whether this system shows processes and their environment, as Linux does."""
    return (_PROC / "self" / "environ").exists()


def of_tag(tag: str) -> tuple[int, ...]:
    """Return the processes that were started under this tag."""
    return _with_environment(lambda e: e.get("STATESHIFT_TAG") == tag)


def of_job(job: str, location: str) -> tuple[int, ...]:
    """Return the processes of a job, also where one says `file:///a/` and the other `/a`."""
    here = os.getcwd()

    def is_job(environment: Mapping[str, str]) -> bool:
        if environment.get("STATESHIFT_JOB") != job:
            return False
        place = environment.get("STATESHIFT_CHECKPOINT", "")
        try:
            return relation(normal(place, here), normal(location, here)) == "same"
        except NoLocation:
            return place == location

    return _with_environment(is_job)


def of_spark_naming(job: str, location: str) -> tuple[int, ...]:
    """Return anybody's Spark processes that name the job or location, of no known job."""
    path = re.escape(location.removeprefix("file://").rstrip("/"))
    place = re.compile(rf"(?:^|[=:,/])/*{path.lstrip('/')}(?:/|$)")

    def names_it(words: list[str]) -> bool:
        if ("--name", job) in pairwise(words) or f"spark.app.name={job}" in words:
            return True
        return any(place.search(word) for word in words)

    pids = []
    for pid in _others():
        words = _command_line(pid)
        spark = any(word.startswith("org.apache.spark.deploy.") for word in words)
        if not spark or "STATESHIFT_CHECKPOINT" in _environment(pid):
            continue
        if names_it(words):
            pids.append(pid)
    return _living(pids)


def of_pid_file(path: str) -> tuple[int, ...]:
    """Return the process of the file, unless it began later: the number was given again."""
    try:
        pid, written = int(Path(path).read_text().split()[0]), Path(path).stat().st_mtime
    except (FileNotFoundError, ValueError, IndexError):
        return ()
    began = _began(pid)
    is_it = began is not None and began <= written + _CLOCK_SLACK_SECONDS
    return (pid,) if is_it else ()


def origin_of(pids: Iterable[int], master: str) -> Origin:
    """Return the origin of the driver among these processes."""
    for pid in pids:
        words = _command_line(pid)
        if _MAIN in words:
            return _origin(words[words.index(_MAIN) + 1 :], pid, master)
    return Origin(why="none of its processes here is a spark-submit")


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


def _origin(words: Sequence[str], pid: int, master: str) -> Origin:
    conf: dict[str, str] = {}
    options: dict[str, object] = {}
    at = 0
    while at + 1 < len(words) and words[at].startswith("-"):
        option, value = words[at], words[at + 1]
        at += 2
        if option in ("--conf", "-c"):
            key, _, text = value.partition("=")
            conf[key] = text
        elif option in _SETTINGS:
            conf[_SETTINGS[option]] = value
        elif option == "--py-files":
            options["py_files"] = value.split(",")
        elif option == "--deploy-mode":
            options["deploy_mode"] = value
        elif option == "--master":
            if value != master:
                return Origin(why=f"it runs with master {value}, and the cluster's is {master}")
        else:
            return Origin(why=f"it was started with {option}, which is not given again")
    if at >= len(words):
        return Origin(why="its command line names no application")
    options |= {"application": words[at], "arguments": list(words[at + 1 :]), "conf": conf}
    with suppress(OSError):  # it has ended
        options["cwd"] = os.readlink(_PROC / str(pid) / "cwd")
    return Origin(options, _own_environment(pid))


def _own_environment(pid: int) -> dict[str, str]:
    own = {}
    for name, value in _environment(pid).items():
        if os.environ.get(name) != value and not name.startswith(_OURS):
            own[name] = value
    return own


def _with_environment(wanted: Callable[[Mapping[str, str]], bool]) -> tuple[int, ...]:
    return _living(pid for pid in _others() if wanted(_environment(pid)))


def _others() -> Iterator[int]:
    """Yield the processes that are neither we nor those that started us."""
    ours: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in ours:
        ours.add(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    pids = (int(process.name) for process in _PROC.glob("[0-9]*"))
    return (pid for pid in pids if pid not in ours)


def _living(pids: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(pid for pid in pids if _began(pid) is not None))


def _command_line(pid: int) -> list[str]:
    try:
        content = (_PROC / str(pid) / "cmdline").read_bytes().removesuffix(b"\0")
    except OSError:
        return []
    return [os.fsdecode(word) for word in content.split(b"\0")]


def _environment(pid: int) -> Mapping[str, str]:
    process = _PROC / str(pid)
    try:
        if process.stat().st_uid != os.getuid():
            return {}
        pairs = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended while we looked, or is not ours to see
        return {}
    environment = {}
    for pair in pairs:
        name, _, value = os.fsdecode(pair).partition("=")
        if name:  # a NUL ends the last one
            environment[name] = value
    return environment


def _began(pid: int) -> float | None:
    """Return seconds since 1970; None if it is not there, or is dead and waits to be reaped."""
    fields = _stat(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    lines = (_PROC / "stat").read_text().splitlines()
    boot = next(line for line in lines if line.startswith("btime "))
    return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str] | None:
    """Return /proc/pid/stat from its third field on: the second holds blanks and parentheses."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
