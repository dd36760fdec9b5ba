"""Up, crash, up again, down: with moto's server, which is there in a second or two, and with
made-up ones that fail.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers import (
    SERVERS_D,
    Failed,
    Place,
    Role,
    Server,
    Servers,
    Stage,
    command,
    downloads,
    group,
    ports,
    processes,
)

pytestmark = [pytest.mark.servers, pytest.mark.slow]
MOTO = "s3-moto"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with group(tmp_path / "root", MOTO) as servers:
        yield servers


@dataclass
class Chooser:
    """Chooses what it was told to, then what is free."""

    first: list[int]

    def __call__(self, names: Sequence[str]) -> dict[str, int]:
        return {name: self.first.pop(0) for name in names} if self.first else ports.free(names)


@dataclass(frozen=True)
class Broken(Server):
    """A server that says why it ends, or says nothing and does not answer."""

    script: str
    name: str = "broken"

    @property
    def ports(self) -> tuple[str, ...]:
        return ("http",)

    def fetch(self) -> None:
        return

    def configure(self, place: Place) -> None:
        return

    def stages(self, place: Place) -> tuple[Stage, ...]:
        words = (sys.executable, "-c", self.script)
        return (Stage((Role("it", words, lambda: False, seconds_max=1.0),)),)

    def exports(self, place: Place) -> dict[str, str]:
        return {}


def listening() -> socket.socket:
    one = socket.socket()
    one.bind((ports.HOST, 0))
    one.listen()
    return one


def test_up_twice_is_up_once(servers: Servers) -> None:
    before = servers.state(MOTO)
    assert before.word == "up"
    assert servers.up(MOTO).pids == before.pids


def test_a_crash_is_noticed_and_mended_where_it_was(servers: Servers) -> None:
    before = servers.state(MOTO)
    servers.kill(MOTO, "moto")
    assert servers.state(MOTO).word == "crashed"
    after = servers.up(MOTO)
    assert after.word == "up"
    assert after.ports == before.ports
    assert after.pids != before.pids


def test_one_that_hangs_is_silent_and_not_up(servers: Servers) -> None:
    (pid,) = servers.state(MOTO).pids.values()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert servers.state(MOTO).word == "silent"
    os.kill(pid, signal.SIGCONT)
    assert servers.state(MOTO).word == "up"


def test_a_port_that_is_taken_between_choice_and_start_is_survived(tmp_path: Path) -> None:
    with closing(listening()) as other:
        taken = other.getsockname()[1]
        servers = Servers(tmp_path / "root", choose_ports=Chooser([taken]))
        try:
            state = servers.up(MOTO)
            assert state.word == "up"
            assert state.ports["s3"] != taken
        finally:
            servers.down(MOTO)


def test_a_port_that_is_taken_after_a_crash_is_survived(servers: Servers) -> None:
    port = servers.state(MOTO).ports["s3"]
    servers.kill(MOTO, "moto")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((ports.HOST, port))
        other.listen()
        state = servers.up(MOTO)
    assert state.word == "up"
    assert state.ports["s3"] != port
    assert servers.exports()["STATESHIFT_S3_MOTO"].endswith(str(state.ports["s3"]))


def test_an_up_that_is_killed_is_gone_on_with(tmp_path: Path) -> None:
    root = tmp_path / "root"
    born = root / MOTO / "pids" / "moto"
    words = [sys.executable, str(SERVERS_D / "main.py"), "--root", str(root), "up", MOTO]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as up:
        while not born.exists():
            assert up.poll() is None
            time.sleep(0.002)
        up.kill()
    with group(root, MOTO) as servers:
        process = processes.read(born)
        assert process is not None
        assert servers.state(MOTO).pids == {"moto": process.pid}
        assert len(processes.members(process)) == 1


def test_down_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    with group(tmp_path / "root", MOTO) as servers:
        (process,) = servers.place(MOTO).started().values()
    assert not processes.alive(process)
    assert processes.members(process) == []
    assert not (tmp_path / "root").exists()


def test_down_keeps_what_is_not_ours(tmp_path: Path) -> None:
    mine = tmp_path / "root" / MOTO / "mine"
    mine.parent.mkdir(parents=True)
    mine.write_text("kept")
    Servers(tmp_path / "root").down(MOTO)
    assert mine.read_text() == "kept"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("raise SystemExit('no disk left')", "ended while it was awaited"),
        (
            "print('no disk left', flush=True); import time; time.sleep(600)",
            "does not answer after 1 seconds",
        ),
    ],
)
def test_one_that_does_not_come_up_says_why_with_the_end_of_its_log(
    tmp_path: Path, script: str, told: str
) -> None:
    place = Place(tmp_path, "broken")
    place.make({"http": 15_000})
    (role,) = Broken(script).stages(place)[0].roles
    place.start(role)
    try:
        with pytest.raises(Failed, match=rf"(?s)broken: it {told}.*no disk left"):
            place.wait(role)
    finally:
        for process in place.started().values():
            processes.end(process)


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    place = Place(tmp_path, "broken")
    place.make({"http": 15_000})
    role = Role("it", ("/nowhere/server",), lambda: False)
    place.start(role)
    with pytest.raises(Failed, match=r"(?s)it ended.*/nowhere/server: No such file"):
        place.wait(role)


def test_the_command_tells_what_is_up_and_how_to_reach_it(servers: Servers) -> None:
    told = json.loads(command(servers.root, "status", "--json").stdout)
    assert told["servers"][MOTO]["word"] == "up"
    assert told["servers"]["kafka"]["word"] == "down"
    lines = command(servers.root, "env").stdout
    assert (
        f"export STATESHIFT_S3_MOTO=http://127.0.0.1:{servers.state(MOTO).ports['s3']}\n" in lines
    )
    assert json.loads(command(servers.root, "env", "--json").stdout) == servers.exports()
    servers.kill(MOTO, "moto")
    crashed = command(servers.root, "status", MOTO)
    assert (crashed.returncode, crashed.stdout.split()[:2]) == (1, [MOTO, "crashed"])


def test_the_command_starts_and_stops(tmp_path: Path) -> None:
    root = tmp_path / "root"
    up = command(root, "up", MOTO)
    assert up.returncode == 0, up.stderr
    try:
        assert Servers(root).state(MOTO).word == "up"
    finally:
        down = command(root, "down")
    assert (down.returncode, down.stdout.split()) == (0, [MOTO, "stopped"])
    assert not root.exists()


def test_a_name_that_is_no_servers_is_told_with_those_that_are(tmp_path: Path) -> None:
    ran = command(tmp_path, "up", "hdfs-c")
    assert ran.returncode == 2
    assert "'hdfs-c'" in ran.stderr
    assert "hdfs-a hdfs-b" in ran.stderr


def test_what_cannot_be_had_is_named_and_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    java = str(Path(downloads.java()).parents[1])
    bare = {"PATH": str(tmp_path), "STATESHIFT_SERVERS_CACHE": str(tmp_path)}
    ran = command(tmp_path / "root", "up", "hdfs-a", JAVA_HOME=java, **bare)
    assert ran.returncode == 69
    assert "hdfs-a cannot be had: Maven is missing" in ran.stderr
    ran = command(tmp_path / "root", "up", "kafka", JAVA_HOME="/nowhere", **bare)
    assert ran.returncode == 69
    assert "a JDK 17 or newer is missing" in ran.stderr
