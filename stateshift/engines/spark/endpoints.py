"""Sources and sinks, as far as a checkpoint tells: kinds from the shape of the offsets, places from the source logs.

    {"logOffset":3}                 file          sources/<i>/<n>[.compact] names every file read so far
    {"topic":{"0":123}}             kafka
    5                               rate where sources/<i>/0 holds its start; else a memory or socket source
    {"offset":10,"timestamp":2000}  rate-micro-batch
    {"reservoirId":…}               delta
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.engines.spark.places import is_sink_log
from stateshift.engines.spark.reading import Reading
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import source_log
from stateshift.formats.spark.offsets import SourceOffset
from stateshift.formats.spark.uris import decode_location
from stateshift.spec.location import relation
from stateshift.storage.protocol import Storage
from stateshift.survey import EmbeddedPath, Endpoint, FileInfo, Finding

REPLAYABLE: Mapping[str, bool | None] = {
    "file": True, "kafka": True, "rate": True, "rate-micro-batch": True, "delta": True,
    "memory or socket": False, "unknown": None,
}  # fmt: skip

# The settings that the offset log records, by the version that began to. Spark 3.3.4 to 4.3.0, read off real logs.
SINCE = (
    ("4.3", "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled"),
    ("4.2", "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion"),
    ("4.0", "spark.sql.streaming.stateStore.encodingFormat"),
    ("3.5", "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"),
    ("3.3", "spark.sql.streaming.statefulOperator.useStrictDistribution"),
)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """`logs` are the sources' own files that a restart may read."""

    endpoints: tuple[Endpoint, ...]
    embedded: tuple[EmbeddedPath, ...]
    logs: tuple[str, ...]


def endpoints_of(reading: Reading, source_files: list[str], offsets: tuple[SourceOffset, ...]) -> Endpoints:
    """The sources in plan order, and the directories that the file sources' logs name."""
    logs: dict[str, list[str]] = {}
    for path in source_files:
        parts = path.split("/")
        if len(parts) == 3:
            logs.setdefault(parts[1], []).append(path)
    endpoints, embedded, needed = [], list[EmbeddedPath](), set(source_files)
    for source in offsets:
        index, offset = source.source, _json(source.offset or "")
        kind = _kind(offset, bool(logs.get(index)))
        offsets_of = topics_of(offset) if kind == "kafka" else {}
        told = ", ".join(sorted(offsets_of)) or None
        endpoints.append(Endpoint("source", index, kind, REPLAYABLE[kind], told, offsets_of))
        if kind == "file" and _is_shared(index, offsets, logs):
            reading.warn(f"{reading.path(f'sources/{index}')} is not there: either source {index} is another one again "
                         "(a stream that is joined with itself has one log), or its log is lost")  # fmt: skip
        elif kind == "file":
            log = logs.get(index, [])
            first = _first_needed(_require_log(reading, index, offset, log))
            needed -= {path for path in log if 0 <= _number(path) < first}
            for places in reading.each(sorted(needed.intersection(log)), _places):
                embedded += places
    return Endpoints(tuple(endpoints), tuple(embedded), tuple(sorted(needed)))


def _is_shared(index: str, offsets: tuple[SourceOffset, ...], logs: Mapping[str, list[str]]) -> bool:
    """Whether this may be a source that stands in the plan a second time: Spark writes an offset for each, and one log,
    numbered before all that have none (MicroBatchExecution, toExecutionRelationMap)."""
    if not index.isdecimal() or int(index) < len(logs) or set(logs) != {str(n) for n in range(len(logs))}:
        return False
    own = next(source.offset for source in offsets if source.source == index)
    return any(source.offset == own for source in offsets if source.source in logs)


