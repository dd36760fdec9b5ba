"""What Hadoop's own configuration says of HDFS file systems: which NameNodes a name stands for, and
where they answer.

    hdfs://shop/p       `shop` is in dfs.nameservices: the NameNodes of dfs.ha.namenodes.shop, each
                        with its dfs.namenode.http-address.shop.nn1 (https-address where
                        dfs.http.policy says so)
    hdfs://host:8020/p  the NameNode with that rpc-address; where none is configured, `host` at the
                        port that Hadoop
                        gives NameNodes for HTTP unless it is told another
    hdfs:///p           whatever fs.defaultFS names

Names and defaults are those of Hadoop 3.4 (hdfs-default.xml; HdfsClientConfigKeys, DFSUtilClient).
Pure but for `read_conf`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from stateshift.errors import StorageError

FILES: Final = ("core-site.xml", "hdfs-site.xml")
RPC_PORT: Final = 8020
HTTP_PORT: Final = 9870
HTTPS_PORT: Final = 9871

_VARIABLE: Final = re.compile(r"\$\{([^{}$]+)\}")
_NESTED_MAX: Final = 20


@dataclass(frozen=True)
class HadoopConf:
    """Properties by name; `place` is the directory they were read from, None where there is
    none.
    """

    properties: Mapping[str, str]
    place: str | None = None

    def get(self, name: str, default: str = "") -> str:
        """The property, the variables in it replaced by the properties that they name."""
        value = self.properties.get(name, default)
        for _ in range(_NESTED_MAX):
            told = _VARIABLE.sub(lambda found: self.properties.get(found[1], found[0]), value)
            if told == value:
                break
            value = told
        return value.strip()

    def names(self, name: str) -> tuple[str, ...]:
        """The property as a list, comma-separated."""
        return tuple(word for word in (part.strip() for part in self.get(name).split(",")) if word)

    @property
    def default_authority(self) -> str:
        """What `hdfs:///` stands for; empty where nothing says."""
        found = re.fullmatch(r"(?:s?web)?hdfs://([^/]*)/?.*", self.get("fs.defaultFS"))
        return found[1] if found else ""

    @property
    def secure(self) -> bool:
        return self.get("hadoop.security.authentication").lower() == "kerberos"

    def web_urls(self, authority: str) -> tuple[str, ...]:
        """Where the NameNodes of a file system answer over HTTP; the authority is a nameservice
        or host:port.
        """
        over_tls = self.get("dfs.http.policy").upper() == "HTTPS_ONLY"
        nodes = self._nodes(authority)
        if nodes or authority in self.names("dfs.nameservices"):
            found = tuple(self._web_address(*node, over_tls) for node in nodes)
            return tuple(_url(address, over_tls) for address in found if address)
        host = authority.rpartition(":")[0] or authority
        return (_url(f"{host}:{HTTPS_PORT if over_tls else HTTP_PORT}", over_tls),)

    def rpc_addresses(self, authority: str) -> tuple[str, ...]:
        """host:port of the NameNodes of a file system, for Hadoop's own RPC."""
        if authority in self.names("dfs.nameservices"):
            return tuple(
                address for node in self._nodes(authority) if (address := self._rpc_address(*node))
            )
        return (authority if re.search(r":\d+$", authority) else f"{authority}:{RPC_PORT}",)

    def _nodes(self, authority: str) -> Sequence[tuple[str, str]]:
        """(nameservice, NameNode) of each; both may be empty."""
        every = [
            (service, node)
            for service in ("", *self.names("dfs.nameservices"))
            for node in (self.names(f"dfs.ha.namenodes.{service}") if service else ()) or ("",)
        ]
        if authority in self.names("dfs.nameservices"):
            return [node for node in every if node[0] == authority]
        return [node for node in every if self._rpc_address(*node) == authority]

    def _rpc_address(self, service: str, node: str) -> str:
        told = self.get(_key("dfs.namenode.rpc-address", service, node))
        return told or ("" if service or node else self.default_authority)

    def _web_address(self, service: str, node: str, over_tls: bool) -> str:
        kind, port = ("https", HTTPS_PORT) if over_tls else ("http", HTTP_PORT)
        told = self.get(_key(f"dfs.namenode.{kind}-address", service, node))
        host = self._rpc_address(service, node).rpartition(":")[0]
        if not told:
            return f"{host}:{port}" if host else ""
        # The address to listen on may name every interface: then it is the host of the RPC address
        # that answers.
        return (
            told.replace("0.0.0.0:", f"{host}:", 1)
            if told.startswith("0.0.0.0:") and host
            else told
        )


def read_conf(environment: Mapping[str, str]) -> HadoopConf:
    """The configuration that the environment names: HADOOP_CONF_DIR, else the one of HADOOP_HOME;
    empty where neither is there.
    """
    place = environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR")
    if not place and environment.get("HADOOP_HOME"):
        place = str(Path(environment["HADOOP_HOME"], "etc", "hadoop"))
    if not place or not Path(place).is_dir():
        return HadoopConf({}, place or None)
    found: dict[str, str] = {}
    for name in FILES:
        file = Path(place, name)
        if file.is_file():
            found |= decode_conf(
                file.read_text(encoding="utf-8", errors="replace"), str(file), environment
            )
    return HadoopConf(found, place)


def decode_conf(
    text: str, path: str, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The properties of one of Hadoop's XML files. `${env.NAME}` becomes what the environment
    holds.
    """
    try:
        top = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        fact = f"{path} is not a configuration of Hadoop's: {error}"
        raise StorageError(
            fact, location=path, hint="mend it, or set HADOOP_CONF_DIR to another directory"
        ) from error
    found = {}
    for each in top.iter("property"):
        name, value = each.findtext("name", "").strip(), each.findtext("value", "")
        if name:
            found[name] = _with_environment(value, environment or {})
    return found


def _with_environment(value: str, environment: Mapping[str, str]) -> str:
    """Hadoop's own syntax for what is not set: `${env.NAME:-this}`, and `${env.NAME-this}`."""

    def told(found: re.Match[str]) -> str:
        name, _, default = found[1].partition("-")
        return environment.get(name.rstrip(":"), default)

    return re.sub(r"\$\{env\.([^{}$]+)\}", told, value)


def _key(name: str, service: str, node: str) -> str:
    return ".".join(word for word in (name, service, node) if word)


def _url(address: str, over_tls: bool) -> str:
    return f"{'https' if over_tls else 'http'}://{address}"
