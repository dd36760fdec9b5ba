"""A look at a query of Spark without an agent: its checkpoint is its history.

    offsets/<n>    planned: batchTimestampMs, and the end of each source
    commits/<n>    committed: the file's time
    brokers        the end of each topic, if the spec says where they are
    driver         cores, rates and state, if the spec or the caller says where it is

Records are counted of sources whose offsets count them: Kafka, and what speaks its protocol.

A query of a job with `stateshift.job` says more of its last batches itself, in
_stateshift/progress. That counts in place of the logs, as long as it is not behind them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Final, Protocol

from stateshift.advise.evaluate.spark_batches import (
    DriverReport,
    PlannedBatch,
    SparkSample,
    shards_of,
    waiting_now,
)
from stateshift.advise.metrics.driver import Driver
from stateshift.engines.spark.layout import METADATA, number_of_log
from stateshift.engines.spark.real_time import real_time_lengths
from stateshift.errors import (
    FormatError,
    Interrupted,
    MissingFile,
    PlanError,
    StateshiftError,
    StorageError,
)
from stateshift.formats.marks import PROGRESS, fence_owner
from stateshift.formats.spark.metadata import decode_metadata
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.offsets import PARTITIONS, OffsetEntry, decode_offsets
from stateshift.formats.spark.progress import SIZE_MAX, QueryProgress, decode_progress
from stateshift.sources.kinds import of_spark
from stateshift.specification.model import KafkaSpec
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo
from stateshift.world import Clock

# Spark keeps a hundred batches unless told otherwise (spark.sql.streaming.minBatchesToRetain).
BATCHES_MAX: Final = 100
_OFFSETS, _COMMITS = "offsets", "commits"
# A commit that is as much later than the last batch a query tells of is none of that run's.
BEHIND_SECONDS_MAX: Final = 60.0

_log = logging.getLogger(__name__)

# A source of a query, a topic, a partition.
Place = tuple[str, str, int]


class AskTopics(Protocol):
    """Asks brokers for topics: partition -> (the first offset, the one after the last)."""

    def __call__(
        self, spec: KafkaSpec, topics: Sequence[str], /
    ) -> Mapping[str, Mapping[int, tuple[int, int]]]: ...


@dataclass(frozen=True)
class Brokers:
    """The brokers from which a query reads, and how they are asked."""

    spec: KafkaSpec
    ask_topics: AskTopics


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint. `prefix` is its path below the storage's location, or empty."""

    storage: Storage
    prefix: str = ""

    @property
    def location(self) -> str:
        return f"{self.storage.location}/{self.prefix}" if self.prefix else self.storage.location

    def path(self, name: str) -> str:
        """Return the path of one of its files or folders, as its storage knows it."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def inside(self, path: str) -> str:
        """Return the path below the checkpoint of a file that its storage has listed."""
        return path.removeprefix(f"{self.prefix}/") if self.prefix else path

    def logs(self, folder: str) -> Iterator[tuple[int, FileInfo]]:
        """Yield the number of each log in a folder, and its file."""
        for file in self.storage.list(self.path(folder)):
            number = number_of_log(file.path)
            if number >= 0:
                yield number, file

    def read(self, name: str, size_max: int | None = None) -> bytes:
        """Return one of its files."""
        return self.storage.read(self.path(name), size_max)


@dataclass(frozen=True)
class SparkQuery:
    """A query that can be looked at again. Brokers and driver are None where not named."""

    checkpoint: Checkpoint
    clock: Clock
    window_seconds: float
    brokers: Brokers | None = None
    driver: Driver | None = None

    def look(self) -> SparkSample:
        """Return the batches of the last window, and the lag.

        Raises:
            StorageError: the checkpoint cannot be read, holds no offsets, or brokers do not answer.
        """
        commits = {number: file.modified for number, file in self.checkpoint.logs(_COMMITS)}
        progress = self._progress(commits)
        offset_logs = dict(self.checkpoint.logs(_OFFSETS))
        planned = self._entries(offset_logs, commits)
        # The last two planned batches say how far a query has read that tells its batches.
        entries = dict(planned if progress is None else islice(planned, 2))
        if not entries:
            fact = "no batch of it can be read: there is nothing in offsets/"
            raise StorageError(fact, location=self.checkpoint.location)
        if progress is None:
            batches = []
            for (_, before), (number, entry) in pairwise(sorted(entries.items())):
                started, records = entry.timestamp_ms / 1000, records_of(before, entry)
                batches.append(PlannedBatch(number, started, commits.get(number) or None, records))
        else:
            batches = reported_batches(progress)
        # The positions after the last committed batch; nothing where no source tells.
        committed = max((number for number in entries if number in commits), default=None)
        read = {} if committed is None else positions_of(entries[committed]) or {}
        ends = self._ends(read)
        newest = entries[max(entries)]
        report, trouble = self._driver_report(max(commits, default=-1))
        state_files = []  # with the operator, the partition and the bytes of each
        for file in self.checkpoint.storage.list(self.checkpoint.path("state")):
            place = classify(self.checkpoint.inside(file.path))
            if place.operator is not None and place.partition is not None:
                state_files.append((place.operator, place.partition, file.size))
        written = {number: file.modified for number, file in offset_logs.items()}
        lengths = real_time_lengths(entries, written, commits)
        sample = SparkSample(
            time=self.clock.now(),
            batches=tuple(batches),
            lag=None if ends is None else lag_of(read, ends),
            partitions=len(read) or None,
            # The logs of a query without state name a number, too, which bounds nothing.
            state_partitions=state_partitions(newest) if state_files else None,
            cores=None if progress is None else progress.cores,
            state_rows=None if progress is None else progress.batches[-1].state_rows,
            driver=report,
            driver_trouble=trouble,
            shards=shards_of(state_files),
            real_time_seconds=lengths[0] if lengths else None,
        )
        return replace(sample, lag=waiting_now(sample))

    def _driver_report(self, committed: int) -> tuple[DriverReport | None, str]:
        """Return the driver's report, or why there is none: the checkpoint alone is enough."""
        if self.driver is None:
            return None, ""
        try:
            id = decode_metadata(self.checkpoint.read(METADATA)).id
            return self.driver.report(id, committed), ""
        except Interrupted:
            raise
        except StateshiftError as error:
            _log.debug("the driver of %s does not tell: %s", self.checkpoint.location, error)
            return None, error.fact

    def _progress(self, commits: Mapping[int, float]) -> QueryProgress | None:
        """Return the query's own report, if it is of this version and not behind the commits."""
        path = self.checkpoint.path(PROGRESS)
        try:
            progress = decode_progress(self.checkpoint.read(PROGRESS, SIZE_MAX), path)
        except MissingFile:
            return None
        except (FormatError, StorageError) as error:
            _log.debug("what %s says of itself does not count: %s", path, error)
            return None
        if not progress.batches or not commits:
            return None
        last, newest = progress.batches[-1], max(commits)
        silent = commits[newest] - (last.started + last.seconds)
        # Also before it, where the checkpoint has gone back since.
        return None if newest != last.id and silent > BEHIND_SECONDS_MAX else progress

    def _entries(
        self, offset_logs: Mapping[int, FileInfo], commits: Mapping[int, float]
    ) -> Iterator[tuple[int, OffsetEntry]]:
        """Yield the newest planned batches, as far back as the window goes, and one before it."""
        files = sorted(offset_logs.items(), reverse=True)[:BATCHES_MAX]
        newest = max(commits.values(), default=0.0)
        for number, file in files:
            content = self.checkpoint.storage.read(file.path)
            owner = fence_owner(content)
            if owner is not None:
                raise PlanError(
                    f"run {owner} has moved the job away and fenced this checkpoint: ask for "
                    "that of its target"
                )
            yield number, decode_offsets(content)
            if 0 < commits.get(number, newest) < newest - self.window_seconds:
                return

    def _ends(self, read: Mapping[Place, int]) -> Mapping[tuple[str, int], int] | None:
        """Return the end of each partition; None where nobody has named the brokers."""
        if self.brokers is None or not read:
            return None
        topics = sorted({topic for _, topic, _ in read})
        spans = self.brokers.ask_topics(self.brokers.spec, topics)
        ends = {}
        for topic, partitions in spans.items():
            for partition, (_, end) in partitions.items():
                ends[topic, partition] = end
        return ends


