"""Sending content to a file of fsspec's: in one request if it is small, else in parts, and never
the half of it.

fsspec completes an upload when its file object is closed, and closes it when it is collected. So an
upload whose content failed is discarded (S3 aborts the parts; Azure drops uncommitted blocks after
a week), and its object marked as closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from stateshift.storage.fsspec.file_system import FileSystem, OpenFile
from stateshift.storage.fsspec.s3_directly import Usual
from stateshift.storage.protocol import CHUNK, Content

# While the first part is read nothing can be sent. S3 takes 10,000: of a file of 4 TB the last ones
# are of 2 GiB.
_BLOCK = 8 * 1024 * 1024
_PARTS_ALIKE = 2_000

# Makes a StorageError of what the file system raises: not of what the content does.
Translated = Callable[[], AbstractContextManager[None]]


def upload(objects: Usual, full: str, content: Content, translated: Translated) -> int:
    """Send the content under a name. Return the number of bytes."""
    chunks = iter(content())
    head = bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) > CHUNK:
            return _in_parts(objects.file_system, full, _after(bytes(head), chunks), translated)
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
            _grow_parts(file, size)
        with translated():
            file.close()
    except BaseException:
        _abandon(file)
        raise
    return size


def _grow_parts(file: OpenFile, size: int) -> None:
    """Double the size of parts now and then, so that there are never too many of them."""
    part_size = getattr(file, "blocksize", None)
    if part_size and size >= _PARTS_ALIKE * part_size:
        file.blocksize = 2 * part_size


def _after(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from chunks


def _abandon(file: OpenFile) -> None:
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(Exception):
        if hasattr(file, "forced"):  # one that uploads when it is closed
            file.closed = True
        else:
            file.close()
