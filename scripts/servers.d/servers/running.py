"""Servers by name, under one folder: brought up, looked at, stopped. What is up already stays as it
is.

    servers = Servers(root)
    servers.up("hdfs-a")     fetches, configures, starts and waits; what has crashed is started
                             again, with its data
    servers.state("hdfs-a")  down, up, crashed (some process is gone) or silent (does not answer)
    servers.exports()        what to set in the environment to use all that is up
    servers.kill(...)        a crash, for those who test what follows
    servers.down("hdfs-a")   its processes, then its folder

One up or down at a time holds the folder's lock; who comes second waits. An `up` that dies leaves
what `down` clears away and `up` goes on with.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from servers import hadoop, ports, processes
from servers.catalog import CATALOG
from servers.faults import PortTaken
from servers.place import Place
from servers.server import Server

ATTEMPTS = 4
LOCK = "lock"
SECONDS_TO_LEAVE = 4.0  # for good: its data go with it


@dataclass(frozen=True)
class State:
    """`word` is down, up, crashed or silent; processes by role, None for one that is gone."""

    name: str
    word: str
    folder: str
    ports: dict[str, int]
    pids: dict[str, int | None]
    resident_mib: int
    exports: dict[str, str]


def default_root() -> Path:
    named = os.environ.get("STATESHIFT_SERVERS")
    return (
        Path(named) if named else Path(tempfile.gettempdir()) / f"stateshift-servers-{os.getuid()}"
    )


@dataclass(frozen=True)
class Servers:
    root: Path
    env: Mapping[str, str] = field(default_factory=dict)
    choose_ports: ports.Chooser = ports.free

    def up(self, name: str) -> State:
        server, place = CATALOG[name], self.place(name)
        server.fetch()
        with self._alone():
            if not place.made:
                place.make(self.choose_ports(server.ports))
            elif self._must_move(server, place):
                self._move(server, place)
            self._start(server, place)
            self._tell_hadoop()
        return self.state(name)

    def down(self, name: str) -> None:
        with self._alone():
            place = self.place(name)
            self._end(place, SECONDS_TO_LEAVE)
            if place.made:  # else it is not ours, whatever it is called
                for left in CATALOG[name].leavings(place):
                    left.unlink(missing_ok=True)
                shutil.rmtree(place.folder)
            self._tell_hadoop()
            self._leave()

    def state(self, name: str) -> State:
        server, place = CATALOG[name], self.place(name)
        if not place.made:
            return State(name, "down", str(place.folder), {}, {}, 0, {})
        roles = [role for stage in server.stages(place) for role in stage.roles]
        started = place.started()
        pids = {
            role.name: started[role.name].pid if place.alive(role.name) else None for role in roles
        }
        answers = None not in pids.values() and all(place.answers(role) for role in roles)
        word = "crashed" if None in pids.values() else "up" if answers else "silent"
        resident = sum(processes.resident_mib(process) for process in started.values())
        return State(
            name, word, str(place.folder), place.ports, pids, resident, server.exports(place)
        )

    def exports(self) -> dict[str, str]:
        """Of all that is there."""
        found = {
            key: value
            for server, place in self._made()
            for key, value in server.exports(place).items()
        }
        anywhere = any(server.hdfs(place) is not None for server, place in self._made())
        return {**found, **(hadoop.exports(self.root) if anywhere else {})}

    def place(self, name: str) -> Place:
        return Place(self.root, name, self.env)

    def kill(self, name: str, role: str) -> None:
        """One process, as when it crashes; `up` starts it again where it was."""
        process = self.place(name).process(role)
        if process is not None:
            processes.kill(process)

    def _start(self, server: Server, place: Place) -> None:
        for attempt in range(ATTEMPTS):
            try:
                return self._run(server, place)
            except PortTaken:
                if attempt == ATTEMPTS - 1:
                    raise
                self._move(server, place)
        return None

    def _run(self, server: Server, place: Place) -> None:
        place.hadoop_conf.mkdir(parents=True, exist_ok=True)
        server.configure(place)
        for stage in server.stages(place):
            if stage.before is not None:
                stage.before()
            for role in stage.roles:
                place.start(role)
            for role in stage.roles:
                place.wait(role)
        server.settle(place)

    def _must_move(self, server: Server, place: Place) -> bool:
        """Whether something of it is not running and somebody else has taken one of its ports
        meanwhile.
        """
        roles = [role for stage in server.stages(place) for role in stage.roles]
        if any(place.alive(role.name) for role in roles):
            return False  # which port is whose we do not know: whoever finds its own taken says so
        return any(ports.taken(port) for port in place.ports.values())

    def _move(self, server: Server, place: Place) -> None:
        """To other ports, with its data: what still runs of it knows only the old ones."""
        self._end(place)
        place.make(self.choose_ports(server.ports))

    def _end(self, place: Place, grace_seconds: float = processes.GRACE_SECONDS) -> None:
        """The last ones first: they lean on the others."""
        for process in sorted(
            place.started().values(), key=lambda process: process.started, reverse=True
        ):
            processes.end(process, grace_seconds)

    def _tell_hadoop(self) -> None:
        hadoop.write_clients(
            self.root, {place.name: server.hdfs(place) for server, place in self._made()}
        )

    def _made(self) -> list[tuple[Server, Place]]:
        return [
            (server, self.place(name)) for name, server in CATALOG.items() if self.place(name).made
        ]

    def _leave(self) -> None:
        """Nothing of ours stays when no server is left. The folder may hold what somebody else
        has put there.
        """
        if not self._made():
            hadoop.remove_clients(self.root)
            (self.root / LOCK).unlink()
            with suppress(OSError):
                self.root.rmdir()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        while True:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(FileNotFoundError), (self.root / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if os.fstat(lock.fileno()).st_nlink:  # else who held it took the whole folder away
                    yield
                    return
