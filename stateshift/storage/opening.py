"""The storage of a location: the local disk, HDFS, what other packages add, else fsspec.

The local disk costs no import of fsspec, nor does HDFS. Other packages add storages by entry points
of the group `stateshift.storages`, each for a scheme that is not in `specification.location`:

    [project.entry-points."stateshift.storages"]
    shelf = "my_package:open_storage"       # open_storage("shelf://host/path") -> Storage
"""

from __future__ import annotations

import os
import time

from stateshift import extensions
from stateshift.specification.location import SCHEMES, scheme_named
from stateshift.storage import locations
from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import Retrying

_MEMBERS = tuple(name for name in vars(Storage) if not name.startswith("_"))


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
    """Return the local location that links in this one lead to; empty if there are none."""
    path = locations.local_path(location)
    if path is None:
        return ""
    real = os.path.realpath(path)
    return "" if real == path else locations.normal(real)


def open_storage(location: str) -> Storage:
    """Return a new storage at a location, which need not exist. It syncs its own writes."""
    location = locations.normal(location, os.getcwd())
    scheme = locations.scheme(location)
    opened_by = scheme_named(scheme).opened_by
    if opened_by == "local":
        return LocalStorage(location)
    if opened_by == "hdfs":
        from stateshift.storage.hdfs.storage import open_hdfs

        return open_hdfs(location)
    if scheme not in SCHEMES and scheme in extensions.names_added(extensions.STORAGES):
        open_location = extensions.load(extensions.STORAGES, scheme)
        if not callable(open_location):
            lacks = f"is no function that opens a location, but a {type(open_location).__name__}"
            raise extensions.refuse(extensions.STORAGES, scheme, lacks)
        storage: Storage = open_location(location)
        missing = [member for member in _MEMBERS if not hasattr(storage, member)]
        if missing:
            lacks = f"opens no storage: it has no {', '.join(missing)}"
            raise extensions.refuse(extensions.STORAGES, scheme, lacks)
        return storage
    from stateshift.storage.fsspec.storage import FsspecStorage

    return FsspecStorage.open(location)
