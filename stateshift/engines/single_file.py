"""Locations that are a single file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from stateshift.errors import StorageError
from stateshift.storage import locations
from stateshift.storage.protocol import Storage


def single(location: str, opening: Callable[[str], Storage]) -> tuple[Storage, str] | None:
    """Return the storage and name of a single file; None for a directory, or nothing."""
    location = locations.normal(location, os.getcwd())
    name = locations.name(location)
    if not name:
        return None
    storage = opening(locations.parent(location))
    with suppress(StorageError):
        if storage.stat(name) is not None:
            return storage, name
    return None


def folder_of_single(location: str, opening: Callable[[str], Storage]) -> str:
    """Return the folder that a single file lies in; of what is no file, the location itself."""
    if single(location, opening) is None:
        return location
    return locations.parent(locations.normal(location, os.getcwd()))
