"""A run at work, steered from outside: by files in its workdir, so that it works over ssh, from
cron, and by hand.

    WORKDIR/steer/
      cutover      stop the job as soon as little enough is left; holding `now`, at once
      paused       bring nothing for as long as this is there
      throttle     {"bytes_per_second": ..., "operations_per_second": ...}; null is as fast as it
                   goes
      stop         end as Ctrl-C does

Whoever steers writes one file, whole; the run looks several times a second. `live.json` is its
answer: what it is at, written now and then by the process at work and worth nothing without one.
What was asked for, and when it was heeded, is in the journal.
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
    """What has been asked for so far. Without a `throttle` the spec's counts."""

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
    """Return what a process is at as of now: it writes seldom, and its job is down meanwhile."""
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
        """Return what the run reported last; None where nothing can be read."""
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
        return Wishes(
            cutover=self._cutover() if "cutover" in names else None,
            paused="paused" in names,
            throttle=self._throttle() if "throttle" in names else None,
            stop="stop" in names,
        )

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

    def _cutover(self) -> Cutover:
        with suppress(OSError):
            if _content(self.folder / "cutover").strip() == b"now":
                return "now"
        return "ready"

    def _throttle(self) -> Throttle | None:
        """What cannot be read changes nothing."""
        with suppress(OSError, ValueError, RecursionError):
            content = json.loads(_content(self.folder / "throttle"))
            read: Throttle = plain.from_plain(Throttle, content)
            rates = (read.bytes_per_second, read.operations_per_second)
            if all(rate is None or rate > 0 for rate in rates):
                return read
        return None

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
