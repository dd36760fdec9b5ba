"""A standalone Spark on this machine, as scripts/servers starts it: a master and workers, ended by
their process ids. What a test kills, it kills through this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.support import ROOT
from tests.support.servers import Place, Servers, group, processes, spark

NAME = "spark-a"


@dataclass
class Standalone:
    servers: Servers
    started: int = 0

    @property
    def master(self) -> str:
        return self.servers.exports()["STATESHIFT_SPARK_A"]

    def start_worker(self) -> None:
        """One more."""
        self.started += 1
        worker = spark.Spark(NAME).worker(self._place, f"worker-{self.started}")
        self._place.start(worker)
        self._place.wait(worker)

    def executors(self) -> list[int]:
        """The executors' processes: what our workers have started."""
        found = [pid for worker in self._workers() for pid in processes.members(worker)]
        return [pid for pid in found if "CoarseGrainedExecutorBackend" in processes.command(pid)]

    def kill_executors(self) -> int:
        killed = self.executors()
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(killed)

    def kill_workers(self) -> None:
        """With their executors, as when a machine goes."""
        for worker in self._workers():
            processes.wipe(worker)

    @property
    def _place(self) -> Place:
        return self.servers.place(NAME)

    def _workers(self) -> list[processes.Process]:
        return [
            process for name, process in self._place.started().items() if name.startswith("worker")
        ]


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    with group(
        folder, NAME, PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ) as servers:
        yield Standalone(servers)
