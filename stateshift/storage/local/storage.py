"""The local disk, spoken to directly.

Not through fsspec: its local file system can neither sync nor create exclusively and whole, and
importing it takes longer than an inspection. The promises of `protocol`, and how they are kept
here:

* `write` collects the content under a temporary name in the same directory and renames it into
  place. Two threads that write one path at once are kept apart; two processes are not (the lock on
  the target sees to that). Links on the way to its directory are looked for at the directory's
  first write after a sync, not at each of thousands.
* `create` fills and fsyncs a file that has no name (O_TMPFILE) and then links it: linkat(2) fails
  where the name is taken, and what it makes visible is whole; killed before that, it leaves
  nothing, so that a fence or a lock never litters a place that is not ours. Without O_TMPFILE it
  is a temporary file; on a file system without hard links (FAT, some FUSE mounts) it
  is O_EXCL: exclusive still, but a crash in the middle can leave a part of the file.
* `move` links the new name and removes the old one, because rename(2) replaces. A crash between the
  two leaves both names for one file: the repeat recognises that by inode and finishes. Without hard
  links: look, then rename.
* `sync` is syncfs(2) on every device written to since the last one; the first one also covers what
  an earlier, killed process wrote here. Measured on ext4 against fsync of each file: 1 file 0.4 ms
  against 0.7, 100 files 2 ms against 13 (eight threads), 5,000 files 0.2 s against 0.5, 64 MiB the
  same. It also waits for what others wrote to that file system; in return it covers directories,
  and nothing has to be remembered but the device. Since Linux 5.8 it reports write errors. Without
  syncfs, it is sync(2).

A directory is listed by one pass of scandir, and one stat for each file; owners are given by name
where the machine knows one: a number may be somebody else's on another machine. Symbolic links are
followed, as the engines follow them. One that leads back to a directory it lies in would never end,
and is refused by name; so is one that leads nowhere, and a pipe, a socket or a device, which could
block whoever reads it. A file that vanishes meanwhile was not there. One that may not be read, or
has a name that is not UTF-8, is an error: a listing that leaves something out would be taken for
the whole.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shutil
import stat as modes
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count, filterfalse
from shlex import quote

from stateshift.errors import StorageError
from stateshift.formats.marks import fence_owner
from stateshift.storage import failures, locations
from stateshift.storage.local import calls
from stateshift.storage.local.calls import PIECE, dangling, kind_of
from stateshift.storage.protocol import CHUNK, Content, Traits
from stateshift.storage.temporaries import Writing, is_temporary, unique_temporary
from stateshift.survey import FileInfo, Owned, Room

# Remembered as made and not yet durable, beyond which we sync early; and as written to.
_DIRECTORIES_MAX = 4096

assert PIECE <= CHUNK

_WHO = {"effective_ids": True} if os.access in os.supports_effective_ids else {}

_FLUSHED = 8 * 1024 * 1024  # what is written of a file before the disk is let begin with it


class LocalStorage:
    """A directory of this machine."""

    def __init__(self, location: str) -> None:
        self._location = locations.normal(location, os.getcwd())
        root = locations.local_path(self._location)
        assert root is not None, f"{location} is not local"
        self._root = root
        self._above = root if root.endswith("/") else f"{root}/"
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._writing = Writing()
        self._unsynced: dict[int, str] = {}  # device -> a directory on it
        # Directories written to since the last sync, with their devices: no link leads there.
        self._written_to: dict[str, int] = {}
        # Directories whose entry in their parent may not be durable, each with the number of its
        # making: one that was removed and made again meanwhile is another.
        self._made: dict[str, int] = {}
        self._makings = count()
        self._inherited = True  # what was here when this was opened may not be durable

    @property
    def location(self) -> str:
        return self._location

    @property
    def traits(self) -> Traits:
        return Traits(
            renames=True, keeps_times=True, exclusive=True, durable=calls.SYNCS_ONE, owners=True
        )

    def list(self, under: str = "") -> Iterator[FileInfo]:
        return walk(self._full(under), locations.check_path(under), self._location)

    def stat(self, path: str) -> FileInfo | None:
        full = self._full(path)
        try:
            status = os.stat(full)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.islink(full):
                raise failures.not_a_file(self._location, path, calls.dangling(full)) from None
            return None
        except OSError as error:
            raise failures.from_os(error, self._location, path) from error
        kind = calls.kind_of(status.st_mode)
        if kind is not None:
            raise failures.not_a_file(self._location, path, kind)
        return info_of(path, status) if modes.S_ISREG(status.st_mode) else None

    def read(self, path: str, size_max: int | None = None) -> bytes:
        translated = self._translated(path)
        with translated:
            descriptor, size = self._open_to_read(path)
        with translated, os.fdopen(descriptor, "rb") as file:
            if size_max is not None and size > size_max:
                raise failures.too_large(self._location, path, size, size_max)
            return file.read()

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """Yield pieces whose reads go no further than the file was long when it was opened, but
        for one byte: most files are small, and one call shows that they have ended.
        """
        translated = self._translated(path)
        with translated:
            descriptor, size = self._open_to_read(path)
        reading = calls.OpenFile(descriptor, offset)
        try:
            if offset:
                with translated:
                    os.lseek(descriptor, offset, os.SEEK_SET)
            left = size - offset + 1
            while True:
                asked = PIECE
                if 0 < left < PIECE:
                    asked = left
                with translated:
                    chunk = reading.read(asked)
                if not chunk:
                    return
                yield chunk
                left -= len(chunk)
                if len(chunk) < asked and left == 1:
                    return
        finally:
            reading.close()

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        full, translated = self._full(path), self._translated(path)
        directory = os.path.dirname(full)
        device = self._written_to.get(directory)
        if device is None:
            self._refuse_links_to(directory, path)
        with self._writing.to(full, _unlink_quietly) as temp:
            with translated:
                descriptor = self._opened(temp, os.O_TRUNC)
            try:
                size = begun = 0
                for chunk in content():
                    with translated:
                        calls.write(descriptor, chunk)
                    size += len(chunk)
                    if size - begun >= _FLUSHED:
                        calls.begin_to_flush(descriptor, begun, size - begun)
                        begun = size
                if modified is not None:
                    with translated:
                        os.utime(descriptor, (modified, modified))
                if device is None:
                    with translated:
                        device = os.fstat(descriptor).st_dev
            finally:
                with translated:
                    os.close(descriptor)
            with translated:
                os.replace(temp, full)
            # Not before: a sync in between would take the mark and miss the rename.
            with self._lock:
                self._unsynced[device] = directory
                if len(self._written_to) < _DIRECTORIES_MAX:
                    self._written_to[directory] = device
        return size

    def create(self, path: str, content: bytes) -> None:
        full = self._full(path)
        if fence_owner(content) is None:
            self._refuse_links_to(os.path.dirname(full), path)
        with self._translated(path):
            self._make_directories(os.path.dirname(full))
            if not calls.create_nameless(full, content):
                temp = unique_temporary(full)
                descriptor = self._opened(temp, os.O_EXCL)
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        file.write(content)
                        calls.flush(file)
                    calls.link_or_create(temp, full, content)
                finally:
                    os.unlink(temp)
            self._settle(os.path.dirname(full))

    def move(self, path: str, target_path: str) -> None:
        full, target = self._full(path), self._full(target_path)
        if self.stat(path) is None:
            raise failures.missing(self._location, path)
        self._refuse_links_to(os.path.dirname(target), target_path)
        with self._translated(path):
            calls.fsync(full)
        with self._translated(target_path):
            self._make_directories(os.path.dirname(target))
            try:
                calls.rename_exclusively(full, target)
            except FileNotFoundError as error:
                raise failures.missing(self._location, path) from error
            self._settle(os.path.dirname(target))
            self._settle(os.path.dirname(full))

    def remove(self, path: str) -> None:
        full = self._full(path)
        with self._translated(path):
            try:
                os.unlink(full)
            except (FileNotFoundError, NotADirectoryError):
                return
            calls.fsync(os.path.dirname(full))

    def prune(self, under: str = "") -> None:
        top = self._full(under)
        with self._translated(under):
            for directory, _, names in os.walk(top, topdown=False, onerror=calls.unless_gone):
                for full in (os.path.join(directory, name) for name in names if is_temporary(name)):
                    if full not in self._writing:
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(full)
                calls.remove_if_empty(directory)
                with self._lock:
                    self._made.pop(directory, None)
                    self._written_to.pop(directory, None)

    def sync(self) -> None:
        # One at a time: who finds nothing left to sync has waited for the one who took it.
        with self._syncing:
            with self._lock:
                unsynced, self._unsynced = self._unsynced, {}
                self._written_to = {}
                made = dict(self._made)
                inherited, self._inherited = self._inherited, False
            try:
                if inherited:
                    nearest = calls.nearest(self._root)
                    unsynced = {os.stat(nearest).st_dev: nearest} | unsynced
                for directory in unsynced.values():
                    with self._translated(""):
                        # Through any directory that is still there: ours may have been removed.
                        calls.sync_file_system(calls.nearest(directory))
            except BaseException:
                with self._lock:
                    self._unsynced = unsynced | self._unsynced
                    self._inherited |= inherited
                raise
            # Not before: who creates a file meanwhile has to settle these directories himself.
            self._forget(made)

    def room(self) -> Room:
        """Return the space that is free for us, not for root; files, too, if they are limited."""
        with self._translated(""):
            directory = calls.nearest(self._root)
            status = os.statvfs(directory)
            bytes_free = status.f_bavail * status.f_frsize
            files_free = status.f_favail if status.f_files else None
            pool = f"device {os.stat(directory).st_dev}"
            return Room(bytes_free, files_free, 1, pool, "its disk", "its disk")

    def writable(self, under: str = "") -> bool | None:
        """Ask access(2) for who we are in effect. It also knows of file systems that are mounted
        read-only and of access control lists. On some network file systems the server has the last
        word, when something is written.
        """
        directory = calls.nearest(self._full(under))
        return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK, **_WHO)

    def owners(self) -> Iterator[Owned]:
        return owners(self._root)

    def own(self, owned: Owned) -> None:
        with self._translated(owned.path):
            own(self._full(owned.path), owned)

    def checksum(self, path: str) -> str | None:
        """Return None: a disk keeps no checksum that could be asked for."""
        return None

    def _full(self, path: str) -> str:
        locations.check_path(path)
        return f"{self._above}{path}" if path else self._root

    def _translated(self, path: str) -> _Translated:
        return _Translated(self._location, path)

    def _open_to_read(self, path: str) -> tuple[int, int]:
        try:
            return calls.open_to_read(self._full(path))
        except (IsADirectoryError, NotADirectoryError) as error:
            raise failures.missing(self._location, path) from error
        except calls.NotAFile as error:
            raise failures.not_a_file(self._location, path, str(error)) from error

    def _opened(self, temp: str, flag: int) -> int:
        """Open a temporary file for writing, in a directory that is made where it is not there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flag
        try:
            return os.open(temp, flags, 0o666)
        except FileNotFoundError:
            self._make_directories(os.path.dirname(temp))
            return os.open(temp, flags, 0o666)

    def _refuse_links_to(self, directory: str, path: str) -> None:
        """Refuse to write below a linked directory, unless for a fence where the engine looks."""
        linked = calls.linked_directory(directory, self._root)
        if linked is not None:
            raise failures.linked_directory(self._location, path, linked)

    def _make_directories(self, directory: str) -> None:
        missing = []
        above = directory
        while not os.path.isdir(above):
            missing.append(above)
            above = os.path.dirname(above)
        if not missing:
            return
        for new in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(new)
        # mkdir's FileExistsError is fine for a directory that a thread was quicker to make, not for
        # a file.
        if not os.path.isdir(directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        device = os.stat(directory).st_dev
        with self._lock:
            self._unsynced[device] = directory
            self._made.update((new, next(self._makings)) for new in missing)
            many = len(self._made) > _DIRECTORIES_MAX
        if many:
            self.sync()

    def _settle(self, directory: str) -> None:
        """Make a directory's entries durable, and the directory itself the first time."""
        calls.fsync(directory)
        while True:
            with self._lock:
                making = self._made.get(directory)
            if making is None:  # its entry is durable
                return
            above = os.path.dirname(directory)
            calls.fsync(above)
            self._forget({directory: making})
            directory = above

    def _forget(self, made: Mapping[str, int]) -> None:
        """Forget directories whose entries are durable, but for those made again since."""
        with self._lock:
            for directory, making in made.items():
                if self._made.get(directory) == making:
                    del self._made[directory]


class _Translated:
    """OSErrors, raised as StorageErrors. A generator would take longer than some calls."""

    __slots__ = ("_location", "_path")

    def __init__(self, location: str, path: str) -> None:
        self._location, self._path = location, path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise failures.from_os(error, self._location, self._path) from error


def _unlink_quietly(temp: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(temp)


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
                f"{link.path} is a symbolic link to {target}, which holds it: following it would "
                "never end",
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
