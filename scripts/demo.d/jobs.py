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

from run import ROOT, say, tail

HERE = Path(__file__).resolve().parent
# A wait is given up where jobs do nothing for so long: neither what is waited for grows, nor do they
# compute. A slow machine takes longer than another, and that is no fault.
SECONDS_IDLE_MAX = 180.0
SECONDS_BETWEEN_LINES = 15.0
# Less than this share of one core is what a Spark takes that waits for something.
BUSY_MIN = 0.2
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

    def worked_seconds(self) -> float:
        """How long it has computed, with all processes of its session; 0 where nobody tells."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

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


def wait_until(what: str, count: Callable[[], int], wanted: int, *jobs: Job) -> None:
    """Wait until there is as much as is wanted of what is counted, and say so meanwhile; end with
    the log of the jobs where one has ended, or where nothing goes on any more.
    """
    began = said = alive = time.monotonic()
    before, worked = count(), sum(job.worked_seconds() for job in jobs)
    while (now_counted := count()) < wanted:
        for job in jobs:
            job.check()
        now, now_worked = time.monotonic(), sum(job.worked_seconds() for job in jobs)
        if now_counted > before or now_worked - worked > BUSY_MIN * (now - alive) + 1.0:
            before, worked, alive = now_counted, now_worked, now
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            say(f"waiting for {what}: {now_counted:,} of {wanted:,} after {now - began:.0f} s")
        if now - alive > SECONDS_IDLE_MAX:
            logs = "\n".join(tail(job.log) for job in jobs)
            raise SystemExit(
                f"waited for {what}: {now_counted:,} of {wanted:,} after {now - began:.0f} s, and "
                f"the jobs have done nothing for {SECONDS_IDLE_MAX:.0f} s:\n{logs}"
            )
        time.sleep(0.5)


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
