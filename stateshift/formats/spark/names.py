"""The kind of a file in a checkpoint, by its path alone.

    metadata                                          metadata
    offsets/<batch>   commits/<batch>                 offsets, commits              version = batch
    sources/<source>/<n>[.compact]                    sources                       version = n
                                                        operator = source, kind log | compact
    state/<op>/_metadata/metadata                     state-metadata
    state/<op>/_metadata/v2/<batch>                   state-metadata                version = batch
    state/<op>/<p>/[<store>/]_metadata/schema         state-schema                  partition
    state/<op>/_stateSchema/<store>/<batch>_<uuid>    state-schema                  version = batch
    state/<op>/<p>/[<store>/]N[_<uuid>].{delta,snapshot,zip,changelog}    state     version = N
    state/<op>/<p>/[<store>/]SSTs/<no>-<uuid>.sst     state                         kind sst
    state/<op>/<p>/[<store>/]logs/<no>-<uuid>.log     state                         kind log
    …/_schema_log_<table>/<n>                         delta-schema-log              version = n
    .<name>.crc (Hadoop)   <name>.crc (Spark 4.1+)    sidecar
                                                        kind hadoop-crc | checksum; the rest is
                                                        of <name>
    .<name>.<uuid>[.TIDn].tmp                         temporary
    _stateshift/...                                   ours

Source: Spark, StreamingQueryCheckpointMetadata, StateStoreId.storeCheckpointLocation,
RocksDBFileManager, ChecksumCheckpointFileManager; Hadoop, ChecksumFileSystem. The store directory
is left out for the store "default". A checkpoint has tens of thousands of paths, so the meaning of
a directory is worked out once and remembered. An operator is a number: Spark passes over other
folders of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

from stateshift.formats import marks

Area = Literal[
    "metadata",
    "offsets",
    "commits",
    "sources",
    "state",
    "state-metadata",
    "state-schema",
    "delta-schema-log",
    "sidecar",
    "temporary",
    "ours",
    "other",
]
Kind = Literal[
    "delta", "snapshot", "zip", "changelog", "sst", "log", "compact", "hadoop-crc", "checksum"
]

DEFAULT_STORE = "default"
LONG_MAX = 2**63 - 1
DELTA_SCHEMA_LOG = "_schema_log_"

_STATE_FILES: dict[str, Kind] = {
    "delta": "delta",
    "snapshot": "snapshot",
    "zip": "zip",
    "changelog": "changelog",
}


class CheckpointPath(NamedTuple):
    """The meaning of a path. `store` is "default" if it names none; None outside the state."""

    area: Area
    operator: str | None = None
    partition: int | None = None
    store: str | None = None
    kind: Kind | None = None
    version: int | None = None
    uuid: str | None = None


OTHER = CheckpointPath("other")


class _Directory(NamedTuple):
    role: str
    operator: str | None = None
    partition: int | None = None
    store: str | None = None


def classify(path: str) -> CheckpointPath:
    """Return the kind of the file at `path`, relative to the checkpoint."""
    directory, _, name = path.rpartition("/")
    place = _directory(directory)
    if place.role == "state":  # most files by far are those of a version
        stem, _, suffix = name.rpartition(".")
        kind = _STATE_FILES.get(suffix)
        is_number = stem.isdecimal() and stem.isascii() and (stem[0] != "0" or stem == "0")
        if kind is not None and is_number:
            _, operator, partition, store = place
            return CheckpointPath("state", operator, partition, store, kind, int(stem))
    return _classify(place, name, path)


def described_file(path: str) -> str | None:
    """Return the file that a checksum sidecar at `path` describes; None where it is no sidecar."""
    directory, slash, name = path.rpartition("/")
    if not name.endswith(".crc") or len(name) <= 5:
        return None
    return directory + slash + name.removesuffix(".crc").removeprefix(".")


def _classify(place: _Directory, name: str, path: str) -> CheckpointPath:
    if name.startswith(marks.TEMPORARY) or name.endswith(marks.LOCK_SUFFIX):
        return CheckpointPath("ours")
    if place.role == "ours":
        return CheckpointPath("ours")
    if name.startswith(".") and name.endswith((".tmp", ".tmp.crc")):
        return CheckpointPath("temporary")
    file = described_file(path)
    if file is not None:
        kind: Kind = "hadoop-crc" if name.startswith(".") else "checksum"
        # With place and version of its file: Spark's own sidecar travels with those bytes.
        return classify(file)._replace(area="sidecar", kind=kind)
    _, operator, partition, store = place
    match place.role, name:
        case "root", "metadata":
            return CheckpointPath("metadata")
        case "metadata-v1", "metadata":
            return CheckpointPath("state-metadata", operator)
        case "schema", "schema":
            return CheckpointPath("state-schema", operator, partition, store)
    read = _READERS.get(place.role)
    found = read(place, name) if read is not None else None
    return found or OTHER


def _log(area: Area, place: _Directory, name: str) -> CheckpointPath | None:
    number = _number(name.removeprefix("+"))  # as Java reads a number: Spark takes `+9` for batch 9
    return None if number is None else CheckpointPath(area, version=number)


def _source(place: _Directory, name: str) -> CheckpointPath | None:
    stem, dot, suffix = name.partition(".")
    number = _number(stem)
    if number is None or (dot and suffix != "compact"):
        return CheckpointPath("sources", place.operator)
    kind: Kind = "compact" if dot else "log"
    return CheckpointPath("sources", place.operator, kind=kind, version=number)


def _state(place: _Directory, name: str) -> CheckpointPath | None:
    stem, _, suffix = name.rpartition(".")
    kind = _STATE_FILES.get(suffix)
    version, _, uuid = stem.partition("_")
    number = _canonical(version)
    if kind is None or number is None or not uuid:
        return None
    return CheckpointPath("state", place.operator, place.partition, place.store, kind, number, uuid)


def _numbered(kind: Kind, place: _Directory, name: str) -> CheckpointPath | None:
    stem, _, suffix = name.rpartition(".")
    if suffix != kind:
        return None
    uuid = stem.partition("-")[2] or None
    return CheckpointPath("state", place.operator, place.partition, place.store, kind, None, uuid)


def _operator_metadata_v2(place: _Directory, name: str) -> CheckpointPath | None:
    batch = _number(name)
    if batch is None:
        return None
    return CheckpointPath("state-metadata", place.operator, version=batch)


def _schema_v3(place: _Directory, name: str) -> CheckpointPath | None:
    batch, _, uuid = name.partition("_")
    number = _number(batch)
    if number is None or not uuid:
        return None
    return CheckpointPath("state-schema", place.operator, None, place.store, None, number, uuid)


_READERS: dict[str, Callable[[_Directory, str], CheckpointPath | None]] = {
    "delta-schema-log": lambda place, name: _log("delta-schema-log", place, name),
    "offsets": lambda place, name: _log("offsets", place, name),
    "commits": lambda place, name: _log("commits", place, name),
    "sources": _source,
    "state": _state,
    "SSTs": lambda place, name: _numbered("sst", place, name),
    "logs": lambda place, name: _numbered("log", place, name),
    "metadata-v2": _operator_metadata_v2,
    "schema-v3": _schema_v3,
}


# By the folders that a store may have.
_ROLES = {"_metadata": "schema", "SSTs": "SSTs", "logs": "logs"}


@lru_cache(maxsize=65_536)
def _directory(directory: str) -> _Directory:
    parts = directory.split("/") if directory else []
    match parts:
        case []:
            return _Directory("root")
        case [marks.FOLDER, *_]:
            return _Directory("ours")
        case [*_, last] if last.startswith(DELTA_SCHEMA_LOG):
            return _Directory("delta-schema-log")
        case ["offsets" | "commits" as log]:
            return _Directory(log)
        case ["sources", source, *_]:
            return _Directory("sources", source)
        case ["state", operator, *rest] if _canonical(operator) is not None:
            return _in_operator(operator, rest)
    return _Directory("other")


def _in_operator(operator: str, rest: list[str]) -> _Directory:
    match rest:
        case ["_metadata"]:
            return _Directory("metadata-v1", operator)
        case ["_metadata", "v2"]:
            return _Directory("metadata-v2", operator)
        case ["_stateSchema", store]:
            return _Directory("schema-v3", operator, None, store)
        case [partition, *inside] if _canonical(partition) is not None:
            return _in_partition(operator, int(partition), inside)
    return _Directory("other")


def _in_partition(operator: str, partition: int, rest: list[str]) -> _Directory:
    store = DEFAULT_STORE
    if len(rest) > 1 or (rest and rest[0] not in _ROLES):
        store, *rest = rest
    match rest:
        case []:
            return _Directory("state", operator, partition, store)
        case [folder] if folder in _ROLES:
            return _Directory(_ROLES[folder], operator, partition, store)
    return _Directory("other")


def _canonical(text: str) -> int | None:
    """Return a number as Spark writes it. State is opened by such names: `007` is never read."""
    return None if text.startswith("0") and text != "0" else _number(text)


def _number(text: str) -> int | None:
    """Return a number that Java reads as a long: Spark passes over a log with any other name."""
    is_short = text.isdecimal() and text.isascii() and len(text) <= 19
    number = int(text) if is_short else LONG_MAX + 1
    return number if number <= LONG_MAX else None
