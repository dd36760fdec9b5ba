"""Creating a file that nobody else creates, by the means a file system has for it
(`Way.exclusive`).

Whoever was second is told by an error that `fsspec_failures.is_taken` knows.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any, Final

from stateshift.storage.fsspec.failures import is_taken
from stateshift.storage.fsspec.ways import Way

MARK: Final = "stateshift-created"  # in the metadata of an object

# Where a storage cannot create exclusively, its own threads at least are kept apart.
among_threads = threading.Lock()


def create(
    file_system: Any, way: Way, full: str, content: bytes, is_file: Callable[[str], bool]
) -> None:
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


def _create_marked(file_system: Any, full: str, content: bytes) -> None:
    """aiohttp sends a request again by itself where a connection that it had kept is cut: it then
    finds what it has just created. So each creation puts its own mark on the object.
    """
    mark = uuid.uuid4().hex
    try:
        file_system.pipe_file(full, content, mode="create", Metadata={MARK: mark})
    except Exception as error:
        if not is_taken(error) or _mark_of(file_system, full) != mark:
            raise


def _mark_of(file_system: Any, full: str) -> str | None:
    try:
        found = file_system.metadata(full).get(MARK)
    except FileNotFoundError:
        return None  # removed since
    return None if found is None else str(found)
