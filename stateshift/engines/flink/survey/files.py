"""The files of an image: where its metadata has them, and which of them are there.

located(storage, at, metadata, aside)    Located(places, listed)
.needed(at, metadata)                  everything in the image's folder, and what it needs of
others
.by_operator(metadata)                 the files of each operator
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from stateshift.engines.flink import layout
from stateshift.engines.flink.places import Places, absolute_places, moved_folders
from stateshift.formats.flink.metadata import Metadata
from stateshift.formats.flink.references import files_named, references
from stateshift.formats.flink.stream_handles import (
    AbsoluteFile,
    FileHandle,
    RelativeFile,
    Segment,
    files_of,
)
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo

Listing = dict[str, FileInfo]  # by path


@dataclass(frozen=True, slots=True)
class Located:
    """The folders where files are looked for, and their content."""

    places: Places
    listed: Listing

    def has(self, file: FileHandle) -> bool:
        return self.places.path_of(file) in self.listed

    def count(self, files: Iterable[FileHandle]) -> int:
        """Return the number of the files that are there."""
        return sum(map(self.has, files))

    def needed(self, at: str, metadata: Metadata) -> tuple[FileInfo, ...]:
        """Return everything in the image's folder, and what it needs of others."""
        folder = f"{at}/" if at else ""
        paths = {path for path in self.listed if path.startswith(folder)}
        paths.update(_paths(metadata, self.places) & self.listed.keys())
        return tuple(sorted(self.listed[path] for path in paths))

    def by_operator(self, metadata: Metadata) -> dict[str, tuple[str, ...]]:
        """Return the files of each operator, each once, by its id."""
        paths_of: dict[str, dict[str, None]] = {}
        for reference in references(metadata):
            for file in files_of(reference.stream):
                path = self.places.path_of(file)
                if path is not None:
                    paths_of.setdefault(reference.operator, {})[path] = None
        return {operator: tuple(paths) for operator, paths in paths_of.items()}


def locate_files(storage: Storage, at: str, metadata: Metadata, aside: Sequence[str]) -> Located:
    """Return the places of files: under the names that the metadata gives, else where a job's
    folder was moved to; and, for those that should lie beside the metadata and do not, in the
    folders `aside`.
    """
    plain = _in_place_or_moved(storage, at, metadata)
    beside = [file for file in files_named(metadata) if isinstance(file, RelativeFile)]
    missing = {file.path for file in beside if not plain.has(file)}
    if not missing:
        return plain
    found: dict[str, str] = {}
    listed: Listing = {}
    for folder in aside:
        if locations.is_within(folder, storage.location):
            below = locations.relative(locations.normal(folder), storage.location)
            own = {file.path: file for file in storage.list(below)}
            paths = {name: layout.under(below, name) for name in missing}
            found.update((name, path) for name, path in paths.items() if path in own)
            listed.update(own)
    if not found:
        return plain
    return Located(replace(plain.places, aside=found), {**plain.listed, **listed})


def _in_place_or_moved(storage: Storage, at: str, metadata: Metadata) -> Located:
    location = locations.join(storage.location, at)
    in_place = _listed(storage, at, metadata, Places(storage.location, at))
    moved_to = moved_folders(location, absolute_places(metadata))
    if moved_to is None or not locations.is_within(moved_to[1], storage.location):
        return in_place
    moved = _listed(storage, at, metadata, Places(storage.location, at, moved_to))
    named = {file for file in files_named(metadata) if isinstance(file, AbsoluteFile | Segment)}
    has_more = moved.count(named) > in_place.count(named)
    return moved if has_more else in_place


def _listed(storage: Storage, at: str, metadata: Metadata, places: Places) -> Located:
    """Return everything in the image's folder, and in those that are named."""
    folders = {at, *(layout.folder_of(path) for path in _paths(metadata, places))}
    listed: Listing = {}
    for folder in sorted(folders):
        if not _is_inside_another(folder, folders):
            listed.update((file.path, file) for file in storage.list(folder))
    return Located(places, listed)


def _is_inside_another(folder: str, folders: Collection[str]) -> bool:
    above = folder
    while above:
        above = layout.folder_of(above)
        if above in folders:
            return True
    return False


def _paths(metadata: Metadata, places: Places) -> set[str]:
    """Return every file that is named, as far as it is below the root."""
    paths = set()
    for file in files_named(metadata):
        path = places.path_of(file)
        if path is not None:
            paths.add(path)
    return paths
