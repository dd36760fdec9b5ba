"""The files of one query, sorted by what they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import StoreFiles
from stateshift.formats.spark.names import DEFAULT_STORE, CheckpointPath, classify
from stateshift.survey import FileInfo


@dataclass(slots=True)
class Found:
    """The files of one query, sorted by what they are; paths are relative to the image."""

    metadata: bool = False
    offsets: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)
    stores: dict[tuple[str, int, str], StoreFiles] = field(default_factory=dict)
    operator_files: dict[str, list[str]] = field(default_factory=dict)
    spark_crcs: set[str] = field(default_factory=set)
    schema_logs: list[str] = field(default_factory=list)
    strangers: list[FileInfo] = field(default_factory=list)


def sorted_by_kind(files: Iterable[FileInfo], skip: int) -> Found:
    """One pass over the listing."""
    found = Found()
    for info in files:
        path = info.path[skip:]
        if layout.is_strange(path):
            found.strangers.append(info._replace(path=path))
            continue
        if "/." in path or path.startswith("."):
            # Hadoop's sidecars and leftovers of writers: half of a local checkpoint, no part of any
            # restart
            continue
        place = classify(path)
        area = place.area
        if area == "state":
            _add_state(found, path, place, info.size)
        elif area == "offsets" and place.version is not None:
            found.offsets.add(place.version)
        elif area == "commits" and place.version is not None:
            found.commits.add(place.version)
        elif area == "sources":
            found.sources.append(path)
        elif area == "delta-schema-log":
            found.schema_logs.append(path)
        elif area in ("state-metadata", "state-schema"):
            found.operator_files.setdefault(place.operator or "", []).append(path)
        elif place.kind == "checksum":
            found.spark_crcs.add(path)
        elif path == layout.METADATA:
            found.metadata = True
    return found


def _add_state(found: Found, path: str, place: CheckpointPath, size: int) -> None:
    key = (place.operator or "", place.partition or 0, place.store or DEFAULT_STORE)
    store = found.stores.get(key)
    if store is None:
        operator, shard, name = key
        store = found.stores[key] = StoreFiles(
            operator, shard, name, folder_of(operator, shard, name)
        )
    store.files += 1
    store.bytes += size
    store.add(path, place)


def folder_of(operator: str, shard: int, store: str) -> str:
    return f"state/{operator}/{shard}" + ("" if store == DEFAULT_STORE else f"/{store}")


def number_of(text: str) -> tuple[int, str]:
    return (int(text), "") if is_number(text) else (1 << 30, text)


def is_number(text: str) -> bool:
    """Whether a name is one: other digits than these, and more of them, `int` may not take."""
    return text.isascii() and text.isdigit() and len(text) <= 19
