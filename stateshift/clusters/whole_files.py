"""Small files of ours, written whole or not at all, by any number of writers at once: the last
one wins.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from stateshift.formats.marks import TEMPORARY
from stateshift.private_files import FILE_MODE

READABLE = 0o644


def write_whole(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """Makes directories as needed. Not synced: these files tell of processes, which a crash of the
    machine ends. `mode` is READABLE where another user's job has to see the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
