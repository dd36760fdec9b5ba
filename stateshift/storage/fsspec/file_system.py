"""The calls of a file system of fsspec's. The package has no types of its own, so the methods
that we call are written down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias, overload

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

    def metadata(self, path: str) -> Info:
        """Return the metadata of an object of S3. Other file systems lack this method."""
        ...

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
