"""The input that a job reads again which goes back to an earlier batch. Reads only.

A file source counts files, by the batches in its log; Kafka counts records, Delta versions of its
table. Nobody can tell of other sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import Backlog
from stateshift.engines.spark.small_files import Reading
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import source_log
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.positions import KAFKA, position_of


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
    first, last = (position_of(offset, bool(log)) for offset in offsets)
    if first.kind != last.kind:
        return
    if first.kind == "file" and all(isinstance(offset, dict) for offset in offsets):
        batches = range(offsets[0]["logOffset"] + 1, offsets[1]["logOffset"] + 1)
        yield Backlog(source, "files", _files(reading, log, batches), "maxFilesPerTrigger")
    elif first.kind == KAFKA:
        yield Backlog(source, "records", _records(*offsets), "maxOffsetsPerTrigger")
    elif first.kind == "delta":
        versions = [offset["reservoirVersion"] for offset in offsets]
        limit = "maxFilesPerTrigger or maxBytesPerTrigger"
        yield Backlog(source, "versions of its table", versions[1] - versions[0], limit)


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
