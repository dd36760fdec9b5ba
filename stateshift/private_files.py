"""Files and folders of a run that are its owner's alone, as a spec, a plan or a cluster's answer
is.

    make_folder(path)      0700, where it is not there; one that was made beforehand keeps its
                           permissions
    open_private(path, …)  0600, and a regular file: whatever else stands there is refused before it
                           is read or written

No link is followed and no pipe waited for: whoever may write to such a folder must not lead us
elsewhere. Errors are OSErrors, whose text says what stands there.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS_MAY_WRITE = 0o022  # the bits of a mode, of what only its owner may change
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are not there."""
    refuse_link(path)
    if path.is_dir():
        return
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_private(path: Path, flags: int) -> IO[bytes]:
    """Open a file with flags as `os.open` takes them."""
    refuse_link(path)
    try:
        descriptor = os.open(path, flags | _ALWAYS, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise _not_a_file(path) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        # Python's word for the flags; `fdopen` itself opens none.
        mode = "wb" if flags & os.O_WRONLY else "rb"
        if flags & os.O_RDWR:
            mode = "rb+"
        if flags & os.O_APPEND:
            mode = "ab+" if flags & os.O_RDWR else "ab"
        return os.fdopen(descriptor, mode)
    os.close(descriptor)
    raise _not_a_file(path)


def refuse_link(path: Path) -> None:
    """Refuse a link: what is written there would be somewhere else."""
    if path.is_symlink():
        text = f"is a symbolic link to {os.readlink(path)}; links are not followed here"
        raise OSError(errno.ELOOP, text, str(path))


def _not_a_file(path: Path) -> OSError:
    return OSError(
        errno.EINVAL, "is a pipe, a socket, a device or a directory, not a file", str(path)
    )
