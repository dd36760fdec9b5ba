"""What is there: a Flink savepoint or checkpoint, surveyed without a JVM.

`_metadata` says everything but whether its files are there: each is looked for, and its size
compared. The survey's location is the nearest one that all of the image is below (`root`): a
checkpoint shares files with others of its job. The state itself is not read: that is what `check` is
for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from shlex import quote
from typing import Any, Literal

from stateshift.engines.flink import layout
from stateshift.engines.flink.entries.operators import operators_of, sections_in
from stateshift.engines.flink.image import Beginnings, FlinkImage, flink_image
from stateshift.engines.flink.obstacles import Obstacle
from stateshift.engines.flink.places import Places, absolute_places, moved_folders, root_of
from stateshift.engines.flink.rewrite.rescale import heads_of, why_not
from stateshift.engines.flink.rewrite.unkeyed import UNKEYED
from stateshift.engines.flink.streams import Streams, decoded
from stateshift.engines.flink.survey.folders import image_folder, images_below
from stateshift.engines.single_file import folder_of_single
from stateshift.engines.views import Opening
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.metadata import Metadata, OperatorState
from stateshift.formats.flink.properties import Properties, decode_properties
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import AbsoluteFile, RelativeFile, Segment, files_of
from stateshift.formats.flink.versions import WRITTEN_BY, is_before_promised
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import EmbeddedPath, FileInfo, Finding, Image, ShardFiles, Survey

SHOWN_MAX = 5

Listing = dict[str, FileInfo]  # by path


def survey(
    location: str, opening: Opening, changes: Sequence[Mapping[str, Any]] = ()
) -> tuple[Storage, Survey]:
    """The image at a location, and the storage that the survey is of."""
    if location.endswith(f"/{layout.METADATA}") or location == layout.METADATA:
        location = folder_of_single(location, opening)
    storage = opening(location)
    folder = image_folder(storage)
    if folder is None:
        files = tuple(sorted(storage.list()))
        several = tuple(_several(storage, files))
        return storage, Survey(
            storage.location, None, "foreign" if files else "empty", files, (), several
        )
    content = _metadata(storage, layout.under(folder, layout.METADATA))
    place = locations.join(storage.location, folder)
    root = _root(place, content, changes)
    if root != storage.location:
        storage = opening(root)
    image, files = _image(storage, locations.relative(place, root), content, changes)
    kept = flink_image(image)
    kind = "savepoint" if kept is None else kept.kind
    return storage, Survey(storage.location, layout.ENGINE, _survey_kind(kind), files, (image,))


def _survey_kind(kind: str) -> Literal["checkpoint", "savepoint"]:
    return "checkpoint" if kind == "checkpoint" else "savepoint"


def _metadata(storage: Storage, path: str) -> bytes:
    info = storage.stat(path)
    if info is not None:
        bounds.require_whole(info.size, path)
    return storage.read(path, bounds.whole())


def _root(place: str, content: bytes, changes: Sequence[Mapping[str, Any]]) -> str:
    """The location that everything of the image is below; of one that cannot be read, its own."""
    try:
        folders = tuple(absolute_places(decoded(content)))
    except FormatError:
        return place
    moved = moved_folders(place, folders)
    return root_of(place, (*folders, *(moved[1:] if moved else ()), *_aside(changes)))


def _aside(changes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Where files are looked for that are not beside their metadata."""
    locations = []
    for change in changes:
        if change["kind"] == "repair":
            locations.extend(change["files"])
    return tuple(locations)


