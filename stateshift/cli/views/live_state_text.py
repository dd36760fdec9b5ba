"""The text of `stateshift live import`, `export` and `evict`: values in, lines out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Line, pairs
from stateshift.cli.views.units import many, size

if TYPE_CHECKING:
    from stateshift.live.bins.adoption import ImportResult
    from stateshift.live.bins.state_acts import Eviction


def show_import(came: ImportResult) -> Iterator[Block]:
    """Show the state that was brought in."""
    yield Line(f"{many(came.keys, 'key')} in {many(came.bins, 'bin')}, {size(came.size)}", "good")
    yield pairs(
        ("workers", ", ".join(came.workers)),
        ("next", "start the job where the exported one had stopped"),
    )


def show_export(to: str, keys: int, bytes_written: int) -> Iterator[Block]:
    """Show the state that was written."""
    yield Line(f"{many(keys, 'key')} to {to}, {size(bytes_written)}", "good")


def show_eviction(all_evicted: Sequence[Eviction]) -> Iterator[Block]:
    """Say from where to go on."""
    for one in all_evicted:
        yield Line(f"{one.worker} of {one.operator} is evicted: {many(one.bins, 'bin')}", "good")
        yield pairs(("reads from", _frontier(one)), ("next", _NEXT.format(one.worker)))


_NEXT = "start an application as live.Worker(GROUP, {!r}, …), then move its bins"


def _frontier(one: Eviction) -> str:
    if one.frontier is None:
        return "the beginning: it has no frontier yet"
    return f"{one.frontier[0]}, or any time before"
