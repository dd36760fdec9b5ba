"""The text of `stateshift live buffer`: values in, lines and tables out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Gap, Line, Table, pairs
from stateshift.cli.views.units import many, number, size
from stateshift.documents.live_buffer import state_of

if TYPE_CHECKING:
    from stateshift.live.buffer.buffer import Status
    from stateshift.live.buffer.folder import RunningProcess
    from stateshift.live.buffer.runner import BufferSurvey


def buffer(seen: BufferSurvey) -> Iterator[Block]:
    """Show a buffer: where it listens, what it holds, and its readers."""
    status = seen.status
    yield Line(f"buffer {seen.directory}: {state_of(seen)}", "strong")
    yield pairs(
        *_places(seen.running),
        ("records", _records(status)),
        ("memory", _part(status.memory_bytes, status.memory_limit)) if seen.running else None,
        ("disk", _part(status.disk_bytes, status.disk_limit)),
        ("refused", _refused(status)) if status.refused else None,
        ("failure", Cell(status.failure, "bad")) if status.failure else None,
    )
    if status.readers:
        yield Gap()
        rows = [
            (reader.name, number(reader.next), number(status.next - reader.next))
            for reader in status.readers
        ]
        yield Table(("reader", ">reads next", ">behind"), tuple(rows))


def _places(running: RunningProcess | None) -> Iterator[tuple[str, str]]:
    if running is None:
        return
    yield from (("producers", url) for url in running.listens)
    yield "readers", running.serves


def _records(status: Status) -> str:
    if status.first == status.next:
        return f"none; the next one is {number(status.next)}"
    kept = f"{number(status.first)} to {number(status.next - 1)}"
    return f"{kept}, and {number(status.waiting)} not durable yet" if status.waiting else kept


def _refused(status: Status) -> Cell:
    return Cell(f"{many(status.refused, 'record')}: {status.refusal}", "warn")


def _part(used: int, limit: int) -> str:
    return f"{size(used)} of {size(limit)}" if limit else size(used)