def reported_batches(progress: QueryProgress) -> list[PlannedBatch]:
    """Return the batches that a query tells of, but for the first of its run, which loads code."""
    batches = []
    for batch in progress.batches:
        if batch.started > progress.begun:
            committed = batch.started + batch.seconds
            more = (batch.work_seconds, batch.waiting)
            batches.append(PlannedBatch(batch.id, batch.started, committed, batch.records, *more))
    return batches


def records_of(before: OffsetEntry, entry: OffsetEntry) -> int | None:
    """Return the number of records between two offset logs; None if a source counts none."""
    earlier, later = positions_of(before), positions_of(entry)
    if earlier is None or later is None:
        return None
    return sum(offset - earlier.get(place, offset) for place, offset in later.items())


def positions_of(entry: OffsetEntry) -> dict[Place, int] | None:
    """Return the position in each partition; None if a source has no partitions to tell of."""
    places: dict[Place, int] = {}
    for source in entry.offsets:
        if source.offset is None:
            continue
        try:
            offset_json: object = json.loads(source.offset)
        except (ValueError, RecursionError):
            offset_json = source.offset
        topics = of_spark(offset_json, has_log=False, added=False).details.get("offsets")
        if topics is None:
            return None
        for topic, partitions in topics.items():
            for partition, offset in partitions.items():
                places[source.source, str(topic), int(partition)] = int(offset)
    return places or None


def lag_of(read: Mapping[Place, int], ends: Mapping[tuple[str, int], int]) -> int:
    """Return the number of records that wait. A topic of several sources waits for each of them."""
    waiting = 0
    for (_, topic, partition), offset in read.items():
        if (topic, partition) in ends:
            waiting += max(0, ends[topic, partition] - offset)
    return waiting


def state_partitions(entry: OffsetEntry) -> int | None:
    """Return the number of state partitions that the offset log names."""
    word = entry.conf.get(PARTITIONS, "")
    return int(word) if word.isdecimal() else None


def queries_below(storage: Storage) -> list[str]:
    """Return the paths of queries below a location: "" where it is a checkpoint itself."""
    if next(iter(storage.list(_OFFSETS)), None) is not None:
        return [""]
    parts = [file.path.rpartition(f"/{_OFFSETS}/") for file in storage.list()]
    return sorted({folder for folder, found, _ in parts if found})
