"""The abilities of file systems behind fsspec, as far as their documentation and code promise it.

fsspec gives every storage the same methods, not the same meaning. These differ, and matter here:

    whole        a file appears only when its upload completes (object stores): no temporary name is
                 needed
    renames      `mv` renames; fsspec's own `mv` copies, deletes, and expands `*`, `?` and `[` in
                 names
    directories  must be made before a file is written, and removed by `rmdir`, which refuses one
                 that is not empty; they are kept where it may not
    exclusive    how `create` can be exclusive, None where it cannot; "marked" is "mode" with a mark
                 of whose it is
    durable      what was written survives a crash of the machine
    past_end     a range may reach beyond a file's end, so that its size need not be asked for
                 before it is read
    at_once      how many files are worth reading or writing at the same time
    unnameable   what no name may hold, because the package reads it as something else

An object store has no directories: `d` and `d/a` may both be files there, and are read and listed
as that.

Looked at: fsspec 2026.9, s3fs 2026.9, gcsfs 2026.10, adlfs 2026.8, and the first releases of 2024
for the names of arguments. A scheme that is not listed gets the most careful treatment.

A file system is opened with options: what its packages need, then what the user has configured,
then what the caller gives. Each wins over the one before it.

    fsspec's own, all of a scheme      {"s3": {"endpoint_url": "http://minio:9000"}}
    ours, one bucket by its location   {"s3://archive": {"endpoint_url": "https://s3.west"}}

Both stand in fsspec's configuration (~/.config/fsspec/*.json, or the folder FSSPEC_CONFIG_DIR
names). Two S3 services are reached in one run by the second: the location stays the one that the
job knows. (Two buckets of one name at two services are one location, and cannot be distinguished.)
`config_kwargs` and `client_kwargs` are merged, everything else is replaced.

Only our own wrappers try again. A package that repeats by itself takes many minutes to give up
(s3fs five times what botocore does five times), and a creation whose answer was lost would look
like somebody else's.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias, overload

from stateshift.specification.location import scheme_named

# The description of one file: "name", "size", "type", and more under names of its own.
Info: TypeAlias = Mapping[str, object]

# Objects of botocore and aiobotocore. botocore makes its clients' classes while it runs, so that no
# type describes them.
Botocore: TypeAlias = Any


class OpenFile(Protocol):
    """A file opened for writing. Nothing is visible before `close` where an upload has parts."""

    closed: bool
    blocksize: int

    def __enter__(self) -> OpenFile: ...

    def __exit__(self, *error: object) -> None: ...

    def write(self, content: bytes) -> object: ...

    def close(self) -> None: ...

    def discard(self) -> None: ...


class FileSystem(Protocol):
    """The used part of an fsspec file system; the packages behind fsspec have no types."""

    def invalidate_cache(self, path: str | None = None) -> None: ...

    def info(self, path: str) -> Info: ...

    def metadata(self, path: str) -> Info: ...

    def find(self, path: str, *, detail: Literal[True]) -> Mapping[str, Info] | list[str]:
        """Return every file below `path`. adlfs answers with a list if `path` is a file itself."""
        ...

    @overload
    def ls(self, path: str, detail: Literal[True]) -> list[Info]: ...

    @overload
    def ls(self, path: str, detail: Literal[False]) -> list[str]: ...

    def isdir(self, path: str) -> bool: ...

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes: ...

    def pipe_file(self, path: str, value: bytes, **options: object) -> object: ...

    def open(self, path: str, mode: str, block_size: int | None = None) -> OpenFile: ...

    def cp_file(self, path: str, target: str) -> object: ...

    def mv(self, path: str, target: str) -> object: ...

    def rm_file(self, path: str) -> object: ...

    def makedirs(self, path: str, exist_ok: bool) -> object: ...

    def rmdir(self, path: str) -> object: ...


@dataclass(frozen=True, slots=True)
class Way:
    """The abilities of a kind of storage. The defaults hold for one that nothing is known of."""

    whole: bool = False
    renames: bool = False
    directories: Literal["none", "kept", "rmdir"] = "kept"
    exclusive: Literal["mode", "marked", "overwrite", "xb", "process"] | None = None
    durable: bool = False
    past_end: bool = False
    at_once: int = 1
    unnameable: tuple[str, ...] = ()
    package: str = ""  # to install, as pip takes it


_CAREFUL: Final = Way()
_OBJECTS: Final = Way(whole=True, directories="none", durable=True, at_once=64)

# By service (`specification.location`).
_WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        # conditional PUT (If-None-Match), s3fs since 2024.12
        "s3": replace(
            _OBJECTS,
            exclusive="marked",
            past_end=True,
            unnameable=("?versionId=",),
            package="'stateshift[s3]'",
        ),
        # ifGenerationMatch=0, gcsfs since 2024.10
        "gcs": replace(_OBJECTS, exclusive="mode", package="'stateshift[gcs]'"),
        # If-None-Match through overwrite=False, any adlfs
        "azure": replace(_OBJECTS, exclusive="overwrite", package="'stateshift[abfs]'"),
        "file": Way(renames=True, directories="rmdir", exclusive="xb"),
        # One process's, so that a lock among its threads is all that exclusive can mean. `open` in
        # mode "wb" shows a file while it grows: hence a temporary one.
        "memory": Way(directories="rmdir", exclusive="process"),
        "ssh": Way(renames=True, directories="rmdir", package="paramiko"),
        "smb": Way(package="smbprotocol"),
        "oci": Way(package="ocifs"),
        "oss": Way(package="ossfs"),
    }
)


# Names and values as the packages document them.
Options: TypeAlias = Mapping[str, object]

_MERGED: Final = ("client_kwargs", "config_kwargs")

_NEEDED: Final[Mapping[str, Options]] = MappingProxyType(
    {
        "s3": {
            # One request at a time for a file: several are read at once by several threads, and
            # s3fs need not ask for a file's size before it reads it.
            "max_concurrency": 1,
            "config_kwargs": {"retries": {"total_max_attempts": 1}, "max_pool_connections": 64},
        }
    }
)


def way_of(scheme: str, file_system: FileSystem) -> Way:
    """Return the way of this file system: its scheme's, corrected by what its release takes."""
    way = _way_by_scheme(scheme)
    if way.exclusive in ("mode", "marked"):
        method = getattr(type(file_system), "_pipe_file", type(file_system).pipe_file)
        if "mode" not in inspect.signature(method).parameters:
            return replace(way, exclusive=None)
    return way


