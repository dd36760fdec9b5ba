"""A checkpoint's logs and schemas: what a check reads of it. Reads only, and little.

offsets/<newest>           settings, watermark, positions
state/<op>/_metadata/…     names of operators
state/<op>/…/schema        keys and values
entries                    a few of windows, for their lengths
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stateshift.check.spark.columns import fields_of
from stateshift.check.spark.query import Operator, Source, StoredQuery, operators_in, partitions_of
from stateshift.engines.spark.layout import inside, number_of_log, offset_path, under
from stateshift.engines.views import ShownEntry
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.operator_metadata import (
    decode_operator_metadata,
    encode_operator_metadata,
    relocate_schema_files,
)
from stateshift.formats.spark.uris import Relocation, canonical, plain_location
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Survey

ENTRIES_MAX = 100  # of each store, to see how long its windows are
SMALL_MAX = 16 << 20  # bytes of one log or schema
WINDOW_COLUMNS = ("start", "end")


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The logs and schemas of one checkpoint, by their paths in it."""

    image: Image
    files: Mapping[str, bytes]


def read_small_files(storage: Storage, survey: Survey, image: Image) -> SmallFiles:
    """Read what a start of the image's job compares with its code."""
    epoch = image.epoch if image.epoch is not None else -1
    newest = image.planned if image.planned is not None else image.epoch
    listed = {file.path for file in survey.files}
    batches = [] if newest is None else [newest, newest - 1]
    logs = [under(image.path, offset_path(batch)) for batch in batches]
    wanted = [path for path in logs if path in listed]
    for file in survey.files:
        place = classify(inside(image, file.path))
        if place.area not in ("state-metadata", "state-schema") or place.partition not in (None, 0):
            continue
        if place.version is None or place.version <= epoch + 1:
            wanted.append(file.path)
    files = {inside(image, path): storage.read(path, SMALL_MAX) for path in wanted}
    return SmallFiles(image, files)


def write_copy(small: SmallFiles, target: Path) -> None:
    """Write the files below a folder of this machine, as if the checkpoint were there."""
    for path, content in small.files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if "/_metadata/v2/" in path:
            content = _relocated(content, target)
        file.write_bytes(content)


def _relocated(content: bytes, target: Path) -> bytes:
    """Return metadata whose schemas are looked for below `target`."""
    metadata = decode_operator_metadata(content)
    tops = {}
    for store in metadata.stores:
        for path in store.schema_paths:
            top = canonical(path).rpartition("/state/")[0]
            tops[top] = plain_location(str(target))
    if not tops:
        return content
    return encode_operator_metadata(relocate_schema_files(metadata, Relocation(tops)))


def stored_query(small: SmallFiles, entries: Iterable[ShownEntry] = ()) -> StoredQuery:
    """Return the query that the checkpoint is of."""
    image = small.image
    described = operators_in(small.files)
    operators = []
    for operator in image.operators:
        known = described.get(operator.id, Operator(operator.id, operator.name, {}))
        operators.append(replace(known, name=known.name or operator.name))
    return StoredQuery(
        operators=tuple(operators),
        sources=tuple(_sources(small)),
        settings=image.settings,
        spans=spans_in(entries),
    )


def has_windows(small: SmallFiles) -> bool:
    """Whether some state has windows in its keys or values."""
    for operator in operators_in(small.files).values():
        for schema in operator.stores.values():
            for column in (*fields_of(schema.key), *fields_of(schema.value)):
                is_struct = isinstance(column.type, dict) and column.type["type"] == "struct"
                names = [field.name for field in fields_of(column.type)] if is_struct else []
                if tuple(names) == WINDOW_COLUMNS:
                    return True
    return False


def _sources(small: SmallFiles) -> Iterator[Source]:
    image = small.image
    logs = [path for path in small.files if path.startswith("offsets/")]
    entries = [decode_offsets(small.files[path]) for path in sorted(logs, key=number_of_log)]
    offsets = [{each.source: each.offset for each in entry.offsets} for entry in entries]
    for end in image.endpoints:
        if end.role == "source":
            log = f"sources/{end.index}/"
            read = [place for place in image.embedded if place.role == "source"]
            places = {each.path for each in read if inside(image, each.file).startswith(log)}
            yield Source(
                kind=end.kind,
                places=tuple(sorted(places)),
                topics=tuple(sorted(end.offsets)),
                partitions=partitions_of(end.offsets),
                rested=len(offsets) > 1 and offsets[0].get(end.index) == offsets[1].get(end.index),
            )


def spans_in(entries: Iterable[ShownEntry]) -> dict[str, list[tuple[int, int]]]:
    """Return the windows in these entries, by operator."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        for part in (entry.key, entry.value):
            columns = part.values() if isinstance(part, dict) else ()
            for value in columns:
                if isinstance(value, dict) and tuple(value) == WINDOW_COLUMNS:
                    start, end = value["start"], value["end"]
                    if isinstance(start, int) and isinstance(end, int):
                        spans.setdefault(entry.operator, []).append((start, end))
    return spans
