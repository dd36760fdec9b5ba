"""Sources and sinks, as far as a checkpoint tells: kinds and positions from the offsets
(`sources.kinds`), places from the logs of file sources (`file_sources`).

The logs of file sources have to be of the source in whose folder they are:

    sources/0/5   names files of /in/orders, as all others of source 0 do
    sources/1/5   names files of /in/users

Nothing in a log says whose it is, but for the folders that it names. A log that names folders of
another source, and none of its own, was copied from there; where that one's log of the same number
does the reverse, the two were exchanged. Spark starts, and reads the files of that batch again.
Sources that read the same folders cannot be told apart.

A job that goes back to an earlier batch reads input again: a file source counts files, by the
batches in its log; Kafka counts records, Delta versions of its table. Nobody can tell of others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, permutations

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import Backlog
from stateshift.engines.spark.layout import deepest_above, number_of_log, offset_path
from stateshift.engines.spark.places import is_sink_log
from stateshift.engines.spark.small_files import Reading, json_or_text
from stateshift.engines.spark.survey import file_sources
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import source_log
from stateshift.formats.spark.commits import CommitEntry
from stateshift.formats.spark.offsets import OffsetEntry, SourceOffset, decode_offsets
from stateshift.formats.spark.uris import decode_location
from stateshift.sources.kind import SourceKind
from stateshift.sources.kinds import DELTA, FILE, MEMORY, UNKNOWN, of_spark
from stateshift.sources.topics import EITHER, KAFKA
from stateshift.specification.location import relation
from stateshift.storage.protocol import Storage
from stateshift.survey import EmbeddedPath, Endpoint, Facts, FileInfo, Finding

OTHERS_MIN = 2  # logs of one folder that make another folder strange


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The ends of a query. `logs` are the sources' own files that a restart may read."""

    endpoints: tuple[Endpoint, ...]
    embedded: tuple[EmbeddedPath, ...]
    logs: tuple[str, ...]


def endpoints_of(
    reading: Reading,
    source_files: list[str],
    offsets: tuple[SourceOffset, ...],
    thorough: bool = False,
) -> Endpoints:
    """Return the sources in plan order, and the directories that the file sources' logs name."""
    logs = file_sources.logs_by_source(source_files)
    endpoints: list[Endpoint] = []
    embedded: list[EmbeddedPath] = []
    needed = set(source_files)
    folders: list[SourceFolders] = []
    for source in offsets:
        index, log = source.source, logs.get(source.source, [])
        offset = json_or_text(source.offset or "")
        endpoint = source_endpoint(index, offset, has_log=bool(log))
        endpoints.append(endpoint)
        if endpoint.kind == MEMORY.name:
            reading.warn(
                f"{reading.path(f'sources/{index}')} is not there: where source {index} is of the "
                "rate source, its log is lost, and the job fails, for its clock begins anew; a "
                "memory or socket source has none"
            )
        if _kind(offset, log) in (FILE, UNKNOWN):
            file_sources.refuse_other_offset(reading, index, offset, log)
        if endpoint.kind != FILE.name:
            continue
        if file_sources.is_shared(source, offsets, logs):
            reading.warn(
                f"{reading.path(f'sources/{index}')} is not there: either source {index} reads "
                "the same stream as another source (a self-join has one log), or its log is lost"
            )
            continue
        surveyed = file_sources.surveyed_log(reading, offset, log, thorough)
        embedded += surveyed.places
        folders.append(folders_of(index, surveyed.places))
        needed -= surveyed.superseded
    refuse_exchanged(reading, folders)
    warn_of_outliers(reading, folders)
    return Endpoints(tuple(endpoints), tuple(embedded), tuple(sorted(needed)))


def source_endpoint(index: str, offset: object, has_log: bool) -> Endpoint:
    """Return a source by its offset, decoded JSON; `has_log`: it has files below `sources/`."""
    source = of_spark(offset, has_log)
    topics = source.details.get("offsets", {}) if source.is_known else {}
    return Endpoint(
        role="source",
        index=index,
        kind=source.kind.name,
        replayable=source.kind.replayable,
        detail=", ".join(sorted(topics)) or None,
        # Event Hubs counts in sequence numbers, of which Kafka's brokers know nothing.
        offsets=topics if source.kind.asked else {},
        details=source.details,
    )


def named_sinks(commit: CommitEntry | None) -> tuple[Endpoint, ...]:
    """Return the sinks that a commit names (version 3): those that the query has had, too."""
    ends: list[Endpoint] = []
    for name, plain in (commit.sinks if commit is not None else {}).items():
        if isinstance(plain, dict):
            provider = str(plain.get("providerName") or "unknown").rpartition(".")[2]
            is_active = plain.get("isActive") is True
            detail = None if is_active else "no longer in use"
            ends.append(Endpoint("sink", name, provider, None, detail, {}, {"active": is_active}))
    return tuple(ends)


