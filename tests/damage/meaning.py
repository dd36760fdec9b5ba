"""What a restart would read of an image: the oracle that `verify --deep` is held against.

    meaning(engine, location, files)    part -> value; a part that cannot be read is Unreadable
    differences(before, after)          names of the parts that differ

Two images mean the same when all their parts are equal. Whether a file lies there under the same
name is no part of it.

    Spark  query id · the restart's batch · offsets, commits and sources' logs, as JSON · operators'
           metadata and
           schemas, decoded, where they are there: Spark writes them again where they are not · Spark's checksums
           · every entry, as bytes
    Flink  `_metadata`, decoded, without the names that inlined bytes would have as files · the
           bytes of each range of
           each file that it names
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.engines.flink.image import is_readable, metadata_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.registry import engine
from stateshift.errors import StateshiftError
from stateshift.formats.flink.references import references, with_streams
from stateshift.formats.flink.stream_handles import Inline, StreamHandle
from stateshift.formats.spark import metadata as query_metadata
from stateshift.formats.spark import schema as state_schema
from stateshift.formats.spark.names import classify
from stateshift.survey import Image, Survey
from stateshift.testing.memory_storage import MemoryDisk
from tests.damage.images import on_a_disk

Meaning = Mapping[str, Any]
# What Spark writes again where it is missing.
OPTIONAL = ("operator metadata", "schema", "checksum")


@dataclass(frozen=True)
class Unreadable:
    """Why a part cannot be read."""

    why: str


def meaning(engine: str, location: str, files: Mapping[str, bytes]) -> Meaning:
    disk = on_a_disk(files)
    parts = _of_spark if engine == "spark" else _of_flink
    try:
        return dict(parts(location, files, disk))
    # a bug of ours shows in the commands: here it is one more thing that cannot be read
    except Exception as error:
        return {"image": Unreadable(f"{type(error).__name__}: {error}")}


def differences(before: Meaning, after: Meaning) -> list[str]:
    """Parts that are not the same. One that may be missing is not missed, on either side."""
    parts = before.keys() | after.keys()
    return sorted(
        part
        for part in parts
        if before.get(part) != after.get(part) and not _may_lack(part, before, after)
    )


def _may_lack(part: str, before: Meaning, after: Meaning) -> bool:
    """Whether Spark writes it again, or it belongs to a file that the other image does without."""
    return part.startswith(OPTIONAL) and not (part in before and part in after)


# ---- Spark


def _of_spark(
    location: str, files: Mapping[str, bytes], disk: MemoryDisk
) -> Iterator[tuple[str, Any]]:
    storage, survey = engine("spark").survey(location, disk.open)
    if not survey.images:
        yield "image", None
        return
    image = survey.images[0]
    yield "batch", (image.epoch, image.planned)
    for path in image.needed:
        place = classify(path)
        content = files.get(f"{survey.location}/{path}")
        if place.area == "state" or content is None:
            continue
        if place.area == "sidecar":
            yield f"checksum {path}", _checksum(content)
            continue
        role = {"state-metadata": "operator metadata", "state-schema": "schema"}.get(
            place.area, place.area
        )
        yield f"{role} {path}", _read(place.area, content)
    yield "entries", _spark_entries(storage, survey, image)


def _read(area: str, content: bytes) -> Any:
    """A log or a metadata file as what it says; text is compared as JSON, line by line."""
    try:
        if area == "state-schema":
            return state_schema.decode_schema(content)
        if area == "metadata":
            return query_metadata.decode_metadata(content).id
    except StateshiftError as error:
        return Unreadable(str(error))
    lines = content.rstrip(b"\n").split(b"\n")
    return tuple(_json(line) for line in lines)


def _checksum(content: bytes) -> Any:
    """What it says of the file beside it; when it was written, and by whom, Spark does not ask."""
    try:
        told = json.loads(content)
        return told["algorithm"], told["value"], told["mainFileSize"]
    except (ValueError, KeyError, TypeError) as error:
        return Unreadable(str(error))


def _json(line: bytes) -> str | bytes:
    """JSON in a form of its own; a line that is none, as it is."""
    try:
        return json.dumps(json.loads(line), sort_keys=True)
    except ValueError:
        return line


def _spark_entries(storage: Any, survey: Survey, image: Image) -> Any:
    found: dict[tuple[str, str, int, bytes], bytes | None] = {}
    try:
        for shard in image.shards:
            for store, block in engine("spark").entries_reader()(
                storage.chunks, shard, image.settings
            ):
                for key, value in block.records():
                    found[shard.operator, store, shard.shard, key] = value
    except StateshiftError as error:
        return Unreadable(str(error))
    return found


# ---- Flink


def _of_flink(
    location: str, files: Mapping[str, bytes], disk: MemoryDisk
) -> Iterator[tuple[str, Any]]:
    storage, survey = engine("flink").survey(location, disk.open)
    if not is_readable(survey):
        yield "image", None
        return
    image = survey.images[0]
    metadata, streams = metadata_of(image), Streams(storage.chunks, places_of(image))
    yield "_metadata", with_streams(metadata, _without_name)
    digests: dict[StreamHandle, Any] = {}
    for number, reference in enumerate(references(metadata)):
        stream = reference.stream
        if stream not in digests:
            digests[stream] = _digest(streams, stream)
        yield f"{reference.role} {number}", digests[stream]


def _without_name(stream: StreamHandle, whole: bool) -> StreamHandle:
    return Inline("", stream.content) if isinstance(stream, Inline) else stream


def _digest(streams: Streams, stream: StreamHandle) -> Any:
    found = hashlib.sha256()
    try:
        for chunk in streams.chunks(stream):
            found.update(chunk)
    except StateshiftError as error:
        return Unreadable(str(error))
    return found.hexdigest()
