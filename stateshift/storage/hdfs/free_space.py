"""Checks of a place before anything is written there: permission, and free space by the DataNodes
and by quotas.

    may_write  the nearest directory that is there is asked (CHECKACCESS knows of groups, access
               lists and superusers)
    narrowest  min(what the DataNodes have left, the space quota of each directory above), names
               likewise

Both count a byte as often as it is kept. A directory whose quota we may not ask for is taken to
have none.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.errors import MissingFile
from stateshift.storage import locations
from stateshift.storage.hdfs.calls import HdfsCalls, Quota
from stateshift.survey import Room


def may_write(calls: HdfsCalls, directory: str) -> bool | None:
    """Whether files may be written below a directory, which need not be there yet."""
    for place in _upwards(directory):
        try:
            return calls.may_write(place)
        except MissingFile:
            continue
    return None


def narrowest(calls: HdfsCalls, directory: str, location: str) -> Room:
    """Return how much fits below a directory, and which of the limits above it is the first met."""
    remaining = calls.remaining()
    bytes_left: list[tuple[int, str]] = []
    names_left: list[tuple[int, str]] = []
    copies = 1
    if remaining is not None:
        bytes_left.append((remaining.bytes, "its DataNodes"))
        copies = remaining.copies
    for place in _upwards(directory):
        quota = _quota(calls, place)
        if quota.bytes_left is not None:
            bytes_left.append((quota.bytes_left, f"the space quota of {place}"))
        if quota.names_left is not None:
            names_left.append((quota.names_left, f"the quota of names of {place}"))
    bytes_free, limit = min(bytes_left, default=(None, ""))
    files_free, files_limit = min(names_left, default=(None, ""))
    pool = f"hdfs {locations.authority(location)}"
    return Room(bytes_free, files_free, copies, pool, limit, files_limit)


def _quota(calls: HdfsCalls, place: str) -> Quota:
    return calls.quota(place) or Quota(bytes_left=None, names_left=None)


def _upwards(directory: str) -> Iterator[str]:
    """The directory and every one above it, the root last."""
    path = directory.rstrip("/")
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield "/"
