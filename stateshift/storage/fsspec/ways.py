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

from stateshift.specification.schemes import scheme_named
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
    package: str = ""  # to install, as pip takes it


_CAREFUL: Final = Way()
_OBJECTS: Final = Way(whole=True, directories="none", durable=True, at_once=64)

# By service (`specification.schemes`).
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
    """Return the host that a file system asks, if it says so (s3fs does, once it has asked)."""
    client = getattr(file_system, "_s3", None)
    url = str(getattr(getattr(client, "meta", None), "endpoint_url", ""))
    return url.partition("://")[2].rpartition("@")[2].partition("/")[0]
