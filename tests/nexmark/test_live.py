"""What NEXMark's queries put out as live operators is what they say, however the events are cut
into batches. Without a Spark: bins are held here, and batches handed to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
import pytest

from stateshift.live.bins.batches import Records, unread_batch
from stateshift.live.bins.hashing import HASH
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.stores import Objects
from tests.support.nexmark import events as nexmark
from tests.support.nexmark import live_queries as live
from tests.support.nexmark import reference

MARKET = nexmark.Market(dilation=15)
NEW_USERS = nexmark.Market(dilation=20_000)
END = 8_000
Row = dict[str, Any]


class Held:
    """An operator's bins."""

    def __init__(self, operator: BinOperator) -> None:
        self.operator = operator
        self.bins: dict[int, Objects] = defaultdict(lambda: Objects(operator))

    def batch(self, rows: Sequence[Row], frontier: tuple[int, ...]) -> list[Row]:
        """Return what comes out of a batch, whose rows are all before the frontier."""
        come = {}
        if rows:
            table = pyarrow.Table.from_pylist(list(rows))
            keys = table.column(self.operator.key[0]).to_numpy().astype("uint64")
            hashes = nexmark._mixed(keys).view("int64")
            hashed = table.append_column(HASH, pyarrow.array(hashes))
            come = unread_batch(hashed, self.operator, self.operator.bins).read((), None).rows
        put_out = []
        for number in {*come, *self.bins}:
            put_out += self.bins[number].apply(come.get(number, Records(())), frontier)
        names = self.operator.output.names
        return [dict(zip(names, row, strict=True)) for row in put_out]


def bids(event: Any) -> Iterator[Row]:
    if event.bid:
        yield {"at": event.at, "number": event.number, **event.bid._asdict()}


def bids_by_window(event: Any) -> Iterator[Row]:
    length = live.TEN_SECONDS
    for row in bids(event):
        yield {**row, "window": (row["at"] // length + 1) * length}


def persons_and_auctions(event: Any) -> Iterator[Row]:
    if event.bid is None:
        side, seller = (
            ("person", event.person.id) if event.person else ("auction", event.auction.seller)
        )
        columns = ("name", "city", "state", "id", "category", "reserve")
        yield sided(event, side, columns) | {"seller": seller}


def auctions_and_bids(event: Any) -> Iterator[Row]:
    if event.person is None:
        side, item = ("auction", event.auction.id) if event.auction else ("bid", event.bid.auction)
        columns = ("seller", "category", "reserve", "expires", "price")
        yield sided(event, side, columns) | {"item": item}


def sided(event: Any, side: str, columns: Sequence[str]) -> Row:
    values = getattr(event, side)
    found = {name: getattr(values, name, None) for name in columns}
    return {"at": event.at, "number": event.number, "side": side, **found}


INPUTS = {
    function.__name__: function
    for function in (bids, bids_by_window, persons_and_auctions, auctions_and_bids)
}


def run(query: str, market: Any, ends: Sequence[int]) -> list[tuple[Any, ...]]:
    """What comes out when events come in batches that end at these numbers."""
    frame, *operators = live.QUERIES[query]
    stages = [Held(operator) for operator in operators]
    found: list[Row] = []
    first = 0
    for end in ends:
        events = market.events(first, end)
        rows = [row for event in events for row in INPUTS[frame.__name__](event)]
        frontier: tuple[int, ...] = (events[-1].at, events[-1].number, 0)
        for stage in stages:
            rows = stage.batch(rows, frontier)
            frontier = (events[-1].at,)  # what is put out later is not before this
        found += rows
        first = end
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize("query", live.QUERIES)
@pytest.mark.parametrize("ends", [(END,), (1, 700, 701, *range(3_100, END + 1, 350))])
def test_what_operators_put_out_is_what_the_query_says(query: str, ends: Sequence[int]) -> None:
    market = NEW_USERS if query == "q8" else MARKET
    until = market.events(END - 1, END)[0].at
    expected = reference.final(reference.QUERIES[query](market.events(0, END)), until)
    assert reference.final(run(query, market, ends), until) == expected
    assert expected
