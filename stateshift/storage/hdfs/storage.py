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

The calls for a location are chosen: whose client, which NameNodes, over HTTP or natively.

    hdfs://AUTHORITY/path     natively where `hdfs-native` is installed (the extra `hdfs`), else
                              over HTTP
    webhdfs://host:port/path  over HTTP, at that address; swebhdfs:// with TLS

The authority is, in this order: an alias in ~/.hdfscli.cfg (or HDFSCLI_CONFIG), always over HTTP,
with whatever client and credentials it names; a nameservice, or the RPC address of a NameNode, of
the configuration in HADOOP_CONF_DIR; a host. `STATESHIFT_HDFS=web` or `=native` decides where both
would do.

The user is USER@ in the authority, else HADOOP_USER_NAME, else whoever is logged in;
HADOOP_PROXY_USER is acted for. Kerberos is used if the configuration says so. A delegation token
comes from STATESHIFT_HDFS_TOKEN, or from an alias. With either of the last two, or with USER@, it
goes over HTTP: the native client asks as HADOOP_USER_NAME or as us.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from stateshift.errors import MissingFile, StorageError, TransientStorageError
from stateshift.storage import failures, locations
from stateshift.storage.hdfs.calls import HdfsCalls, Quota, Status
from stateshift.storage.hdfs.conf import HadoopConf, read_conf
from stateshift.storage.protocol import CHUNK, Content, Traits
from stateshift.storage.temporaries import Writing, is_temporary, unique_temporary
from stateshift.survey import FileInfo, Owned, Room

if TYPE_CHECKING:
    from stateshift.storage.hdfs.web import Client

LISTINGS_AT_ONCE = 8
# A file that is closed waits for its DataNode's report: the client asks the NameNode at once,
# mostly too early, and again after 400 ms (Hadoop:
# dfs.client.block.write.locateFollowingBlock.initial.delay.ms) or 500 ms (hdfs-native). Hence this
# number decides how many small files a second are written, until a core is busy: hundreds.
FILES_AT_ONCE = 256

_INSTALL = "pip install 'stateshift[hdfs]'"
_BY_RPC = "for Hadoop's own RPC in place of HTTP"
TIMEOUT_SECONDS = (10.0, 120.0)  # to connect, to answer


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


def open_hdfs(location: str, environment: Mapping[str, str] | None = None) -> HdfsStorage:
    """Return the storage at a location on HDFS."""
    location, environment = locations.normal(location), environment or os.environ
    parsed = locations.parse(location)
    user, _, authority = parsed.authority.rpartition("@")
    user = user or environment.get("HADOOP_USER_NAME", "")
    client = _alias_client(authority, environment)
    if client is not None:
        return HdfsStorage(_web(client, location), location)
    conf = read_conf(environment)
    if parsed.scheme != "hdfs":
        scheme = "https" if parsed.scheme == "swebhdfs" else "http"
        client = _web_client(f"{scheme}://{authority}", user, conf.secure, environment)
        return HdfsStorage(_web(client, location), location)
    authority = authority or conf.default_authority
    over_http = partial(_over_http, authority, user, conf, location, environment)
    wanted = environment.get("STATESHIFT_HDFS", "")
    if wanted not in ("", "web", "native"):
        fact = f"STATESHIFT_HDFS is {wanted!r}"
        raise StorageError(fact, hint="web, native, or nothing: whichever is there")
    is_other = environment.get("STATESHIFT_HDFS_TOKEN") or environment.get("HADOOP_PROXY_USER")
    if is_other or "@" in parsed.authority:
        return HdfsStorage(over_http(), location)
    missing = _missing_for_rpc(wanted)
    if missing:
        return HdfsStorage(over_http(), location, faster_by=missing)
    addresses = _configured(conf.rpc_addresses(authority), authority, conf, location)
    for address in addresses:
        # Refuse a host that no name server knows: the native client waits for one many minutes.
        host, _, port = address.rpartition(":")
        try:
            socket.getaddrinfo(host.strip("[]"), int(port))
        except OSError as error:
            place = locations.redact(location)
            hint = "check the host; nameservices are found through HADOOP_CONF_DIR"
            fact = f"{place}: {host} is no known host ({error})"
            raise TransientStorageError(fact, location=place, hint=hint) from error
    from stateshift.storage.hdfs.native import NativeCalls

    # One NameNode is asked by its address; several by their name in the configuration.
    service = authority if len(addresses) > 1 else addresses[0]
    return HdfsStorage(NativeCalls.connect(service, conf, location, over_http), location)


