"""The places of the files that `_metadata` names. Pure.

    Places(root, image)  root: the location that everything of the image is below; image: the folder
                         in it, with `_metadata`
      .path_of(stream)   the file's path below the root, None where it is somewhere else

A handle is relative to the folder of `_metadata`, or absolute, as Flink writes it: file:/x,
s3://bucket/k, hdfs://nn/p. A job's folder that somebody moved as a whole still holds everything,
under names that are no longer true: `moved` is where it was and where it is. `aside` is where files
lie that the metadata has beside itself, and that are not (as FLINK-39964 leaves them): name -> path
below the root. As JSON, places are `plain()`, and `places(plain)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NotRequired, TypedDict

from stateshift.engines.flink.layout import CHECKPOINT, JOB_FOLDERS, METADATA, folder_of, under
from stateshift.errors import StorageError
from stateshift.formats.flink.metadata import Metadata
from stateshift.formats.flink.references import files_named
from stateshift.formats.flink.stream_handles import (
    AbsoluteFile,
    RelativeFile,
    Segment,
    StreamHandle,
    files_of,
)
from stateshift.formats.marks import FOLDER
from stateshift.storage import locations


class PlainPlaces(TypedDict):
    """`Places` as JSON, which has lists for tuples. A plan's target has the first two alone."""

    root: str
    image: str
    moved: NotRequired[Sequence[str] | None]
    aside: NotRequired[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Places:
    """The places of an image's files; `moved` is where its job's folder was, and where it is."""

    root: str
    image: str
    moved: tuple[str, str] | None = None
    aside: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> PlainPlaces:
        moved = list(self.moved) if self.moved else None
        return {"root": self.root, "image": self.image, "moved": moved, "aside": dict(self.aside)}

    def path_of(self, stream: StreamHandle) -> str | None:
        """Return the path of a file below the root; None where it is somewhere else."""
        match stream:
            case RelativeFile(path):
                beside = under(self.image, path) if is_name(path) else None
                return self.aside.get(path) or beside
            case AbsoluteFile(path) | Segment(path):
                location = location_of(path, self.root)
                if location is None:
                    return None
                if self.moved is not None and locations.is_within(location, self.moved[0]):
                    was, now = self.moved
                    location = locations.join(now, locations.relative(location, was))
                if not locations.is_within(location, self.root):
                    return None
                return locations.relative(location, self.root)
        return None

    def file_of(self, stream: StreamHandle | None) -> str | None:
        """Return the path of the file that a stream is in; None where that is the metadata."""
        file = next(files_of(stream), None)
        return None if file is None else self.path_of(file)


def is_name(path: str) -> bool:
    """Whether a relative handle names a file beside the metadata that is not ours to write."""
    if not path or not path.isprintable():
        return False
    parts = path.split("/")
    is_ours = path == METADATA or parts[0] == FOLDER
    return not is_ours and not any(part in ("", ".", "..") for part in parts)


def places(plain: PlainPlaces) -> Places:
    """Return the places that `Places.plain()` wrote as JSON; `moved` and `aside` may be missing."""
    moved = plain.get("moved")
    aside = plain.get("aside", {})
    return Places(plain["root"], plain["image"], (moved[0], moved[1]) if moved else None, aside)


def location_of(path: str, beside: str | None = None) -> str | None:
    """Return an absolute handle's location, hostless ones in the file system `beside` it."""
    try:
        location = locations.parse(path)
    except StorageError:
        return None
    if beside is not None and not location.authority:
        other = locations.parse(beside)
        if other.scheme == location.scheme:
            location = replace(location, authority=other.authority)
    return str(location)


def absolute_places(metadata: Metadata) -> dict[str, int]:
    """Return the folders that absolute handles name, and how often."""
    folders: dict[str, int] = {}
    for file in files_named(metadata):
        if isinstance(file, AbsoluteFile | Segment):
            folder = folder_of(file.path)
            folders[folder] = folders.get(folder, 0) + 1
    return folders


def root_of(location: str, folders: Iterable[str]) -> str:
    """Return the nearest location that the image and all of these folders are below; those of
    another file system, and those that have nothing but its root in common with the image, do not
    count.
    """
    root = location
    for folder in folders:
        place = location_of(folder, location)
        if place is None or not locations.same_file_system(place, location):
            continue
        common = root
        while not locations.is_within(place, common) and locations.parent(common) != common:
            common = locations.parent(common)
        if locations.parse(common).path.strip("/"):
            root = common
    return root


def moved_folders(location: str, folders: Iterable[str]) -> tuple[str, str] | None:
    """Return a job's folder at its checkpoint, and now; None if they are one."""
    here = locations.parent(location) if CHECKPOINT.fullmatch(locations.name(location)) else None
    if here is None:
        return None
    for folder in folders:
        place = location_of(folder, location)
        while place is not None and locations.parse(place).path.strip("/"):
            name, above = locations.name(place), locations.parent(place)
            if name in JOB_FOLDERS or CHECKPOINT.fullmatch(name):
                if above != here:
                    return above, here
                break
            place = above
    return None