def misplaced(storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
    """A file sink's output that was brought somewhere without its log being rewritten: what the log names is elsewhere,
    and readers, who go by the log, see none of what is here."""
    logs = [file.path for file in files if is_sink_log(file.path)]
    compacted = max((_number(path) for path in logs if path.endswith(".compact")), default=0)
    for path in sorted((path for path in logs if _number(path) >= compacted), key=_number):
        try:
            for entry in source_log.decode_source_log(storage.chunks(path)):
                folder = decode_location(entry.path.rsplit("/", 1)[0])
                if relation(folder, storage.location) not in ("same", "inside"):
                    message = f"{path} still names {folder}, not {storage.location}: readers would silently see nothing"
                    return (Finding("refuse", message, hint=_REWRITE, path=path, offset=entry.offset),)
        except FormatError as error:
            message = f"{path} is damaged: {error.fact}"
            return (Finding("refuse", message, hint=_REWRITE, path=path, offset=error.offset),)
    return ()


_REWRITE = 'clear that place and let this run bring the data over ("copy": true): it rewrites the log'


def _number(path: str) -> int:
    stem = path.rsplit("/", 1)[-1].removesuffix(".compact")
    return int(stem) if stem.isascii() and stem.isdecimal() and len(stem) <= 19 else -1


def written_by(settings: Mapping[str, str], operator_metadata: bool) -> str | None:
    """The oldest Spark that could have written the last offsets."""
    for version, key in SINCE:
        if key in settings:
            return f"{version} or later"
    return None if not settings else "before 3.3"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _kind(offset: Any, logged: bool) -> str:
    if isinstance(offset, int):
        return "rate" if logged else "memory or socket"
    if not isinstance(offset, dict):
        return "unknown"
    if "logOffset" in offset:
        return "file"
    if "reservoirId" in offset:
        return "delta"
    if offset.keys() == {"offset", "timestamp"}:
        return "rate-micro-batch"
    if offset and all(isinstance(v, dict) and all(map(_is_number, v)) for v in offset.values()):
        return "kafka"
    return "unknown"


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= 10


def topics_of(offset: Any) -> dict[str, dict[int, int]]:
    """Topic -> partition -> the next offset to read. -2 and -1 stand for the first and the last one there is, where a
    job has not read any yet."""
    read = {
        topic: {int(number): at for number, at in partitions.items() if isinstance(at, int) and at >= 0}
        for topic, partitions in offset.items()
    }
    return {topic: partitions for topic, partitions in read.items() if partitions}


def _require_log(reading: Reading, index: str, offset: Any, paths: list[str]) -> list[int]:
    """The log of a file source must reach the offset without a hole: from its newest compaction on. Gives the
    compactions that do not go beyond it."""
    told = offset.get("logOffset") if isinstance(offset, dict) else None
    wanted = told if isinstance(told, int) else -1
    names = {path.rsplit("/", 1)[-1] for path in paths}
    compacted = sorted(n for name in names if name == f"{(n := _number(name))}.compact" and 0 <= n <= wanted)
    for batch in range(max(compacted, default=-1) + 1, wanted + 1):
        if str(batch) not in names and f"{batch}.compact" not in names:
            path = f"sources/{index}/{batch}"
            reading.refuse(f"{reading.path(path)} is missing: the source's log has to reach {wanted}", path)
            break
    return compacted


def _first_needed(compacted: list[int]) -> int:
    """From where on a restart may read the log of a file source. Everything before a compaction stands in it; by two of
    them Spark knows how often to compact, where of one alone it goes by its configuration."""
    return min(compacted[-2:], default=0)


def _places(reading: Reading, path: str) -> list[EmbeddedPath]:
    """The directories one log file names, with the number of files in each."""
    folders: dict[str, int] = {}
    try:
        for spelled, count in source_log.folders_of(reading.chunks(path)).items():
            folder = decode_location(spelled)
            folders[folder] = folders.get(folder, 0) + count
    except FormatError as error:
        reading.refuse(f"{reading.path(path)} is damaged: {error.fact}", path, error.offset or 0)
    except MissingFile:
        reading.vanished(path)
    return [EmbeddedPath(reading.path(path), folder, count, "source") for folder, count in sorted(folders.items())]
