"""Creating a file that nobody else creates, by the means a file system has for it
(`Way.exclusive`).

Whoever was second gets an error that `failures.is_taken` recognises.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Final

from stateshift.storage.fsspec.failures import is_taken
from stateshift.storage.fsspec.file_system import FileSystem
from stateshift.storage.fsspec.ways import Way

MARK: Final = "stateshift-created"  # in the metadata of an object

# Where a storage cannot create exclusively, its own threads at least are kept apart.
among_threads = threading.Lock()


def create(
    file_system: FileSystem, way: Way, full: str, content: bytes, is_file: Callable[[str], bool]
) -> None:
    """Make a new file in whichever way this storage refuses a name that is taken."""
    match way.exclusive:
        case "mode":
            file_system.pipe_file(full, content, mode="create")
        case "marked":
            _create_marked(file_system, full, content)
        case "overwrite":
            file_system.pipe_file(full, content, overwrite=False)
        case "xb":
            with file_system.open(full, "xb") as file:
                file.write(content)
        case "process" | None:
            with among_threads:
                if is_file(full):
                    raise FileExistsError(full)
                file_system.pipe_file(full, content)


def _create_marked(file_system: FileSystem, full: str, content: bytes) -> None:
    """Create an object with a mark of its own. If a kept connection is cut, aiohttp repeats the
    request by itself, and then meets the object that it has just created.
    """
    mark = uuid.uuid4().hex
    try:
        file_system.pipe_file(full, content, mode="create", Metadata={MARK: mark})
    except Exception as error:
        ours = is_taken(error) and _mark_of(file_system, full) == mark
        if not ours:
            raise


def _mark_of(file_system: FileSystem, full: str) -> str | None:
    try:
        mark = file_system.metadata(full).get(MARK)
    except FileNotFoundError:
        return None  # removed since
    return None if mark is None else str(mark)
