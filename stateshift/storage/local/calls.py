"""The few things the local disk needs that Python's `os` has no single call for. Paths and bytes
in, OSErrors out.

Each says what a crash in its middle leaves.

A large file is read in pieces, of which one that is written as it was read is copied by the system
itself:

    piece = reading.read(PIECE)  a thread reads,
    write(descriptor, piece)     and writes what it has read last: the system is handed both files,
                                 not the bytes

That saves the way back out of this process, and where the file system can, nothing is copied at
all: XFS and Btrfs let both files have the same blocks, NFS 4.2 copies where they lie, as with cp.
The bytes that were read are hashed. Between the two the file must not change: an engine never
writes into a file of an image, it replaces it, and who has one open then still reads what it was.
Whatever hinders the system (two file systems, an old kernel), the bytes are written instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat as modes
import threading
from dataclasses import dataclass
from typing import BinaryIO, Final

_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

_NOT_EMPTY_OR_GONE: Final = (
    errno.ENOTEMPTY,
    errno.EEXIST,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EBUSY,
)

_NAMELESS = getattr(os, "O_TMPFILE", None)  # Linux

_libc = ctypes.CDLL(None, use_errno=True)
_syncfs = getattr(_libc, "syncfs", None)
_sync_file_range = getattr(_libc, "sync_file_range", None)  # Linux
_WRITE = 2
_copy_range = getattr(os, "copy_file_range", None)  # Linux

# Whether one file system can be synced, and waited for. sync(2) stands in where not; on some
# systems it only begins.
SYNCS_ONE: Final = _syncfs is not None

# Read at once, it is still in a core's own cache when it is hashed: with 4 MiB a copy takes twice
# as long.
PIECE: Final = 256 * 1024


def kind_of(mode: int) -> str | None:
    """Return the kind of an inode that is neither a file nor a directory, else None."""
    if modes.S_ISREG(mode) or modes.S_ISDIR(mode):
        return None
    if modes.S_ISFIFO(mode):
        return "a named pipe"
    if modes.S_ISSOCK(mode):
        return "a socket"
    return "a device"


def dangling(link: str) -> str:
    """Return the words for a symbolic link that leads nowhere."""
    return f"a symbolic link to {os.readlink(link)}, which is not there"


class NotAFile(Exception):
    """A pipe, a socket, a device or a link to nothing was to be read; the text says which."""


def open_to_read(full: str) -> tuple[int, int]:
    """Open a regular file for its descriptor and size; a pipe would block for ever."""
    try:
        # A pipe without a writer is opened at once, too; regular files are read as ever.
        descriptor = os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        if os.path.islink(full):
            raise NotAFile(dangling(full)) from error
        raise
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NotAFile("a socket or a device without a driver") from error
        raise
    status = os.fstat(descriptor)
    kind = kind_of(status.st_mode)
    if kind is None and not modes.S_ISDIR(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    if kind is None:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full)
    raise NotAFile(kind)


def linked_directory(directory: str, root: str) -> str | None:
    """Return the first symbolic link on the way from `root` down to `directory`, if any."""
    place = root.rstrip(os.sep)
    for name in filter(None, directory[len(place) :].split(os.sep)):
        place = f"{place}{os.sep}{name}"
        if os.path.islink(place):
            return place
    return None


def nearest(directory: str) -> str:
    """Return the directory, or the first above it that is there."""
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    return directory


def sync_file_system(directory: str) -> None:
    """Make everything on the file system of this directory durable."""
    if _syncfs is None:
        os.sync()
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if _syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), directory)
    finally:
        os.close(descriptor)


@dataclass(eq=False)
class OpenFile:
    """A file that is read from where its descriptor stands, by one thread at a time."""

    _descriptor: int | None
    _offset: int

    def read(self, size: int) -> bytes:
        assert self._descriptor is not None
        piece = os.read(self._descriptor, size)
        if len(piece) == PIECE:
            _last.piece, _last.file, _last.offset = piece, self, self._offset
        self._offset += len(piece)
        return piece

    def close(self) -> None:
        """Close the file. Its number may become another's: whoever has a piece has its bytes."""
        descriptor, self._descriptor = self._descriptor, None
        if _last.file is self:
            _last.piece, _last.file = None, None
        if descriptor is not None:
            os.close(descriptor)

    def copy(self, offset: int, size: int, descriptor: int) -> int:
        """Have the system copy to where another descriptor stands. Return how much it copied."""
        if self._descriptor is None or _copy_range is None:
            return 0
        copied = 0
        # A full disk is among the errors: whoever then writes the bytes meets it, too.
        with contextlib.suppress(OSError):
            while copied < size:
                more = _copy_range(self._descriptor, descriptor, size - copied, offset + copied)
                if not more:
                    break
                copied += more
        return copied


