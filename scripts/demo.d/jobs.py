"""The jobs of `demo --live`, as processes of their own, and the commands that are run beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from run import ROOT, tail

HERE = Path(__file__).resolve().parent
SECONDS_MAX = 180.0
SECONDS_TO_END = 30.0
# Four JVMs that live for two minutes: compiling thoroughly, and collecting in parallel, takes longer
# than it saves.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Job:
    """A Spark application that runs, and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def check(self) -> None:
        """End with its log where it has ended."""
        if not self.is_running():
            raise SystemExit(f"a job has ended:\n{tail(self.log)}")

    def end(self) -> None:
        """Wait until it has ended, or kill it."""
        try:
            self.process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()


def submitted(log: Path, script: str, *arguments: str | Path, master: str = "local[2]") -> Job:
    """Start an application, as a user submits it."""
    submit = str(Path(sys.executable).with_name("spark-submit"))
    options = ("--master", master, "--driver-java-options", SHORT_LIVED)
    command = [submit, *options, str(HERE / script), *map(str, arguments)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Job(process, log)


@contextmanager
def ended_afterwards(stop: Path, *jobs: Job) -> Iterator[None]:
    """End jobs behind the block: they look for the file `stop`."""
    try:
        yield
    finally:
        stop.touch()
        for job in jobs:
            job.end()


def wait_until(done: Callable[[], bool], *jobs: Job) -> None:
    """Wait while jobs run; end with their log where one has ended."""
    began = time.monotonic()
    while not done():
        for job in jobs:
            job.check()
        if time.monotonic() - began > SECONDS_MAX:
            raise SystemExit(f"{SECONDS_MAX:.0f} seconds have passed:\n{tail(jobs[0].log)}")
        time.sleep(0.2)


def stateshift(*arguments: str, exit_code: int = 0) -> None:
    """The command line, as a user types it where the functions are; what it says is shown."""
    shown = [f'"{word}"' if "(" in word else word for word in arguments]
    print(f"\n    $ stateshift {' '.join(shown)}", flush=True)
    ended = subprocess.run(
        [sys.executable, "-m", "stateshift", *arguments],
        cwd=HERE / "functions",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    for line in ended.stdout.splitlines():
        print(f"    {line.rstrip()}", flush=True)
    if ended.returncode != exit_code:
        raise SystemExit(f"stateshift {' '.join(arguments[:2])} ended with {ended.returncode}")
