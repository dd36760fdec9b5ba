"""Sources and sinks, as far as a checkpoint tells: kinds and positions from the offsets
(`formats.spark.positions`), places from the logs of file sources, sources/<i>/<n>[.compact], which
name every file read so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stateshift.engines.spark.layout import offset_path
from stateshift.engines.spark.places import is_sink_log
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.source_entries import refuse_cut
from stateshift.errors import FormatError, MissingFile, TooLarge
from stateshift.formats.spark import source_log
from stateshift.formats.spark.offsets import OffsetEntry, SourceOffset
from stateshift.formats.spark.positions import EITHER, EVENT_HUBS, KAFKA, position_of
from stateshift.formats.spark.uris import decode_location
from stateshift.specification.location import relation
from stateshift.storage.protocol import Storage
from stateshift.survey import EmbeddedPath, Endpoint, Facts, FileInfo, Finding, Image, SinkFacts

REPLAYABLE: Mapping[str, bool | None] = {
    "file": True,
    KAFKA: True,
    EVENT_HUBS: True,
    EITHER: True,
    "rate": True,
    "rate-micro-batch": True,
    "delta": True,
    "iceberg": True,
    "paimon": True,
    "memory or socket": False,
    "unknown": None,
}

OFFSET_SHOWN = 80  # characters of an offset that a message repeats

# The settings that the offset log records, by the version that began to. Spark 3.3.4 to 4.3.0, read
# off real logs.
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


def endpoints_of(
    reading: Reading,
    source_files: list[str],
    offsets: tuple[SourceOffset, ...],
    thorough: bool = False,
) -> Endpoints:
    """The sources in plan order, and the directories that the file sources' logs name. `thorough`
    also reads the logs that no restart needs: they tell whether the others are whole.
    """
    logs = _by_source(source_files)
    endpoints, embedded, needed = [], list[EmbeddedPath](), set(source_files)
    for source in offsets:
        index, offset = source.source, _json(source.offset or "")
        position = position_of(offset, bool(logs.get(index)))
        kind, told = position.kind, position.details.get("offsets", {})
        topics = ", ".join(sorted(told)) or None
        asked = (
            {} if kind == EVENT_HUBS else told
        )  # by sequence numbers, of which Kafka's brokers know nothing
        endpoints.append(
            Endpoint("source", index, kind, REPLAYABLE[kind], topics, asked, position.details)
        )
        if kind in ("file", "unknown"):
            _refuse_other_offset(reading, index, offset, logs.get(index, []))
        if kind == "file" and _is_shared(index, offsets, logs):
            reading.warn(
                f"{reading.path(f'sources/{index}')} is not there: either source {index} "
                "is another one again "
                "(a stream that is joined with itself has one log), or its log is lost"
            )
        elif kind == "file":
            log = logs.get(index, [])
            first = _first_needed(_require_log(reading, index, offset, log))
            needed -= {path for path in log if 0 <= _number(path) < first}
            read = reading.each(sorted(needed.intersection(log)), _logged)
            places: list[EmbeddedPath] = []
            for one in read:
                places.extend(one.places)
            embedded += places
            spare = sorted(set(log) - needed) if thorough else []
            refuse_cut(reading, _counted([*read, *_spare_logs(reading, spare)]))
    return Endpoints(tuple(endpoints), tuple(embedded), tuple(sorted(needed)))


def refuse_unreadable_ends(
    reading: Reading, source_files: Iterable[str], neighbours: Mapping[int, OffsetEntry]
) -> None:
    """Refuse what a file source cannot read in the offset logs beside the last committed batch's.
    Every start asks it for its files of the newest batch once more, from the end of the batch
    before (apache/spark: MicroBatchExecution.populateStartOffsets, FileStreamSource.getBatch).
    """
    logs = _by_source(source_files)
    for batch, entry in neighbours.items():
        for source in entry.offsets:
            log = logs.get(source.source, [])
            offset = _json(source.offset or "")
            if position_of(offset, bool(log)).kind in ("file", "unknown"):
                _refuse_other_offset(reading, source.source, offset, log, offset_path(batch))


def _by_source(source_files: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each source's own log, by the number of the source."""
    logs: dict[str, list[str]] = {}
    for path in source_files:
        parts = path.split("/")
        if len(parts) == 3:
            logs.setdefault(parts[1], []).append(path)
    return logs


