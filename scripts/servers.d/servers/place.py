"""One server's folder: its ports, its processes, their logs. What it is made of comes as roles.

Role(name, command, answers)       one process of a server, and how to see that it is there
place.start(role)                  starts it; place.wait(role) waits until it answers
place.process("namenode")          who it is, if it was ever started
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from servers import processes
from servers.faults import Failed, PortTaken
from servers.processes import Process

SECONDS_MAX = 240.0  # of a machine that does much else
LOG_CHARACTERS = 2500
IN_USE = re.compile(
    r"BindException|[Aa]ddress already in use|EADDRINUSE|Port in use|port is already in use"
)


# What asking a server that is not there yet, or only in parts, may come to.
NO = (OSError, ValueError, LookupError, HTTPException)


@dataclass(frozen=True)
class Role:
    """`answers` may raise what is in NO for no."""

    name: str
    command: tuple[str, ...]
    answers: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=dict)
    seconds_max: float = SECONDS_MAX


@dataclass(frozen=True)
class Place:
    """`env` is what all its processes find in their environment, beside ours."""

    root: Path
    name: str
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def hadoop_conf(self) -> Path:
        return self.root / "hadoop-conf"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def made(self) -> bool:
        return (self.folder / "server.json").exists()

    def make(self, ports: Mapping[str, int]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = self.folder / "server.json.new"
        whole.write_text(json.dumps({"ports": dict(ports)}, indent=2) + "\n")
        whole.replace(self.folder / "server.json")
        for part in ("pids", "logs", "conf", "data", "tmp"):
            (self.folder / part).mkdir(exist_ok=True)

    @property
    def ports(self) -> dict[str, int]:
        return dict(json.loads((self.folder / "server.json").read_text())["ports"])

    def write(self, path: str, text: str) -> Path:
        """A file of its configuration."""
        whole = self.folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)
        return whole

    def log(self, role: str) -> Path:
        return self.folder / "logs" / f"{role}.log"

    def started(self) -> dict[str, Process]:
        found = {
            file.name: processes.read(file) for file in sorted((self.folder / "pids").glob("*"))
        }
        return {name: process for name, process in found.items() if process is not None}

    def process(self, role: str) -> Process | None:
        return processes.read(self.folder / "pids" / role)

    def alive(self, role: str) -> bool:
        process = self.process(role)
        return process is not None and processes.alive(process)

    def start(self, role: Role) -> None:
        """Unless it is running."""
        if self.alive(role.name):
            return
        before = self.process(role.name)
        if before is not None:
            processes.end(before)  # it crashed, and what it had started may not have noticed
        log = self.log(role.name)
        if log.exists():
            log.replace(log.with_suffix(".before"))
        env = {**os.environ, "TMPDIR": str(self.temporary), **self.env, **role.env}
        processes.spawn(role.command, self.folder / "pids" / role.name, log, self.folder, env)

    def wait(self, role: Role) -> None:
        until = time.monotonic() + role.seconds_max
        while not self.answers(role) or self._complains(role):
            if self._complains(
                role
            ):  # some hang on then; and what answers may be who took the port
                raise PortTaken(self._told(role, "finds one of its ports taken"))
            if not self.alive(role.name):
                raise Failed(self._told(role, "ended while it was awaited"))
            if time.monotonic() > until:
                raise Failed(
                    self._told(role, f"does not answer after {role.seconds_max:.0f} seconds")
                )
            time.sleep(0.2)

    def answers(self, role: Role) -> bool:
        try:
            return self.alive(role.name) and role.answers() and self.alive(role.name)
        except NO:
            return False

    def end_of_log(self, role: str, characters: int = LOG_CHARACTERS) -> str:
        try:
            with self.log(role).open("rb") as log:
                log.seek(max(0, self.log(role).stat().st_size - characters))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def text_of_log(self, role: str) -> str:
        """Of this start alone."""
        try:
            return self.log(role).read_text(errors="replace")
        except OSError:
            return ""

    def _complains(self, role: Role) -> bool:
        return IN_USE.search(self.end_of_log(role.name, 100_000)) is not None

    def _told(self, role: Role, what: str) -> str:
        return (
            f"{self.name}: {role.name} {what}; the end of "
            f"{self.log(role.name)}:\n{self.end_of_log(role.name)}"
        )