def _image(
    storage: Storage, at: str, content: bytes, changes: Sequence[Mapping[str, Any]]
) -> tuple[Image, tuple[FileInfo, ...]]:
    path = layout.under(at, layout.METADATA)
    try:
        metadata = decoded(content)
        properties = decode_properties(metadata.properties)
    except FormatError as error:
        files = tuple(sorted(storage.list(at)))
        return _broken(at, path, error), files
    places, listed = _places(storage, at, metadata)
    places, listed = _with_aside(storage, metadata, places, listed, _aside(changes))
    files = _files(at, metadata, places, listed)
    sizes = {file.path: file.size for file in files}
    findings = [
        *_duplicates(metadata),
        *_missing(metadata, places, sizes),
        *_outside(metadata, places),
        *_notes(storage, at, metadata, places),
    ]
    whole = not any(finding.level == "refuse" for finding in findings)
    streams = Streams(storage.chunks, places)
    paths = paths_by_operator(metadata, places)
    needed = {path, *chain.from_iterable(paths.values())}
    return Image(
        path=at,
        name=None,
        identity=None,
        epoch=metadata.checkpoint_id,
        epochs=(metadata.checkpoint_id,) if whole else (),
        planned=None,
        operators=operators_of(metadata, streams),
        shards=tuple(
            ShardFiles(own, "", 0, (path, *paths.get(own, ())))
            for own in dict.fromkeys(operator.id.hex() for operator in metadata.operators)
        ),
        needed=tuple(sorted(needed & (sizes.keys() | {path}))),
        first_read=(path,),
        embedded=tuple(
            EmbeddedPath(path, place, count, "self")
            for place, count in absolute_places(metadata).items()
        ),
        endpoints=(),
        settings={},
        written_by=WRITTEN_BY[metadata.version],
        findings=tuple(findings),
        details=_details(metadata, properties, places, at, _Changes.of(changes), streams),
    ), files


def _several(storage: Storage, files: tuple[FileInfo, ...]) -> Iterator[Finding]:
    below = images_below(files)
    if len(below) > 1:
        first = locations.join(storage.location, below[-1])
        yield Finding(
            "refuse",
            (
                f"{storage.location} holds {len(below)} savepoints or checkpoints "
                f"({', '.join(below[:3])}, ...)"
            ),
            hint=f"name one of them: stateshift inspect {quote(first)}",
        )


def _broken(at: str, path: str, error: FormatError) -> Image:
    found = Finding(
        "refuse", f"{path}: {error.fact}", path=path, offset=error.offset, hint=error.hint
    )
    return Image(
        at,
        None,
        None,
        None,
        (),
        None,
        (),
        (),
        (path,),
        (path,),
        (),
        (),
        {},
        None,
        findings=(found,),
    )


@dataclass(frozen=True, slots=True)
class _Changes:
    """What changes want to know of an image before they are planned."""

    rescaled: bool
    united: bool
    max_parallelism: int | None

    @classmethod
    def of(cls, changes: Sequence[Mapping[str, Any]]) -> _Changes:
        asked = {change["kind"]: change for change in changes}
        most = asked.get("rescale", {}).get("max_parallelism")
        return cls("rescale" in asked, "union" in asked, most)

    def obstacles(
        self, metadata: Metadata, streams: Streams, united: bool
    ) -> Mapping[str, Obstacle]:
        """Return why operators cannot be rescaled, or united with others; in their order."""
        found: dict[str, Obstacle] = {}
        for operator in metadata.operators:
            most = self.max_parallelism or operator.max_parallelism
            why = why_not(operator, streams, most, united)
            if why is not None:
                found[operator.id.hex()] = why
        return found


def _heads(operator: OperatorState, streams: Streams) -> Beginnings:
    """Return how the files of an operator's unkeyed state begin, by their roles."""
    heads = {role: heads_of(operator, streams, role) for role in UNKEYED}
    return {role: beginnings for role, beginnings in heads.items() if beginnings}


def _details(
    metadata: Metadata,
    properties: Properties | None,
    places: Places,
    at: str,
    changes: _Changes,
    streams: Streams,
) -> FlinkImage:
    kept = FlinkImage(
        metadata,
        places,
        kind=_kind(properties, locations.name(locations.join(places.root, at))),
        layout=properties.layout if properties else None,
        drained=properties.drained if properties else False,
    )
    if not changes.rescaled and not changes.united:
        return kept
    return replace(
        kept,
        heads={o.id.hex(): _heads(o, streams) for o in metadata.operators},
        rigid=changes.obstacles(metadata, streams, False) if changes.rescaled else {},
        apart=changes.obstacles(metadata, streams, True) if changes.united else {},
    )


