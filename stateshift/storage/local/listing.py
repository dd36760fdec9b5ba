"""Listing a local directory: one pass of scandir, one stat for each file.

Symbolic links are followed, as the engines follow them. One that leads back to a directory it lies
in would never end, and is refused by name; so is one that leads nowhere, and a pipe, a socket or a
device, which could block whoever reads it. What vanishes meanwhile was not there; what may not be
read, or has a name that is not UTF-8, is an error: a listing that leaves something out would be
taken for the whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from stateshift.errors import StorageError
from stateshift.storage import failures
from stateshift.storage.local.calls import dangling, kind_of
from stateshift.storage.temporaries import is_temporary
from stateshift.survey import FileInfo


def walk(top: str, under: str, location: str) -> Iterator[FileInfo]:
    """Every file below the directory `top`, which is `under` below `location`."""
    directories = [(top, under)]
    while directories:
        directory, path = directories.pop()
        start = f"{path}/" if path else ""
        try:
            with os.scandir(directory) as entries:
                looked_at = [_look(entry, directory, start, location) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise failures.from_os(error, location, path) from error
        for entry in looked_at:
            if isinstance(entry, FileInfo):
                yield entry
            elif entry is not None:
                if entry.is_symlink():
                    _refuse_loop(entry, top, location)
                directories.append((entry.path, start + entry.name))


def _look(
    entry: os.DirEntry[str], directory: str, start: str, location: str
) -> FileInfo | os.DirEntry[str] | None:
    """Return a file, a directory to go into, or None for what has gone. Its path is `start` and
    its name.
    """
    name = entry.name
    if not name.isascii():
        _refuse_undecodable(name, directory, location)
    try:
        if entry.is_dir():
            return entry
        if name[0] == "." and is_temporary(name):
            return None
        status = entry.stat()
    except FileNotFoundError:
        if entry.is_symlink() and os.path.islink(entry.path):
            raise failures.not_a_file(location, start + name, dangling(entry.path)) from None
        return None
    except OSError as error:
        raise failures.from_os(error, location, start + name) from error
    kind = kind_of(status.st_mode)
    if kind is not None:
        raise failures.not_a_file(location, start + name, kind)
    return info_of(start + name, status)


def info_of(path: str, status: os.stat_result) -> FileInfo:
    """Return the file with its stamp: one that is written again under its name is another inode, or
    has another time to the nanosecond.
    """
    stamp = f"{status.st_ino:x}.{status.st_mtime_ns:x}"
    return FileInfo(path, status.st_size, status.st_mtime, stamp)


def _refuse_undecodable(name: str, directory: str, location: str) -> None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raw = os.fsencode(name)
        raise StorageError(
            f"{directory} holds a name that is not UTF-8: {raw!r}",
            location=location,
            hint="rename it, or remove it: no engine can have written it",
        ) from error


def _refuse_loop(link: os.DirEntry[str], top: str, location: str) -> None:
    """Refuse a link that is a loop: what it leads to holds a directory it was reached through."""
    target = os.path.realpath(link.path)
    holder = os.path.dirname(link.path)
    while len(holder) >= len(top):
        if (os.path.realpath(holder) + "/").startswith(target.rstrip("/") + "/"):
            raise StorageError(
                f"{link.path} is a symbolic link to {target}, which holds it: following it "
                "would never end",
                location=location,
                hint=f"rm {failures.pasted(link.path)}",
            )
        if holder == top:
            return
        holder = os.path.dirname(holder)