def _kind(offset: object, log: list[str]) -> SourceKind:
    """Return the kind of ours that an offset is of."""
    return of_spark(offset, bool(log), added=False).kind


def refuse_unreadable_ends(
    reading: Reading, source_files: Iterable[str], entries: Mapping[int, OffsetEntry], last: int
) -> None:
    """Refuse what a file source cannot read in the offset logs that a start reads, by their
    batches, of which `last` is the last one committed. Every start asks it for its files of the
    newest batch once more, from the end of the batch before (apache/spark:
    MicroBatchExecution.populateStartOffsets, FileStreamSource.getBatch).
    """
    logs = file_sources.logs_by_source(source_files)
    reached: dict[str, int] = {}
    for batch, entry in entries.items():
        for source in entry.offsets:
            log = logs.get(source.source, [])
            offset = json_or_text(source.offset or "")
            kind = _kind(offset, log)
            if kind in (FILE, UNKNOWN) and batch != last:
                file_sources.refuse_other_offset(
                    reading, source.source, offset, log, offset_path(batch)
                )
            if kind is FILE and not file_sources.is_shared(source, entry.offsets, logs):
                reached[source.source] = max(
                    file_sources.batch_of(offset), reached.get(source.source, -1)
                )
    for index, newest_batch in reached.items():
        file_sources.require_log(reading, index, newest_batch, logs.get(index, []))


def plain_endpoints(facts: Facts) -> tuple[Endpoint, ...]:
    """Return the sources and sinks in plain JSON, of Kafka where the spec names brokers."""
    images = list(facts.source_images)
    names_brokers = facts.topics is not None
    endpoints: list[Endpoint] = []
    for image in images:
        for end in image.endpoints:
            plain = end.plain
            if names_brokers and end.kind == EITHER.name:
                plain = replace(plain, kind=KAFKA.name)
            if len(images) > 1:
                plain = replace(plain, details={**plain.details, "image": image.path})
            endpoints.append(plain)
    if facts.sink is not None:
        identified = [image for image in images if image.identity is not None]
        details: dict[str, object] = {
            "knows_batches": facts.sink.knows_batches,
            "skips_plan": facts.sink.skips_plan,
            "read": facts.sink.read,
        }
        if facts.sink.wrong is not None:
            details["wrong"] = facts.sink.wrong
        queries: list[object] = []
        for image in identified:
            query = image.identity
            last, log = facts.sink.last_batch(query), facts.sink.log_of(query)
            version = None if log is None or last is None else log.versions.get(last)
            queries.append(
                {"query": query, "image": image.path, "last_batch": last, "version": version}
            )
        if facts.sink.read:
            details["queries"] = queries
        endpoints.append(
            Endpoint("sink", "", facts.sink.kind, None, facts.sink.location, {}, details)
        )
    return tuple(endpoints)


def find_misplaced(storage: Storage, files: tuple[FileInfo, ...]) -> tuple[Finding, ...]:
    """Refuse a file sink's output whose log names another place: its readers go by the log."""
    hint = 'clear that place and let this run copy the data ("copy": true): it rewrites the log'
    logs = [file.path for file in files if is_sink_log(file.path)]
    compactions = [path for path in logs if path.endswith(".compact")]
    newest_compaction = max(map(number_of_log, compactions), default=0)
    for path in sorted(logs, key=number_of_log):
        if number_of_log(path) < newest_compaction:
            continue  # its readers do not read it
        try:
            for entry in source_log.decode_source_log(storage.chunks(path)):
                folder = decode_location(entry.path.rsplit("/", 1)[0])
                if relation(folder, storage.location) in ("same", "inside"):
                    continue
                fact = f"{path} still names {folder}, not {storage.location}"
                message = f"{fact}: readers would silently see nothing"
                return (Finding("refuse", message, hint=hint, path=path, offset=entry.offset),)
        except FormatError as error:
            fact = f"{path} is damaged: {error.fact}"
            return (Finding("refuse", fact, hint=hint, path=path, offset=error.offset),)
    return ()


@dataclass(frozen=True)
class SourceFolders:
    """The folders that one source's logs name, by the name of the log."""

    index: str
    folders: Mapping[str, frozenset[str]]

    def above_others(self, log: str) -> str:
        """Return the folder that all logs but this one read below; "" where there are no others."""
        counts = Counter(chain.from_iterable(self.folders.values()))
        counts.subtract(self.folders.get(log, ()))
        return deepest_above(sorted(+counts))

    def path(self, log: str) -> str:
        return f"sources/{self.index}/{log}"


