"""A location on HDFS, by whichever way its calls go.

    write   a temporary file in the same directory, renamed over the final one: HDFS replaces in one
            operation
    create  the same, but the rename refuses what is there: exclusive, and whole from the moment it
            is seen
    move    a rename that refuses what is there
    list    directory by directory, several at once: each is a call to the NameNode
    room    the narrowest of the DataNodes' rest and the quotas of every directory above. A quota
            that we may not ask for is taken for none
    writable  the nearest directory that is there is asked (CHECKACCESS knows of groups, access
            lists and superusers)

HDFS keeps a block on as many machines as its replication says before it acknowledges the file; it
is `durable` against the loss of one of them, and that is what `sync` promises here.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from shlex import quote

from stateshift.errors import MissingFile, StorageError
from stateshift.storage import failures, locations
from stateshift.storage.hdfs.calls import HdfsCalls, Quota, Status
from stateshift.storage.protocol import CHUNK, Content, Traits
from stateshift.storage.temporaries import Writing, is_temporary, unique_temporary
from stateshift.survey import FileInfo, Owned, Room

LISTINGS_AT_ONCE = 8
# A file that is closed waits for its DataNode's report: the client asks the NameNode at once,
# mostly too early, and again after 400 ms (Hadoop:
# dfs.client.block.write.locateFollowingBlock.initial.delay.ms) or 500 ms (hdfs-native). Hence this
# number decides how many small files a second are written, until a core is busy: hundreds.
FILES_AT_ONCE = 256


class HdfsStorage:
    """A storage on HDFS, over whichever calls reach its NameNodes."""

    def __init__(self, calls: HdfsCalls, location: str, faster_by: str = "") -> None:
        self._calls = calls
        self._location = location
        self._faster_by = faster_by
        self._root = locations.parse(location).path
        self._writing = Writing()

    @property
    def location(self) -> str:
        return self._location

    @property
    def traits(self) -> Traits:
        return Traits(
            renames=True,
            keeps_times=True,
            renames_once=True,
            owners=True,
            faster_by=self._faster_by,
            at_once=FILES_AT_ONCE,
        )

    def list(self, under: str = "") -> Iterator[FileInfo]:
        start = len(self._full("").rstrip("/")) + 1
        for path, status in _below(self._calls, self._full(under)):
            if status.is_file and not is_temporary(status.name):
                yield _info(path[start:], status)

    def stat(self, path: str) -> FileInfo | None:
        status = self._calls.status(self._full(path))
        if status is None or not status.is_file:
            return None
        return _info(path, status)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        full = self._full(path)
        if size_max is None:
            return b"".join(self._calls.open(full, 0, None))
        content = b"".join(self._calls.open(full, 0, size_max + 1))
        if len(content) <= size_max:
            return content
        info = self.stat(path)
        size = info.size if info else len(content)
        raise failures.too_large(self._location, path, size, size_max)

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        for piece in self._calls.open(self._full(path), offset, None):
            for start in range(0, len(piece), CHUNK):
                yield piece[start : start + CHUNK]

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        full = self._full(path)
        with self._writing.to(full, self._remove_quietly) as temp:
            size = self._calls.create(temp, content())
            if modified is not None:
                self._calls.set_modified(temp, modified)
            self._calls.rename(temp, full, replace=True)
        return size

    def create(self, path: str, content: bytes) -> None:
        full = self._full(path)
        temp = unique_temporary(full)
        try:
            self._calls.create(temp, iter((content,)))
            self._calls.rename(temp, full, replace=False)
        except BaseException:
            self._remove_quietly(temp)
            raise

    def move(self, path: str, target_path: str) -> None:
        full, target = self._full(path), self._full(target_path)
        if self.stat(path) is None:
            raise failures.missing(self._location, path)
        if full == target or self._calls.status(target) is not None:
            raise failures.already_there(self._location, target_path)
        self._calls.make_directory(target.rpartition("/")[0] or "/")
        self._calls.rename(full, target, replace=False)

    def remove(self, path: str) -> None:
        full = self._full(path)
        status = self._calls.status(full)
        if status is not None and not status.is_file:
            place = locations.join(self._location, path)
            fact = f"a directory stands where a file is needed, at {place}"
            raise StorageError(fact, location=place, hint=f"stateshift inspect {quote(place)}")
        self._calls.delete(full)

    def prune(self, under: str = "") -> None:
        """Remove empty directories, deepest first. HDFS refuses one that has got a file since."""
        top = self._full(under)
        statuses = dict(_below(self._calls, top))
        empty = {path for path, status in statuses.items() if not status.is_file}
        in_use = set()
        for path in statuses.keys() - empty:
            if is_temporary(path) and path not in self._writing:
                self._remove_quietly(path)  # nobody in this process writes it
                continue
            while "/" in path:
                path = path.rpartition("/")[0]
                in_use.add(path)
        for path in sorted(empty - in_use, key=len, reverse=True):
            self._remove_quietly(path)
        if top not in in_use:
            status = self._calls.status(top)
            if status is not None and not status.is_file:
                self._remove_quietly(top)

    def sync(self) -> None:
        """Do nothing: HDFS acknowledges a file once as many machines have it as they should."""

    def room(self) -> Room:
        """Return the narrowest of the DataNodes' rest and the quotas of every directory above."""
        return narrowest(self._calls, self._root or "/", self._location)

    def writable(self, under: str = "") -> bool | None:
        return may_write(self._calls, self._full(under))

    def owners(self) -> Iterator[Owned]:
        top = self._full("")
        start = len(top.rstrip("/")) + 1
        status = self._calls.status(top)
        if status is not None:
            yield Owned("", status.owner, status.group, status.mode)
        for path, status in _below(self._calls, top):
            if not is_temporary(status.name):
                yield Owned(path[start:], status.owner, status.group, status.mode)

    def own(self, owned: Owned) -> None:
        self._calls.own(self._full(owned.path), owned.owner, owned.group, owned.mode)

    def checksum(self, path: str) -> str | None:
        return self._calls.checksum(self._full(path))

    def _full(self, path: str) -> str:
        locations.check_path(path)
        if not path:
            return self._root or "/"
        return f"{self._root.rstrip('/')}/{path}"

    def _remove_quietly(self, full: str) -> None:
        with contextlib.suppress(StorageError):
            self._calls.delete(full)


