"""Listing a local directory: one pass of scandir, one stat for each file; and the owners of files,
by name where the machine knows one: a number may be somebody else's on another machine.

Symbolic links are followed, as the engines follow them. One that leads back to a directory it lies
in would never end, and is refused by name; so is one that leads nowhere, and a pipe, a socket or a
device, which could block whoever reads it. A file that vanishes meanwhile was not there. One that
may not be read, or has a name that is not UTF-8, is an error: a listing that leaves something out
would be taken for the whole.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat as modes
from collections.abc import Iterator
from contextlib import suppress
from itertools import filterfalse
from shlex import quote

from stateshift.errors import StorageError
from stateshift.storage import failures
from stateshift.storage.local.calls import dangling, kind_of
from stateshift.storage.temporaries import is_temporary
from stateshift.survey import FileInfo, Owned


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
    name = entry.name
    if not name.isascii():
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise StorageError(
                f"{directory} holds a name that is not UTF-8: {os.fsencode(name)!r}",
                location=location,
                hint="rename it, or remove it: no engine can have written it",
            ) from error
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
    """Return the file with a stamp that another content changes: its inode and time (ns)."""
    stamp = f"{status.st_ino:x}.{status.st_mtime_ns:x}"
    return FileInfo(path, status.st_size, status.st_mtime, stamp)


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
                hint=f"rm {quote(link.path)}",
            )
        if holder == top:
            return
        holder = os.path.dirname(holder)


def owners(root: str) -> Iterator[Owned]:
    """Yield the place itself, and all below. A link is what it leads to, as everywhere else."""
    if not os.path.exists(root):
        return
    yield _owned(root, "")
    # A file is walked, too: it has nothing below.
    for directory, directories, files in os.walk(root, followlinks=True):
        for name in [*directories, *filterfalse(is_temporary, files)]:
            full = os.path.join(directory, name)
            yield _owned(full, os.path.relpath(full, root))


def own(full: str, owned: Owned) -> None:
    """Set the permissions first: who has given a file away may not change them any more."""
    if owned.mode is not None:
        os.chmod(full, owned.mode)
    for kind, name in (("user", owned.owner), ("group", owned.group)):
        if name is not None:
            try:
                shutil.chown(full, **{kind: int(name) if name.isdecimal() else name})
            except LookupError as error:
                fact = f"this machine has no {kind} {name}"
                raise PermissionError(0, fact, full) from error


def _owned(full: str, path: str) -> Owned:
    status = os.stat(full)
    owner, group = str(status.st_uid), str(status.st_gid)
    with suppress(KeyError):
        owner = pwd.getpwuid(status.st_uid).pw_name
    with suppress(KeyError):
        group = grp.getgrgid(status.st_gid).gr_name
    return Owned(path, owner, group, modes.S_IMODE(status.st_mode))
