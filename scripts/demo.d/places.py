"""Where the demo's job lives and goes to: two folders of this machine, or two clusters with an
HDFS each.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Places(Protocol):
    first: str
    move: str
    seconds_max: float

    def committed(self) -> int:
        """How many of the job's operators have committed a batch where it starts."""
        ...

    def ended(self) -> bool:
        """Whether nothing runs any more, as far as can be seen from here."""
        ...

    def end_jobs(self) -> None:
        """Ask whatever still runs to stop, as a person would: with an empty marker."""
        ...


@dataclass(frozen=True)
class Folders:
    """Jobs are processes of this machine: who does not hear the marker, is ended."""

    folder: Path
    first = "configs/examples/first.json"
    move = "configs/examples/move.json"
    seconds_max = 240.0  # a Spark starts within a minute and a half on a busy machine

    def committed(self) -> int:
        here = self.folder / "here"
        return sum(
            any((folder / "commits").glob("[0-9]*")) for folder in here.glob("*") if folder.is_dir()
        )

    def ended(self) -> bool:
        return not self._running()

    def end_jobs(self) -> None:
        for location in (self.folder / "here", self.folder / "there"):
            if location.exists():
                (location / "_stateshift").mkdir(exist_ok=True)
                (location / "_stateshift" / "stop").touch()
        _wait(self.ended)
        for pid in self._running():
            os.killpg(pid, signal.SIGKILL)

    def _running(self) -> list[int]:
        """The clusters of the specs keep the process ids of what they started in the demo's
        folder.
        """
        started = [
            path for path in self.folder.rglob("*.pid") if not path.with_suffix(".exit").exists()
        ]
        pids = [int(path.read_text().split()[0]) for path in started if path.read_text().strip()]
        return [pid for pid in pids if _alive(pid)]


@dataclass(frozen=True)
class Clusters:
    """What `scripts/servers` has started: a job that does not hear the marker goes when its
    server does.
    """

    name: str
    first = "configs/examples/cluster-first.json"
    move = "configs/examples/cluster-move.json"
    seconds_max = 240.0

    def committed(self) -> int:
        from stateshift.storage.opening import open_storage

        paths = [
            info.path.split("/") for info in open_storage(f"hdfs://hdfs-a/demo/{self.name}").list()
        ]
        return len({path[0] for path in paths if path[1:2] == ["commits"]})

    def ended(self) -> bool:
        return False

    def end_jobs(self) -> None:
        from stateshift.storage.opening import open_storage

        for host in ("hdfs-a", "hdfs-b"):
            storage = open_storage(f"hdfs://{host}/demo/{self.name}")
            if next(storage.list(), None) is not None:
                storage.write("_stateshift/stop", lambda: iter((b"",)))


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not done() and time.monotonic() < until:
        time.sleep(0.1)


def _alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