def endpoints_told(facts: Facts) -> tuple[Endpoint, ...]:
    """Return what the job reads and writes, in values that are plain JSON: for a plan, which is
    saved. Where the spec names brokers, a source that may be of Kafka or of Event Hubs is of Kafka.
    """
    images = list(facts.source_images)
    told: list[Endpoint] = []
    for image in images:
        told += (_plain(image, end, several=len(images) > 1) for end in image.endpoints)
    if facts.topics is not None:
        told = [replace(end, kind=KAFKA) if end.kind == EITHER else end for end in told]
    if facts.sink is not None:
        told.append(
            sink_endpoint(facts.sink, [image for image in images if image.identity is not None])
        )
    return tuple(told)


def _plain(image: Image, end: Endpoint, several: bool) -> Endpoint:
    """Topics' partitions are numbers, which keys of JSON cannot be."""
    details = dict(end.details)
    offsets = details.get("offsets", {})
    if offsets:
        named = {
            topic: {str(part): at for part, at in parts.items()} for topic, parts in offsets.items()
        }
        details["offsets"] = named
    if several:
        details["image"] = image.path
    return replace(end, offsets={}, details=details)


def sink_endpoint(sink: SinkFacts, images: Sequence[Image]) -> Endpoint:
    """Return the sink as an endpoint of the job: what it makes of a repeated batch, and what it
    has of each query.
    """
    details: dict[str, Any] = {
        "knows_batches": sink.knows_batches,
        "skips_plan": sink.skips_plan,
        "read": sink.read,
    }
    if sink.wrong is not None:
        details["wrong"] = sink.wrong
    if sink.read:
        details["queries"] = [_batches(sink, image) for image in images]
    return Endpoint("sink", "", sink.kind, None, sink.location, {}, details)


def _batches(sink: SinkFacts, image: Image) -> dict[str, Any]:
    last, log = sink.last_batch(image.identity), sink.log_of(image.identity)
    version = None if log is None or last is None else log.versions.get(last)
    return {"query": image.identity, "image": image.path, "last_batch": last, "version": version}


def _is_shared(
    index: str, offsets: tuple[SourceOffset, ...], logs: Mapping[str, list[str]]
) -> bool:
    """Whether this may be a source that stands in the plan a second time: Spark writes an offset
    for each, and one log, numbered before all that have none (MicroBatchExecution,
    toExecutionRelationMap).
    """
    if (
        not index.isdecimal()
        or int(index) < len(logs)
        or set(logs) != {str(n) for n in range(len(logs))}
    ):
        return False
    own = next(source.offset for source in offsets if source.source == index)
    return any(source.offset == own for source in offsets if source.source in logs)


