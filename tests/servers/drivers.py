"""Real drivers that sleep in the middle of a batch while their source is fenced off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest

from stateshift.errors import StalePlan
from stateshift.step import FenceSource
from stateshift.storage.opening import SystemClock, open_patiently
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_cluster import MemoryCluster
from stateshift.world import World
from tests.support.servers import Unavailable, downloads

JOB = Path(__file__).with_name("streaming_with.py")
RELEASES = {"3.5": "3.5.9", "4.3": "4.3.0"}
SECONDS_MAX = 240


def world() -> World:
    return World(open_patiently, lambda name: MemoryCluster(), {}, {}, SystemClock(), run="the-run")


def fence(location: str, batch: int) -> FenceSource:
    """As planned for a job whose batch has its offsets and no commit."""
    return FenceSource("halt/fence", location, (f"offsets/{batch + 1}", f"commits/{batch}"))


@dataclass(frozen=True)
class Job:
    """A query over a checkpoint, on a Spark of a version, with settings and an environment of
    its own.
    """

    version: str
    location: str
    settings: Mapping[str, str]
    environment: Mapping[str, str]

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        try:
            spark = downloads.spark(RELEASES[self.version])
        except Unavailable as reason:
            pytest.skip(f"Spark {self.version} cannot be had: {reason}")
        python = spark.parents[3] / "bin" / "python"
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        started = subprocess.Popen(
            [str(python), str(JOB), self.location, json.dumps(dict(self.settings))],
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**own, **self.environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        late = Timer(SECONDS_MAX, os.killpg, (started.pid, signal.SIGKILL))
        late.start()
        try:
            yield started
        finally:
            late.cancel()
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
            started.communicate()

    def cannot_commit_behind_a_fence(self, storage: Storage) -> None:
        """It sleeps in batch 1, is fenced off, wakes up and dies; when the fence is lifted the
        job goes on.
        """
        with self.running() as zombie:
            until("in batch 1", zombie)
            os.killpg(zombie.pid, signal.SIGSTOP)
            assert storage.stat("offsets/1") is not None
            assert storage.stat("commits/1") is None
            with pytest.raises(StalePlan, match="written after the plan was made"):
                FenceSource("halt/fence", self.location, ("commits/0",)).run(world())
            before = {info.path: storage.read(info.path) for info in storage.list()}
            evidence = fence(self.location, 1).run(world())
            os.killpg(zombie.pid, signal.SIGCONT)
            assert "ultiple streaming jobs detected for 1" in until("died:", zombie)
        assert fence(self.location, 1).holds(world(), evidence) == []
        assert fence(self.location, 1).undo(world(), evidence) == []
        assert {path: storage.read(path) for path in before} == before
        assert storage.stat("commits/1") is None
        with self.running() as again:
            until("in batch 2", again)
        assert storage.read("commits/1").startswith(b"v1\n")


def until(told: str, started: subprocess.Popen[str]) -> str:
    """The first line that begins like this."""
    assert started.stdout is not None
    seen = []
    for line in started.stdout:
        seen.append(line)
        if line.startswith(told):
            return line
    raise AssertionError(f"it never said {told!r}: {seen}")
