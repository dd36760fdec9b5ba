"""Absolute locations as Hadoop writes them into files, and the exchange of prefixes.

    encode_location("/data/a b")            file:///data/a%20b
    encode_location("hdfs://nn/a%b")        hdfs://nn/a%25b
    plain_location("/data/a b")             file:///data/a b
    Relocation({"file:///data": "s3a://b/data"}).new("file:/data/x")   s3a://b/data/x

Logs of sources and sinks hold quoted places. Operators' metadata holds plain ones, as Hadoop's
Path.toString has them: a quoted one there is taken as it stands, for another directory (seen with a
blank in Spark 4.3.0).

Source: Spark, SparkPath.urlEncoded and SinkFileStatus, StateSchemaProvider; Hadoop, Path.toUri;
java.net.URI (the multi-argument constructors quote what RFC 2396 does not allow in a path and leave
other unicode as it is). `file:/x` and `file:///x` are one place; which of the two a file uses
depends on who wrote it, and a rewritten one keeps its form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from urllib.parse import unquote

_ONE_SLASH = re.compile(r"file:/(?!/)")
_NOT_OTHER = ("Cc", "Zs", "Zl", "Zp")
_LEGAL = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'():@&=+$,;/"
)


def encode_location(location: str) -> str:
    """Return an unquoted location as Hadoop writes it. A path alone is on the local disk."""
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
    """Return a path as java.net.URI quotes it: illegal, control characters, blanks as %XX."""
    quoted = []
    for character in path:
        # Java's "other" characters: not ASCII, not control, not blank.
        is_other = ord(character) > 127 and unicodedata.category(character) not in _NOT_OTHER
        if character in _LEGAL or is_other:
            quoted.append(character)
        else:
            raw = character.encode("utf-8", "surrogatepass")
            quoted += [f"%{byte:02X}" for byte in raw]
    return "".join(quoted)


def canonical(uri: str) -> str:
    """Return one spelling per place: `file:///x`, without slashes at the end."""
    return _ONE_SLASH.sub("file:///", uri).rstrip("/")


class Relocation:
    """Old prefix -> new prefix, encoded; the longest of whole names wins."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        pairs = [(canonical(old), canonical(new)) for old, new in prefixes.items()]
        self._pairs = sorted(pairs, key=lambda pair: -len(pair[0]))

    def new(self, uri: str) -> str | None:
        """Return the new location of `uri`, None where it lies under none of the prefixes."""
        place = canonical(uri)
        for old, new in self._pairs:
            if place == old or place.startswith(old + "/"):
                slashes = uri[len(uri.rstrip("/")) :]
                moved = new + place.removeprefix(old) + slashes
                if _ONE_SLASH.match(uri) and moved.startswith("file:///"):
                    return moved.replace("file://", "file:", 1)
                return moved
        return None
