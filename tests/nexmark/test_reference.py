"""NEXMark's queries on a few events, whose rows anybody can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.nexmark import events as nexmark
from tests.support.nexmark import reference

SECOND, HOUR = nexmark.SECOND, 3600 * nexmark.SECOND
Event = Any


def numbered(*timed: tuple[int, Any]) -> list[Event]:
    """Events at times, in seconds."""
    kinds = {nexmark.Person: "person", nexmark.Auction: "auction", nexmark.Bid: "bid"}
    return [
        nexmark.Event(number, at * SECOND, **{kinds[type(what)]: what})
        for number, (at, what) in enumerate(timed)
    ]


def person(number: int, state: str = "OR") -> Any:
    return nexmark.Person(number, f"person {number}", "bend", state)


def auction(number: int, seller: int, closes: int = 100, category: int = 10) -> Any:
    return nexmark.Auction(number, seller, category, 10, 20, closes * SECOND)


def bid(auction: int, price: int, bidder: int = 1) -> Any:
    return nexmark.Bid(auction, bidder, price)


def rows(query: str, *timed: tuple[int, Any]) -> list[Sequence[Any]]:
    """What comes out, times in seconds."""
    found = reference.QUERIES[query](numbered(*timed))
    return [(row[0] // SECOND, *row[1:]) for row in sorted(found)]


def test_prices_are_converted_and_rounded_down() -> None:
    assert rows("q1", (3, bid(7, 99)), (4, person(1))) == [(3, 0, 7, 1, 88)]


def test_bids_for_every_123rd_auction_are_selected() -> None:
    assert rows("q2", (1, bid(1107, 5)), (2, bid(1108, 5))) == [(1, 0, 1107, 5)]


def test_an_item_is_suggested_whether_it_comes_before_its_seller_or_after() -> None:
    timed = (1, auction(7, seller=5)), (2, person(5)), (3, auction(8, seller=5))
    found = [(at, number) for at, number, *_ in rows("q3", *timed)]
    assert found == [(2, 7), (3, 8)]


@pytest.mark.parametrize(
    ("seller", "item"),
    [(person(5, "AZ"), auction(7, 5)), (person(5), auction(7, 5, category=11))],
)
def test_an_item_from_elsewhere_or_of_another_category_is_not_suggested(
    seller: Any, item: Any
) -> None:
    assert rows("q3", (1, seller), (2, item)) == []


@pytest.mark.parametrize(
    ("timed", "price"),
    [
        ([(1, bid(7, 50)), (2, auction(7, 5)), (3, bid(7, 30))], 30),  # before its auction
        ([(2, auction(7, 5)), (3, bid(7, 19))], None),  # below the reserve
        ([(2, auction(7, 5)), (3, bid(7, 20)), (100, bid(7, 50))], 20),  # as it closes
        ([(2, auction(7, 5)), (3, bid(7, 40)), (4, bid(7, 30))], 40),
    ],
)
def test_the_highest_bid_that_counts_is_the_price(timed: Any, price: int | None) -> None:
    assert rows("q4", *timed) == ([] if price is None else [(100, 7, 10, price)])


def test_an_average_is_of_the_auctions_that_have_closed_in_their_order() -> None:
    timed = (
        *((1, auction(7, 5, closes=90)), (1, auction(8, 6, closes=80))),
        *((1, auction(9, 5, closes=90, category=11)),),
        *((2, bid(7, 30)), (2, bid(8, 21)), (2, bid(9, 100))),
    )
    assert rows("q4", *timed) == [(80, 8, 10, 21), (90, 7, 10, 25), (90, 9, 11, 100)]
    assert rows("q6", *timed) == [(80, 8, 6, 21), (90, 7, 5, 30), (90, 9, 5, 65)]


def test_a_sellers_average_is_of_the_last_ten() -> None:
    timed = []
    for number in range(12):
        timed += [(1, auction(number, 5, closes=10 + number)), (2, bid(number, 100 + number))]
    averages = [average for *_, average in rows("q6", *timed)]
    assert averages[-1] == sum(range(102, 112)) // 10


def test_the_hottest_item_is_of_the_minute_before_and_the_last_one_of_equals() -> None:
    found = rows("q5", (0, bid(7, 1)), (0, bid(7, 1)), (30, bid(8, 1)), (59, bid(9, 1)))
    assert [row for row in found if row[0] in (1, 60, 61, 90, 91, 119)] == [
        (1, 7, 2),
        (60, 7, 2),
        (61, 9, 1),
        (90, 9, 1),
        (91, 9, 1),
        (119, 9, 1),
    ]
    assert (found[0][0], found[-1][0]) == (1, 119)


def test_the_highest_bid_is_of_its_ten_seconds_and_the_first_one_of_equals() -> None:
    found = rows("q7", (0, bid(7, 5)), (9, bid(8, 5)), (10, bid(9, 1)))
    assert found == [(10, 0, 7, 1, 5), (20, 2, 9, 1, 1)]


def test_a_new_user_is_seen_until_the_twelve_hours_end() -> None:
    noon = 12 * HOUR // SECOND
    timed = (
        *((0, person(5)), (1, auction(7, 5)), (2, auction(9, 6)), (3, person(6))),
        *((noon, auction(8, 5)), (noon, person(4)), (noon, auction(10, 4))),
    )
    assert rows("q8", *timed) == [
        (noon, 7, 5, "person 5", 20),
        (noon, 9, 6, "person 6", 20),
        (2 * noon, 10, 4, "person 4", 20),
    ]


def test_what_has_no_frontier_yet_is_not_final() -> None:
    assert reference.final([(5, "b"), (9, "c"), (5, "a")], 9) == [(5, "a"), (5, "b")]
