"""What the file systems behind fsspec can do, as far as their documentation and code promise it.

fsspec gives every storage the same methods, not the same meaning. What differs, and matters here:

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
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from stateshift.storage.fsspec.file_system import FileSystem


@dataclass(frozen=True, slots=True)
class Way:
    """What a kind of storage does by itself. The defaults hold for one that nothing is known of."""

    whole: bool = False
    renames: bool = False
    directories: Literal["none", "kept", "rmdir"] = "kept"
    exclusive: Literal["mode", "marked", "overwrite", "xb", "process"] | None = None
    durable: bool = False
    past_end: bool = False
    at_once: int = 1
    unnameable: tuple[str, ...] = ()


_CAREFUL: Final = Way()
_AZURE: Final = Way(whole=True, directories="none", exclusive="overwrite", durable=True, at_once=64)
_OBJECTS: Final = Way(whole=True, directories="none", exclusive="mode", durable=True, at_once=64)

_WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        # conditional PUT (If-None-Match), s3fs since 2024.12
        "s3": replace(_OBJECTS, exclusive="marked", past_end=True, unnameable=("?versionId=",)),
        "gs": _OBJECTS,  # ifGenerationMatch=0, gcsfs since 2024.10
        "gcs": _OBJECTS,
        "abfs": _AZURE,  # If-None-Match through overwrite=False, any adlfs
        "abfss": _AZURE,
        "az": _AZURE,
        "file": Way(renames=True, directories="rmdir", exclusive="xb"),
        # One process's, so that a lock among its threads is all that exclusive can mean. `open` in
        # mode "wb" shows a file while it grows: hence a temporary one.
        "memory": Way(directories="rmdir", exclusive="process"),
        "sftp": Way(renames=True, directories="rmdir"),
        "ssh": Way(renames=True, directories="rmdir"),
    }
)

_PACKAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "s3": "'stateshift[s3]'",
        "gs": "'stateshift[gcs]'",
        "gcs": "'stateshift[gcs]'",
        "abfs": "'stateshift[abfs]'",
        "abfss": "'stateshift[abfs]'",
        "az": "'stateshift[abfs]'",
        "sftp": "paramiko",
        "ssh": "paramiko",
        "smb": "smbprotocol",
        "oci": "ocifs",
        "oss": "ossfs",
    }
)


def way_of(scheme: str, file_system: FileSystem) -> Way:
    """Return how to treat this file system: by its scheme, corrected by what its release takes."""
    way = _WAYS.get(scheme, _CAREFUL)
    needs_mode = way.exclusive in ("mode", "marked")
    if needs_mode and not _takes(file_system, "mode"):
        return replace(way, exclusive=None)
    return way


def lists_whole_trees(file_system: FileSystem) -> bool:
    """Whether `find` is the file system's own. fsspec's silently leaves out what it could not
    list.
    """
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    kind = type(file_system)
    if issubclass(kind, AsyncFileSystem):
        return getattr(kind, "_find") is not AsyncFileSystem._find  # noqa: B009
    return kind.find is not AbstractFileSystem.find


def host_of(file_system: object) -> str:
    """Return whom a file system asks, if it says so (s3fs does, once it has asked)."""
    client = getattr(file_system, "_s3", None)
    url = str(getattr(getattr(client, "meta", None), "endpoint_url", ""))
    return url.partition("://")[2].rpartition("@")[2].partition("/")[0]


def packages_for(scheme: str) -> str | None:
    """Return what to install for a scheme, as pip takes it."""
    return _PACKAGES.get(scheme)


def _takes(file_system: FileSystem, argument: str) -> bool:
    method = getattr(type(file_system), "_pipe_file", type(file_system).pipe_file)
    return argument in inspect.signature(method).parameters
