"""Locations as a spec spells them, in one normal form, and how two of them lie to each other. No
file is looked at.

    /data/in   file:/data/in   file:///data//in/   file://localhost/data/in  ->  file:///data/in
    in         (in a spec that lies in /data)                                ->  file:///data/in
    HDFS://namenode/in/                                                      ->  hdfs://namenode/in
    hdfs:/in   (Hadoop's short form of a URL without a host)                 ->  hdfs:///in
    dr:/in     (where a profile has a storage `dr` at s3://bucket/ck)        ->  s3://bucket/ck/in

Names are taken literally: `%20` is three characters, as in Hadoop's Path (3.4) and in fsspec. Only
the scheme's case and the slashes at the end of a URL change: between the slashes of an object's key
everything means something, and a job whose Hadoop knows `s3a` is not told `s3`. A relative location
stays relative only where nobody says what to.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme. The defaults hold for one that the table does not have."""

    name: str
    file_system: str  # one word for all names of the same file system
    service: str  # which kind of storage is behind it
    opened_by: Literal["local", "hdfs", "fsspec"] = "fsspec"
    # The connector that Spark needs for it: "" for none. None: Spark has no file system for it.
    connector: str | None = ""
    known_to_hadoop: bool = True
    everywhere_alike: bool = False  # every machine that reaches it sees the same


_S3A: Final = "hadoop-aws"
_AZURE: Final = "hadoop-azure"

_ROWS: Final = (
    Scheme("file", "file", "file", "local"),
    Scheme("hdfs", "hdfs", "hdfs", "hdfs", everywhere_alike=True),
    Scheme("webhdfs", "webhdfs", "hdfs", "hdfs"),
    Scheme("swebhdfs", "swebhdfs", "hdfs", "hdfs"),
    Scheme("viewfs", "viewfs", "hdfs", everywhere_alike=True),
    # Hadoop's name is s3a. Amazon's own (EMR) is s3, s3n is of old, s3p is Flink's alone (Presto's
    # file system).
    Scheme("s3", "s3", "s3", connector=None, everywhere_alike=True),
    Scheme("s3a", "s3", "s3", connector=_S3A, everywhere_alike=True),
    Scheme("s3n", "s3", "s3", connector=None, everywhere_alike=True),
    Scheme("s3p", "s3", "s3", connector=None, known_to_hadoop=False),
    Scheme("gs", "gs", "gcs", connector="the GCS connector", everywhere_alike=True),
    Scheme("gcs", "gs", "gcs", connector=None),
    Scheme("abfs", "abfs", "azure", connector=_AZURE, everywhere_alike=True),
    Scheme("abfss", "abfs", "azure", connector=_AZURE, everywhere_alike=True),
    Scheme("az", "az", "azure", connector=None),
    Scheme("adl", "adl", "adl", connector=None),
    Scheme("wasb", "wasb", "wasb", connector=_AZURE),
    Scheme("wasbs", "wasbs", "wasb", connector=_AZURE, everywhere_alike=True),
    Scheme("oss", "oss", "oss", connector="hadoop-aliyun"),
    Scheme("cosn", "cosn", "cosn", connector="hadoop-cos"),
    Scheme("sftp", "sftp", "ssh"),
    Scheme("ssh", "ssh", "ssh"),
    Scheme("memory", "memory", "memory", connector=None),
)
SCHEMES: Final[Mapping[str, Scheme]] = MappingProxyType({row.name: row for row in _ROWS})


def scheme_named(name: str) -> Scheme:
    """Return the row of a scheme, or one of defaults if the table has none."""
    return SCHEMES.get(name) or Scheme(name, name, name)


def names_of_service(service: str) -> tuple[str, ...]:
    """Return every scheme of a kind of storage."""
    return tuple(row.name for row in _ROWS if row.service == service)


def names_in_hadoop(name: str) -> tuple[str, ...]:
    """Return every name that Hadoop has for the file system of a scheme."""
    row = SCHEMES.get(name)
    if row is None or not row.known_to_hadoop:
        return (name,)
    same = [other for other in _ROWS if other.file_system == row.file_system]
    return tuple(other.name for other in same if other.known_to_hadoop)


Relation = Literal["same", "inside", "around", "apart"]

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?\Z", re.DOTALL
)
_LOCAL = re.compile(r"(?:file|local):(?P<rest>.*)\Z", re.DOTALL | re.IGNORECASE)
_NO_HOST = re.compile(
    rf"(?P<scheme>{'|'.join(names_of_service('hdfs'))}):(?P<path>/(?!/).*)\Z",
    re.DOTALL | re.IGNORECASE,
)
_ODD = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:[/:]")  # s3:/bucket, simplecache::s3://bucket
_NAMED = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_.-]*):/(?!/)(?P<path>.*)\Z", re.DOTALL)
# The words before a colon that mean something already.
_TAKEN = {*SCHEMES, "local", "http", "https", "jdbc", "jar"}


