"""The survey of a Flink savepoint or checkpoint, made without a JVM.

`_metadata` says everything but whether its files are there: each is looked for, and its size
compared. The survey's location is the nearest one that all of the image is below (`root`): a
checkpoint shares files with others of its job. The state itself is not read: `check` does that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from stateshift.engines.findings import of_images_below
from stateshift.engines.flink import layout
from stateshift.engines.flink.entries.operators import endpoints_of, operators_of
from stateshift.engines.flink.image import Beginnings, FlinkImage, Obstacle, flink_image, id_of
from stateshift.engines.flink.jvm import digests_of, hashing
from stateshift.engines.flink.places import (
    Places,
    absolute_places,
    location_of,
    moved_folders,
    root_of,
)
from stateshift.engines.flink.rewrite.keyed_files import Origin
from stateshift.engines.flink.rewrite.metadata import is_set_to_one
from stateshift.engines.flink.rewrite.rescale import (
    heads_of,
    keyed_heads,
    unhashed_headers,
    why_not,
)
from stateshift.engines.flink.rewrite.unkeyed import KEYED, UNKEYED
from stateshift.engines.flink.streams import Streams, decode_once
from stateshift.engines.flink.survey.findings import findings_of
from stateshift.engines.registry import folder_of_single
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, StorageError
from stateshift.formats import bounds
from stateshift.formats.flink.metadata import Metadata
from stateshift.formats.flink.properties import decode_properties
from stateshift.formats.flink.references import files_named, references
from stateshift.formats.flink.stream_handles import (
    AbsoluteFile,
    FileHandle,
    RelativeFile,
    Segment,
    files_of,
)
from stateshift.formats.flink.versions import WRITTEN_BY
from stateshift.formats.marks import FOLDER
from stateshift.specification.transform import (
    Change,
    Drop,
    Evolve,
    Prune,
    Repair,
    Rescale,
    Union,
    find_change,
)
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import EmbeddedPath, FileInfo, Image, ShardFiles, Survey, refuse

Listing = dict[str, FileInfo]  # by path


def survey(
    location: str, opening: Opening, changes: Sequence[Change] = ()
) -> tuple[Storage, Survey]:
    """Return the survey of the image at a location, and the storage that the survey is of."""
    if location.rpartition("/")[2] == layout.METADATA:
        location = folder_of_single(location, opening)
    storage = opening(location)
    folder = image_folder(storage)
    if folder is None:
        files = tuple(sorted(storage.list()))
        only_ours = all(file.path.startswith(f"{FOLDER}/") for file in files)
        findings = tuple(of_images_below(storage.location, files))
        without = Survey(
            storage.location, None, "empty" if only_ours else "foreign", files, (), findings
        )
        return storage, without
    path = layout.under(folder, layout.METADATA)
    info = storage.stat(path)
    if info is not None:
        bounds.require_whole(info.size, path)
    content = storage.read(path, bounds.whole())
    place = locations.join(storage.location, folder)
    root = _root(place, content, changes)
    if root != storage.location:
        storage = opening(root)
    image, files = _image(storage, locations.relative(place, root), content, changes)
    kept = flink_image(image)
    kind: Literal["checkpoint", "savepoint"] = "savepoint"  # also of one that cannot be read
    if kept is not None and kept.kind == "checkpoint":
        kind = "checkpoint"
    return storage, Survey(storage.location, layout.ENGINE, kind, files, (image,))


def _root(place: str, content: bytes, changes: Sequence[Change]) -> str:
    """Return the location that all of the image is below; of an unreadable one, its own."""
    try:
        folders = list(absolute_places(decode_once(content)))
    except FormatError:
        return place
    moved = moved_folders(place, folders)
    if moved is not None:
        folders.append(moved[1])
    return root_of(place, (*folders, *_aside(changes)))


def _aside(changes: Sequence[Change]) -> tuple[str, ...]:
    repair = find_change(changes, Repair)
    return () if repair is None else repair.files


def _image(
    storage: Storage, at: str, content: bytes, changes: Sequence[Change]
) -> tuple[Image, tuple[FileInfo, ...]]:
    path = layout.under(at, layout.METADATA)
    try:
        metadata = decode_once(content)
        properties = decode_properties(metadata.properties)
    except FormatError as error:
        return _broken(at, path, error), tuple(sorted(storage.list(at)))
    located_files = locate_files(storage, at, metadata, _aside(changes))
    files = located_files.needed(at, metadata)
    location = locations.join(storage.location, at)
    findings = findings_of(location, metadata, located_files.places, files)
    is_whole = not any(finding.level == "refuse" for finding in findings)
    streams = Streams(storage.chunks, located_files.places)
    paths = located_files.by_operator(metadata)
    needed = {path, *({file.path for file in files} & set(chain.from_iterable(paths.values())))}
    # Old metadata does not say whether it is a checkpoint or a savepoint: its folder's name does.
    is_checkpoint = layout.CHECKPOINT.fullmatch(locations.name(location)) is not None
    kind_by_name = "checkpoint" if is_checkpoint else "savepoint"
    kept = FlinkImage(
        metadata,
        located_files.places,
        kind=properties.kind if properties else kind_by_name,
        layout=properties.layout if properties else None,
        drained=properties.drained if properties else False,
        operator_states=_operator_states(metadata, streams),
    )
    ids = dict.fromkeys(operator.id.hex() for operator in metadata.operators)
    image = Image(
        path=at,
        name=None,
        identity=None,
        epoch=metadata.checkpoint_id,
        epochs=(metadata.checkpoint_id,) if is_whole else (),
        planned=None,
        operators=operators_of(metadata, streams),
        shards=tuple(ShardFiles(id_, "", 0, (path, *paths.get(id_, ()))) for id_ in ids),
        needed=tuple(sorted(needed)),
        first_read=(path,),
        embedded=tuple(
            EmbeddedPath(path, place, count, "self")
            for place, count in absolute_places(metadata).items()
        ),
        endpoints=endpoints_of(metadata, streams),
        settings={},
        written_by=WRITTEN_BY[metadata.version],
        findings=findings,
        details=_with_obstacles(kept, location, changes, streams),
    )
    return image, files


def _broken(at: str, path: str, error: FormatError) -> Image:
    refusal = refuse(f"{path}: {error.fact}", path=path, offset=error.offset, hint=error.hint)
    return Image(
        path=at,
        name=None,
        identity=None,
        epoch=None,
        epochs=(),
        planned=None,
        operators=(),
        shards=(),
        needed=(path,),
        first_read=(path,),
        embedded=(),
        endpoints=(),
        settings={},
        written_by=None,
        findings=(refusal,),
    )


def _with_obstacles(
    kept: FlinkImage, location: str, changes: Sequence[Change], streams: Streams
) -> FlinkImage:
    """Return the same, with what changes want to know of an image before they are planned. No code
    of a job runs for an operator that is dropped, or keeps its one key group.
    """
    rescale, united = find_change(changes, Rescale), find_change(changes, Union) is not None
    edited = any(isinstance(change, Evolve | Prune) for change in changes)
    if rescale is None and not united and not edited:
        return kept
    operators = kept.metadata.operators
    digests: dict[str, str] = {}
    by_classes, dropped = None, set[str]()
    if rescale is not None and rescale.classes:
        digests = digests_of(rescale.classes)
        by_classes = hashing(digests, rescale.flink)
    for change in changes:
        if isinstance(change, Drop) and (change.of is None or location_of(change.of) == location):
            dropped.update(map(id_of, change.operators))
    asked: list[tuple[Origin, int]] = []
    jars: dict[str, Mapping[str, str]] = {}
    heads: dict[str, Beginnings] = {}
    for operator in operators:
        most = operator.max_parallelism
        if rescale is not None and not is_set_to_one(operator, kept.metadata):
            most = rescale.max_parallelism or most
        origin, id_ = Origin(operator, streams), operator.id.hex()
        is_dealt = most != operator.max_parallelism and id_ not in dropped
        if by_classes is not None and is_dealt and unhashed_headers(origin):
            origin, jars[id_] = replace(origin, hashing=by_classes), digests
        asked.append((origin, most))
        by_role = {role: heads_of(operator, streams, role) for role in UNKEYED}
        if edited:
            by_role[KEYED] = keyed_heads(operator, streams)
        heads[id_] = {role: own for role, own in by_role.items() if own}
    return replace(
        kept,
        heads=heads,
        jars=jars,
        rigid={} if rescale is None else _obstacles(asked, united=False),
        apart=_obstacles(asked, united=True) if united or edited else {},
    )


def _obstacles(asked: Sequence[tuple[Origin, int]], united: bool) -> Mapping[str, Obstacle]:
    obstacles: dict[str, Obstacle] = {}
    for origin, most in asked:
        why = why_not(origin, most, united)
        if why is not None:
            obstacles[origin.operator.id.hex()] = why
    return obstacles


def _operator_states(metadata: Metadata, streams: Streams) -> dict[str, int]:
    """Return each operator's version of operator state, by its first file that is readable."""
    versions: dict[str, int] = {}
    for operator in metadata.operators:
        listed = (subtask.managed_operator for subtask in operator.all_subtasks)
        handles = (handle for handle in listed if handle is not None)
        first = next((handle for handle in handles if handle.starts), None)
        if first is not None and first.stream is not None:
            with suppress(FormatError, StorageError):
                head = streams.head(first.stream, 4)
                versions[operator.id.hex()] = int.from_bytes(head, "big")
    return versions


