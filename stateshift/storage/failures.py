"""The operating system's errors as StorageErrors with a way out.

Decided by errno alone, so that every storage that sits on a file system says the same thing. Only
an error that is known to pass is a TransientStorageError: a retry must never hide a full disk.
"""

from __future__ import annotations

import errno
import os
import shlex
from functools import lru_cache
from typing import Final

from stateshift.errors import AlreadyThere, MissingFile, StorageError, TransientStorageError
from stateshift.storage.locations import local_path, redact

_RESUME: Final = "then `stateshift resume WORKDIR`"

# errno -> what happened, and what to do about it; {place} is the shell-quoted directory or location
_KNOWN: Final[dict[int, tuple[str, str]]] = {
    errno.ENOSPC: (
        "no space left on the file system of",
        f"df -h {{place}}; df -i {{place}}; free some space, {_RESUME}",
    ),
    errno.EDQUOT: (
        "the disk quota is used up on",
        f"quota -s; free some space in {{place}}, {_RESUME}",
    ),
    errno.EFBIG: (
        "the file would be larger than is allowed on",
        f"ulimit -f; raise the limit, {_RESUME}",
    ),
    errno.EACCES: ("no permission on", "namei -l {place}"),
    errno.EPERM: ("not permitted on", "namei -l {place}; lsattr -d {place}"),
    errno.EROFS: ("mounted read-only:", "findmnt -T {place}"),
    errno.ENAMETOOLONG: ("a name is too long for", "getconf NAME_MAX {place}"),
    errno.ELOOP: ("symbolic links run in a circle at", "namei -l {place}"),
    errno.EMFILE: ("too many open files, at", f"ulimit -n; raise the limit, {_RESUME}"),
    errno.ENFILE: ("too many files are open, at", f"sysctl fs.file-nr; raise the limit, {_RESUME}"),
    errno.EXDEV: (
        "not on one file system, so not to be renamed:",
        "copy instead: give a target location",
    ),
    errno.ENOTDIR: ("a file stands where a directory is needed, at", "ls -ld {place}"),
    errno.EISDIR: ("a directory stands where a file is needed, at", "ls -ld {place}"),
    errno.ENOTEMPTY: ("a directory stands where a file is needed, at", "ls -ld {place}"),
    errno.EIO: (
        "the disk reports an error at",
        "dmesg | tail; this is the hardware's or the driver's",
    ),
}

PASSING: Final = frozenset(
    (
        *(errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOLCK, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH),
        errno.ESTALE,  # NFS: the file handle of a file that was replaced
    )
)


def from_os(error: OSError, location: str, path: str = "") -> StorageError:
    """Return the StorageError for an OSError on `path` below `location`."""
    if isinstance(error, FileNotFoundError):
        return missing(location, path)
    if isinstance(error, FileExistsError):
        return already_there(location, path)
    place, number = place_of(location, path), error.errno or 0
    if number in PASSING or isinstance(error, ConnectionError | TimeoutError):
        return TransientStorageError(f"{place}: {_text(error)}", location=place)
    if number not in _KNOWN:
        return StorageError(f"{place}: {_text(error)}", location=place)
    fact, hint = _KNOWN[number]
    hint = hint.format(place=_pasted(location, path))
    return StorageError(f"{fact} {place}", location=place, hint=hint)


def place_of(location: str, path: str) -> str:
    """Return a path below a location as messages show it: without credentials."""
    return redact(location.rstrip("/") + "/" + path if path else location)


def missing(location: str, path: str) -> MissingFile:
    """Return the error for a file that is not there, or for a location if there is no path."""
    place = place_of(location, path)
    hint = f"stateshift inspect {_pasted(location, '')}"
    return MissingFile(f"{place} is not there", location=place, hint=hint)


def already_there(location: str, path: str) -> AlreadyThere:
    """Return the error for a file that was to be made new, and is there already."""
    place = place_of(location, path)
    hint = f"stateshift inspect {_pasted(location, path)}"
    return AlreadyThere(f"{place} is there already", location=place, hint=hint)


def not_a_file(location: str, path: str, kind: str) -> StorageError:
    """Return the error for a pipe or a device in a file's place: it could block, or never end."""
    place = place_of(location, path)
    return StorageError(
        f"{place} is {kind}, not a file",
        location=place,
        hint=f"rm {_pasted(location, path)}; no engine has written it",
    )


def linked_directory(location: str, path: str, directory: str) -> StorageError:
    """Return the error for a directory that leads elsewhere, where something is to be written."""
    place = place_of(location, path)
    return StorageError(
        f"{directory} is a symbolic link: {place} would be written somewhere else",
        location=place,
        hint=(
            f"ls -ld {shlex.quote(directory)}; put a directory in its place, or name the target "
            "where it leads"
        ),
    )


def too_large(location: str, path: str, size: int, size_max: int) -> StorageError:
    """Return the error for a file that has more bytes than its reader accepts."""
    place = place_of(location, path)
    fact = f"{place} has {size} bytes, which is more than the {size_max} such a file can have"
    return StorageError(fact, location=place, hint=f"stateshift inspect {_pasted(location, path)}")


def cut_short(location: str, path: str, size: int, expected: int) -> TransientStorageError:
    """Return the error for a file that ends early, as one does that is replaced meanwhile."""
    place = place_of(location, path)
    return TransientStorageError(f"{place}: {size} bytes came of {expected}", location=place)


def too_much(location: str, path: str, size: int, asked: int) -> StorageError:
    """Return the error for an answer that is longer than the range that was asked for."""
    place = place_of(location, path)
    return StorageError(
        f"{place}: {size} bytes came where {asked} were asked for",
        location=place,
        hint=(
            "something on the way ignores the header Range: go round it, or have it pass the "
            "header on"
        ),
    )


def unnameable(location: str, path: str) -> StorageError:
    """Return the error for a name that would be read as another file, or as a version of one."""
    place = place_of(location, path)
    fact = f"{place}: the package that opens this storage takes a part of this name for a version"
    return StorageError(fact, location=place, hint="give the file another name")


def _text(error: OSError) -> str:
    if error.errno:
        return os.strerror(error.errno)
    return redact(str(error)) or type(error).__name__


@lru_cache(maxsize=1024)  # a worker asks thousands of times for files that are not there yet
def _pasted(location: str, path: str) -> str:
    """Return the place as a shell takes it: a path if it is local."""
    whole = location.rstrip("/") + "/" + path if path else location
    return shlex.quote(redact(local_path(whole) or whole))
