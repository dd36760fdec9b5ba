"""The logs of file sources: which of them a restart reads, and the directories that they name.

    sources/<i>/<n>          the files that batch n of source i read
    sources/<i>/<n>.compact  the files of all batches from 0 to n

A restart reads the newest compaction and every log behind it, up to the source's newest offset
(FileStreamSourceOffset: a number, or an object with a `logOffset`): a source notes its files before
the batch is planned, so that a planned batch has its log, too ("batch N doesn't exist"). Batches
whose logs were tidied away are looked up in the newest compaction, whichever that is
(FileStreamSourceLog.get).

A cut log, which no longer names every file that was read, starts a job that reads files twice.
Every batch has one file at least, and every entry says "batchId":n. Spark reads the newest
compaction and what comes after it, and counts nothing (FileStreamSource.metadataLog.restore,
CompactibleFileStreamLog.allFiles; seen with 4.3: it starts, and reads again what was cut off). Logs
from before the newest compaction lie there for a while, and say how many files each batch had.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import filterfalse

from stateshift.engines.spark.layout import inside, number_of_log, offset_path, under
from stateshift.engines.spark.small_files import Reading
from stateshift.errors import MissingFile
from stateshift.formats.spark import source_log
from stateshift.formats.spark.offsets import SourceOffset
from stateshift.formats.spark.uris import decode_location
from stateshift.survey import EmbeddedPath, Image

OFFSET_SHOWN = 80  # characters of an offset that a message repeats


@dataclass(frozen=True, slots=True)
class SurveyedLog:
    """The directories that a source's log names, and its files that a compaction replaces."""

    places: tuple[EmbeddedPath, ...]
    superseded: frozenset[str]


@dataclass(frozen=True, slots=True)
class _LogFile:
    """A log file: its directories, with the number of files in each, and files by batch."""

    path: str
    places: tuple[EmbeddedPath, ...] = ()
    batches: Mapping[int, int] | None = None


def files_of_planned(image: Image) -> tuple[str, ...] | None:
    """Return the files of the batch that an image has planned, and not committed: its offsets, the
    files that its sources had found for it, and its state. None where a compaction holds those.
    """
    if image.epoch is None or image.planned is None or image.planned <= image.epoch:
        return ()
    read_up_to = {}
    for end in image.endpoints:
        if "log_offset" in end.details:
            read_up_to[end.index] = end.details["log_offset"]
    files = [under(image.path, offset_path(image.planned))]
    for index, paths in logs_by_source(inside(image, path) for path in image.needed).items():
        for path in paths:
            if index not in read_up_to or number_of_log(path) <= read_up_to[index]:
                continue
            if path.endswith(".compact"):
                return None
            files.append(under(image.path, path))
    state = image.planned_state
    return (*files, *(() if state is None else state.files))


