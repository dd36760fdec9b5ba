"""The facts of a source or a sink that all views share, read from its details. Pure.

TopicOffsets     how far a topic is read, partition by partition
Snapshot         the snapshot of a table that is read, and how much of it
TableVersion     what of a table with versions is read next
SinkBatches      the last batch of a query that a sink has
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateshift.survey import Endpoint


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """How far a topic is read: the next offset of each partition."""

    name: str
    offsets: tuple[tuple[int | str, int], ...]

    @property
    def sum(self) -> int:
        """All offsets added up."""
        return sum(offset for _, offset in self.offsets)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The snapshot of an Iceberg or Paimon table, and how many files or splits of it were read."""

    id: object
    position: object
    is_starting: bool


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of a Delta table that is read next: a version, and the index of a file in it."""

    table: object
    version: object
    index: object
    is_starting: bool


@dataclass(frozen=True, slots=True)
class SinkBatches:
    """The last batch of one query that a sink has, and the version or snapshot that holds it."""

    last_batch: int | None
    version: object


def topics_of(end: Endpoint) -> tuple[TopicOffsets, ...]:
    """Return the offsets of each topic of a source; none if it has no topics."""
    by_topic: Mapping[str, Mapping[int | str, int]] = end.details.get("offsets") or {}
    return tuple(TopicOffsets(name, tuple(parts.items())) for name, parts in by_topic.items())


def snapshot_of(end: Endpoint) -> Snapshot | None:
    """Return the snapshot that a source of Iceberg or Paimon reads."""
    if end.kind not in ("iceberg", "paimon"):
        return None
    details = end.details
    is_starting = bool(details["starting_snapshot"])
    return Snapshot(details["snapshot_id"], details["position"], is_starting)


def table_version_of(end: Endpoint) -> TableVersion | None:
    """Return the version of the table that a source of Delta reads next."""
    if end.kind != "delta":
        return None
    details = end.details
    is_starting = bool(details["starting_snapshot"])
    return TableVersion(details["table_id"], details["version"], details["index"], is_starting)


def sink_batches_of(end: Endpoint) -> Iterator[SinkBatches]:
    """Yield the batches of each query that a sink has."""
    for query in end.details.get("queries", []):
        yield SinkBatches(query["last_batch"], query.get("version"))
