"""Sources and sinks for a person: of which kind, how far they were read, which batch a sink has.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Cell, Row
from stateshift.cli.views.units import number
from stateshift.documents.endpoints import (
    TableVersion,
    TopicOffsets,
    sink_batches_of,
    snapshot_of,
    table_version_of,
    topics_of,
)
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.survey import Endpoint

PARTITIONS_SHOWN = 8
REPLAYABLE = {
    True: Cell("can be read again"),
    False: Cell("cannot be read again", "warn"),
    None: Cell(""),
}


def row(end: Endpoint, verbose: bool = False) -> Row:
    """Return one line of a table: which one, its kind, whether it can be read again, and how far
    it is.
    """
    name = f"{end.role} {end.index}".strip()
    return name, end.kind, REPLAYABLE[end.replayable], redact(position(end, verbose))


def position(end: Endpoint, verbose: bool = False) -> str:
    """Return the position of a source, or the batches of a sink, in a few words."""
    if end.role == "sink":
        return ", ".join(_sink(end))
    if "offsets" in end.details:
        topics = sorted(topics_of(end), key=lambda topic: topic.name)
        return "; ".join(_topic(topic, verbose) for topic in topics)
    table = table_version_of(end)
    if table is not None:
        return _table(table)
    snapshot = snapshot_of(end)
    if snapshot is not None:
        unit = "file" if end.kind == "iceberg" else "split"
        starting = " of the starting snapshot" if snapshot.is_starting else ""
        return f"snapshot {snapshot.id}, {unit} {snapshot.position}{starting}"
    return end.detail or ""


def _topic(topic: TopicOffsets, verbose: bool) -> str:
    """Return the sum of a topic's offsets, and each one where they are few."""
    total = f"{topic.name} {number(topic.sum)}"
    if len(topic.offsets) > PARTITIONS_SHOWN and not verbose:
        return f"{total} in {len(topic.offsets)} partitions"
    by_number = sorted(topic.offsets, key=lambda offset: int(offset[0]))
    each = ", ".join(f"{partition}: {offset}" for partition, offset in by_number)
    return f"{total} ({each})"


def _table(table: TableVersion) -> str:
    """Return the position that is read next: an index below 0 is before the first file of that
    version.
    """
    version, index = table.version, table.index
    words = f"table {table.table}, version {version}"
    if table.is_starting:
        return f"{words}, the starting snapshot, file {index}"
    if isinstance(index, int) and index >= 0:
        return f"{words}, file {index}"
    if isinstance(version, int) and version > 0:
        return f"{words} is next, {version - 1} is read"
    return f"{words} is next"


def _sink(end: Endpoint) -> Iterator[str]:
    if end.detail:
        yield end.detail
    if end.details.get("wrong"):
        yield "its log cannot be read"
    unit = "snapshot" if end.kind == "iceberg" else "version"
    for batches in sink_batches_of(end):
        version = "" if batches.version is None else f" ({unit} {batches.version})"
        if batches.last_batch is None:
            yield "no batch of this query"
        else:
            yield f"batches up to {batches.last_batch}{version}"
