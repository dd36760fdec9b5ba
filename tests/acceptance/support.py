"""What acceptance tests are made of: a real Spark in a process of its own, and the real command
line in another.

A *check* knows how to put state in, change it and recognise it afterwards; a *scenario* (a test)
decides where the migration and the crashes fall. Checks know nothing of migrations, scenarios
nothing of what is kept.

    check.feed(number)            more input, always the same for the same number
    check.run(checkpoint, ...)    the job reads all there is, and ends; or dies where it is told to
    check.recognise(...)          what came out of it

Everything a check touches lies below one folder, so that a reference job, which is never moved, is
the same check in another folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_MAX = 300  # of one command
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a third less of a short job's seconds
JOBS = Path(__file__).resolve().parent / "jobs"
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Ran:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on stdout; its last line, where a job prints one."""
        try:
            return json.loads(self.out)
        except ValueError:
            return json.loads(self.out.strip().splitlines()[-1])


def stateshift(
    *arguments: str | Path,
    cwd: Path,
    code: int | None = 0,
    env: Mapping[str, str] | None = None,
    seconds: int = SECONDS_MAX,
) -> Ran:
    """The command line, as a user runs it; `code` is what it must end with, None where the
    scenario looks itself.
    """
    return _run([sys.executable, "-m", "stateshift", *map(str, arguments)], cwd, code, env, seconds)


def job(
    script: str,
    *arguments: str | Path,
    cwd: Path,
    code: int | None = 0,
    seconds: int = SECONDS_MAX,
) -> Ran:
    command = [sys.executable, str(JOBS / script), *map(str, arguments)]
    return _run(command, cwd, code, None, seconds)


def environment() -> dict[str, str]:
    """One Python on both sides of a job, the one address every machine has, and this checkout
    first.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": SHORT_LIVED,
        "NO_COLOR": "1",
    }


def _run(
    command: list[str],
    cwd: Path,
    code: int | None,
    env: Mapping[str, str] | None,
    seconds: int = SECONDS_MAX,
) -> Ran:
    run = subprocess.run(
        command,
        cwd=cwd,
        env={**environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    ran = Ran(run.returncode, run.stdout, run.stderr)
    told = (
        f"{' '.join(command[1:])}\nended with {ran.code}, not "
        f"{code}\n{ran.out[-3000:]}\n{ran.err[-5000:]}"
    )
    assert code is None or ran.code == code, told
    return ran


def write_spec(path: Path, **job: Any) -> Path:
    """A spec of one job of no cluster: it is started and stopped by the scenario."""
    path.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}, indent=1))
    return path


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """One file, whole from the start, and later than every file before: Spark sorts its input by
    time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.replace(hidden, path)
    time.sleep(0.02)


def wait_until(done: Callable[[], bool], otherwise: str, seconds_max: float, logs: Path) -> None:
    """Wait for it; where it does not come, fail with what the jobs said."""
    until = time.monotonic() + seconds_max
    while not done():
        said = "\n".join(path.read_text(errors="replace")[-3000:] for path in logs.rglob("*.log"))
        assert time.monotonic() < until, f"{otherwise} in {seconds_max:.0f} seconds\n{said}"
        time.sleep(0.2)


@contextlib.contextmanager
def running(log: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program in a process group of its own, with its log; kill it at the end."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            env={**environment(), "PYSPARK_DRIVER_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_jobs(folder: Path, locations: tuple[str, ...]) -> None:
    """Ask the jobs at these locations to stop, as a person would; end those that do not hear it."""
    for name in locations:
        if (folder / name).exists():
            (folder / name / "_stateshift").mkdir(exist_ok=True)
            (folder / name / "_stateshift" / "stop").touch()
    until = time.monotonic() + 20
    while (alive := _running(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in alive:
        os.killpg(pid, signal.SIGKILL)


def kill_jobs(folder: Path) -> None:
    """End the jobs below a folder at once, as the loss of their machines does."""
    for pid in _running(folder):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _running(folder: Path) -> list[int]:
    """The process groups that clusters of this scenario have noted below its folder, and that
    are still there.
    """
    alive = []
    for path in folder.rglob("*.pid"):
        text = path.read_text().split()
        if text and not path.with_suffix(".exit").exists():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(text[0]), 0)
                alive.append(int(text[0]))
    return alive


def last_number(folder: Path) -> int:
    """The newest entry of one of Spark's logs."""
    return max(
        int(match[1])
        for name in os.listdir(folder)
        if (match := re.fullmatch(r"(\d+)(?:\.compact)?", name))
    )


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below, by its path: what must be the same before and after."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
