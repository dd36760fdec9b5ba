"""NEXMark's events: who makes them anew makes the same ones, in the proportions of the benchmark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow
import pytest

from tests.support.nexmark import events as nexmark

MARKET = nexmark.Market(seed=7)
MANY = 50_000


@pytest.fixture(scope="module")
def events() -> list:
    return MARKET.events(0, MANY)


@pytest.mark.parametrize(("first", "last"), [(0, 1), (37, 80), (999, 1000), (123_456, 123_500)])
def test_an_event_is_the_same_whoever_makes_it(first: int, last: int) -> None:
    begin = first - first % nexmark.GROUP
    whole = MARKET.batch(begin, last + nexmark.GROUP)
    assert MARKET.batch(first, last) == whole.slice(first - begin, last - first)


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(events: list) -> None:
    kinds = Counter((bool(one.person), bool(one.auction), bool(one.bid)) for one in events)
    groups = MANY // nexmark.GROUP
    assert kinds == {
        (True, False, False): groups,
        (False, True, False): nexmark.AUCTIONS * groups,
        (False, False, True): (nexmark.GROUP - 1 - nexmark.AUCTIONS) * groups,
    }


def test_persons_and_auctions_have_ids_one_after_the_other(events: list) -> None:
    for came in (
        [event.person.id for event in events if event.person],
        [event.auction.id for event in events if event.auction],
    ):
        assert came == list(range(nexmark.FIRST_ID, nexmark.FIRST_ID + len(came)))


def test_time_passes_as_the_rate_and_the_dilation_say() -> None:
    slow, fast = nexmark.Market(rate=100), nexmark.Market(rate=100, dilation=3600)
    begin = slow.events(0, 1)[0].at
    assert [event.at - begin for event in slow.events(0, 3)] == [
        0,
        nexmark.SECOND // 100,
        nexmark.SECOND // 50,
    ]
    assert fast.events(100, 101)[0].at - begin == 3600 * nexmark.SECOND


def test_most_auctions_are_of_hot_sellers_and_half_of_the_bids_go_to_hot_auctions(
    events: list,
) -> None:
    sellers = [event.auction.seller for event in events if event.auction]
    bids = [event.bid.auction for event in events if event.bid]
    assert 0.73 < hot(sellers) < 0.78  # three of four, and a few of the others
    assert 0.49 < hot(bids) < 0.53


def hot(ids: list[int]) -> float:
    return sum(1 for one in ids if (one - nexmark.FIRST_ID) % nexmark.HOT == 0) / len(ids)


def test_nobody_names_what_comes_much_later(events: list) -> None:
    persons = auctions = nexmark.FIRST_ID - 1
    for event in events:
        if event.person:
            persons = event.person.id
        elif event.auction:
            auctions = event.auction.id
            assert event.auction.seller <= persons + nexmark.LEAD
        else:
            assert event.bid.auction <= auctions + nexmark.LEAD
            assert event.bid.bidder <= persons + nexmark.LEAD


def test_auctions_are_open_as_long_as_it_takes_so_many_others_to_come() -> None:
    market = nexmark.Market(in_flight=10)
    lengths = [
        event.auction.expires - event.at for event in market.events(0, 20_000) if event.auction
    ]
    expected = 10 * nexmark.GROUP / nexmark.AUCTIONS / market.rate * nexmark.SECOND
    assert all(0 < length <= 2 * expected + nexmark.SECOND / 1000 for length in lengths)
    assert 0.9 < sum(lengths) / len(lengths) / expected < 1.1


def test_another_seed_makes_other_events() -> None:
    ours, theirs = MARKET.events(0, 200), replace(MARKET, seed=8).events(0, 200)
    assert sum(one == other for one, other in zip(ours, theirs, strict=True)) < 10


def test_a_market_is_what_its_options_say() -> None:
    market = nexmark.Market(seed=3, rate=50, dilation=9, in_flight=4, active=5)
    assert nexmark.Market.of({**market.options(), "end": "20"}) == market


def test_no_events_are_a_batch_with_the_columns_of_all() -> None:
    empty = MARKET.batch(5, 5)
    assert (empty.num_rows, empty.schema) == (0, nexmark.SCHEMA)
    assert pyarrow.Table.from_batches([empty, MARKET.batch(0, 60)]).num_rows == 60
