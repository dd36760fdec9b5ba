"""A damaged checkpoint as a repair sees it: without what is left out, with files of its copies, and
with logs that follow from others. Reads only.

    leave    state/0/1/42.snapshot            is not seen: an older snapshot and changes serve
    take     state/0/2/41.delta               is read at the copy that is named
    rebuild  commits/41                       holds the text that is given

Checksums beside a file go with it: those of a file that is left out or rebuilt are not seen, and of
one that is taken only where the copy's are taken, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from stateshift.engines.spark.layout import hidden_checksum
from stateshift.errors import MissingFile
from stateshift.specification.transform import Change, Repair, Rewind, find_change
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo


def with_repair(
    storage: Storage, changes: Sequence[Change], opening: Callable[[str], Storage]
) -> tuple[Storage, Sequence[Change]]:
    """Return the storage of a checkpoint that `changes` repair, and the changes with its batch."""
    repair = find_change(changes, Repair)
    if repair is None or repair.batch is None:
        return storage, changes
    mended = cast("Storage", MendedStorage(storage, repair, opening))
    return mended, (*changes, Rewind(repair.batch))


class MendedStorage:
    """A storage as a repair sees it, for reading."""

    def __init__(self, storage: Storage, repair: Repair, opening: Callable[[str], Storage]) -> None:
        self._storage = storage
        copies = {location: opening(location) for location in set(repair.take.values())}
        self._places = {path: copies[location] for path, location in repair.take.items()}
        self._texts = {path: text.encode() for path, text in repair.rebuild.items()}
        self._gone = set(repair.leave)
        for path in (*repair.leave, *repair.take, *repair.rebuild):
            self._gone.update((f"{path}.crc", hidden_checksum(path)))
        self._gone -= self._places.keys()

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def list(self, under: str = "") -> Iterator[FileInfo]:
        others = self._places.keys() | self._texts.keys()
        for file in self._storage.list(under):
            if file.path not in others and file.path not in self._gone:
                yield file
        start = f"{under}/" if under else ""
        for path in sorted(others):
            info = self.stat(path) if path.startswith(start) else None
            if info is not None:
                yield info

    def stat(self, path: str) -> FileInfo | None:
        if path in self._texts:
            return FileInfo(path, len(self._texts[path]))
        return None if path in self._gone else self._place_of(path).stat(path)

    def read(self, path: str, size_max: int | None = None) -> bytes:
        text = self._texts.get(path)
        return self._place_of(path).read(path, size_max) if text is None else text

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        text = self._texts.get(path)
        if text is None:
            return self._place_of(path).chunks(path, offset, size)
        return iter((text[offset:] if size is None else text[offset : offset + size],))

    def checksum(self, path: str) -> str | None:
        return None if path in self._texts else self._place_of(path).checksum(path)

    def _place_of(self, path: str) -> Storage:
        if path in self._gone:
            raise MissingFile(f"{path} is left out", location=self._storage.location)
        return self._places.get(path, self._storage)
