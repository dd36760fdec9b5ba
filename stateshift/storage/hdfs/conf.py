"""Hadoop's own configuration of HDFS file systems: which NameNodes a name stands for, and where
they answer.

    hdfs://shop/p       `shop` is in dfs.nameservices: the NameNodes of dfs.ha.namenodes.shop, each
                        with its dfs.namenode.http-address.shop.nn1 (https-address where
                        dfs.http.policy says so)
    hdfs://host:8020/p  the NameNode with that rpc-address; where none is configured, `host` at
                        Hadoop's default port for NameNodes over HTTP
    hdfs:///p           whatever fs.defaultFS names

Names and defaults are those of Hadoop 3.4 (hdfs-default.xml; HdfsClientConfigKeys, DFSUtilClient).
Pure but for `read_conf`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from stateshift.errors import StorageError

FILES: Final = ("core-site.xml", "hdfs-site.xml")
RPC_PORT: Final = 8020
HTTP_PORT: Final = 9870
HTTPS_PORT: Final = 9871

_VARIABLE: Final = re.compile(r"\$\{([^{}$]+)\}")
_NESTED_MAX: Final = 20


class _Scheme(NamedTuple):
    name: str
    port: int


_HTTP: Final = _Scheme("http", HTTP_PORT)
_HTTPS: Final = _Scheme("https", HTTPS_PORT)


class _NameNode(NamedTuple):
    """A NameNode by its nameservice and its id there. Both are empty for the only one."""

    service: str = ""
    id: str = ""

    def key(self, name: str) -> str:
        return ".".join(word for word in (name, self.service, self.id) if word)


@dataclass(frozen=True)
class HadoopConf:
    """Properties by name, and the directory (`place`) that they were read from, if any."""

    properties: Mapping[str, str]
    place: str | None = None

    def get(self, name: str, default: str = "") -> str:
        """The property, the variables in it replaced by the properties that they name."""
        value = self.properties.get(name, default)
        for _ in range(_NESTED_MAX):
            replaced = _VARIABLE.sub(lambda name: self.properties.get(name[1], name[0]), value)
            if replaced == value:
                break
            value = replaced
        return value.strip()

    def names(self, name: str) -> tuple[str, ...]:
        """The property as a list, comma-separated."""
        words = [word.strip() for word in self.get(name).split(",")]
        return tuple(word for word in words if word)

    @property
    def default_authority(self) -> str:
        """The authority that `hdfs:///` stands for; empty if nothing says."""
        default = re.fullmatch(r"(?:s?web)?hdfs://([^/]*)/?.*", self.get("fs.defaultFS"))
        return default[1] if default else ""

    @property
    def secure(self) -> bool:
        return self.get("hadoop.security.authentication").lower() == "kerberos"

    def web_urls(self, authority: str) -> tuple[str, ...]:
        """Return the HTTP addresses of NameNodes; the authority is a nameservice or host:port."""
        scheme = _HTTPS if self.get("dfs.http.policy").upper() == "HTTPS_ONLY" else _HTTP
        nodes = self._nodes(authority)
        if nodes or authority in self.names("dfs.nameservices"):
            addresses = [self._web_address(node, scheme) for node in nodes]
            return tuple(f"{scheme.name}://{address}" for address in addresses if address)
        host = authority.rpartition(":")[0] or authority
        return (f"{scheme.name}://{host}:{scheme.port}",)

    def rpc_addresses(self, authority: str) -> tuple[str, ...]:
        """Return host:port of the NameNodes of a file system, for Hadoop's own RPC."""
        if authority in self.names("dfs.nameservices"):
            addresses = [self._rpc_address(node) for node in self._nodes(authority)]
            return tuple(address for address in addresses if address)
        if re.search(r":\d+$", authority):
            return (authority,)
        return (f"{authority}:{RPC_PORT}",)

    def _nodes(self, authority: str) -> Sequence[_NameNode]:
        """Return the NameNodes of a nameservice, or the one with this RPC address."""
        services = self.names("dfs.nameservices")
        if authority in services:
            return self._nodes_of(authority)
        configured = [_NameNode()]
        for service in services:
            configured += self._nodes_of(service)
        return [node for node in configured if self._rpc_address(node) == authority]

    def _nodes_of(self, service: str) -> Sequence[_NameNode]:
        ids = self.names(f"dfs.ha.namenodes.{service}") or ("",)
        return [_NameNode(service, id) for id in ids]

    def _rpc_address(self, node: _NameNode) -> str:
        address = self.get(node.key("dfs.namenode.rpc-address"))
        if address or node != _NameNode():
            return address
        return self.default_authority

    def _web_address(self, node: _NameNode, scheme: _Scheme) -> str:
        address = self.get(node.key(f"dfs.namenode.{scheme.name}-address"))
        host = self._rpc_address(node).rpartition(":")[0]
        if not host:
            return address
        if not address:
            return f"{host}:{scheme.port}"
        # It may listen on every interface: then the host of the RPC address answers.
        return re.sub(r"^0\.0\.0\.0:", f"{host}:", address)


def read_conf(environment: Mapping[str, str]) -> HadoopConf:
    """Return the configuration in HADOOP_CONF_DIR, else HADOOP_HOME; else an empty one."""
    home = environment.get("HADOOP_HOME")
    place = environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR")
    if not place and home:
        place = str(Path(home, "etc", "hadoop"))
    if not place:
        return HadoopConf({})
    properties: dict[str, str] = {}
    for name in FILES:
        file = Path(place, name)
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            properties |= decode_conf(text, str(file), environment)
    return HadoopConf(properties, place)


def decode_conf(
    text: str, path: str, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the properties of one of Hadoop's XML files, `${env.NAME}` replaced."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        fact = f"{path} is not a Hadoop configuration: {error}"
        raise StorageError(
            fact, location=path, hint="mend it, or set HADOOP_CONF_DIR to another directory"
        ) from error

    def from_environment(variable: re.Match[str]) -> str:
        # Hadoop's own syntax for a default is `${env.NAME:-this}`, and `${env.NAME-this}`.
        name, _, default = variable[1].partition("-")
        return (environment or {}).get(name.rstrip(":"), default)

    properties = {}
    for element in root.iter("property"):
        name, value = element.findtext("name", "").strip(), element.findtext("value", "")
        if name:
            properties[name] = re.sub(r"\$\{env\.([^{}$]+)\}", from_environment, value)
    return properties
