"""Checks of a place on a local disk before anything is written there: its nearest directory is
asked, nothing is tried.

Permission is asked with access(2) for who we are in effect, which also knows of file systems that
are mounted read-only and of access control lists. On some network file systems the server has the
last word, when something is written.
"""

from __future__ import annotations

import os

from stateshift.survey import Room

_WHO = {"effective_ids": True} if os.access in os.supports_effective_ids else {}


def room(directory: str) -> Room:
    """Return what is free for us, not for root; files, too, if the file system limits them."""
    status = os.statvfs(directory)
    bytes_free = status.f_bavail * status.f_frsize
    files_free = status.f_favail if status.f_files else None
    pool = f"device {os.stat(directory).st_dev}"
    return Room(bytes_free, files_free, 1, pool, "its disk", "its disk")


def writable(directory: str) -> bool:
    """Whether a name can be added to the directory."""
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK, **_WHO)