def package_for(scheme: str) -> str:
    """Return the package to install for a scheme, as pip takes it; else the scheme itself."""
    return _way_by_scheme(scheme).package or scheme


def _way_by_scheme(scheme: str) -> Way:
    return _WAYS.get(scheme_named(scheme).service, _CAREFUL)


def lists_whole_trees(file_system: FileSystem) -> bool:
    """Whether `find` is its own: fsspec's silently leaves out what it could not list."""
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    kind = type(file_system)
    if issubclass(kind, AsyncFileSystem):
        return getattr(kind, "_find") is not AsyncFileSystem._find  # noqa: B009
    return kind.find is not AbstractFileSystem.find


def host_of(file_system: object) -> str:
    """Return the host that a file system asks, if it says so (s3fs does, once it has asked)."""
    client = getattr(file_system, "_s3", None)
    url = str(getattr(getattr(client, "meta", None), "endpoint_url", ""))
    return url.partition("://")[2].rpartition("@")[2].partition("/")[0]


def options_for(
    scheme: str, authority: str, configured: Mapping[str, Options], given: Options
) -> dict[str, object]:
    """Return the options of one file system, as copies: botocore writes into `retries`."""
    shared = (
        _NEEDED.get(scheme, {}),
        configured.get(scheme, {}),
        configured.get(f"{scheme}://{authority}", {}),
    )
    options: dict[str, object] = {"use_listings_cache": False}
    for layer in shared:
        _overlay(options, deepcopy(dict(layer)))
    _overlay(options, given)
    return options


def _overlay(options: dict[str, object], layer: Options) -> None:
    """Put `layer` over the options: two mappings of one name become one, all else is replaced."""
    for name, value in layer.items():
        if name in _MERGED and isinstance(value, Mapping):
            below = options.get(name)
            options[name] = {**below, **value} if isinstance(below, Mapping) else {**value}
        else:
            options[name] = value


def try_once(file_system: object) -> None:
    """s3fs has a second loop around botocore's, which is no option but an attribute."""
    if isinstance(getattr(file_system, "retries", None), int):
        setattr(file_system, "retries", 1)  # noqa: B010  (no type has it)
