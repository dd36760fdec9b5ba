"""The choice of calls for a location on HDFS: whose client, which NameNodes, over HTTP or natively.

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

import os
import socket
from collections.abc import Mapping, Sequence
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
        _resolve(address, location)
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


def _resolve(address: str, location: str) -> None:
    """Refuse a host that no name server knows: the native client waits for one many minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        place = locations.redact(location)
        hint = "check the host; nameservices are found through HADOOP_CONF_DIR"
        fact = f"{place}: {host} is no known host ({error})"
        raise TransientStorageError(fact, location=place, hint=hint) from error


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
