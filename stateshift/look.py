"""An image looked at, without a run: inspect, verify, entries. Reads only, and needs no JVM.

    inspect      what is in an image, a workflow directory or a single file
    restartable  could a job restart from it, and from which batches
    entries      some of its state, decoded as far as its schemas allow
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from stateshift.engines.registry import ENGINES
from stateshift.errors import FormatError, MissingFile, StorageError
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently as open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, Survey

# Imported where they are used: who looks at a directory waits for nothing that decodes files.
if TYPE_CHECKING:
    from stateshift.engines.spark import decoding
    from stateshift.engines.spark.rows import RowSchema

# A file longer than this is shown from its beginning only.
FILE_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """What was found: a survey of a directory, or a single file decoded."""

    survey: Survey | None = None
    file: decoding.DecodedFile | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a job could restart, from which epoch, and everything that was found on the way."""

    restartable: bool
    epoch: int | None
    epochs: tuple[int, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class ShownEntry:
    operator: str
    store: str
    shard: int
    key: Any
    value: Any


def inspect(location: str, opening: Callable[[str], Storage] = open_patiently) -> Look:
    """Look at whatever is at the location."""
    file = _single(location, opening)
    if file is not None:
        storage, name = file
        return Look(file=_decoded(storage, name, location, opening))
    storage = opening(location)
    for engine in ENGINES.values():
        survey = engine.survey(storage)
        if survey.images:
            return Look(survey)
    if survey.kind == "empty":
        raise MissingFile(f"nothing is at {location}", location=location, hint=_above(location))
    return Look(survey)


def restartable(
    location: str, opening: Callable[[str], Storage] = open_patiently, thorough: bool = False
) -> Judgement:
    """Whether a job could restart from what is there. `thorough` also decodes every file of the state it needs."""
    from stateshift.engines.spark import deep
    from stateshift.engines.spark.findings import taking_back

    storage = opening(location)
    survey = next((s for s in (e.survey(storage, True) for e in ENGINES.values()) if s.images), None)
    if survey is None:
        found = Finding("refuse", f"{location} holds no checkpoint that a job could restart from",
                        hint=f"stateshift inspect {quote(location)}")  # fmt: skip
        return Judgement(False, None, (), (found,))
    findings = [*survey.findings, *(finding for image in survey.images for finding in image.findings)]
    for image in survey.images:
        if image.fence is not None:
            findings.append(Finding("refuse", f"{image.path or location} is fenced by run {image.fence}: a job that "
                                    "starts here fails", hint=taking_back(image.fence)))  # fmt: skip
        if image.epoch is None:
            findings.append(Finding("refuse", f"{image.path or location} has not committed a batch"))
        if thorough:
            findings += deep.decoded_whole(storage, image)
    whole = all(i.epoch is not None and i.epoch in i.epochs for i in survey.images)
    refused = any(finding.level == "refuse" for finding in findings)
    return Judgement(whole and not refused, survey.epoch, _epochs(survey.images), tuple(findings))


def entries(
    location: str, opening: Callable[[str], Storage] = open_patiently, limit: int = 20
) -> Iterator[ShownEntry]:
    """The first entries of every store, keys and values decoded by the schema beside them where there is one."""
    from stateshift.engines.spark.rows import RowSchema

    storage = opening(location)
    for engine in ENGINES.values():
        for image in engine.survey(storage).images:
            shown: dict[tuple[str, str], int] = {}
            for shard in image.shards:
                place = (shard.operator, shard.store)
                if shown.get(place, 0) >= limit:
                    continue
                rows = _rows(storage, shard.files[-1]) if shard.files else RowSchema()
                for entry in engine.reader()(storage.chunks, shard, image.settings):
                    shown[place] = shown.get(place, 0) + 1
                    if shown[place] > limit:
                        break
                    key, value = rows.show_key(entry.key), rows.show_value(entry.value)
                    yield ShownEntry(shard.operator, entry.store, shard.shard, key, value)


def _epochs(images: tuple[Image, ...]) -> tuple[int, ...]:
    """The epochs of a single query; a workflow has none in common."""
    return images[0].epochs if len(images) == 1 else ()


def _above(location: str) -> str:
    """Where to look for what is not here."""
    return f"check the path: stateshift inspect {quote(locations.parent(locations.normal(location, os.getcwd())))}"


def _single(location: str, opening: Callable[[str], Storage]) -> tuple[Storage, str] | None:
    """The storage and name of a single file, None where the location is a directory or nothing."""
    location = locations.normal(location, os.getcwd())
    name = locations.name(location)
    if not name:
        return None
    storage = opening(locations.parent(location))
    try:
        return (storage, name) if storage.stat(name) is not None else None
    except StorageError:
        return None


def _rows(storage: Storage, path: str) -> RowSchema:
    """The schema that lies beside a state file, if there is one: a checkpoint starts without it, too."""
    from stateshift.engines.spark import decoding
    from stateshift.engines.spark.rows import RowSchema

    schema = decoding.schema_path(path)
    if schema is None or storage.stat(schema) is None:
        return RowSchema()
    return RowSchema.of(storage.read(schema, FILE_MAX), "rocksdb" if path.endswith((".zip", ".changelog")) else None)


def _decoded(storage: Storage, name: str, location: str, opening: Callable[[str], Storage]) -> decoding.DecodedFile:
    """One file; what schema its rows have is found from where it lies in its checkpoint."""
    from stateshift.engines.spark import decoding
    from stateshift.engines.spark.rows import RowSchema

    path = locations.normal(location, os.getcwd())
    try:
        inside = decoding.inside(path)
        root = path[: len(path) - len(inside)].rstrip("/") or path
        rows = _rows(opening(root), inside) if decoding.schema_path(inside) else RowSchema()
        return decoding.decode_file(path, storage.read(name, FILE_MAX), rows)
    except FormatError as error:
        raise error.at(location) from error
