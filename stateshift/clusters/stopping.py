"""The stop marker: it asks a job that imports `stateshift.job` to stop between two batches.

    <location>/_stateshift/stop       written by us: which job, under which tag, until when
    <location>/_stateshift/stopping   the job's answer, a copy of the marker

Whether a job watches is not known from a note it once left, which may be stale, but from its answer
to this marker: `stateshift.job` answers within a second or two, also in the middle of a long batch.
Both files are taken away when the job has ended. A local location is written directly, any other
through the storage that was handed in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stateshift.clusters.options import Expected, Options, read_options
from stateshift.clusters.protocol import StopRequest
from stateshift.clusters.whole_files import READABLE, write_whole
from stateshift.formats.marks import FOLDER, STOP, STOPPING, encode_stop
from stateshift.specification.location import normal, scheme


class MarkerStorage(Protocol):
    """The part of `storage.protocol.Storage` that a marker needs."""

    def stat(self, path: str) -> object: ...

    def write(self, path: str, content: Callable[[], Iterator[bytes]]) -> int: ...

    def remove(self, path: str) -> None: ...

    def prune(self, under: str = "") -> None: ...


OpenStorage = Callable[[str], MarkerStorage]

GRACEFUL_SECONDS = 15.0  # the usual time a job has to answer the marker


def local_path(location: str) -> str | None:
    """Return the path of `file:///a`, `file:/a` and `/a`, literally; None for other schemes."""
    url = normal(location, os.getcwd())
    return url.removeprefix("file://") if scheme(url) == "file" else None


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
            write_whole(self._path / STOP, content, READABLE)
        else:
            self._storage.write(STOP, lambda: iter((content,)))

    def answered(self) -> bool:
        if self._path is not None:
            return (self._path / STOPPING).exists()
        return self._storage.stat(STOPPING) is not None

    def remove(self) -> None:
        """Remove marker and answer, and the folder if nothing else is in it."""
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
    def _storage(self) -> MarkerStorage:
        assert self.open_storage is not None
        return self.open_storage(self.request.location)


def forget_marker(request: StopRequest, open_storage: OpenStorage | None) -> None:
    """Take away a marker, or an answer that came too late, which nobody else will take away."""
    marker = StopMarker(request, 0.0, open_storage)
    if marker.possible:
        marker.remove()


def stop_options(
    request: StopRequest,
    cluster: Options,
    known: Mapping[str, Expected],
    submitting: Mapping[str, Expected],
) -> Options:
    """Return the request's options over the cluster's, without any of a submission."""
    others = {*submitting, "tag", "seconds_max"}
    requested = {key: value for key, value in request.options.items() if key not in others}
    of_cluster = {key: value for key, value in cluster.items() if key in known}
    return {**of_cluster, **read_options(requested, known, "/stop")}
