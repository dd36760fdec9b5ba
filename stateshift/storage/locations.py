"""Locations: the URLs and local paths a user types, in one normal form. Pure: nothing here looks at
a disk.

    typed                               normal form            scheme  authority  path
    /a/b, /a//b/, file:/a/b             file:///a/b            file               /a/b
    b          (in /a)                  file:///a/b            file               /a/b
    hdfs://nn:8020/p/                   hdfs://nn:8020/p       hdfs    nn:8020    /p
    s3a://bucket/k, s3n:.., s3p:..      s3://bucket/k          s3      bucket     /k

Locations are taken literally and never decoded: blanks, `%`, `#`, `?`, `:` and any unicode stand
for themselves, also behind `file:`. Hadoop writes `file:///a%20b` for a directory `a b`
(Path.toUri), but what a person types on a shell, or in a spec, is the name that `ls` prints; what
Hadoop wrote into a file is decoded where that file is. `..` is resolved as text, in local paths
only. Windows is not supported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from shlex import quote
from typing import Annotated, Final

from stateshift.errors import StorageError
from stateshift.specification.location import NoLocation, scheme_named
from stateshift.specification.location import normal as spelled

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)
_NO_NAMES: Final = frozenset(("", ".", ".."))

# Folders that are named for what they hold, and not for a job.
_NO_JOB: Final = re.compile(
    r"(?i)_?(check-?points?|ckpts?|save-?points?|images?|states?|data|tmp|latest|current)"
    r"|savepoint-[0-9a-f]+-[0-9a-f]+|chk-[0-9]+|[0-9a-f]{32}"
)

_USERINFO: Final = re.compile(r"(://[^/@\s:]*):[^/@\s]*@")
_SECRETS: Final = re.compile(
    r"(?i)\b((?:x-amz-)?(?:signature|credential|security-token)|sig|delegation|token|access_token"
    r"|password|passwd|secret|secret_key|account_key|sas_token)=[^&\s'\")]+"
)


@dataclass(frozen=True, slots=True)
class Location:
    """A location in its parts; `path` begins with a slash, and ends in one for a root only."""

    scheme: str
    authority: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse(text: str, cwd: str | None = None) -> Location:
    """Return the location that the user typed, by the spec's grammar, relative to `cwd`."""
    if not text or "\0" in text:
        fact = f"{text!r} is not a location"
        raise StorageError(fact, hint="give a path or a URL, such as s3://bucket/path")
    try:
        url = _URL.fullmatch(spelled(text, cwd))
    except NoLocation as error:
        place = redact(text)
        fact = f"{place} is not a location"
        raise StorageError(fact, hint=f"expected {error}", location=place) from error
    if url is None:
        fact = f"{text!r} is a relative path"
        raise StorageError(fact, hint="give the full path, or a URL", location=text)
    row = scheme_named(url[1])
    # All names of S3 are one here. fsspec knows each name of other services by itself.
    name = row.file_system if row.service == "s3" else row.name
    return Location(name, url[2], url[3])


def normal(text: str, cwd: str | None = None) -> str:
    """Return the normal form of a location: two are the same if theirs are equal."""
    return str(parse(text, cwd))


def local_path(location: str) -> str | None:
    """Return the path on this machine, None for a location that is elsewhere."""
    parsed = parse(location)
    return parsed.path if parsed.scheme == "file" else None


def scheme(location: str) -> str:
    """Return the scheme by which a location is opened: "file" for a path without one."""
    return parse(location).scheme


def authority(location: str) -> str:
    """Return the host, nameservice or bucket of a location; empty for a local one."""
    return parse(location).authority


def join(location: str, path: str) -> str:
    """Return the location of a path below this one."""
    check_path(path)
    return f"{normal(location).rstrip('/')}/{path}" if path else normal(location)


def parent(location: str) -> str:
    """Return the location one name up; the root's is the root."""
    parsed = parse(location)
    root = "/" if parsed.scheme == "file" else ""
    above = parsed.path.rpartition("/")[0]
    return str(Location(parsed.scheme, parsed.authority, above or root))


def look_above(location: str) -> str:
    """Return the hint for a location at which nothing is."""
    return f"check the path: stateshift inspect {quote(parent(location))}"


def name(location: str) -> str:
    """Return the last name in a location; empty for a root."""
    return parse(location).path.rpartition("/")[2]


def job_name(*places: str) -> str:
    """Return a name for the job whose images are at these places, as they were typed: the innermost
    folder that is named for one, of the first place that has such a folder.
    """
    named: list[list[str]] = []
    for place in places:
        url = _URL.fullmatch(place)
        path = place if url is None else url[3]
        named.append([name for name in path.split("/") if name not in _NO_NAMES])
    for name in chain.from_iterable(map(reversed, named)):
        if not _NO_JOB.fullmatch(name):
            return name
    return named[0][-1] if named[0] else "job"


def same_file_system(one: str, other: str) -> bool:
    """Whether a rename may reach the other, by the names: local disks may still differ."""
    a, b = parse(one), parse(other)
    return (a.scheme, a.authority) == (b.scheme, b.authority)


def is_within(inner: str, outer: str) -> bool:
    """Whether `inner` is `outer` or lies below it."""
    below = parse(inner).path.rstrip("/") + "/"
    return same_file_system(inner, outer) and below.startswith(parse(outer).path.rstrip("/") + "/")


def relative(inner: str, outer: str) -> str:
    """Return the path of `inner` below `outer`."""
    assert is_within(inner, outer), f"{inner} is not below {outer}"
    return parse(inner).path[len(parse(outer).path.rstrip("/")) + 1 :]


def redact(text: str) -> str:
    """Return a location, or a message that holds some, without credentials."""
    return _SECRETS.sub(r"\1=***", _USERINFO.sub(r"\1:***@", text))


# Text of a value that its document shows without credentials.
Redacted = Annotated[str, redact]


def check_path(path: str) -> str:
    """Return a path below a location, refused if it leads out; empty is the location itself."""
    if not path:
        return path
    if "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")):
        fact = f"{path!r} is not a path below a location"
        raise StorageError(fact, hint="names between slashes, no `..`")
    return path
