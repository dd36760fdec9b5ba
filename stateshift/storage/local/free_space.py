"""What a local disk says of a place before anything is written there: asked of its nearest
directory, nothing is tried.

Permission is asked with access(2) for who we are in effect, which also knows of file systems that
are mounted read-only and of access control lists. On some network file systems the server has the
last word, when something is written.
"""

from __future__ import annotations

import os

from stateshift.survey import Room

_WHO = {"effective_ids": True} if os.access in os.supports_effective_ids else {}


def room(directory: str) -> Room:
    """What is free for us, not for root; the number of files where the file system has a limit
    on it.
    """
    told = os.statvfs(directory)
    files = told.f_favail if told.f_files else None
    return Room(
        told.f_bavail * told.f_frsize,
        files,
        1,
        f"device {os.stat(directory).st_dev}",
        "its disk",
        "its disk",
    )


def writable(directory: str) -> bool:
    """Whether a name can be added to the directory."""
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK, **_WHO)
