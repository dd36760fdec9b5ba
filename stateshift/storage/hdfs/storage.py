"""A location on HDFS, by whichever way its calls go.

    write   a temporary file in the same directory, renamed over the final one: HDFS replaces in one
            operation
    create  the same, but the rename refuses what is there: exclusive, and whole from the moment it
            is seen
    move    a rename that refuses what is there
    list    directory by directory, several at once: each is a call to the NameNode

HDFS keeps a block on as many machines as its replication says before it acknowledges the file; it
is `durable` against the loss of one of them, and that is what `sync` promises here.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain

from stateshift.errors import MissingFile, StorageError
from stateshift.storage import failures, locations
from stateshift.storage.hdfs.calls import HdfsCalls, Status
from stateshift.storage.hdfs.free_space import may_write, narrowest
from stateshift.storage.protocol import CHUNK, Content, Traits
from stateshift.storage.temporaries import Writing, is_temporary, unique_temporary
from stateshift.survey import FileInfo, Owned, Room

LISTINGS_AT_ONCE = 8
# A file that is closed waits for its DataNode's report: the client asks the NameNode at once,
# mostly too early, and again after 400 ms (Hadoop:
# dfs.client.block.write.locateFollowingBlock.initial.delay.ms) or 500 ms (hdfs-native). So many at
# once are what decides how many small files a second are written, until a core is busy: hundreds.
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
        raise self._too_large(path, len(content), size_max)

    def _too_large(self, path: str, size_read: int, size_max: int) -> StorageError:
        """Return the error for a file that is too large, with its whole size if it is there."""
        info = self.stat(path)
        size = info.size if info else size_read
        return failures.too_large(self._location, path, size, size_max)

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
            raise failures.taken(self._location, target_path)
        self._make_parent(target)
        self._calls.rename(full, target, replace=False)

    def remove(self, path: str) -> None:
        full = self._full(path)
        status = self._calls.status(full)
        if status is not None and not status.is_file:
            place = locations.join(self._location, path)
            raise StorageError(
                f"a directory stands where a file is needed, at {place}",
                location=place,
                hint=f"stateshift inspect {failures.pasted(place)}",
            )
        self._calls.delete(full)

    def _make_parent(self, full: str) -> None:
        parent = full.rpartition("/")[0]
        self._calls.make_directory(parent or "/")

    def prune(self, under: str = "") -> None:
        """Remove the deepest directories first, each only when it was seen to be empty. HDFS
        refuses to remove one that has got a file since.
        """
        top = self._full(under)
        statuses = dict(_below(self._calls, top))
        self._remove_leftovers(statuses)
        files = [path for path, status in statuses.items() if status.is_file]
        in_use = set(chain.from_iterable(map(_above, files)))
        empty = statuses.keys() - in_use - set(files)
        for path in sorted(empty, key=len, reverse=True):
            self._remove_quietly(path)
        if top not in in_use:
            self._remove_directory_quietly(top)

    def _remove_leftovers(self, statuses: dict[str, Status]) -> None:
        """Remove the temporary files among what is there, from `statuses` too."""
        leftovers = [path for path in statuses if self._is_leftover(path)]
        for path in leftovers:
            self._remove_quietly(path)
            del statuses[path]

    def sync(self) -> None:
        """Nothing to do: what HDFS acknowledged is on as many machines as it was asked to keep
        it on.
        """

    def room(self) -> Room:
        """The narrowest of what the DataNodes have left and of the quotas of every directory
        above.
        """
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

    def _is_leftover(self, full: str) -> bool:
        """Whether a path is a temporary file that nobody in this process writes."""
        return is_temporary(full) and full not in self._writing

    def _remove_quietly(self, full: str) -> None:
        with contextlib.suppress(StorageError):
            self._calls.delete(full)

    def _remove_directory_quietly(self, full: str) -> None:
        status = self._calls.status(full)
        if status is not None and not status.is_file:
            self._remove_quietly(full)


def _info(path: str, status: Status) -> FileInfo:
    """Return the file, stamped with its inode and its time in milliseconds. Hadoop's own RPC
    client does not give the inode: then the time alone is the stamp.
    """
    inode = "" if status.id is None else f"{status.id:x}"
    stamp = f"{inode}.{round(status.modified * 1000):x}"
    return FileInfo(path, status.size, status.modified, stamp)


def _below(calls: HdfsCalls, top: str) -> Iterator[tuple[str, Status]]:
    """Everything below a directory with its whole path, directories too. A directory that vanished
    is left out; one that cannot be listed is an error.
    """
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


def _above(path: str) -> Iterator[str]:
    """Every directory above a path."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
