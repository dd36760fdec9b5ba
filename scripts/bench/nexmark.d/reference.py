"""NEXMark's queries as plainly as they can be said: what comes out of a list of events.

    query   a row of it                              says
    q1      number, auction, bidder, price           a bid's price in euros
    q2      number, auction, price                   bids for some auctions
    q3      auction, name, city, state               what is sold near here, and by whom
    q4      auction, category, average               prices of a category so far, at each sale
    q5      auction, count                           what most bids went to in a minute
    q6      auction, seller, average                 a seller's last ten prices, at each sale
    q7      number, auction, bidder, price           the highest bid in ten seconds
    q8      auction, seller, name, reserve           new persons' auctions, in twelve hours

Events are in order: of their time `at`, and of their number where that is the same. Every row
begins with the time at which it is final, `at`: when all events before it are known, nothing can
change it any more, or take it back. So a query has the same rows however its input is cut into
batches, and an implementation may give a row as soon as it knows it, or once its frontier (a
watermark) has passed `at`. What has no frontier yet at the end of the input may be missing:
`final` leaves it out.

    q1, q2   the bid's own time
    q3       the time of the later one of both events: the auction's or the person's
    q4, q6   when the auction closes, `expires`; rows of a category or seller are in the order of
             (at, auction), and an average is of the row's own price and those before it
    q5, 7, 8 the end of the window; what has just that time is in the next one

Of bids with the same price the first one is the highest; of auctions with the same number of bids
the last one is the hottest. Averages are rounded down, as Megaphone's are.

Where Megaphone's code and the queries' original text differ, the text holds: q6 is by seller (there
it is by bidder), q8 joins persons (there it joins auctions with auctions), in a window that tumbles
(there it begins with the person), q5 and q7 are of all bids (there q5 is of a worker's or a bin's).
Windows of q5 and q7 are as long as Megaphone's, a sixtieth and a sixth of the original's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from events import SECOND, Auction, Event, Person

HOTTEST_WINDOW = 60 * SECOND
HOTTEST_SLIDE = SECOND
HIGHEST_WINDOW = 10 * SECOND
NEW_WINDOW = 12 * 3600 * SECOND

EVERY_AUCTION = 123
NEAR = ("OR", "ID", "CA")
NEAR_CATEGORY = 10
LAST_PRICES = 10

Row = tuple[Any, ...]


def final(rows: Iterable[Row], until: int) -> list[Row]:
    """Return the rows that are final before a time, sorted."""
    return sorted(row for row in rows if row[0] < until)


def q1(events: Sequence[Event]) -> list[Row]:
    """Convert prices: every bid, with its price in euros, of which a dollar is 0.89."""
    return [
        (event.at, event.number, bid.auction, bid.bidder, bid.price * 89 // 100)
        for event in events
        if (bid := event.bid)
    ]


def q2(events: Sequence[Event]) -> list[Row]:
    """Select bids: those for auctions whose id is a multiple of 123."""
    return [
        (event.at, event.number, event.bid.auction, event.bid.price)
        for event in events
        if event.bid and event.bid.auction % EVERY_AUCTION == 0
    ]


def q3(events: Sequence[Event]) -> list[Row]:
    """Suggest local items: auctions of category 10, with their sellers from three states."""
    return [
        (max(one.at for one in pair), auction.id, person.name, person.city, person.state)
        for pair, auction, person in _sellers(events)
        if auction.category == NEAR_CATEGORY and person.state in NEAR
    ]


def q4(events: Sequence[Event]) -> list[Row]:
    """Average the prices of a category: of all its auctions so far, whenever one closes."""
    prices = defaultdict(list)
    rows = []
    for at, auction, price in sales(events):
        so_far = prices[auction.category]
        so_far.append(price)
        rows.append((at, auction.id, auction.category, sum(so_far) // len(so_far)))
    return rows


def q5(events: Sequence[Event]) -> list[Row]:
    """Find the hottest item: every second, the auction with most bids in the minute before."""
    windows: dict[int, Counter[int]] = defaultdict(Counter)
    for event in events:
        if event.bid:
            for end in _ends(event.at, HOTTEST_WINDOW, HOTTEST_SLIDE):
                windows[end][event.bid.auction] += 1
    rows = []
    for end, counts in windows.items():
        count, auction = max((count, auction) for auction, count in counts.items())
        rows.append((end, auction, count))
    return rows


def q6(events: Sequence[Event]) -> list[Row]:
    """Average the prices of a seller: of the last ten auctions, whenever one closes."""
    prices = defaultdict(list)
    rows = []
    for at, auction, price in sales(events):
        prices[auction.seller].append(price)
        last = prices[auction.seller][-LAST_PRICES:]
        rows.append((at, auction.id, auction.seller, sum(last) // len(last)))
    return rows


def q7(events: Sequence[Event]) -> list[Row]:
    """Find the highest bid of every ten seconds."""
    highest: dict[int, Event] = {}
    for event in events:
        if event.bid:
            (end,) = _ends(event.at, HIGHEST_WINDOW, HIGHEST_WINDOW)
            best = highest.setdefault(end, event).bid
            assert best is not None
            if event.bid.price > best.price:
                highest[end] = event
    return [
        (end, event.number, bid.auction, bid.bidder, bid.price)
        for end, event in highest.items()
        if (bid := event.bid)
    ]


def q8(events: Sequence[Event]) -> list[Row]:
    """Watch new users: auctions of persons that came in the same twelve hours."""
    rows = []
    for pair, auction, person in _sellers(events):
        ends = {end for one in pair for end in _ends(one.at, NEW_WINDOW, NEW_WINDOW)}
        if len(ends) == 1:
            rows.append((ends.pop(), auction.id, person.id, person.name, auction.reserve))
    return rows


QUERIES = {function.__name__: function for function in (q1, q2, q3, q4, q5, q6, q7, q8)}


# ---------------------------------------------------------------- what several of them need


def _sellers(events: Sequence[Event]) -> Iterator[tuple[tuple[Event, Event], Auction, Person]]:
    """Yield each auction with the person that sells it, and the events by which both came."""
    came = {event.person.id: (event, event.person) for event in events if event.person}
    for event in events:
        if event.auction and event.auction.seller in came:
            before, person = came[event.auction.seller]
            yield (before, event), event.auction, person


def sales(events: Sequence[Event]) -> list[tuple[int, Auction, int]]:
    """Return the auctions that found a buyer, with the time at which they close and the price, in
    the order of (time, id). A bid counts that comes after its auction, before it closes, and is not
    below the reserve.
    """
    auctions: dict[int, Auction] = {}
    prices: dict[int, int] = {}
    for event in events:
        if event.auction:
            auctions[event.auction.id] = event.auction
        elif event.bid and event.bid.auction in auctions:
            auction = auctions[event.bid.auction]
            if event.at < auction.expires and event.bid.price >= auction.reserve:
                prices[auction.id] = max(event.bid.price, prices.get(auction.id, 0))
    sold = sorted(prices, key=lambda number: (auctions[number].expires, number))
    return [(auctions[number].expires, auctions[number], prices[number]) for number in sold]


def _ends(at: int, length: int, slide: int) -> range:
    """Return the ends of the windows that a time is in: it is before their end, and not before
    their begin.
    """
    first = (at // slide + 1) * slide
    return range(first, first + length, slide)