class _Last(threading.local):
    """The piece that a thread has read last, while its file is open."""

    piece: bytes | None = None
    file: OpenFile | None = None
    offset: int = 0


_last = _Last()


def write(descriptor: int, content: bytes) -> None:
    """Write all of it: one call writes no more than 2 GiB, and less if it is interrupted."""
    written = 0
    if content is _last.piece and _last.file is not None:
        written = _last.file.copy(_last.offset, len(content), descriptor)
    while written < len(content):
        written += os.write(descriptor, memoryview(content)[written:])


def begin_to_flush(descriptor: int, offset: int, size: int) -> None:
    """Let the disk begin with what was written, so that the sync at the end finds less."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, ctypes.c_int64(offset), ctypes.c_int64(size), _WRITE)


def flush(file: BinaryIO) -> None:
    """Make durable what was written to the file; its name is not yet."""
    file.flush()
    os.fsync(file.fileno())


def fsync(path: str) -> None:
    """Make a file's content, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_nameless(full: str, content: bytes) -> bool:
    """Write a file, and name it unless that is taken; False where the system cannot."""
    if _NAMELESS is None:
        return False
    try:
        descriptor = os.open(os.path.dirname(full), _NAMELESS | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return False
        raise
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        flush(file)
        try:
            # With a directory's descriptor, needed or not, Python calls linkat, which can follow
            # the link in /proc.
            os.link(
                f"/proc/self/fd/{descriptor}", full, src_dir_fd=descriptor, follow_symlinks=True
            )
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EXDEV, *_NO_LINKS):  # no /proc, no links
                return False
            raise
    return True


def link_or_create(temp: str, full: str, content: bytes) -> None:
    """Give a whole file its name unless it is taken. Without links a crash can leave a part."""
    try:
        os.link(temp, full, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with open(full, "xb") as file:
            file.write(content)
            flush(file)


def rename_exclusively(full: str, target: str) -> None:
    """Rename unless the name is taken. A crash can leave both names: the repeat finishes."""
    linked = False
    try:
        os.link(full, target, follow_symlinks=False)
        linked = True
    except FileExistsError:
        # A crash left two names of one file. The same name twice, reached through a linked
        # directory, is not that.
        same_name = os.path.basename(full) == os.path.basename(target)
        if same_name and os.path.samefile(os.path.dirname(full), os.path.dirname(target)):
            raise
        if not os.path.samestat(os.lstat(full), os.lstat(target)):
            raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
        os.rename(full, target)
        return
    try:
        os.unlink(full)
    except OSError:
        if linked:  # such as a source directory that may not be written to: nothing has been moved
            os.unlink(target)
        raise


def remove_if_empty(directory: str) -> None:
    """Remove a directory that holds nothing; leave any other."""
    try:
        os.rmdir(directory)
    except OSError as error:
        if error.errno not in _NOT_EMPTY_OR_GONE:
            raise


def unless_gone(error: OSError) -> None:
    """Raise errors of os.walk, which ignores all errors by default, but for what is gone."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
