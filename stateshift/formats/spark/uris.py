"""Absolute locations as Hadoop writes them into files, and how one prefix is put in another's
place.

    encode_location("/data/a b")            file:///data/a%20b
    encode_location("hdfs://nn/a%b")        hdfs://nn/a%25b
    plain_location("/data/a b")             file:///data/a b
    Relocation({"file:///data": "s3a://b/data"}).new("file:/data/x")   s3a://b/data/x

Logs of sources and sinks hold quoted places. Operators' metadata holds plain ones, as Hadoop's
Path.toString has them: what is quoted there is taken as it stands, for another directory (seen with
a blank in Spark 4.3.0).

Source: Spark, SparkPath.urlEncoded and SinkFileStatus, StateSchemaProvider; Hadoop, Path.toUri;
java.net.URI (the multi-argument constructors quote what RFC 2396 does not allow in a path and leave
other unicode as it is). `file:/x` and `file:///x` are one place; which of the two a file uses
depends on who wrote it, and what is rewritten keeps its form.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from urllib.parse import unquote

_LEGAL = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'():@&=+$,;/"
)


def encode_location(location: str) -> str:
    """Return a location as a person writes it (nothing quoted), as Hadoop writes it. A path alone
    is on the local disk.
    """
    scheme, colon, rest = location.partition("://")
    if not colon:
        return "file://" + quote(location.removeprefix("file:"))
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority}{quote(slash + path)}"


def plain_location(location: str) -> str:
    """Return the same with nothing quoted, as Hadoop's paths print themselves."""
    if "://" in location:
        return location
    return "file://" + location.removeprefix("file:")


def decode_location(uri: str) -> str:
    """Return the inverse: the location with nothing quoted, `file:/x` as `file:///x`."""
    return unquote(canonical(uri), errors="surrogateescape")


def quote(path: str) -> str:
    """Return a path as java.net.URI quotes it: %XX per UTF-8 byte for what is not legal, control
    characters and blanks.
    """
    return "".join(map(_quoted, path))


def canonical(uri: str) -> str:
    """Return one spelling per place: `file:///x`, without slashes at the end."""
    if _has_one_slash(uri):
        uri = "file://" + uri.removeprefix("file:")
    return uri.rstrip("/")


def _has_one_slash(uri: str) -> bool:
    return uri.startswith("file:/") and not uri.startswith("file://")


class Relocation:
    """Old prefix -> new prefix, both encoded; the longest prefix that fits wins, and only whole
    names fit.
    """

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        pairs = [(canonical(old), canonical(new)) for old, new in prefixes.items()]
        self._pairs = sorted(pairs, key=lambda pair: -len(pair[0]))

    def new(self, uri: str) -> str | None:
        """Return the new location of `uri`, None where it lies under none of the prefixes."""
        place = canonical(uri)
        for old, new in self._pairs:
            if place == old or place.startswith(old + "/"):
                slashes = uri[len(uri.rstrip("/")) :]
                return _spelled_like(uri, new + place.removeprefix(old) + slashes)
        return None


def _spelled_like(uri: str, moved: str) -> str:
    """Return `moved` with one slash where `uri` has one."""
    if _has_one_slash(uri) and moved.startswith("file:///"):
        return moved.replace("file://", "file:", 1)
    return moved


def _quoted(character: str) -> str:
    if character in _LEGAL or _is_other(character):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _is_other(character: str) -> bool:
    """Whether it is of Java's "other" characters: not ASCII, not control, not blank."""
    return ord(character) > 127 and unicodedata.category(character) not in ("Cc", "Zs", "Zl", "Zp")
