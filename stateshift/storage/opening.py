"""The storage of a location. The local disk costs no import of fsspec, nor does HDFS; fsspec opens
everything else.
"""

from __future__ import annotations

import os
import time

from stateshift.storage import locations
from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import Retrying

HDFS = ("hdfs", "webhdfs", "swebhdfs")


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def open_patiently(location: str) -> Storage:
    """Return the storage at a location, with retries of what may pass."""
    return Retrying(open_storage(location), SystemClock())


def real_location(location: str) -> str:
    """Return where the links in a local location lead, empty if there are none: two places with
    two names may be one.
    """
    path = locations.local_path(location)
    if path is None:
        return ""
    real = os.path.realpath(path)
    return "" if real == path else locations.normal(real)


def open_storage(location: str) -> Storage:
    """Return the storage at a location, which need not exist yet. It is a new one each time: what
    is written through one is synced by the same one.
    """
    location = locations.normal(location, os.getcwd())
    if locations.scheme(location) == "file":
        return LocalStorage(location)
    if locations.scheme(location) in HDFS:
        from stateshift.storage.hdfs.opening import open_hdfs

        return open_hdfs(location)
    from stateshift.storage.fsspec.storage import FsspecStorage

    return FsspecStorage.open(location)
