"""Looking into an image, a workflow directory or a single file: what is there, and some of its state, decoded.

Who looks at a directory waits for nothing that decodes files: that is imported where it is used.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Any

from stateshift.engines.registry import ENGINES, surveyed
from stateshift.engines.singles import single
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.flink.names import METADATA
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import Survey

if TYPE_CHECKING:
    from stateshift.engines.spark import decoding
    from stateshift.engines.spark.entries.rows import RowSchema

# A file longer than this is shown from its beginning only.
FILE_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """What was found: a survey of a directory, or a single file decoded."""

    survey: Survey | None = None
    file: decoding.DecodedFile | None = None


@dataclass(frozen=True, slots=True)
class ShownEntry:
    operator: str
    store: str
    shard: int
    key: Any
    value: Any


def inspect(location: str, opening: Callable[[str], Storage] = open_patiently) -> Look:
    """Look at whatever is at the location."""
    file = single(location, opening)
    if file is not None and file[1] == METADATA:  # of Flink's: what it says is what its folder is
        return inspect(locations.parent(locations.normal(location, os.getcwd())), opening)
    if file is not None:
        storage, name = file
        return Look(file=_decoded(storage, name, location, opening))
    for engine in ENGINES.values():
        _, survey = surveyed(engine, location, opening)
        if survey.images:
            return Look(survey)
    if survey.kind == "empty":
        raise MissingFile(f"nothing is at {location}", location=location, hint=_above(location))
    return Look(survey)


def entries(location: str, opening: Callable[[str], Storage] = open_patiently, limit: int = 20) -> Iterator[ShownEntry]:
    """The first entries of every store, keys and values by the names of their columns as far as these are known."""
    from stateshift.engines.spark.entries.views import views_of

    for engine in ENGINES.values():
        storage, survey = surveyed(engine, location, opening)
        if engine.name == "flink":
            yield from _flink_entries(storage, survey, limit)
            continue
        for image in survey.images:
            shown: Counter[tuple[str, str]] = Counter()
            views = views_of(storage, image)
            for shard in image.shards:
                names = views.names(shard.operator, shard.store)
                if all(shown[shard.operator, name] >= limit for name in names):
                    continue
                for store, block in engine.reader()(storage.chunks, shard, image.settings):
                    view = views.of(shard.operator, store)
                    room = max(0, limit - shown[shard.operator, store])
                    shown[shard.operator, store] += len(block)
                    for key, value in islice(block.records(), room):
                        assert value is not None, "what is folded has no deletes"
                        shown_key, shown_value = view.show_key(key), view.show_value(value)
                        yield ShownEntry(shard.operator, store, shard.shard, shown_key, shown_value)


def _flink_entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    from stateshift.engines.flink.choosing import metadata_of, places_of
    from stateshift.engines.flink.reading import Streams
    from stateshift.engines.flink.showing import shown

    counts: Counter[tuple[str, str]] = Counter()
    for image in survey.images:
        if "metadata" not in image.details:
            continue
        names = {operator.id: operator.uid or operator.id for operator in image.operators}
        for entry in shown(metadata_of(image), Streams(storage.chunks, places_of(image))):
            counts[entry.operator, entry.state] += 1
            if counts[entry.operator, entry.state] <= limit:
                yield ShownEntry(names[entry.operator], entry.state, entry.subtask, entry.key, entry.value)


def _above(location: str) -> str:
    """Where to look for what is not here."""
    return f"check the path: stateshift inspect {quote(locations.parent(locations.normal(location, os.getcwd())))}"


def _rows(storage: Storage, path: str) -> RowSchema:
    """The schema that lies beside a state file, if there is one: a checkpoint starts without it, too."""
    from stateshift.engines.spark import decoding
    from stateshift.engines.spark.entries.rows import RowSchema

    schema = decoding.schema_path(path)
    if schema is None or storage.stat(schema) is None:
        return RowSchema()
    rocksdb = path.endswith((".zip", ".changelog", ".sst"))
    return RowSchema.of(storage.read(schema, FILE_MAX), "rocksdb" if rocksdb else None)


def _decoded(storage: Storage, name: str, location: str, opening: Callable[[str], Storage]) -> decoding.DecodedFile:
    """One file; what schema its rows have is found from where it lies in its checkpoint."""
    from stateshift.engines.spark import decoding
    from stateshift.engines.spark.entries.rows import RowSchema

    path = locations.normal(location, os.getcwd())
    try:
        inside = decoding.inside(path)
        root = path[: len(path) - len(inside)].rstrip("/") or path
        rows = _rows(opening(root), inside) if decoding.schema_path(inside) else RowSchema()
        return decoding.decode_file(path, storage.read(name, FILE_MAX), rows)
    except FormatError as error:
        raise error.at(location) from error
