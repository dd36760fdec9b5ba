"""Every storage that fsspec opens.

A file is written whole: where an upload becomes visible only when it completes, straight to its
name, and abandoned, not closed, when the content fails (closing would complete the half of it).
Elsewhere under a temporary name, which then takes its place; where nothing renames, by a copy on
the server's side. Small files are sent in one request, S3's by `s3_directly`.

Whom to ask, and as whom, is the packages' own configuration: for S3 that of Amazon's tools
(AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID, ..., ~/.aws); `ways` has what is added to it, and
how two services are distinguished.

Reading is by ranges of CHUNK bytes and not through fsspec's file objects: a range can be asked for
again, and shares nothing between threads. Nothing is taken from fsspec's listing caches.

`create` takes the means that a file system has for it (`Way.exclusive`). Whoever was second gets an
error that `failures.is_taken` recognises.

`upload` sends a small file in one request, else in parts. fsspec completes an upload when its file
object is closed, and closes it when it is collected. An upload whose content failed is therefore
discarded (S3 aborts the parts; Azure drops uncommitted blocks after a week), and its object marked
as closed.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from stateshift.errors import StorageError, TransientStorageError
from stateshift.storage import failures, locations
from stateshift.storage.fsspec.failures import MISTAKES, from_fsspec, is_bucket_missing, is_taken
from stateshift.storage.fsspec.s3_directly import Directly, Usual
from stateshift.storage.fsspec.ways import (
    FileSystem,
    Info,
    Way,
    host_of,
    lists_whole_trees,
    options_for,
    package_for,
    try_once,
    way_of,
)
from stateshift.storage.protocol import CHUNK, Content, Traits
from stateshift.storage.temporaries import Writing, is_temporary
from stateshift.survey import FileInfo, Owned, Room

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_STAMPS = ("generation", "ETag", "etag", "e_tag")
_DIRECTORIES_MAX = 4096  # remembered as made


class FsspecStorage:
    """A location on a file system of fsspec's. `way` says what that one can do."""

    def __init__(self, file_system: FileSystem, location: str, root: str, way: Way) -> None:
        self._fs = file_system
        package = type(file_system).__module__.partition(".")[0]
        self._objects = Directly(file_system) if package == "s3fs" else Usual(file_system)
        self._location = location
        self._root = root
        self._way = way
        self._lock = threading.Lock()
        self._made: set[str] = set()
        self._writing = Writing()

    @classmethod
    def open(cls, location: str, **options: object) -> FsspecStorage:
        """The storage at a location; `options` go to fsspec, on top of its own configuration."""
        import fsspec

        location = locations.normal(location)
        parsed = locations.parse(location)
        try:
            kind = fsspec.get_filesystem_class(parsed.scheme)
        except (ImportError, ValueError) as error:
            raise _unknown(parsed.scheme, location, error) from error
        # Only the authority is for fsspec to read: it would take `?` and `#` in a path for a query
        # and a fragment.
        top = f"{parsed.scheme}://{parsed.authority}/"
        try:
            given = {**kind._get_kwargs_from_urls(top), **options}
            given = options_for(parsed.scheme, parsed.authority, fsspec.config.conf, given)
            file_system = fsspec.filesystem(parsed.scheme, **given)
            try_once(file_system)
        except ImportError as error:
            raise _unknown(parsed.scheme, location, error) from error
        except MISTAKES:
            raise
        except Exception as error:
            raise from_fsspec(error, location) from error
        root = str(kind._strip_protocol(top)).rstrip("/") + parsed.path
        return cls(file_system, location, root, way_of(parsed.scheme, file_system))

    @property
    def location(self) -> str:
        return self._location

    @property
    def traits(self) -> Traits:
        return Traits(
            renames=self._way.renames,
            keeps_times=False,
            exclusive=self._way.exclusive is not None,
            durable=self._way.durable,
            at_once=self._way.at_once,
        )

    def list(self, under: str = "") -> Iterator[FileInfo]:
        top = self._full(under)
        start = len(self._full("")) + 1
        with self._translated(under):
            self._fs.invalidate_cache()
            infos = self._find(top) if lists_whole_trees(self._fs) else self._walk(top)
            for info in infos:
                name = _name(info)
                is_below = name.startswith(top + "/") and not name.endswith("/")
                if is_below and not is_temporary(name):
                    yield _file(name[start:], info)

    def stat(self, path: str) -> FileInfo | None:
        with self._translated(path):
            info = self._info(self._full(path))
        return None if info is None else _file(path, info)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        size = self._existing(path).size
        if size_max is not None and size > size_max:
            raise failures.too_large(self._location, path, size, size_max)
        if size == 0:
            return b""
        with self._translated(path):
            content = bytes(self._fs.cat_file(self._full(path)))
        if len(content) != size:
            raise failures.cut_short(self._location, path, len(content), size)
        return content

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        if size and self._way.past_end:
            refuted_at = yield from self._chunks_as_listed(path, offset, size)
            if refuted_at is None:
                return
            offset = refuted_at
        size = self._existing(path).size
        while offset < size:
            chunk = self._range(path, offset, min(offset + CHUNK, size))
            if not chunk:
                return  # it was cut short meanwhile: whoever counts the bytes sees it
            yield self._as_asked(path, chunk, min(CHUNK, size - offset))
            offset += len(chunk)

    def _chunks_as_listed(
        self, path: str, offset: int, size: int
    ) -> Generator[bytes, None, int | None]:
        """Yield chunks by the listed size; return the offset at which it is wrong, if it is."""
        while offset < size:
            end = min(offset + CHUNK, size)
            if end == size:
                end += 1  # it may have grown since
            try:
                chunk = self._range(path, offset, end)
            except TransientStorageError:
                raise
            except StorageError:
                # It has become shorter, as S3 says by an error; or a service takes no such range.
                return offset
            if not chunk:
                return None  # it was cut short meanwhile: whoever counts the bytes sees it
            yield self._as_asked(path, chunk, end - offset)
            offset += len(chunk)
        return None

    def _range(self, path: str, offset: int, end: int) -> bytes:
        with self._translated(path):
            return self._objects.get(self._full(path), offset, end)

    def _as_asked(self, path: str, chunk: bytes, asked: int) -> bytes:
        """Return the chunk, unless it is longer than was asked for."""
        if len(chunk) > asked:
            raise failures.too_much(self._location, path, len(chunk), asked)
        return chunk

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        full = self._full(path)
        if self._way.whole:
            return self._upload(full, content, path)
        with self._translated(path):
            self._make_directory(self._parent(full))
        with self._writing.to(full, self._remove_quietly) as temp:
            size = self._upload(temp, content, path)
            with self._translated(path):
                if self._fs.isdir(full):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full)
                self._place(temp, full)
        return size

    def create(self, path: str, content: bytes) -> None:
        full = self._full(path)
        with self._translated(path):
            self._make_parent(full)
            create(self._fs, self._way, full, content, self._is_file)

    def move(self, path: str, target_path: str) -> None:
        """Rename, else copy and delete. Both there with one content: an earlier move was cut."""
        full, target = self._full(path), self._full(target_path)
        self._existing(path)
        with self._translated(target_path), among_threads:
            if not self._is_file(target):
                self._make_parent(target)
                self._place(full, target)
                return
            # The target may be the copy that an earlier `move` made before it could delete.
            copies = path != target_path and not self._way.renames
            if not copies or not self._equal(path, target_path):
                raise FileExistsError(target)
            if self._is_file(full):
                self._fs.rm_file(full)

    def remove(self, path: str) -> None:
        with self._translated(path), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._full(path))

    def prune(self, under: str = "") -> None:
        top = self._full(under)
        with self._translated(under):
            self._fs.invalidate_cache()
            if self._way.directories == "none":
                self._remove_leftovers(map(_name, self._find(top)))
                return
            with self._lock:
                self._made.clear()
            directories = [top]
            names = list(map(_name, self._walk(top, directories)))
            self._remove_leftovers(names)
            if self._way.directories == "kept":
                return
            for directory in reversed(directories):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    # Looked at, although the call refuses a directory that is not empty.
                    if not self._fs.ls(directory, detail=False):
                        self._fs.rmdir(directory)

    def sync(self) -> None:
        """Do nothing: acknowledged files are as durable as the service makes them (`traits`)."""

    def room(self) -> Room:
        """Object stores have no end, and no question for one; nor has fsspec."""
        return Room()

    def writable(self, under: str = "") -> bool | None:
        """Nobody can tell: what a policy allows shows when something is written."""
        return None

    def owners(self) -> Iterator[Owned]:
        """Nobody's: who may read what is in policies."""
        return iter(())

    def own(self, owned: Owned) -> None:
        fact = f"{locations.redact(self._location)}: files have no owner there"
        raise StorageError(fact, location=self._location)

    def checksum(self, path: str) -> str | None:
        """An ETag is the MD5 of some objects and not of others; the bytes are compared instead."""
        return None

    def _full(self, path: str) -> str:
        locations.check_path(path)
        if any(word in path for word in self._way.unnameable):
            raise failures.unnameable(self._location, path)
        return f"{self._root.rstrip('/')}/{path}" if path else self._root

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except (StorageError, *MISTAKES):
            raise
        except Exception as error:
            raise from_fsspec(error, self._location, path, host_of(self._fs)) from error

    def _info(self, full: str) -> Info | None:
        try:
            self._fs.invalidate_cache(full)
            info = self._objects.info(full)
        except (FileNotFoundError, NotADirectoryError) as error:
            if is_bucket_missing(error):
                raise
            return None
        return info if info["type"] == "file" else None

    def _is_file(self, full: str) -> bool:
        """Not fsspec's own `exists`, which says no where it could not ask."""
        return self._info(full) is not None

    def _existing(self, path: str) -> FileInfo:
        info = self.stat(path)
        if info is None:
            raise failures.missing(self._location, path)
        return info

    def _find(self, top: str) -> Iterator[Info]:
        infos = self._fs.find(top, detail=True)
        if not isinstance(infos, dict):
            return iter(())  # `top` is a file itself
        return (info for info in infos.values() if info.get("type") == "file")

    def _walk(self, top: str, directories: builtins.list[str] | None = None) -> Iterator[Info]:
        """Every file below `top`; adds to `directories`. One that cannot be listed is an error."""
        waiting = [top]
        while waiting:
            directory = waiting.pop()
            try:
                infos = self._fs.ls(directory, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for info in infos:
                name = str(info["name"]).rstrip("/")
                if name == directory:
                    continue
                if info["type"] == "directory":
                    waiting.append(name)
                    if directories is not None:
                        directories.append(name)
                    continue
                # A link of this name may lead to a file.
                file = info if info["type"] == "file" else self._info(name)
                if file is not None:
                    yield {**file, "name": name}

    def _upload(self, full: str, content: Content, path: str) -> int:
        @contextlib.contextmanager
        def translated() -> Iterator[None]:
            with self._translated(path):
                try:
                    yield
                except FileExistsError as error:
                    # A file at the path would be replaced: one above it is in the way.
                    number = errno.ENOTDIR
                    raise NotADirectoryError(number, os.strerror(number), path) from error

        return upload(self._objects, full, content, translated)

    def _place(self, full: str, target: str) -> None:
        if not self._way.renames:
            self._fs.cp_file(full, target)
            self._fs.rm_file(full)
            return
        self._fs.mv(full, target)

    def _equal(self, path: str, other: str) -> bool:
        file, other_file = self.stat(path), self.stat(other)
        if file is None or other_file is None:
            return False
        if file.size != other_file.size:
            return False
        pairs = zip(self.chunks(path), self.chunks(other), strict=True)
        return all(chunk == other_chunk for chunk, other_chunk in pairs)

    def _remove_quietly(self, full: str) -> None:
        with contextlib.suppress(Exception):
            self._fs.rm_file(full)

    def _make_parent(self, full: str) -> None:
        """Make the directory of a file, where there are directories."""
        if self._way.directories != "none":
            self._make_directory(self._parent(full))

    def _make_directory(self, directory: str) -> None:
        with self._lock:
            if directory in self._made:
                return
        try:
            self._fs.makedirs(directory, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory
            ) from error
        with self._lock:
            if len(self._made) >= _DIRECTORIES_MAX:
                self._made.clear()
            self._made.add(directory)

    def _remove_leftovers(self, names: Iterable[str]) -> None:
        for name in names:
            if is_temporary(name) and name not in self._writing:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(name)

    @staticmethod
    def _parent(full: str) -> str:
        return full.rpartition("/")[0]


def _file(path: str, info: Info) -> FileInfo:
    """Return the file with its stamp: what an object store calls an object's version or content.
    S3's times are no use for that: a listing gives milliseconds, a question for one object seconds.
    """
    stamps = (str(info[key]).strip('"') for key in _STAMPS if info.get(key))
    size = info["size"]
    # The time is in whichever of its fields a file system fills.
    times = (_seconds(info.get(key)) for key in _TIMES)
    return FileInfo(
        path,
        int(size) if isinstance(size, int | float | str) else 0,
        next((seconds for seconds in times if seconds is not None), 0.0),
        next(stamps, ""),
    )


def _name(info: Info) -> str:
    return str(info["name"])


def _seconds(time: object) -> float | None:
    match time:
        case datetime(tzinfo=None):
            return time.replace(tzinfo=UTC).timestamp()
        case datetime():
            return time.timestamp()
        case bool():
            return None
        case int() | float():
            return float(time)
        case str():
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(time).timestamp()
    return None


def _unknown(scheme: str, location: str, error: Exception) -> StorageError:
    place = locations.redact(location)
    if isinstance(error, ImportError):
        fact = f"{place}: the package for {scheme}: is not installed ({error})"
        return StorageError(fact, location=place, hint=f"pip install {package_for(scheme)}")
    return StorageError(
        f"{place}: no installed package opens {scheme}:",
        location=place,
        hint="python -c 'import fsspec; print(sorted(fsspec.available_protocols()))'",
    )


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
