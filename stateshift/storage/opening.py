"""From a location to its storage. The local disk costs no import of fsspec; everything else is opened by
it."""

from __future__ import annotations

import os

from stateshift.storage import locations
from stateshift.storage.local import LocalStorage
from stateshift.storage.protocol import Storage


def open_storage(location: str) -> Storage:
    """The storage at a location, which need not exist yet. A new one each time: what is written through one
    is synced by the same one."""
    location = locations.normal(location, os.getcwd())
    if locations.scheme(location) == "file":
        return LocalStorage(location)
    from stateshift.storage.fsspec_storage import FsspecStorage

    return FsspecStorage.open(location)
