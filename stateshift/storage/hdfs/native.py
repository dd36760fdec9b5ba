"""HDFS over Hadoop's own RPC and data transfer, with `hdfs-native`: a client in Rust, without a
JVM.

It finds nameservices, asks their NameNodes and fails over by itself, from the same configuration
files; but for what they say otherwise, it gives up after a few seconds, as `Retrying` tries again
and can be interrupted: its own patience is Hadoop's, some minutes for each call. Its errors are
Python's own where it knows one, else RuntimeErrors that name Hadoop's exception in their text.

It asks each DataNode to have a block on its disk before it acknowledges the last of it, which
Hadoop's own client and WebHDFS do not: a power cut of all machines of a block loses nothing of it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from stateshift.errors import MissingFile, StorageError, TransientStorageError
from stateshift.storage import locations
from stateshift.storage.hdfs import failures
from stateshift.storage.hdfs.calls import HdfsCalls, Quota, Remaining, Status
from stateshift.storage.hdfs.conf import HadoopConf

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus

T = TypeVar("T")

PIECE: Final = 1024 * 1024

# As its RuntimeErrors tell an answer of the NameNode's; what follows the first line is the server's
# stack.
_ANSWER: Final = re.compile(r'RPCError\("(?:[\w]+\.)*(?:\w+\$)?(\w+)", "(.*?)(?:\\n|"\)$|$)')

_UNREACHED: Final = f"{failures.UNREACHED}; STATESHIFT_HDFS=web asks over HTTP"

# Without: 15 attempts, half a second to 15 apart (HdfsClientConfigKeys.Failover, Hadoop 3.4).
_PATIENCE: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
}


class NativeCalls:
    """`web` opens the way over HTTP, for the questions that the client does not have."""

    def __init__(
        self, client: Client, location: str, web: Callable[[], HdfsCalls] | None = None
    ) -> None:
        self._client = client
        self._location = location
        self._web = web
        self._web_calls: HdfsCalls | None = None

    @classmethod
    def connect(
        cls, authority: str, conf: HadoopConf, location: str, web: Callable[[], HdfsCalls]
    ) -> NativeCalls:
        import hdfs_native

        patience = {key: value for key, value in _PATIENCE.items() if not conf.get(key)}
        with _translated(location, ""):
            client = hdfs_native.Client(f"hdfs://{authority}", patience, config_dir=conf.place)
        return cls(client, location, web)

    def status(self, path: str) -> Status | None:
        try:
            with _translated(self._location, path):
                return _status(self._client.get_file_info(path), path)
        except MissingFile:
            return None

    def children(self, path: str) -> Iterator[Status]:
        with _translated(self._location, path):
            for entry in self._client.list_status(path, False):
                if entry.path != path:  # a file lists itself
                    yield _status(entry, entry.path)

    def open(self, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        with _translated(self._location, path):
            file = self._client.read(path)
            wanted = max(0, len(file) - offset)
            if length is not None:
                wanted = min(wanted, length)
            pieces = _pieces(file, offset, wanted)
        received = 0
        while True:
            with _translated(self._location, path):
                piece = next(pieces, b"")
            if not piece:
                break
            received += len(piece)
            yield piece
        if received < wanted:
            raise failures.cut_short(self._location, path, received, wanted)

    def create(self, path: str, chunks: Iterator[bytes]) -> int:
        from hdfs_native import WriteOptions

        size = 0
        # Not by the client's own file object: Python closes that when it is collected, which
        # completes the half of a file, and waits without end for an HDFS that is gone.
        with _translated(self._location, path):
            file = self._client.inner.create(path, WriteOptions(overwrite=True, create_parent=True))
        for chunk in chunks:
            with _translated(self._location, path):
                file.write(chunk)
            size += len(chunk)
        with _translated(self._location, path):
            file.close()
        return size

    def rename(self, path: str, target: str, replace: bool) -> None:
        with _translated(self._location, target):
            self._client.rename(path, target, replace)

    def delete(self, path: str) -> None:
        with contextlib.suppress(MissingFile), _translated(self._location, path):
            self._client.delete(path, False)

    def make_directory(self, path: str) -> None:
        with _translated(self._location, path):
            self._client.mkdirs(path, 0o777, True)

    def set_modified(self, path: str, modified: float) -> None:
        with _translated(self._location, path):
            self._client.set_times(path, round(modified * 1000), 0)

    def own(self, path: str, owner: str | None, group: str | None, mode: int | None) -> None:
        with _translated(self._location, path):
            if mode is not None:
                self._client.set_permission(path, mode)
            if owner is not None or group is not None:
                self._client.set_owner(path, owner, group)

    def checksum(self, path: str) -> str | None:
        return self._over_http(lambda web: web.checksum(path))

    def may_write(self, directory: str) -> bool | None:
        return self._over_http(lambda web: web.may_write(directory))

    def quota(self, directory: str) -> Quota | None:
        return self._over_http(lambda web: web.quota(directory))

    def remaining(self) -> Remaining | None:
        return self._over_http(lambda web: web.remaining())

    def _over_http(self, ask: Callable[[HdfsCalls], T | None]) -> T | None:
        """Return the NameNode's answer over HTTP. One that has failed is not asked again."""
        if self._web is None:
            return None
        try:
            if self._web_calls is None:
                self._web_calls = self._web()
            return ask(self._web_calls)
        except MissingFile:
            raise
        except StorageError:
            self._web = None
            return None


def _pieces(file: FileReader, offset: int, wanted: int) -> Iterator[bytes]:
    """Yield a part of a file by PIECE: a DataNode's packets of 64 KiB are too small to hand on."""
    packets: list[bytes] = []
    size = 0
    for packet in file.read_range_stream(offset, wanted) if wanted else ():
        packets.append(packet)
        size += len(packet)
        if size >= PIECE:
            yield b"".join(packets)
            packets, size = [], 0
    if packets:
        yield b"".join(packets)


def _status(status: FileStatus, path: str) -> Status:
    return Status(
        path.rstrip("/").rpartition("/")[2],
        is_file=not status.isdir,
        size=status.length,
        modified=status.modification_time / 1000,
        owner=status.owner,
        group=status.group,
        mode=status.permission,
    )


@contextlib.contextmanager
def _translated(location: str, path: str) -> Iterator[None]:
    """Raise what the client raises as StorageErrors."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise failures.from_exception("FileNotFoundException", "", location, path) from error
    except FileExistsError as error:
        raise failures.from_exception("FileAlreadyExistsException", "", location, path) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise _failure(error, location, path) from error


def _failure(error: Exception, location: str, path: str) -> StorageError:
    answer = _ANSWER.search(str(error))
    if answer:
        return failures.from_exception(answer[1], answer[2], location, path)
    place = locations.redact(location)
    text = locations.redact(str(error)) or type(error).__name__
    # A connection failed, or a block that no DataNode gives or takes. If the file was removed while
    # it was read, the NameNode says so at the next attempt.
    failed = "connection" in text.lower() or text.startswith("DataTransferError")
    if failed or isinstance(error, OSError):
        return TransientStorageError(f"{place}: {text}", location=place, hint=_UNREACHED)
    return StorageError(f"{place}: {text}", location=place)
