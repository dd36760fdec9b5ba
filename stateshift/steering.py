"""A run at work, steered from outside: by files in its workdir, so that it works over ssh, from
cron, and by hand.

    WORKDIR/steer/
      cutover      stop the job as soon as little enough is left; holding `now`, at once
      paused       bring nothing for as long as this is there
      throttle     {"bytes_per_second": ..., "operations_per_second": ...}; null is as fast as it
                   goes
      stop         end as Ctrl-C does

A request is one file, written whole; the run looks several times a second. `live.json` is its
answer: its status, written now and then by the process at work and worth nothing without one. The
journal has the requests, and when they were heeded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from stateshift import plain
from stateshift.private_files import make_folder, open_private
from stateshift.survey import Left

Cutover = Literal["ready", "now"]


@dataclass(frozen=True, slots=True)
class Throttle:
    """None is as fast as it goes."""

    bytes_per_second: float | None = None
    operations_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """The requests so far. Without a `throttle` the spec's counts."""

    cutover: Cutover | None = None
    paused: bool = False
    throttle: Throttle | None = None
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Live:
    """What the process at work is at."""

    at: float
    job: str = ""
    phase: str = ""
    began: float = 0.0
    files: int = 0
    bytes: int = 0
    files_done: int = 0
    bytes_done: int = 0
    waiting: str = ""
    paused: bool = False
    left: Mapping[str, Left] = field(default_factory=dict)
    down_since: float | None = None


def ticking(live: Live | None, now: float) -> Live | None:
    """Return the status as of now: a process writes seldom, and its job is down meanwhile."""
    if live is None or live.down_since is None:
        return live
    return replace(live, at=max(live.at, now))


class Steering:
    """The files of one workdir."""

    def __init__(self, workdir: Path) -> None:
        self.folder = workdir / "steer"
        self._live = workdir / "live.json"

    # -- whoever steers

    def ask_cutover(self, now: bool) -> None:
        self._write("cutover", "now" if now else "ready")

    def pause(self, on: bool) -> None:
        if on:
            self._write("paused", "")
        else:
            self._remove("paused")

    def throttle(self, limits: Throttle) -> None:
        self._write("throttle", json.dumps(plain.to_plain(limits)))

    def ask_stop(self) -> None:
        self._write("stop", "")

    def live(self) -> Live | None:
        """Return the last status of the run; None where nothing can be read."""
        with suppress(OSError, ValueError, RecursionError):
            read: Live = plain.from_plain(Live, json.loads(_content(self._live)))
            return read
        return None

    # -- the run

    def wishes(self) -> Wishes:
        try:
            names = set(os.listdir(self.folder))
        except OSError:
            return Wishes()
        cutover: Cutover | None = None
        if "cutover" in names:
            cutover = "ready"
            with suppress(OSError):
                if _content(self.folder / "cutover").strip() == b"now":
                    cutover = "now"
        throttle = None
        if "throttle" in names:
            with suppress(OSError, ValueError, RecursionError):
                content = json.loads(_content(self.folder / "throttle"))
                read: Throttle = plain.from_plain(Throttle, content)
                rates = (read.bytes_per_second, read.operations_per_second)
                if all(rate is None or rate > 0 for rate in rates):
                    throttle = read
        return Wishes(cutover, "paused" in names, throttle, "stop" in names)

    def begin(self) -> None:
        """A run that begins, or goes on, has not been asked to stop."""
        self._remove("stop")
        self._remove("paused")

    def heeded(self, name: str) -> None:
        self._remove(name)

    def tell(self, live: Live) -> None:
        """Never a reason to fail: a full disk is met by the journal."""
        with suppress(OSError):
            self._replace(self._live, json.dumps(plain.to_plain(live)), "")

    def over(self) -> None:
        """Nobody is at work any more."""
        with suppress(OSError):
            self._live.unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        make_folder(self.folder)
        self._replace(self.folder / name, text, f".{os.getpid()}")  # two may steer at once

    def _replace(self, path: Path, text: str, writer: str) -> None:
        temporary = path.with_name(f".{path.name}{writer}.tmp")
        with open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            file.write(text.encode("utf-8"))
        temporary.replace(path)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    with open_private(path, os.O_RDONLY) as file:
        return file.read()
