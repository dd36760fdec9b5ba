"""How late bins are, as the bench of moves has it from commits; and the rows that it looks at."""

from __future__ import annotations

import pytest

from stateshift.live.bins.commits import BinSnapshot, Commit, GivenBin, HeldRows, Ledger, TakenBin
from tests.support.nexmark import bin_latency, reference, rows_of_some
from tests.support.nexmark import events as nexmark

BEGAN = 1000.0
MARKET = nexmark.Market(rate=100)


def at(seconds: float) -> int:
    """Event time, so many seconds after the first event."""
    return nexmark.BASE + int(seconds * nexmark.SECOND)


def commit(
    seconds: float,
    done: float,
    *,
    here: tuple[int, ...] | None = None,
    given: tuple[GivenBin, ...] = (),
    taken: tuple[TakenBin, ...] = (),
    held: tuple[HeldRows, ...] = (),
) -> Commit:
    """A commit, so many seconds after the begin, with all events of the first `done` seconds."""
    return Commit(
        number=0,
        batch=0,
        query="",
        began=BEGAN + seconds,
        at=BEGAN + seconds,
        frontier=(at(done), 0),
        seen={},
        moves=0,
        here=None if here is None else {str(bin): BinSnapshot() for bin in here},
        given=given,
        taken=taken,
        held=held,
    )


MOVED_AT = at(2.5)
WEST = (
    commit(1, 1, here=(0, 1)),
    commit(2, 2),
    commit(3, 3, given=(GivenBin(0, MOVED_AT, 1, BinSnapshot()),)),
    commit(4, 4),
)
EAST = (
    commit(1, 1, here=()),
    commit(3, 3, held=(HeldRows(0, MOVED_AT, ()),)),
    commit(3.75, 3, taken=(TakenBin(0, MOVED_AT, 0, BinSnapshot()),)),
    commit(4, 4),
)


def test_a_bin_on_its_way_is_late_until_its_new_worker_has_it() -> None:
    commits = [("west", each) for each in WEST] + [("east", each) for each in EAST]
    steps = bin_latency.steps({"west": Ledger(), "east": Ledger()}, commits)
    found = bin_latency.slots(steps, MARKET, BEGAN, BEGAN + 2, BEGAN + 4)
    moved, stayed = zip(*found.values(), strict=True)
    assert list(stayed) == [0.75, 0.5, 0.25, 0, 0.75, 0.5, 0.25, 0]
    assert list(moved) == [0.75, 0.5, 1.0, 0.75, 0.75, 0.5, 0.25, 0]


@pytest.mark.parametrize(("query", "dilation"), [("q4", 1), ("q8", 4000)])
def test_what_is_said_of_some_keys_is_what_is_said_of_them_among_all(
    query: str, dilation: int
) -> None:
    market = nexmark.Market(dilation=dilation, in_flight=200)
    events = market.events(0, 20_000)
    until = int(market.at(20_000))
    if query == "q8":
        rows, key = reference.q8(events), 2
    else:
        sold = reference.sales(events)
        rows = [(time, a.id, a.seller, a.category, price) for time, a, price in sold]
        rows, key = reference.final(rows, until), 1
    some = [row for row in rows if row[key] % rows_of_some.EVERY == rows_of_some.ALIKE]
    assert sorted(rows_of_some.said(query, market, until)) == sorted(some)
    assert some