def logs_by_source(source_files: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each source's own log, by the number of the source."""
    logs: dict[str, list[str]] = {}
    for path in source_files:
        parts = path.split("/")
        if len(parts) == 3:
            logs.setdefault(parts[1], []).append(path)
    return logs


def surveyed_log(reading: Reading, offset: object, log: list[str], thorough: bool) -> SurveyedLog:
    """Read a source's log, and refuse it if it lacks entries. `thorough` reads spare files, too."""
    compactions = [number for number in _compactions(log) if number <= batch_of(offset)]
    # Everything before a compaction stands in it. Two compactions are kept: by them Spark knows how
    # often to compact, where of one alone it goes by its configuration.
    first_needed = min(compactions[-2:], default=0)
    superseded = frozenset(path for path in log if 0 <= number_of_log(path) < first_needed)
    files = reading.each(sorted(set(log) - superseded), _log_file)
    spare_files: list[_LogFile] = []
    if thorough:
        # Their faults are nobody's loss, and are not reported.
        unreported = reading.unreported()
        spare_files = unreported.each(sorted(superseded), _log_file)
    read = [file for file in (*files, *spare_files) if file.batches is not None]
    refuse_cut(reading, {file.path: file.batches or {} for file in read})
    places: list[EmbeddedPath] = []
    for file in files:
        places.extend(file.places)
    return SurveyedLog(tuple(places), superseded)


def require_log(reading: Reading, index: str, newest_batch: int, log: list[str]) -> None:
    """Refuse a log with a hole between its newest compaction and a batch."""
    names = {path.rpartition("/")[2] for path in log}
    first_batch = max(_compactions(log), default=-1) + 1
    for batch in range(first_batch, newest_batch + 1):
        if names.isdisjoint((str(batch), f"{batch}.compact")):
            path = f"sources/{index}/{batch}"
            reading.refuse(
                f"{reading.path(path)} is missing: the source's log has to reach {newest_batch}",
                path,
            )
            break


def batch_of(offset: object) -> int:
    """Return the newest batch of the source that is read; -1 where none is."""
    log_offset = offset.get("logOffset") if isinstance(offset, dict) else None
    return log_offset if isinstance(log_offset, int) else -1


def _compactions(log: Iterable[str]) -> list[int]:
    compactions = []
    for path in log:
        number = number_of_log(path)
        # Other spellings of the number, like 09.compact, Spark does not look for.
        if number >= 0 and path.rpartition("/")[2] == f"{number}.compact":
            compactions.append(number)
    return sorted(compactions)


def is_shared(
    source: SourceOffset, offsets: Iterable[SourceOffset], logs: Mapping[str, list[str]]
) -> bool:
    """Whether this may be a source that stands in the plan a second time: Spark writes an offset
    for each, and one log, numbered before all that have none (MicroBatchExecution,
    toExecutionRelationMap).
    """
    has_number = source.source.isdecimal()
    if not has_number or int(source.source) < len(logs):
        return False
    numbers_from_0 = {str(number) for number in range(len(logs))}
    if set(logs) != numbers_from_0:
        return False
    sources_with_log = filter(lambda other: other.source in logs, offsets)
    return source.offset in {other.offset for other in sources_with_log}


def refuse_other_offset(
    reading: Reading, index: str, offset: object, paths: list[str], offsets_path: str | None = None
) -> None:
    """Refuse what is no FileStreamSourceOffset; `offsets_path` is the log that holds it."""
    number = offset.get("logOffset") if isinstance(offset, dict) else offset
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if offset == "" or is_number:
        return
    numbered = [path for path in paths if number_of_log(path) >= 0]
    oldest = min(numbered, key=number_of_log, default=None)
    if oldest is None:
        return
    try:
        head = next(iter(reading.chunks(oldest)), b"")
    except MissingFile:
        return
    if b'"path"' not in head or source_log.source_kind(head) != "file":
        return
    of_batch = "" if offsets_path is None else f" in {reading.path(offsets_path)}"
    shown_offset = json.dumps(offset)[:OFFSET_SHOWN]
    reading.refuse(
        f"the offsets of source {index}{of_batch} are {shown_offset}, and its log is a file "
        "source's: Spark wants a number as logOffset",
        offsets_path or oldest,
    )


def _log_file(reading: Reading, path: str) -> _LogFile:
    """Read one file of a source's log. One that is damaged or gone is refused."""
    census = reading.streamed(path, source_log.census_of)
    if census is None:
        return _LogFile(path)
    files_in: dict[str, int] = {}
    for spelled, count in census.folders.items():
        folder = decode_location(spelled)
        files_in[folder] = files_in.get(folder, 0) + count
    places = [
        EmbeddedPath(reading.path(path), folder, files_in[folder], "source")
        for folder in sorted(files_in)
    ]
    return _LogFile(path, tuple(places), census.batches)


# How many files each batch of the source has, by one log.
Batches = Mapping[int, int]


def refuse_cut(reading: Reading, logs: Mapping[str, Batches]) -> None:
    """Refuse logs of one source, by path, that lack entries, or hold those of others."""
    compactions = {number_of_log(path): path for path in logs if path.endswith(".compact")}
    newest = max(compactions, default=-1)
    faults: dict[str, str | None] = {}
    for path, batches in logs.items():
        number = number_of_log(path)
        if number <= newest or path.endswith(".compact"):
            continue
        foreign = next((batch for batch in batches if batch != number), None)
        if not batches:
            faults[path] = "names no file, and each log of a batch names one"
        elif foreign is not None:
            faults[path] = f"names files of batch {foreign}, and is the log of batch {number}"
    if newest >= 0:
        path = compactions[newest]
        others = [logs[other] for other in logs if other != path]
        faults[path] = _fault_of_compaction(newest, logs[path], others)
    for path, fault in faults.items():
        if fault is not None:
            fact = f"{reading.path(path)} {fault}: Spark starts, and reads files twice"
            reading.refuse(fact, path)


def _fault_of_compaction(newest: int, batches: Batches, others: list[Batches]) -> str | None:
    """Return the fault of a compaction that lacks files, by its batches and other logs."""
    expected = range(newest + 1)
    lacking = next(filterfalse(batches.__contains__, expected), None)
    if lacking is not None:
        return f"names no file of batch {lacking}, and is of all batches up to {newest}"
    foreign = next(filterfalse(expected.__contains__, batches), None)
    if foreign is not None:
        return f"names files of batch {foreign}, and is of the batches up to {newest}"
    for other in others:
        for batch, count in other.items():
            if count > batches.get(batch, count):
                return f"names {batches[batch]} of the {count} files of batch {batch}"
    return None
