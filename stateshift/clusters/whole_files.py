"""Small files of ours, written whole or not at all, by any number of writers at once: the last
one wins.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from stateshift.formats.marks import TEMPORARY
from stateshift.private_files import FILE_MODE

READABLE = 0o644

Note: TypeAlias = dict[str, Any]


def write_whole(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """Makes directories as needed. Not synced; `mode` is READABLE for another user's job."""
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


def write_object(path: Path, plain: Mapping[str, object]) -> None:
    """Write a note as a JSON object."""
    write_whole(path, json.dumps(plain, sort_keys=True).encode())


def read_object(path: Path) -> Note | None:
    """Return a note that we wrote; None where there is none, or none that can be read."""
    try:
        plain = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None