def _kind(properties: Properties | None, folder: str) -> str:
    """Return whether it is a checkpoint or a savepoint: old metadata does not say, its folder's
    name does.
    """
    if properties is not None:
        return properties.kind
    return "checkpoint" if layout.CHECKPOINT.fullmatch(folder) else "savepoint"


def _paths(metadata: Metadata, places: Places) -> set[str]:
    """Every file that is named, as far as it is below the root."""
    paths = set()
    for r in references(metadata):
        for f in files_of(r.stream):
            if (p := places.path_of(f)) is not None:
                paths.add(p)
    return paths


def _places(storage: Storage, at: str, metadata: Metadata) -> tuple[Places, Listing]:
    """Where files are looked for: under the names that the metadata gives, else where a job's
    folder was moved to.
    """
    location = locations.join(storage.location, at)
    plain = Places(storage.location, at)
    moved = moved_folders(location, absolute_places(metadata))
    listed = _listed(storage, at, metadata, plain)
    if moved is None or not locations.is_within(moved[1], storage.location):
        return plain, listed
    there = Places(storage.location, at, moved)
    also = _listed(storage, at, metadata, there)
    wanted = set()
    for r in references(metadata):
        for f in files_of(r.stream):
            if isinstance(f, AbsoluteFile | Segment):
                wanted.add(f)
    found = [
        sum(place.path_of(file) in held for file in wanted)
        for place, held in ((plain, listed), (there, also))
    ]
    return (there, also) if found[1] > found[0] else (plain, listed)


def _with_aside(
    storage: Storage, metadata: Metadata, places: Places, listed: Listing, folders: tuple[str, ...]
) -> tuple[Places, Listing]:
    """The same, and where files are that the metadata has beside itself, and that are not."""
    wanted = set()
    for r in references(metadata):
        for f in files_of(r.stream):
            if isinstance(f, RelativeFile):
                wanted.add(f)
    missing = {file.path for file in wanted if places.path_of(file) not in listed}
    found: dict[str, str] = {}
    also: Listing = {}
    for folder in folders if missing else ():
        if locations.is_within(folder, storage.location):
            below = locations.relative(locations.normal(folder), storage.location)
            here = {file.path: file for file in storage.list(below)}
            found |= {name: path for name in missing if (path := layout.under(below, name)) in here}
            also |= here
    return (replace(places, aside=found), {**listed, **also}) if found else (places, listed)


def _listed(storage: Storage, at: str, metadata: Metadata, places: Places) -> Listing:
    """Everything in the image's folder, and in those that are named."""
    folders = {at, *(layout.folder_of(path) for path in _paths(metadata, places))}
    inner = {
        f for f in folders if not any(f != o and (not o or f.startswith(f"{o}/")) for o in folders)
    }
    files = {}
    for folder in sorted(inner):
        for file in storage.list(folder):
            files[file.path] = file
    return files


def _files(at: str, metadata: Metadata, places: Places, listed: Listing) -> tuple[FileInfo, ...]:
    """Everything in the image's folder, and what it needs of others."""
    held = set()
    for path in listed:
        if not at or path.startswith(f"{at}/"):
            held.add(path)
    others = (path for path in _paths(metadata, places) - held if path in listed)
    return tuple(sorted(listed[path] for path in (*held, *others)))


def paths_by_operator(metadata: Metadata, places: Places) -> dict[str, tuple[str, ...]]:
    """The files of each operator, each once, by its id."""
    found: dict[str, dict[str, None]] = {}
    for reference in references(metadata):
        for file in files_of(reference.stream):
            path = places.path_of(file)
            if path is not None:
                found.setdefault(reference.operator, {})[path] = None
    return {operator: tuple(paths) for operator, paths in found.items()}