def folders_of(index: str, places: Iterable[EmbeddedPath]) -> SourceFolders:
    """Return the folders of a source by what its logs name."""
    folders: dict[str, set[str]] = {}
    for place in places:
        folders.setdefault(place.file.rpartition("/")[2], set()).add(place.path)
    return SourceFolders(index, {log: frozenset(each) for log, each in folders.items()})


def refuse_exchanged(reading: Reading, sources: Iterable[SourceFolders]) -> None:
    """Refuse logs that two sources have exchanged; warn of one that is a copy of another's."""
    for own, other in permutations(sources, 2):
        for log in own.folders:
            if not _is_of(own, other, log):
                continue
            path = own.path(log)
            fact = (
                f"{reading.path(path)} names files of {deepest_above(sorted(own.folders[log]))}, "
                f"which source {other.index} reads, and source {own.index} does not"
            )
            if _is_of(other, own, log):
                fact = f"{fact}: it is exchanged with {reading.path(other.path(log))}"
                reading.refuse(f"{fact}; Spark starts, and reads files twice", path)
            else:
                reading.warn(f"{fact}: it may be a copy of that source's", path)


def warn_of_outliers(reading: Reading, sources: Iterable[SourceFolders]) -> None:
    """Warn of a folder that one log names alone, where all files of several others are in another
    one: no checksum covers these logs, and Spark refuses a file that is not below what it reads.
    """
    for source in sources:
        counts = Counter(chain.from_iterable(source.folders.values()))
        for folder, count in counts.items():
            others = counts.keys() - {folder}
            if count > 1 or len(others) != 1:
                continue
            other = others.pop()
            if counts[other] < OTHERS_MIN or relation(folder, other) != "apart":
                continue
            log = next(name for name, named in source.folders.items() if folder in named)
            reading.warn(
                f"{reading.path(source.path(log))} names files of {folder}, and all its other "
                f"logs of {other}: if source {source.index} does not read both, it is damaged",
                source.path(log),
            )


def _is_of(own: SourceFolders, other: SourceFolders, log: str) -> bool:
    """Whether a log of `own` names folders of the other source alone."""
    above, above_other = own.above_others(log), other.above_others(log)
    folders = own.folders.get(log)
    if not folders or not above or not above_other or relation(above, above_other) != "apart":
        return False
    below = ("same", "inside")
    are_of_other = all(relation(folder, above_other) in below for folder in folders)
    return are_of_other and all(relation(folder, above) not in below for folder in folders)


def backlog_of(
    reading: Reading, sources: Mapping[str, list[str]], batch: int, newest: int
) -> tuple[Backlog, ...]:
    """Return each source's input after `batch`; `sources` are the files of their logs."""
    ends = []
    for number in (batch, newest):
        entry = reading.unreported().decoded(layout.offset_path(number), decode_offsets)
        offsets = () if entry is None else entry.offsets
        ends.append({each.source: each.offset or "" for each in offsets})
    first, last = ends
    backlogs: list[Backlog] = []
    for source in first.keys() & last.keys():
        log = sources.get(source, [])
        backlogs += _backlog(reading, source, log, (first[source], last[source]))
    return tuple(sorted(backlogs))


def _backlog(
    reading: Reading, source: str, log: list[str], ends: tuple[str, str]
) -> Iterator[Backlog]:
    try:
        offsets = [json.loads(end) for end in ends]
    except ValueError:
        return
    kind, last_kind = (_kind(offset, log) for offset in offsets)
    first, last = offsets
    if kind is not last_kind:
        return
    if kind is FILE and all(isinstance(offset, dict) for offset in offsets):
        batches = range(first["logOffset"] + 1, last["logOffset"] + 1)
        yield Backlog(source, "files", _files(reading, log, batches), "maxFilesPerTrigger")
    elif kind is KAFKA:
        yield Backlog(source, "records", _records(first, last), "maxOffsetsPerTrigger")
    elif kind is DELTA:
        versions = last["reservoirVersion"] - first["reservoirVersion"]
        limit = "maxFilesPerTrigger or maxBytesPerTrigger"
        yield Backlog(source, "versions of its table", versions, limit)


def _files(reading: Reading, log: list[str], batches: range) -> int:
    """Count the files of these batches; one that is in a compaction, too, once."""
    counts: dict[int, int] = {}
    for path in log:
        if layout.number_of_log(path) >= batches.start:
            try:
                census = source_log.census_of(reading.chunks(path))
            except (MissingFile, FormatError):
                continue  # the survey has said so, where a restart needs it
            counts.update(census.batches)
    return sum(counts.get(batch, 0) for batch in batches)


def _records(first: Mapping[str, Mapping[str, int]], last: Mapping[str, Mapping[str, int]]) -> int:
    """Count the records between two offsets; a partition that came in between counts from 0."""
    records = 0
    for topic, partitions in last.items():
        for partition, end in partitions.items():
            records += max(0, end - max(0, first.get(topic, {}).get(partition, 0)))
    return records