class NoLocation(ValueError):
    """The text names no location; holds what was expected instead."""


class Storages(dict[str, str]):
    """Locations by the names that a profile gives them; `used` are those that were asked for."""

    def __init__(self, named: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(named)
        self.used: dict[str, None] = {}

    def whole(self, text: str) -> str | None:
        """Return `NAME:/path` in full; None for any other text."""
        match = _NAMED.match(text)
        if match is None or match["name"] not in self:
            return None
        if not {".", ".."}.isdisjoint(match["path"].split("/")):
            raise NoLocation(f"{match['name']}:/path without . and .. in it")
        self.used[match["name"]] = None
        return normal(f"{self[match['name']].rstrip('/')}/{match['path']}")


def names_storage(name: str) -> bool:
    """Whether `NAME:/path` could not be taken for anything but a place in a storage."""
    return _NAMED.match(f"{name}:/") is not None and name.lower() not in _TAKEN


def normal(text: str, base: str | None = None, storages: Storages | None = None) -> str:
    """The location in its normal form; a relative one lies under `base`, where that is known, and
    one in the `storages` of a profile under its own.
    """
    whole = storages.whole(text) if storages else None
    if whole is not None:
        return whole
    if text.startswith("/"):
        return _local(text)
    if text.startswith("~"):
        raise NoLocation(
            "a full path: ${HOME}/... names the home directory (./~... a directory of that name)"
        )
    local = _LOCAL.match(text)
    if local:
        return _local(_path_of(local["rest"]))
    short = _NO_HOST.match(text)
    url = _URL.match(f"{short['scheme']}://{short['path']}" if short else text)
    if url:
        return _url(url)
    if _ODD.match(text):
        start = text.split(":")[0]
        raise NoLocation(
            f"{start}://host/path, in full (./{start}:... for a local file of that name; "
            f"a storage {start!r} needs the --profile that has it)"
        )
    if base and base.startswith("/"):
        return _local(posixpath.join(base, text))
    if base and _URL.match(base):
        return normal(f"{base.rstrip('/')}/{text.removeprefix('./')}")
    plain = posixpath.normpath(posixpath.join(base or "", text))
    means_something_else = plain.startswith("~") or _LOCAL.match(plain) or _ODD.match(plain)
    return f"./{plain}" if means_something_else else plain


def relation(one: str, other: str) -> Relation:
    """Return whether `one` is the same as, inside, around, or apart from `other` (normal forms)."""
    (ours, our_names), (theirs, their_names) = _parts(one), _parts(other)
    shared = min(len(our_names), len(their_names))
    if ours != theirs or our_names[:shared] != their_names[:shared]:
        return "apart"
    if len(our_names) == len(their_names):
        return "same"
    return "inside" if len(our_names) > len(their_names) else "around"


def scheme(location: str) -> str:
    """Return the kind of storage; one word for all names of the same."""
    return _parts(location)[0][0]


def host_of(location: str) -> str:
    """Return `hdfs://namenode:8020` of a location there. Local disks are at one place."""
    (kind, host), _ = _parts(location) if location else (("", ""), [])
    return f"{kind}://{host}"


def _path_of(rest: str) -> str:
    """Return the path behind `file:`, which may name this machine and no other."""
    if rest.startswith("//") and not rest.startswith("///"):
        host, _, path = rest[2:].partition("/")
        if host.lower() != "localhost":
            raise NoLocation("file:///path: another machine's files are no local ones")
        return "/" + path
    if not rest.startswith("/"):
        raise NoLocation("file:///path, from the root on (a relative path has no scheme)")
    return rest


def _url(url: re.Match[str]) -> str:
    path = (url["path"] or "").rstrip("/")
    if any(name in (".", "..") for name in path.split("/")):
        raise NoLocation("a URL without . and .. in its path")
    if not url["authority"] and not path:
        raise NoLocation("a URL that names a place, such as s3://bucket/path")
    return f"{url['scheme'].lower()}://{url['authority']}{path}"


def _local(path: str) -> str:
    """Take `..` back by its name, as Hadoop's Path does, whatever a link leads to."""
    return "file:///" + posixpath.normpath(path).lstrip("/")


def _parts(location: str) -> tuple[tuple[str, str], list[str]]:
    """Return scheme and host, and the names on the path."""
    url = _URL.match(location)
    if url is None:
        return ("file", "."), _names(location)
    file_system = scheme_named(url["scheme"]).file_system
    return (file_system, url["authority"].lower()), _names(url["path"] or "")


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
