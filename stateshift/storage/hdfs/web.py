"""HDFS over HTTP: WebHDFS, and HttpFS in its place, with the clients of the `hdfs` package.

That package brings what differs between sites: users, delegation tokens, Kerberos, proxy users, TLS
settings, alias files. Its calls are not used: they expand `#LATEST` in names, and their rename
refuses to replace.

    read    GET  NameNode  op=OPEN    -> 307 to a DataNode -> the bytes; their number is in the
                                      header
    write   PUT  NameNode  op=CREATE  -> 307 to a DataNode -> PUT the bytes there, in chunks -> 201
    rename  PUT  NameNode  op=RENAME&renameoptions=OVERWRITE | NONE
            (rename2: one operation, with errors; without the option it is the old rename, which
            answers false, and moves *into* a directory that is there)

A NameNode that does not answer, or is the spare one: the next is asked, and whoever answered is
asked first from then on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Protocol, TypeAlias
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

# An answer's JSON. Its fields are those that Hadoop's documentation of WebHDFS promises.
Json: TypeAlias = Any
# A parameter of a query.
Value: TypeAlias = str | int
NO_QUERY: Final[Mapping[str, Value]] = {}


class Client(Protocol):
    """The used part of a client of the `hdfs` package, which has no types of its own."""

    _session: requests.Session
    _proxy: str | None

    @property
    def urls(self) -> Sequence[str]: ...

    def _request(self, method: str, url: str, **options: object) -> requests.Response: ...


class WebCalls:
    """The calls of one file system, by a client of the `hdfs` package."""

    def __init__(self, client: Client, location: str) -> None:
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
        query: dict[str, Value] = {}
        while True:
            answer = self._call("GET", path, "LISTSTATUS_BATCH", query)
            listing = self._json(answer, path)["DirectoryListing"]
            entries = listing["partialListing"]["FileStatuses"]["FileStatus"]
            for entry in entries:
                if entry["pathSuffix"]:  # a file lists itself, without a name
                    yield _status(entry, entry["pathSuffix"])
            if not entries or not listing["remainingEntries"]:
                return
            query = {"startAfter": entries[-1]["pathSuffix"]}

    def open(self, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        if offset:
            status = self.status(path)
            if status is not None and offset >= status.size:
                return  # HDFS takes that for an error
        query: dict[str, Value] = {"offset": offset}
        if length is not None:
            query["length"] = length
        answer = self._call("GET", path, "OPEN", query)
        if answer.status_code == 307:
            answer = self._data("GET", answer, path, stream=True)
        with closing(answer):
            received = 0
            with failures.translate_errors(self._location, path):
                for piece in answer.iter_content(PIECE):
                    received += len(piece)
                    yield piece
            announced = answer.headers.get("Content-Length")
            if announced is not None and received != int(announced):
                raise failures.cut_short(self._location, path, received, int(announced))

    def create(self, path: str, chunks: Iterator[bytes]) -> int:
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in filter(None, chunks):  # an empty one would end a chunked body
                size += len(chunk)
                yield chunk

        redirect = self._call("PUT", path, "CREATE", {"overwrite": "true"})
        self._data("PUT", redirect, path, data=counted())
        return size

    def rename(self, path: str, target: str, replace: bool) -> None:
        option = "OVERWRITE" if replace else "NONE"
        query = {"destination": target, "renameoptions": option}
        self._call("PUT", path, "RENAME", query, named=target)

    def delete(self, path: str) -> None:
        self._call("DELETE", path, "DELETE", {"recursive": "false"})

    def make_directory(self, path: str) -> None:
        self._call("PUT", path, "MKDIRS")

    def set_modified(self, path: str, modified: float) -> None:
        milliseconds = round(modified * 1000)
        self._call("PUT", path, "SETTIMES", {"modificationtime": milliseconds, "accesstime": -1})

    def own(self, path: str, owner: str | None, group: str | None, mode: int | None) -> None:
        if mode is not None:
            self._call("PUT", path, "SETPERMISSION", {"permission": f"{mode:o}"})
        names = {"owner": owner, "group": group}
        query: dict[str, Value] = {key: name for key, name in names.items() if name is not None}
        if query:
            self._call("PUT", path, "SETOWNER", query)

    def checksum(self, path: str) -> str | None:
        # It is over those that the DataNodes keep of each block. Their number in a block is part of
        # it; in a file of one block that is zero, so that the size of blocks does not matter.
        answer = self._call("GET", path, "GETFILECHECKSUM")
        if answer.status_code == 307:
            answer = self._data("GET", answer, path)
        checksum = self._json(answer, path).get("FileChecksum")
        if not isinstance(checksum, dict) or not checksum.get("bytes"):
            return None
        return f"{checksum['algorithm']}:{checksum['bytes']}"

    def may_write(self, directory: str) -> bool | None:
        try:
            self._call("GET", directory, "CHECKACCESS", {"fsaction": "-wx"})
        except (MissingFile, TransientStorageError):
            raise
        except StorageError as error:
            return False if DENIED in error.fact else None  # HttpFS has not always had the question
        return True

    def quota(self, directory: str) -> Quota | None:
        usage = self._asked(directory, "GETQUOTAUSAGE", "QuotaUsage")
        if usage is None:
            return None
        return Quota(
            bytes_left=_left(usage.get("spaceQuota"), usage.get("spaceConsumed")),
            names_left=_left(usage.get("quota"), usage.get("fileAndDirectoryCount")),
        )

    def remaining(self) -> Remaining | None:
        """Return the answer to GETSTATUS (Hadoop 3.4); earlier, only NameNode's pages say it."""
        status = self._asked("/", "GETSTATUS", "FsStatus")
        defaults = self._asked("/", "GETSERVERDEFAULTS", "FsServerDefaults")
        if status is None or "remaining" not in status:
            return None
        replication = (defaults or {}).get("replication", 1)
        return Remaining(int(status["remaining"]), int(replication))

    def _asked(self, path: str, op: str, word: str) -> Json | None:
        try:
            value = self._json(self._call("GET", path, op), path).get(word)
        except TransientStorageError:
            raise
        except StorageError:
            return None
        return value if isinstance(value, dict) else None

    def _call(
        self,
        method: str,
        path: str,
        op: str,
        query: Mapping[str, Value] = NO_QUERY,
        named: str = "",
    ) -> requests.Response:
        """Return the answer of the NameNode that is active. Errors name the path, or `named`."""
        named = named or path
        refusals: list[StorageError] = []
        for _ in self._urls:
            number = self._first
            try:
                answer = self._ask(method, self._urls[number], path, op, query)
            except TransientStorageError as error:
                refusals.append(error)  # it does not answer
            else:
                if answer.ok:
                    return answer
                refusals.append(failures.from_answer(answer, self._location, named))
                if failures.exception_of(answer) not in failures.ON_ANOTHER:
                    raise refusals[-1]
            with self._lock:
                if self._first == number:  # no other thread has gone on already
                    self._first = (number + 1) % len(self._urls)
        raise failures.none_active(refusals, self._location, named)

    def _ask(
        self, method: str, url: str, path: str, op: str, query: Mapping[str, Value]
    ) -> requests.Response:
        params: dict[str, Value] = {"op": op, **query}
        if self._client._proxy is not None:
            params["doas"] = self._client._proxy
        streams = op == "OPEN"  # HttpFS sends the bytes itself
        with failures.translate_errors(self._location, path):
            place = url + PREFIX + quote(path)
            began = time.perf_counter()
            answer = self._client._request(
                method, place, params=params, stream=streams, allow_redirects=False
            )
            _log_answer(f"{method} {op}", place, answer, began)
            return answer

    def _data(
        self, method: str, redirect: requests.Response, path: str, **options: object
    ) -> requests.Response:
        """Return the answer of the DataNode that we were redirected to. Everything of the URL is
        taken over but the path: that comes through Java's URI.toASCIIString, which takes an e with
        an accent behind it for another letter (NFC).
        """
        place, question_mark, query = redirect.headers.get("Location", "").partition("?")
        host, prefix, _ = place.partition(PREFIX)
        if not question_mark or not prefix:
            raise failures.not_hdfs(redirect, self._location, path)
        with failures.translate_errors(self._location, path):
            url = f"{host}{PREFIX}{quote(path)}"
            began = time.perf_counter()
            answer = self._client._request(
                method, f"{url}?{query}", allow_redirects=False, **options
            )
            _log_answer(method, url, answer, began)
        if not answer.ok:
            raise failures.from_answer(answer, self._location, path)
        return answer

    def _json(self, answer: requests.Response, path: str) -> Json:
        try:
            return answer.json()
        except ValueError as error:
            raise failures.not_hdfs(answer, self._location, path) from error


def _log_answer(method: str, url: str, answer: requests.Response, began: float) -> None:
    """Log a request by its URL without the query, in which tokens are."""
    if _log.isEnabledFor(logging.DEBUG):
        milliseconds = (time.perf_counter() - began) * 1000
        length = answer.headers.get("Content-Length", "?")
        answered = f"HTTP {answer.status_code}, {milliseconds:.1f} ms, {length} bytes"
        _log.debug("%s %s: %s", method, locations.redact(url), answered)


def _status(entry: Json, name: str) -> Status:
    return Status(
        name,
        is_file=entry["type"] == "FILE",
        size=int(entry["length"]),
        modified=entry["modificationTime"] / 1000,
        owner=entry["owner"],
        group=entry["group"],
        mode=int(entry["permission"], 8),
        id=entry.get("fileId"),
    )


def _left(quota: object, used: object) -> int | None:
    """Return the rest of a quota, None if there is none: it is negative, or the root's default."""
    if not isinstance(quota, int) or not isinstance(used, int):
        return None
    if quota < 0 or quota >= ROOTS_OWN:
        return None
    return max(0, quota - used)