def _info(path: str, status: Status) -> FileInfo:
    """Return the file, stamped with its inode, where the client gives it, and its time in ms."""
    inode = "" if status.id is None else f"{status.id:x}"
    stamp = f"{inode}.{round(status.modified * 1000):x}"
    return FileInfo(path, status.size, status.modified, stamp)


def _below(calls: HdfsCalls, top: str) -> Iterator[tuple[str, Status]]:
    """Everything below a directory, directories too. One that cannot be listed is an error."""
    with ThreadPoolExecutor(LISTINGS_AT_ONCE, thread_name_prefix="listing") as pool:
        waiting: deque[str] = deque([top])
        running: dict[Future[list[Status]], str] = {}
        try:
            while waiting or running:
                while waiting and len(running) < 2 * LISTINGS_AT_ONCE:
                    directory = waiting.popleft()
                    running[pool.submit(_children, calls, directory)] = directory
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    directory = running.pop(done).rstrip("/")
                    for status in done.result():
                        path = f"{directory}/{status.name}"
                        if not status.is_file:
                            waiting.append(path)
                        yield path, status
        finally:
            for listing in running:
                listing.cancel()


def _children(calls: HdfsCalls, directory: str) -> list[Status]:
    try:
        return list(calls.children(directory))
    except MissingFile:
        return []


def may_write(calls: HdfsCalls, directory: str) -> bool | None:
    """Whether files may be written below a directory, which need not be there yet."""
    for place in _upwards(directory):
        try:
            return calls.may_write(place)
        except MissingFile:
            continue
    return None


def narrowest(calls: HdfsCalls, directory: str, location: str) -> Room:
    """Return the room below a directory, by the narrowest of the limits above it."""
    remaining = calls.remaining()
    bytes_left: list[tuple[int, str]] = []
    names_left: list[tuple[int, str]] = []
    copies = 1
    if remaining is not None:
        bytes_left.append((remaining.bytes, "its DataNodes"))
        copies = remaining.copies
    for place in _upwards(directory):
        quota = calls.quota(place) or Quota(bytes_left=None, names_left=None)
        if quota.bytes_left is not None:
            bytes_left.append((quota.bytes_left, f"the space quota of {place}"))
        if quota.names_left is not None:
            names_left.append((quota.names_left, f"the quota of names of {place}"))
    bytes_free, limit = min(bytes_left, default=(None, ""))
    files_free, files_limit = min(names_left, default=(None, ""))
    pool = f"hdfs {locations.authority(location)}"
    return Room(bytes_free, files_free, copies, pool, limit, files_limit)


def _upwards(directory: str) -> Iterator[str]:
    """The directory and every one above it, the root last."""
    path = directory.rstrip("/")
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield "/"
