"""The directory of a buffer, on a disk of the machine that runs it.

buffer.json          the buffer's id; a newer version is refused
lock                 locked by the process that runs the buffer
running.json         its addresses; it may be left over from one that was killed
segments/            the records (see log.py)
readers/NAME.json    the number that a reader reads next
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stateshift.errors import Complaint, FormatError, PlanError, SpecError, UnknownVersion
from stateshift.live.buffer.log import sync_directory
from stateshift.plain import JsonObject, Misfit, from_plain, to_plain
from stateshift.private_files import make_folder, open_private

VERSION = 1
BEFORE_IT_IS_ONE = ("lock", ".buffer.json.tmp")  # left behind by a kill in the first moment
READER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class About:
    """The kind of a directory."""

    version: int
    id: str


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """The process that runs a buffer, and its addresses."""

    id: str
    process: int
    listens: tuple[str, ...]
    serves: str


@dataclass(frozen=True, slots=True)
class Position:
    """The number that a reader reads next, and when it said so, in seconds since 1970."""

    next: int
    at: float


@dataclass(eq=False)
class Folder:
    """A buffer's directory."""

    path: Path

    @property
    def segments(self) -> Path:
        return self.path / "segments"

    def ensure(self) -> str:
        """Make the directory a buffer's, or check that it is one; return the buffer's id."""
        make_folder(self.path)
        left_over = [name for name in os.listdir(self.path) if name not in BEFORE_IT_IS_ONE]
        if left_over and not (self.path / "buffer.json").exists():
            raise PlanError(
                f"{self.path} is not empty, and is no buffer: there is no buffer.json",
                hint="name an empty directory, or one that a buffer has made",
            )
        if not left_over:
            self._write("buffer.json", About(VERSION, uuid.uuid4().hex))
            sync_directory(self.path)
        make_folder(self.segments)
        make_folder(self.path / "readers")
        return self.check()

    def check(self) -> str:
        """Refuse what is no buffer's directory, or a newer stateshift's; return the buffer's id."""
        path = self.path / "buffer.json"
        try:
            plain = _json(path)
        except FileNotFoundError:
            raise PlanError(
                f"{self.path} is no buffer: there is no buffer.json",
                hint=f"stateshift live buffer {self.path} --listen http://127.0.0.1:0",
            ) from None
        version = plain.get("version")
        if isinstance(version, int) and version > VERSION:
            raise UnknownVersion(
                f"buffer version {version}; the newest that is known here is {VERSION}",
                str(path),
                hint="use the version that wrote it, or a newer one",
            )
        return _fitting(About, plain, path).id

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory as long as this process needs it; only one can."""
        make_folder(self.path)
        with open_private(self.path / "lock", os.O_RDWR | os.O_CREAT) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PlanError(
                    f"another process runs the buffer {self.path}",
                    hint=f"stateshift live buffer {self.path} --status",
                ) from None
            yield

    def running(self) -> RunningProcess | None:
        """Return the process that runs the buffer, or has run it, if it was killed."""
        path = self.path / "running.json"
        try:
            return _fitting(RunningProcess, _json(path), path)
        except FileNotFoundError:
            return None

    def write_running(self, running: RunningProcess | None) -> None:
        if running is None:
            (self.path / "running.json").unlink(missing_ok=True)
        else:
            self._write("running.json", running)

    def positions(self) -> dict[str, Position]:
        positions = {}
        for path in sorted((self.path / "readers").glob("*.json")):
            positions[path.stem] = _fitting(Position, _json(path), path)
        return positions

    def write_position(self, reader: str, position: Position) -> None:
        """Write the position of a reader. A loss of power may lose it: then more is kept."""
        self._write(f"readers/{reader}.json", position)

    def remove_position(self, reader: str) -> bool:
        path = self.path / "readers" / f"{reader}.json"
        is_there = path.exists()
        path.unlink(missing_ok=True)
        return is_there

    def _write(self, name: str, value: object) -> None:
        path = self.path / name
        hidden = path.with_name(f".{path.name}.tmp")
        with open_private(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            file.write(json.dumps(to_plain(value)).encode())
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)


def check_reader(name: str) -> str:
    """Return the name of a reader, if it is one."""
    if not READER_NAME.fullmatch(name):
        complaint = Complaint("reader", f"{name!r} is no name of a reader", name)
        raise SpecError((complaint,), hint="letters, digits, '.', '_' and '-', at most 100")
    return name


def _json(path: Path) -> JsonObject:
    try:
        plain = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise FormatError("not JSON", str(path), hint=_hint(path)) from None
    if not isinstance(plain, dict):
        raise FormatError("not a JSON object", str(path), hint=_hint(path))
    return plain


def _fitting(kind: type[T], plain: JsonObject, path: Path) -> T:
    try:
        value: T = from_plain(kind, plain)
    except Misfit as error:
        raise FormatError(str(error), str(path), hint=_hint(path)) from None
    return value


def _hint(path: Path) -> str:
    if path.name == "buffer.json":
        return "put the file back from a copy"
    return f"remove {path}: the buffer is started again without it, and the reader says it anew"
