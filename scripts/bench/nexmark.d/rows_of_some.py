"""The rows of some keys of Q4's and Q8's main operators: as they came out, and as the queries say.

What a million events say is slow to compute in Python, and what those of one key in fifty say is
not: rows of a key depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet
import reference
from events import BASE, SECOND, Event, Market, events_of

EVERY = 50  # of so many keys
ALIKE = 7  # the one that has this remainder
AT_ONCE = 500_000

KEYS = {
    "q4": ("auction", "bid.auction", "auction.id"),
    "q8": ("seller", "person.id", "auction.seller"),
}
COLUMNS = {
    "q4": ("at", "auction", "seller", "category", "price"),
    "q8": ("at", "auction", "seller", "name", "reserve"),
}


def put_out(query: str, folder: Path) -> list[reference.Row]:
    """Return the rows of some keys that came out."""
    tables = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    table = pyarrow.concat_tables(tables).select(COLUMNS[query])
    chosen = table.filter(_is_chosen(table[KEYS[query][0]]))
    return list(zip(*chosen.to_pydict().values(), strict=True))


def said(query: str, market: Market, time: int) -> list[reference.Row]:
    """Return the rows of some keys that the query says, of the events before a time."""
    end = (time - BASE) * market.rate // (market.dilation * SECOND)
    some: list[Event] = []
    for first in range(0, end, AT_ONCE):
        some.extend(_some(query, market, first, end))
    if query == "q8":
        return reference.q8(some)
    sold = [
        (at, auction.id, auction.seller, auction.category, price)
        for at, auction, price in reference.sales(some)
    ]
    return reference.final(sold, time)


def _some(query: str, market: Market, first: int, end: int) -> Iterator[Event]:
    """Yield the events of some keys."""
    batch = market.batch(first, min(first + AT_ONCE, end))
    is_wanted = pyarrow.array([False] * batch.num_rows)
    for place in KEYS[query][1:]:
        kind, name = place.split(".")
        of_kind = _is_chosen(compute.struct_field(batch[kind], name))
        is_wanted = compute.or_(is_wanted, compute.fill_null(of_kind, False))
    yield from events_of(batch.filter(is_wanted))


def _is_chosen(keys: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Whether keys are among those that are looked at."""
    rest = compute.subtract(keys, compute.multiply(compute.divide(keys, EVERY), EVERY))
    return compute.equal(rest, ALIKE)
