"""A process is told from any other by its pid and its start time, and nothing else is ever
ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Place, Servers, processes

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
# What it starts leaves its process group, as PySpark's workers do, but not its session.
PARENT = (
    sys.executable,
    "-c",
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
    "process_group=0)\n"
    "print(child.pid, flush=True); time.sleep(600)",
)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER, start_new_session=True) as process:
        yield process
        process.kill()


def spawned(folder: Path, *command: str) -> processes.Process:
    return processes.spawn(command, folder / "pid", folder / "log", folder, os.environ)


def printed_pid(folder: Path) -> int:
    while not (text := (folder / "log").read_text()).endswith("\n"):
        time.sleep(0.02)
    return int(text)


def test_who_a_process_is_is_known_before_it_is_the_server(tmp_path: Path) -> None:
    process = spawned(tmp_path, *SLEEPER)
    assert processes.read(tmp_path / "pid") == process
    assert processes.alive(process)
    processes.end(process)
    assert not processes.alive(process)


def test_what_a_process_started_ends_with_it(tmp_path: Path) -> None:
    process = spawned(tmp_path, *PARENT)
    child = printed_pid(tmp_path)
    assert sorted(processes.members(process)) == sorted([process.pid, child])
    processes.end(process)
    assert processes.command(child) == ""


def test_what_a_crashed_process_started_is_still_found(tmp_path: Path) -> None:
    process = spawned(tmp_path, *PARENT)
    child = printed_pid(tmp_path)
    processes.kill(process)
    assert processes.members(process) == [child]
    processes.end(process)
    assert processes.command(child) == ""


def test_one_that_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, "
        "flush=True); time.sleep(600)"
    )
    process = spawned(tmp_path, sys.executable, "-c", deaf)
    printed_pid(tmp_path)
    processes.end(process, grace_seconds=0.2)
    assert not processes.alive(process)


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    stale = processes.Process(bystander.pid, started=1)
    assert not processes.alive(stale)
    assert processes.members(stale) == []
    processes.end(stale)
    processes.kill(stale)
    processes.wipe(stale)
    assert bystander.poll() is None


@pytest.mark.long
def test_down_leaves_a_process_alone_that_has_a_crashed_servers_pid(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    place = Place(tmp_path / "root", "s3-moto")
    place.make({"s3": 15_000})
    place.write("pids/moto", f"{bystander.pid} 1\n")
    servers = Servers(tmp_path / "root")
    assert servers.state("s3-moto").pids == {"moto": None}
    servers.down("s3-moto")
    assert bystander.poll() is None
    assert not (tmp_path / "root").exists()


def test_a_zombie_is_not_alive(tmp_path: Path) -> None:
    process = spawned(tmp_path, *SLEEPER)
    os.kill(process.pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while processes.alive(process):  # nobody has waited for it
        assert time.monotonic() < until
        time.sleep(0.01)
