"""Writing a file of fsspec's: created exclusively, or sent, and never the half of it.

`create` takes the means that a file system has for it (`Way.exclusive`). Whoever was second gets an
error that `failures.is_taken` recognises.

`upload` sends a small file in one request, else in parts. fsspec completes an upload when its file
object is closed, and closes it when it is collected. An upload whose content failed is therefore
discarded (S3 aborts the parts; Azure drops uncommitted blocks after a week), and its object marked
as closed.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from typing import Final

from stateshift.storage.fsspec.failures import is_taken
from stateshift.storage.fsspec.s3_directly import Usual
from stateshift.storage.fsspec.ways import FileSystem, Way
from stateshift.storage.protocol import CHUNK, Content

MARK: Final = "stateshift-created"  # in the metadata of an object

# If a storage cannot create exclusively, its own threads at least are kept apart.
among_threads = threading.Lock()

# While the first part is read nothing can be sent. S3 takes 10,000: of a file of 4 TB the last ones
# are of 2 GiB.
_BLOCK: Final = 8 * 1024 * 1024
_PARTS_ALIKE: Final = 2_000

# Makes a StorageError of an error of the file system, not of one of the content.
Translated = Callable[[], AbstractContextManager[None]]


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
        if not is_taken(error):
            raise
        try:
            found = file_system.metadata(full).get(MARK)
        except FileNotFoundError:
            found = None  # removed since
        if found != mark:
            raise


def upload(objects: Usual, full: str, content: Content, translated: Translated) -> int:
    """Send the content under a name. Return the number of bytes."""
    chunks = iter(content())
    head = bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) > CHUNK:
            return _in_parts(objects.file_system, full, chain((bytes(head),), chunks), translated)
    with translated():
        objects.put(full, bytes(head))
    return len(head)


def _in_parts(
    file_system: FileSystem, full: str, chunks: Iterator[bytes], translated: Translated
) -> int:
    with translated():
        file = file_system.open(full, "wb", block_size=_BLOCK)
    size = 0
    try:
        for chunk in chunks:
            with translated():
                file.write(chunk)
            size += len(chunk)
            # Parts double now and then, so that there are never too many of them.
            part_size = getattr(file, "blocksize", None)
            if part_size and size >= _PARTS_ALIKE * part_size:
                file.blocksize = 2 * part_size
        with translated():
            file.close()
    except BaseException:
        with contextlib.suppress(Exception):
            file.discard()
        with contextlib.suppress(Exception):
            if hasattr(file, "forced"):  # one that uploads when it is closed
                file.closed = True
            else:
                file.close()
        raise
    return size