def _duplicates(metadata: Metadata) -> Iterator[Finding]:
    ids = Counter(operator.id.hex() for operator in metadata.operators)
    for twice, times in sorted(ids.items()):
        if times > 1:
            yield Finding(
                "refuse",
                f"operator {twice} is there {times} times: Flink would restore the last "
                "one and lose the others without a word",
            )


def _missing(metadata: Metadata, places: Places, sizes: Mapping[str, int]) -> Iterator[Finding]:
    seen: set[tuple[str, int]] = set()
    shown = 0
    for reference in references(metadata):
        for file in files_of(reference.stream):
            least = file.start + file.size if isinstance(file, Segment) else file.size
            exact = not reference.whole and not isinstance(file, Segment)
            if (file.path, least) in seen:
                continue
            seen.add((file.path, least))
            wrong = _wrong(file, least, exact, places, sizes)
            if wrong is None:
                continue
            shown += 1
            if shown <= SHOWN_MAX:
                whose = (
                    f"operator {reference.operator}, subtask {reference.subtask}, "
                    f"{reference.role} state"
                )
                yield Finding(
                    "refuse", f"{whose}: {wrong[0]}", path=places.path_of(file), hint=wrong[1]
                )
    if shown > SHOWN_MAX:
        yield Finding("refuse", f"{shown - SHOWN_MAX} more files are missing or of another size")


def _outside(metadata: Metadata, places: Places) -> Iterator[Finding]:
    """Key groups that begin outside of their files, by the metadata alone."""
    for operator in metadata.operators:
        for subtask in operator.subtasks or ():
            handle = subtask.managed_keyed
            if not isinstance(handle, KeyGroups):
                continue
            try:
                sections_in(handle)
            except FormatError as error:
                file = next(files_of(handle.stream), None)
                whose = f"operator {operator.id.hex()}, subtask {subtask.index}"
                path = places.path_of(file) if file is not None else None
                yield Finding("refuse", f"{whose}: {error.fact}", path=path)


def _wrong(
    file: AbsoluteFile | RelativeFile | Segment,
    least: int,
    exact: bool,
    places: Places,
    sizes: Mapping[str, int],
) -> tuple[str, str | None] | None:
    path = places.path_of(file)
    if path is None:
        return f"{file.path} is not below {places.root}, and cannot be looked at from there", (
            "take a canonical savepoint of the job, which has everything in one folder"
        )
    size = sizes.get(path)
    if size is None:
        if isinstance(file, RelativeFile):
            return f"{path} is missing, where the metadata has it beside itself", (
                "a checkpoint of Flink 2.2 or 2.3 that was restored from a native "
                "savepoint with CLAIM may look so "
                "(FLINK-39964): its files lie in that savepoint, and "
                "`stateshift repair LOCATION --files SAVEPOINT --to NEW` puts them together"
            )
        return f"{file.path} is missing", None
    if size < least or (exact and size != least):
        return f"{path} has {size} bytes, {least} expected", None
    return None


def _notes(storage: Storage, at: str, metadata: Metadata, places: Places) -> Iterator[Finding]:
    if is_before_promised(metadata):
        yield Finding(
            "note",
            "written by a Flink before 1.15: that it can be read is not promised; it is "
            "read as far as its format is "
            "known",
            hint="a savepoint taken with Flink 1.15 or newer is read whole",
        )
    location = locations.join(storage.location, at)
    absolute = sum(absolute_places(metadata).values())
    if places.moved is not None:
        yield Finding(
            "warn",
            f"the metadata names files below {places.moved[0]}, which were found below "
            f"{places.moved[1]}: Flink would "
            "look for them where they were",
            hint=(
                f"stateshift gather {quote(location)} --to LOCATION makes one folder of it "
                "that can lie anywhere"
            ),
        )
    elif absolute:
        yield Finding(
            "note",
            (
                f"{absolute} of its files are named by their full path: the folder alone is no "
                "copy of it"
            ),
            hint=(
                f"stateshift gather {quote(location)} --to LOCATION makes one folder of it "
                "that can lie anywhere"
            ),
        )