def misplaced(storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
    """A file sink's output that was brought somewhere without its log being rewritten: what the log
    names is elsewhere, and readers, who go by the log, see none of what is here.
    """
    logs = [file.path for file in files if is_sink_log(file.path)]
    compacted = max((_number(path) for path in logs if path.endswith(".compact")), default=0)
    for path in sorted((path for path in logs if _number(path) >= compacted), key=_number):
        try:
            for entry in source_log.decode_source_log(storage.chunks(path)):
                folder = decode_location(entry.path.rsplit("/", 1)[0])
                if relation(folder, storage.location) not in ("same", "inside"):
                    message = (
                        f"{path} still names {folder}, not {storage.location}: readers would "
                        "silently see nothing"
                    )
                    return (
                        Finding("refuse", message, hint=_REWRITE, path=path, offset=entry.offset),
                    )
        except FormatError as error:
            message = f"{path} is damaged: {error.fact}"
            return (Finding("refuse", message, hint=_REWRITE, path=path, offset=error.offset),)
    return ()


_REWRITE = (
    'clear that place and let this run bring the data over ("copy": true): it rewrites the log'
)


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


def _require_log(reading: Reading, index: str, offset: Any, paths: list[str]) -> list[int]:
    """The log of a file source must reach the offset without a hole: from its newest compaction on.
    Gives the compactions that do not go beyond it.
    """
    told = offset.get("logOffset") if isinstance(offset, dict) else None
    wanted = told if isinstance(told, int) else -1
    names = {path.rsplit("/", 1)[-1] for path in paths}
    all_compacted = []
    for name in names:
        if name == f"{(n := _number(name))}.compact" and 0 <= n <= wanted:
            all_compacted.append(n)
    compacted = sorted(all_compacted)
    for batch in range(max(compacted, default=-1) + 1, wanted + 1):
        if str(batch) not in names and f"{batch}.compact" not in names:
            path = f"sources/{index}/{batch}"
            reading.refuse(
                f"{reading.path(path)} is missing: the source's log has to reach {wanted}", path
            )
            break
    return compacted


def _refuse_other_offset(
    reading: Reading, index: str, offset: Any, paths: list[str], offsets_path: str | None = None
) -> None:
    """Refuse what a file source does not read as its offset: FileStreamSourceOffset is a number,
    or has one. `offsets_path` is the log that holds it, where it is not that of the last
    committed batch.
    """
    told = offset.get("logOffset") if isinstance(offset, dict) else offset
    if isinstance(told, int) and not isinstance(told, bool):
        return
    path = min((path for path in paths if _number(path) >= 0), key=_number, default=None)
    if path is None or offset == "" or not _is_file_log(reading, path):
        return
    of_batch = "" if offsets_path is None else f" in {reading.path(offsets_path)}"
    fact = (
        f"the offsets of source {index}{of_batch} are {json.dumps(offset)[:OFFSET_SHOWN]}, and "
        "its log is a file source's"
    )
    reading.refuse(f"{fact}: Spark wants a number as logOffset", offsets_path or path)


def _is_file_log(reading: Reading, path: str) -> bool:
    try:
        head = next(iter(reading.chunks(path)), b"")
    except MissingFile:
        return False
    return b'"path"' in head and source_log.source_kind(head) == "file"


def _first_needed(compacted: list[int]) -> int:
    """From where on a restart may read the log of a file source. Everything before a compaction
    stands in it; by two of them Spark knows how often to compact, where of one alone it goes by its
    configuration.
    """
    return min(compacted[-2:], default=0)


@dataclass(frozen=True, slots=True)
class _Logged:
    """What one log of a file source names: the directories, with the number of files in each,
    and files by batch.
    """

    path: str
    places: tuple[EmbeddedPath, ...] = ()
    batches: Mapping[int, int] | None = None


def _logged(reading: Reading, path: str) -> _Logged:
    folders: dict[str, int] = {}
    try:
        census = source_log.census_of(reading.chunks(path))
    except TooLarge as error:
        raise error.at(reading.path(path)) from error
    except FormatError as error:
        reading.refuse(f"{reading.path(path)} is damaged: {error.fact}", path, error.offset or 0)
        return _Logged(path)
    except MissingFile:
        reading.vanished(path)
        return _Logged(path)
    for spelled, count in census.folders.items():
        folder = decode_location(spelled)
        folders[folder] = folders.get(folder, 0) + count
    places = [EmbeddedPath(reading.path(path), f, n, "source") for f, n in sorted(folders.items())]
    return _Logged(path, tuple(places), census.batches)


def _spare_logs(reading: Reading, paths: list[str]) -> list[_Logged]:
    """The same of logs that a restart does not need: what is wrong with them is nobody's loss."""
    return Reading(reading.storage, reading.prefix).each(paths, _logged)


def _counted(logs: list[_Logged]) -> dict[str, Mapping[int, int]]:
    return {log.path: log.batches for log in logs if log.batches is not None}
