"""The choice of calls for a location on HDFS: whose client, which NameNodes, over HTTP or natively.

    hdfs://AUTHORITY/path     natively where `hdfs-native` is installed (the extra `hdfs`), else
                              over HTTP
    webhdfs://host:port/path  over HTTP, at that address; swebhdfs:// with TLS

The authority is, in this order: an alias in ~/.hdfscli.cfg (or HDFSCLI_CONFIG), always over HTTP,
with whatever client and credentials it names; a nameservice, or the RPC address of a NameNode, of
the configuration in HADOOP_CONF_DIR; a host. `STATESHIFT_HDFS=web` or `=native` decides where both
would do.

Who asks: USER@ in the authority, else HADOOP_USER_NAME, else whoever is logged in;
HADOOP_PROXY_USER is acted for. Where the configuration says Kerberos, so do we. A delegation token
comes from STATESHIFT_HDFS_TOKEN, or from an alias. With either of the last two, or with USER@, it
goes over HTTP: the native client asks as HADOOP_USER_NAME or as us.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from stateshift.errors import StorageError, TransientStorageError
from stateshift.storage import locations
from stateshift.storage.hdfs.calls import HdfsCalls
from stateshift.storage.hdfs.conf import HadoopConf, read_conf
from stateshift.storage.hdfs.storage import HdfsStorage

if TYPE_CHECKING:
    from stateshift.storage.hdfs.web import Client

_INSTALL = "pip install 'stateshift[hdfs]'"
_BY_RPC = "for Hadoop's own RPC in place of HTTP"
TIMEOUT_SECONDS = (10.0, 120.0)  # to connect, to answer


def open_hdfs(location: str, environment: Mapping[str, str] | None = None) -> HdfsStorage:
    """Return the storage at a location on HDFS."""
    return _opened(locations.normal(location), environment or os.environ)


def _opened(location: str, environment: Mapping[str, str]) -> HdfsStorage:
    parsed = locations.parse(location)
    user, authority = _user_and_host(parsed.authority, environment)
    client = _alias_client(authority, environment)
    if client is not None:
        return HdfsStorage(_web(client, location), location)
    conf = read_conf(environment)
    if parsed.scheme != "hdfs":
        url = f"{_http_of(parsed.scheme)}://{authority}"
        client = _web_client(url, user, conf.secure, environment)
        return HdfsStorage(_web(client, location), location)
    authority = authority or conf.default_authority
    web = partial(_over_http, authority, user, conf, location, environment)
    wanted = _asked_for(environment)
    if not _may_go_natively(parsed.authority, environment):
        return HdfsStorage(web(), location)
    missing = _missing_for_rpc(wanted)
    if missing:
        return HdfsStorage(web(), location, faster_by=missing)
    addresses = _configured(conf.rpc_addresses(authority), authority, conf, location)
    return HdfsStorage(_native(addresses, authority, conf, location, web), location)


def _user_and_host(authority: str, environment: Mapping[str, str]) -> tuple[str, str]:
    user, _, host = authority.rpartition("@")
    return user or environment.get("HADOOP_USER_NAME", ""), host


def _http_of(scheme: str) -> str:
    return "https" if scheme == "swebhdfs" else "http"


def _over_http(
    authority: str, user: str, conf: HadoopConf, location: str, environment: Mapping[str, str]
) -> HdfsCalls:
    urls = _configured(conf.web_urls(authority), authority, conf, location)
    return _web(_web_client(";".join(urls), user, conf.secure, environment), location)


def _web(client: Client, location: str) -> HdfsCalls:
    # This imports requests, which the native client does not need.
    from stateshift.storage.hdfs.web import WebCalls

    return WebCalls(client, location)


def _native(
    addresses: Sequence[str],
    authority: str,
    conf: HadoopConf,
    location: str,
    web: Callable[[], HdfsCalls],
) -> HdfsCalls:
    """Connect to one NameNode by its address, to several by the name that the client, too, looks
    up in the configuration.
    """
    from stateshift.storage.hdfs.native import NativeCalls

    for address in addresses:
        _resolve(address, location)
    return NativeCalls.connect(
        authority if len(addresses) > 1 else addresses[0], conf, location, web
    )


def _resolve(address: str, location: str) -> None:
    """Refuse a host that no name server knows: the native client waits for one many minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        place = locations.redact(location)
        hint = "check the host; nameservices are found through HADOOP_CONF_DIR"
        raise TransientStorageError(
            f"{place}: {host} is no known host ({error})", location=place, hint=hint
        ) from error


def _configured(
    nodes: Sequence[str], authority: str, conf: HadoopConf, location: str
) -> Sequence[str]:
    """Return the addresses of NameNodes, or say that none are configured."""
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


def _may_go_natively(authority: str, environment: Mapping[str, str]) -> bool:
    """Whether the native client can ask as whoever is to ask."""
    is_other = environment.get("STATESHIFT_HDFS_TOKEN") or environment.get("HADOOP_PROXY_USER")
    return not is_other and "@" not in authority


def _asked_for(environment: Mapping[str, str]) -> str:
    """Return the client that a person asks for; empty: whichever is there."""
    wanted = environment.get("STATESHIFT_HDFS", "")
    if wanted not in ("", "web", "native"):
        raise StorageError(
            f"STATESHIFT_HDFS is {wanted!r}", hint="web, native, or nothing: whichever is there"
        )
    return wanted


def _missing_for_rpc(wanted: str) -> str:
    """Return what a person does so that we go by RPC; empty where we do."""
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


def _alias_file(environment: Mapping[str, str]) -> str:
    return environment.get("HDFSCLI_CONFIG") or os.path.expanduser("~/.hdfscli.cfg")


def _alias_client(authority: str, environment: Mapping[str, str]) -> Client | None:
    """Return the client that the `hdfs` package's own configuration has for this name, if any."""
    path = _alias_file(environment)
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


def _proxy_user(environment: Mapping[str, str]) -> str | None:
    """Return whom the requests act for, if that is somebody else than who asks."""
    return environment.get("HADOOP_PROXY_USER") or None


def _web_client(urls: str, user: str, secure: bool, environment: Mapping[str, str]) -> Client:
    from hdfs.client import InsecureClient, TokenClient

    options = {"proxy": _proxy_user(environment), "timeout": TIMEOUT_SECONDS}
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