def image_folder(storage: Storage) -> str | None:
    """Return the folder of `_metadata`: here, or the newest savepoint or checkpoint below."""
    if storage.stat(layout.METADATA) is not None:
        return ""
    below = images_below(storage.list())
    # The folders of checkpoints' jobs, and those of savepoints.
    jobs = {layout.folder_of(folder) if _number(folder) is not None else folder for folder in below}
    if len(jobs) != 1:
        return None
    return max(below, key=lambda folder: (_number(folder) or 0, folder))


def images_below(files: Iterable[FileInfo]) -> list[str]:
    """Return the folders of the first two levels that hold an image."""
    folders = []
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if not folder or name != layout.METADATA:
            continue
        if folder.count("/") <= 1 and FOLDER not in folder:
            folders.append(folder)
    return sorted(folders)


def _number(folder: str) -> int | None:
    checkpoint = layout.CHECKPOINT.fullmatch(folder.rpartition("/")[2])
    return int(checkpoint[1]) if checkpoint else None


# ---- where its metadata has the files, and which of them are there


@dataclass(frozen=True, slots=True)
class Located:
    """The folders where files are looked for, and their content."""

    places: Places
    listed: Listing

    def has(self, file: FileHandle) -> bool:
        return self.places.path_of(file) in self.listed

    def count(self, files: Iterable[FileHandle]) -> int:
        return sum(map(self.has, files))

    def needed(self, at: str, metadata: Metadata) -> tuple[FileInfo, ...]:
        folder = f"{at}/" if at else ""
        paths = {path for path in self.listed if path.startswith(folder)}
        paths.update(_paths(metadata, self.places) & self.listed.keys())
        return tuple(sorted(self.listed[path] for path in paths))

    def by_operator(self, metadata: Metadata) -> dict[str, tuple[str, ...]]:
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
    paths = set()
    for file in files_named(metadata):
        path = places.path_of(file)
        if path is not None:
            paths.add(path)
    return paths
