"""A query's own report of its batches: the file that a job with `stateshift.job` keeps beside each
of its checkpoints, made from Spark's progress documents.

    _stateshift/progress    {"version":1,"run":"8f…","cores":4,"begun":1795179852.328,"batches":[
                              {"id":17,"started":…,"seconds":0.92,"work_seconds":0.71,
                               "records":600,"waiting":640,"state_rows":12}, …]}

It holds the last BATCHES_MAX batches of the query's present run: at most SIZE_MAX bytes. `started`
is the driver's clock. `work_seconds` is the part of a batch in which its records are worked on
(`addBatch`); the rest is planning and logs. `waiting` counts records when the batch was planned:
those of the batch itself, and those behind them.

Source: Spark, StreamingQueryProgress and SourceProgress (3.3 to 4.3). A trigger that found nothing
to do has no `addBatch`: it is no batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from stateshift.errors import FormatError
from stateshift.plain import from_plain, to_plain

BATCHES_MAX: Final = 100
SIZE_MAX: Final = 64 * 1024
VERSION: Final = 1

# A progress document, as Spark's JSON has it.
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportedBatch:
    """A batch in the query's words. `waiting` is None if a source does not tell its end."""

    id: int
    started: float
    seconds: float
    work_seconds: float
    records: int
    waiting: int | None = None
    state_rows: int | None = None


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The last batches of a run of a query, oldest first."""

    run: str
    begun: float  # the time at which its first batch was planned
    batches: tuple[ReportedBatch, ...] = ()
    cores: int | None = None  # of the run, if Spark tells

    def with_batch(self, batch: ReportedBatch) -> QueryProgress:
        kept = [each for each in self.batches if each.id < batch.id]
        return replace(self, batches=(*kept, batch)[-BATCHES_MAX:])


def encode_progress(progress: QueryProgress) -> bytes:
    """Return the file."""
    plain = {"version": VERSION, **to_plain(progress)}
    return (json.dumps(plain, separators=(",", ":")) + "\n").encode()


def decode_progress(content: bytes, path: str | None = None) -> QueryProgress:
    """Return the content of a file; FormatError for another file or version."""
    try:
        plain = json.loads(content)
        if not isinstance(plain, dict) or plain.pop("version", None) != VERSION:
            raise FormatError(f"not a query's progress of version {VERSION}", path)
        progress: QueryProgress = from_plain(QueryProgress, plain)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not a query's progress: {error}", path) from error
    return progress


def batch_of_document(document: Document) -> ReportedBatch | None:
    """Return the batch of a progress document of Spark, if any; FormatError for others."""
    try:
        took = document["durationMs"]
        if "addBatch" not in took:
            return None
        records = int(document["numInputRows"])
        waiting = [_behind_source(source) for source in document["sources"]]
        known = [count for count in waiting if count is not None]
        tells = known and len(known) == len(waiting)
        stores = document.get("stateOperators") or ()
        return ReportedBatch(
            id=int(document["batchId"]),
            started=datetime.fromisoformat(document["timestamp"]).timestamp(),
            seconds=float(took["triggerExecution"]) / 1000,
            work_seconds=float(took["addBatch"]) / 1000,
            records=records,
            waiting=records + sum(known) if tells else None,
            state_rows=sum(int(store["numRowsTotal"]) for store in stores) if stores else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"not a progress document of Spark: {error!r}") from error


def _behind_source(source: Document) -> int | None:
    """Return the records that wait, by partitions. Single numbers count batches or seconds."""
    read, latest = _partitions(source.get("endOffset")), _partitions(source.get("latestOffset"))
    if read is None or latest is None:
        return None
    return sum(max(0, end - read.get(place, end)) for place, end in latest.items())


def _partitions(offset: object) -> dict[tuple[str, str], int] | None:
    """Return the end of each partition: {"topic": {"0": 17}}, an object or a text of it."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict):
        return None
    found = {}
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            return None
        for partition, number in partitions.items():
            if not isinstance(number, int):
                return None
            found[topic, partition] = number
    return found
