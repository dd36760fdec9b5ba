"""The stop marker: how a job that imports `stateshift.job` is asked to stop between two batches.

    <location>/_stateshift/stop       written by us: which job, under which tag, until when
    <location>/_stateshift/stopping   the job's answer, a copy of the marker

Whether a job watches is not known from a note it once left, which may be stale, but from its answer to this marker:
`stateshift.job` answers within a second or two, also in the middle of a long batch. Both files are taken away when the
job has ended. A local location is written directly, any other through the storage that was handed in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stateshift.clusters.protocol import StopRequest
from stateshift.formats.marks import FOLDER, STOP, STOPPING, TEMPORARY, encode_stop
from stateshift.storage.protocol import Storage

OpenStorage = Callable[[str], Storage]


def local_path(location: str) -> str | None:
    """The path of `file:///a`, `file:/a` and `/a`, taken literally; None for any other scheme."""
    if location.startswith("file:"):
        path = location.removeprefix("file:")
        return path[2:] if path.startswith("//") else path
    return None if "://" in location else location


@dataclass(frozen=True, slots=True)
class StopMarker:
    """The marker of one request. `seconds_max` is how long it is good for."""

    request: StopRequest
    seconds_max: float
    open_storage: OpenStorage | None

    @property
    def possible(self) -> bool:
        return self._path is not None or self.open_storage is not None

    def write(self) -> None:
        until = time.time() + self.seconds_max
        content = encode_stop(self.request.job, self.request.tag, until)
        self.remove_answer()
        if self._path is not None:
            _write(self._path / STOP, content)
        else:
            self._storage.write(STOP, lambda: iter((content,)))

    def answered(self) -> bool:
        if self._path is not None:
            return (self._path / STOPPING).exists()
        return self._storage.stat(STOPPING) is not None

    def remove(self) -> None:
        """Marker and answer, and the folder where nothing else is in it."""
        if self._path is None:
            self._storage.remove(STOP)
            self.remove_answer()
            self._storage.prune(FOLDER)
            return
        (self._path / STOP).unlink(missing_ok=True)
        self.remove_answer()
        try:
            (self._path / FOLDER).rmdir()
        except OSError:  # not there, or not empty: both fine
            return

    def remove_answer(self) -> None:
        if self._path is not None:
            (self._path / STOPPING).unlink(missing_ok=True)
        else:
            self._storage.remove(STOPPING)

    @property
    def _path(self) -> Path | None:
        path = local_path(self.request.location)
        return Path(path) if path is not None else None

    @property
    def _storage(self) -> Storage:
        assert self.open_storage is not None
        return self.open_storage(self.request.location)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: the job must not read half a marker."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{path.name}-{os.getpid()}.tmp"
    temporary.write_bytes(content)
    temporary.replace(path)
