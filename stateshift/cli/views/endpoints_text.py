"""Sources and sinks for a person: of which kind, how far they were read, which batch a sink has.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stateshift.cli.views.text import Cell
from stateshift.cli.views.units import number
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.survey import Endpoint

PARTITIONS_SHOWN = 8
REPLAYABLE = {True: "can be read again", False: "cannot be read again", None: ""}


def row(end: Endpoint, verbose: bool = False) -> tuple[str | Cell, ...]:
    """Return one line of a table: which one, its kind, whether it can be read again, and how far
    it is.
    """
    replayable = Cell(REPLAYABLE[end.replayable], "warn" if end.replayable is False else "")
    name = f"{end.role} {end.index}".strip()
    return (name, end.kind, replayable, redact(position(end, verbose)))


def position(end: Endpoint, verbose: bool = False) -> str:
    """Return how far the source is read, or what the sink has, in a few words."""
    told = end.details
    if end.role == "sink":
        return _of_sink(end)
    if "offsets" in told:
        return "; ".join(
            _of_topic(name, told["offsets"][name], verbose) for name in sorted(told["offsets"])
        )
    if end.kind == "delta":
        return _of_delta(told)
    if end.kind in ("iceberg", "paimon"):
        unit = "file" if end.kind == "iceberg" else "split"
        starting = " of the starting snapshot" if told["starting_snapshot"] else ""
        return f"snapshot {told['snapshot_id']}, {unit} {told['position']}{starting}"
    return end.detail or ""


def _of_topic(name: str, partitions: Mapping[Any, int], verbose: bool) -> str:
    """The sum of a topic's offsets, and each one where they are few."""
    total = f"{name} {number(sum(partitions.values()))}"
    if len(partitions) > PARTITIONS_SHOWN and not verbose:
        return f"{total} in {len(partitions)} partitions"
    each = ", ".join(
        f"{part}: {at}" for part, at in sorted(partitions.items(), key=lambda pair: int(pair[0]))
    )
    return f"{total} ({each})"


def _of_delta(told: Mapping[str, Any]) -> str:
    """Delta's offset is what is read next: an index below 0 stands before the first file of that
    version.
    """
    version, index = told["version"], told["index"]
    table = f"table {told['table_id']}, version {version}"
    if told["starting_snapshot"]:
        return f"{table}, the starting snapshot, file {index}"
    if isinstance(index, int) and index >= 0:
        return f"{table}, file {index}"
    if isinstance(version, int) and version > 0:
        return f"{table} is next, {version - 1} is read"
    return f"{table} is next"


def _of_sink(end: Endpoint) -> str:
    told, words = end.details, [end.detail] if end.detail else []
    if told.get("wrong"):
        words.append("its log cannot be read")
    for batches in told.get("queries", ()):
        last = batches["last_batch"]
        words.append(
            "no batch of this query"
            if last is None
            else f"batches up to {last}{_version(end.kind, batches)}"
        )
    return ", ".join(words)


def _version(kind: str, batches: Mapping[str, Any]) -> str:
    version = batches.get("version")
    return (
        "" if version is None else f" ({'snapshot' if kind == 'iceberg' else 'version'} {version})"
    )