def _over_http(
    authority: str, user: str, conf: HadoopConf, location: str, environment: Mapping[str, str]
) -> HdfsCalls:
    urls = _configured(conf.web_urls(authority), authority, conf, location)
    return _web(_web_client(";".join(urls), user, conf.secure, environment), location)


def _web(client: Client, location: str) -> HdfsCalls:
    # This imports requests, which the native client does not need.
    from stateshift.storage.hdfs.web import WebCalls

    return WebCalls(client, location)


def _configured(
    nodes: Sequence[str], authority: str, conf: HadoopConf, location: str
) -> Sequence[str]:
    if nodes and authority:
        return nodes
    where = "HADOOP_CONF_DIR, which is not set,"
    if conf.place:
        where = f"the configuration in {conf.place}"
    place = locations.redact(location)
    raise StorageError(
        f"{place}: {where} does not say where its NameNodes are",
        location=place,
        hint="export HADOOP_CONF_DIR=/etc/hadoop/conf, or name a host: hdfs://NAMENODE:8020/path",
    )


def _missing_for_rpc(wanted: str) -> str:
    """Return the steps by which a person makes us go by RPC; empty where we do."""
    if wanted == "web":
        return f"unset STATESHIFT_HDFS, {_BY_RPC}"
    try:
        import hdfs_native  # noqa: F401
    except ImportError as error:
        if wanted == "native":
            fact = f"STATESHIFT_HDFS is native, and hdfs-native is not installed ({error})"
            raise StorageError(fact, hint=_INSTALL) from error
        return f"{_INSTALL}, {_BY_RPC}"
    return ""


def _alias_client(authority: str, environment: Mapping[str, str]) -> Client | None:
    """Return the client that the `hdfs` package's own configuration has for this name, if any."""
    path = environment.get("HDFSCLI_CONFIG") or os.path.expanduser("~/.hdfscli.cfg")
    if not authority or not os.path.exists(path):
        return None
    from hdfs.config import Config
    from hdfs.util import HdfsError

    try:
        conf = Config(path)
        sections = (f"{authority}.alias", f"{authority}_alias")
        if not any(map(conf.has_section, sections)):
            return None
        client: Client = conf.get_client(authority)
        return client
    except (HdfsError, SystemExit, ValueError, TypeError) as error:
        fact = f"the alias {authority} of {path} names no client: {locations.redact(str(error))}"
        raise StorageError(fact, hint=f"see https://hdfscli.readthedocs.io, and {path}") from error


def _web_client(urls: str, user: str, secure: bool, environment: Mapping[str, str]) -> Client:
    from hdfs.client import InsecureClient, TokenClient

    proxy = environment.get("HADOOP_PROXY_USER") or None  # whom the requests act for
    options = {"proxy": proxy, "timeout": TIMEOUT_SECONDS}
    token = environment.get("STATESHIFT_HDFS_TOKEN")
    client: Client
    if token:
        client = TokenClient(urls, token, **options)
        return client
    if not secure:
        client = InsecureClient(urls, user=user or None, **options)
        return client
    try:
        from hdfs.ext.kerberos import KerberosClient
    except ImportError as error:
        fact = f"the configuration asks for Kerberos, and its package is not installed ({error})"
        raise StorageError(fact, hint="pip install 'stateshift[kerberos]', then kinit") from error
    client = KerberosClient(urls, **options)
    return client
