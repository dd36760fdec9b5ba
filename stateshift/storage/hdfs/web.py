"""HDFS over HTTP: WebHDFS, and HttpFS in its place, with the clients of the `hdfs` package.

That package brings what differs between sites: users, delegation tokens, Kerberos, proxy users, TLS
settings, alias files. Its calls are not used: they expand `#LATEST` in names, and their rename
refuses to replace.

    read    GET  NameNode  op=OPEN    -> 307 to a DataNode -> the bytes; their number is in the
                                      header
    write   PUT  NameNode  op=CREATE  -> 307 to a DataNode -> PUT the bytes there, in chunks -> 201
    rename  PUT  NameNode  op=RENAME&renameoptions=OVERWRITE | NONE   (rename2: one operation, errors told; without the
            option it is the old rename, which answers false, and moves *into* a directory that is
            there)

A NameNode that does not answer, or is the spare one: the next is asked, and whoever answered is
asked first from then on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

import requests

from stateshift.errors import MissingFile, StorageError, TransientStorageError
from stateshift.storage import locations
from stateshift.storage.hdfs import failures
from stateshift.storage.hdfs.calls import Quota, Remaining, Status

PREFIX: Final = "/webhdfs/v1"
PIECE: Final = 1024 * 1024
CONNECTIONS: Final = 128
DENIED: Final = "AccessControlException"
ROOTS_OWN: Final = 2**63 - 1

_log = logging.getLogger(__name__)


class WebCalls:
    """The calls of one file system. `client` is one of the `hdfs` package; `location` is what
    errors name.
    """

    def __init__(self, client: Any, location: str) -> None:
        self._client = client
        self._location = location
        self._urls = tuple(url.rstrip("/") for url in client.urls)
        self._first = 0
        self._lock = threading.Lock()
        for scheme in ("http://", "https://"):
            client._session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))

    def status(self, path: str) -> Status | None:
        try:
            answer = self._call("GET", path, "GETFILESTATUS")
        except MissingFile:
            return None
        return _status(self._json(answer, path)["FileStatus"], path.rpartition("/")[2])

    def children(self, path: str) -> Iterator[Status]:
        asked: dict[str, Any] = {}
        while True:
            listing = self._json(self._call("GET", path, "LISTSTATUS_BATCH", **asked), path)[
                "DirectoryListing"
            ]
            found = listing["partialListing"]["FileStatuses"]["FileStatus"]
            # A file lists itself, without a name.
            yield from (_status(each, each["pathSuffix"]) for each in found if each["pathSuffix"])
            if not found or not listing["remainingEntries"]:
                return
            asked = {"startAfter": found[-1]["pathSuffix"]}

    def open(self, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        if offset and (found := self.status(path)) is not None and offset >= found.size:
            return  # which HDFS takes for an error
        asked: dict[str, Any] = (
            {"offset": offset} if length is None else {"offset": offset, "length": length}
        )
        answer = self._call("GET", path, "OPEN", **asked)
        if answer.status_code == 307:
            answer = self._data("GET", answer, path, stream=True)
        with closing(answer):
            told, came = answer.headers.get("Content-Length"), 0
            with failures.telling(self._location, path):
                for piece in answer.iter_content(PIECE):
                    came += len(piece)
                    yield piece
            if told is not None and came != int(told):
                raise failures.cut_short(self._location, path, came, int(told))

    def create(self, path: str, chunks: Iterator[bytes]) -> int:
        sent = _Counted(chunks)
        self._data(
            "PUT", self._call("PUT", path, "CREATE", overwrite="true"), path, data=iter(sent)
        )
        return sent.size

    def rename(self, path: str, target: str, replace: bool) -> None:
        option = "OVERWRITE" if replace else "NONE"
        self._call("PUT", path, "RENAME", told=target, destination=target, renameoptions=option)

    def delete(self, path: str) -> None:
        self._call("DELETE", path, "DELETE", recursive="false")

    def make_directory(self, path: str) -> None:
        self._call("PUT", path, "MKDIRS")

    def set_modified(self, path: str, modified: float) -> None:
        self._call("PUT", path, "SETTIMES", modificationtime=round(modified * 1000), accesstime=-1)

    def own(self, path: str, owner: str | None, group: str | None, mode: int | None) -> None:
        if mode is not None:
            self._call("PUT", path, "SETPERMISSION", permission=f"{mode:o}")
        named = {"owner": owner, "group": group}
        if owner is not None or group is not None:
            self._call(
                "PUT",
                path,
                "SETOWNER",
                **{key: name for key, name in named.items() if name is not None},
            )

    def checksum(self, path: str) -> str | None:
        """Of the checksums that the DataNodes keep of each block. The number of them in a block is
        part of it, and zero in a file of one block, so that there the size of blocks does not
        matter.
        """
        answer = self._call("GET", path, "GETFILECHECKSUM")
        if answer.status_code == 307:
            answer = self._data("GET", answer, path)
        told = self._json(answer, path).get("FileChecksum")
        return (
            f"{told['algorithm']}:{told['bytes']}"
            if isinstance(told, dict) and told.get("bytes")
            else None
        )

    def may_write(self, directory: str) -> bool | None:
        try:
            self._call("GET", directory, "CHECKACCESS", fsaction="-wx")
        except MissingFile:
            raise
        except TransientStorageError:
            raise
        except StorageError as error:
            return False if DENIED in error.fact else None  # HttpFS has not always had the question
        return True

    def quota(self, directory: str) -> Quota | None:
        told = self._asked(directory, "GETQUOTAUSAGE", "QuotaUsage")
        if told is None:
            return None
        return Quota(
            _left(told.get("spaceQuota"), told.get("spaceConsumed")),
            _left(told.get("quota"), told.get("fileAndDirectoryCount")),
        )

    def remaining(self) -> Remaining | None:
        """GETSTATUS is of Hadoop 3.4 and later; before, only the NameNode's own pages tell."""
        status = self._asked("/", "GETSTATUS", "FsStatus")
        defaults = self._asked("/", "GETSERVERDEFAULTS", "FsServerDefaults")
        if status is None or "remaining" not in status:
            return None
        return Remaining(int(status["remaining"]), int((defaults or {}).get("replication", 1)))

    def _asked(self, path: str, op: str, word: str) -> dict[str, Any] | None:
        """What is told under this word; None where the question is not known there, or not
        answered to us.
        """
        try:
            told = self._json(self._call("GET", path, op), path).get(word)
        except TransientStorageError:
            raise
        except StorageError:
            return None
        return told if isinstance(told, dict) else None

    def _call(
        self, method: str, path: str, op: str, *, told: str | None = None, **asked: Any
    ) -> Any:
        """The answer of the NameNode that is active. Errors tell the path, or the one that is to
        be told.
        """
        told = told or path
        wrong: list[StorageError] = []
        for _ in self._urls:
            number = self._first
            try:
                answer = self._ask(method, self._urls[number], path, {"op": op, **asked})
            except TransientStorageError as error:
                wrong.append(error)  # it does not answer
            else:
                if answer.ok:
                    return answer
                wrong.append(failures.from_answer(answer, self._location, told))
                if failures.exception_of(answer) not in failures.ON_ANOTHER:
                    raise wrong[-1]
            self._go_on_from(number)
        raise failures.none_active(wrong, self._location, told)

    def _ask(self, method: str, url: str, path: str, asked: dict[str, Any]) -> Any:
        if self._client._proxy is not None:
            asked["doas"] = self._client._proxy
        reads = asked["op"] == "OPEN"  # HttpFS sends the bytes itself
        with failures.telling(self._location, path):
            place = url + PREFIX + quote(path)
            began = time.perf_counter()
            answer = self._client._request(
                method, place, params=asked, stream=reads, allow_redirects=False
            )
            _log_answer(f"{method} {asked['op']}", place, answer, began)
            return answer

    def _data(self, method: str, sent_on: Any, path: str, **options: Any) -> Any:
        """The answer of the DataNode that we were sent on to. Of the place only the path is not
        taken over: it comes through Java's URI.toASCIIString, which takes an e with an accent
        behind it for another letter (NFC).
        """
        place, found, query = sent_on.headers.get("Location", "").partition("?")
        host, prefix, _ = place.partition(PREFIX)
        if not (found and prefix):
            raise failures.not_hdfs(sent_on, self._location, path)
        with failures.telling(self._location, path):
            where = f"{host}{PREFIX}{quote(path)}?{query}"
            began = time.perf_counter()
            answer = self._client._request(method, where, allow_redirects=False, **options)
            _log_answer(method, f"{host}{PREFIX}{quote(path)}", answer, began)
        if not answer.ok:
            raise failures.from_answer(answer, self._location, path)
        return answer

    def _go_on_from(self, number: int) -> None:
        """Ask the next one first, unless another thread has found that out already."""
        with self._lock:
            if self._first == number:
                self._first = (number + 1) % len(self._urls)

    def _json(self, answer: Any, path: str) -> Any:
        try:
            return answer.json()
        except ValueError as error:
            raise failures.not_hdfs(answer, self._location, path) from error


class _Counted:
    """Chunks on their way, and how many bytes they were. Empty ones would end a chunked body."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if chunk:
                self.size += len(chunk)
                yield chunk


def _log_answer(method: str, url: str, answer: Any, began: float) -> None:
    """Log a request by its URL without the query, in which tokens are."""
    if _log.isEnabledFor(logging.DEBUG):
        milliseconds = (time.perf_counter() - began) * 1000
        length = answer.headers.get("Content-Length", "?")
        shown = locations.redact(url)
        _log.debug(
            "%s %s: HTTP %s, %.1f ms, %s bytes",
            method,
            shown,
            answer.status_code,
            milliseconds,
            length,
        )


def _status(told: Any, name: str) -> Status:
    return Status(
        name,
        told["type"] == "FILE",
        int(told["length"]),
        told["modificationTime"] / 1000,
        told["owner"],
        told["group"],
        int(told["permission"], 8),
        told.get("fileId"),
    )


def _left(limit: Any, used: Any) -> int | None:
    """Of a quota, which is below zero where there is none; the root has one of names that nobody
    set.
    """
    if not isinstance(limit, int) or not isinstance(used, int) or not 0 <= limit < ROOTS_OWN:
        return None
    return max(0, limit - used)
