"""A standalone Spark on this machine: a master and a worker in processes of their own, on ports that are free, ended by
their process ids. What a test kills, it kills through this."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.support import environment

SECONDS_MAX = 300.0  # of a machine that does much else


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@dataclass
class Standalone:
    folder: Path
    master: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_master(self) -> None:
        log = self._start("master.Master", "master.log", self.processes, "--port", "0")
        self.master = _await(log, re.compile(r"Starting Spark master at (spark://\S+)"))

    def start_worker(self) -> None:
        number = len(self.workers)
        arguments = ("--port", "0", "--cores", "2", "--memory", "1g", "--work-dir", str(self.folder / "work"))
        log = self._start("worker.Worker", f"worker-{number}.log", self.workers, *arguments, self.master)
        _await(log, re.compile(r"(Successfully registered) with master"))

    def executors(self) -> list[int]:
        """The executors' processes: children of our workers."""
        ours = {worker.pid for worker in self.workers}
        return [pid for pid in _pids() if _parent(pid) in ours and "CoarseGrainedExecutorBackend" in _command(pid)]

    def kill_executors(self) -> int:
        killed = self.executors()
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(killed)

    def kill_workers(self) -> None:
        """With their executors, as when a machine goes."""
        executors = self.executors()
        for worker in self.workers:
            worker.kill()
            worker.wait()
        for pid in executors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        executors = self.executors()
        for process in (*self.workers, *self.processes):
            process.terminate()
        for process in (*self.workers, *self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in executors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, name: str, log: str, kept: list[subprocess.Popen[bytes]], *arguments: str) -> Path:
        path = self.folder / log
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1",
                   "--webui-port", "0", *arguments]  # fmt: skip
        with path.open("wb") as output:
            kept.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                    env={**environment(), "SPARK_HOME": str(spark_home()), "SPARK_DAEMON_MEMORY": "256m"},
                )
            )  # fmt: skip
        return path


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    folder.mkdir(parents=True, exist_ok=True)
    spark = Standalone(folder)
    try:
        spark.start_master()
        spark.start_worker()
        yield spark
    finally:
        spark.end()


def _await(log: Path, pattern: re.Pattern[str]) -> str:
    until = time.monotonic() + SECONDS_MAX
    while True:
        text = log.read_text(errors="replace")
        found = pattern.search(text)
        if found:
            return found[1]
        assert time.monotonic() < until, f"{pattern.pattern} is not in {log}\n{text[-3000:]}"
        time.sleep(0.1)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
