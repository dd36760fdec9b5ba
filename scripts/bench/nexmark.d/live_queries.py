"""NEXMark's queries as live operators, whose state moves while they run.

    query   its input                  its operators, one behind the other
    q1      bids                       q1
    q2      bids                       q2
    q3      persons_and_auctions       q3
    q4      auctions_and_bids          sales, q4
    q5      bids                       counts, q5
    q6      auctions_and_bids          sales, q6
    q7      bids_by_window             q7
    q8      persons_and_auctions       q8

What they put out are the rows of `reference`, times as microseconds since 1970. Events are taken in
their order, (`at`, `number`). To see the end of a window, which its last events come before, an
operator asks for the microsecond before it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from stateshift import live

TIME = ("at", "number")
AT = "unix_micros(at) AS at"
SECOND = 1_000_000
MINUTE, TEN_SECONDS, TWELVE_HOURS = 60 * SECOND, 10 * SECOND, 12 * 3600 * SECOND


@live.operator(
    key="auction", time=TIME, out="at long, number long, auction long, bidder long, price long"
)
def q1(auction: int, state: None, bids: Any) -> Any:
    """Convert prices: every bid, with its price in euros."""
    rows = [(b.at, b.number, auction, b.bidder, b.price * 89 // 100) for b in bids]
    return live.Folded(None, outputs=tuple(rows))


@live.operator(key="auction", time=TIME, out="at long, number long, auction long, price long")
def q2(auction: int, state: None, bids: Any) -> Any:
    """Select bids: those for auctions whose id is a multiple of 123."""
    if auction % 123:
        return live.Folded(None)
    return live.Folded(None, outputs=tuple((b.at, b.number, auction, b.price) for b in bids))


@live.operator(
    form="binary",
    sides=("side", "person", "auction"),
    key="seller",
    time=TIME,
    out="at long, auction long, name string, city string, state string",
)
def q3(at: int, seller: int, state: Any, persons: Any, auctions: Any, notified: Any) -> Any:
    """Suggest local items: auctions of category 10, with their sellers from three states."""
    person, waiting = state or (None, [])
    near = [p for p in persons if p.state in ("OR", "ID", "CA")]
    person = (near[0].name, near[0].city, near[0].state) if near else person
    waiting = waiting + [a.id for a in auctions if a.category == 10]
    if person is None:
        return live.Folded((None, waiting) if waiting else None)
    return live.Folded((person, []), outputs=tuple((at, id_, *person) for id_ in waiting))


@live.operator(
    form="binary",
    sides=("side", "auction", "bid"),
    key="item",
    time=TIME,
    out="at long, auction long, seller long, category long, price long",
)
def sales(at: int, item: int, state: Any, auctions: Any, bids: Any, notified: Any) -> Any:
    """Close auctions: what found a buyer, and for how much."""
    if notified:
        seller, category, _, expires, price = state
        return live.Folded(None, outputs=((expires, item, seller, category, price),) * (price > 0))
    for a in auctions:
        state = (a.seller, a.category, a.reserve, a.expires, 0)
    for b in bids:
        if state and at < state[3] and b.price >= state[2]:
            state = (*state[:4], max(b.price, state[4]))
    return live.Folded(state, later=tuple((a.expires, None) for a in auctions))


@live.operator(
    key="category", time=("at", "auction"), out="at long, auction long, category long, average long"
)
def q4(category: int, state: Any, sold: Any) -> Any:
    """Average the prices of a category: of all its auctions so far, whenever one closes."""
    total, count = state or (0, 0)
    rows = []
    for s in sold:
        total, count = total + s.price, count + 1
        rows.append((s.at, s.auction, category, total // count))
    return live.Folded((total, count), outputs=tuple(rows))


@live.operator(form="unary", key="auction", time=TIME, out="at long, auction long, count long")
def counts(at: int, auction: int, state: Any, bids: Any, notified: Any) -> Any:
    """Count an auction's bids of the minute before, every second in which there are any."""
    slides = dict(state or {})  # by their ends
    end = at // SECOND * SECOND + SECOND
    if bids:
        slides[end] = slides.get(end, 0) + len(bids)
        return live.Folded(slides, later=() if state else ((end - 1, None),))
    slides = {slide: count for slide, count in slides.items() if slide > end - MINUTE}
    if not slides:
        return live.Folded(None)
    row = (end, auction, sum(slides.values()))
    return live.Folded(slides, outputs=(row,), later=((end + SECOND - 1, None),))


@live.operator(
    form="unary", key="at", time=("at", "auction"), out="at long, auction long, count long"
)
def q5(at: int, end: int, state: Any, counted: Any, notified: Any) -> Any:
    """Find the hottest item: every second, the auction with most bids in the minute before."""
    if notified:
        count, auction = state
        return live.Folded(None, outputs=((end, auction, count),))
    hottest = max([*([state] if state else []), *((c.count, c.auction) for c in counted)])
    return live.Folded(hottest, later=() if state else ((end, None),))


@live.operator(
    key="seller", time=("at", "auction"), out="at long, auction long, seller long, average long"
)
def q6(seller: int, state: Any, sold: Any) -> Any:
    """Average the prices of a seller: of the last ten auctions, whenever one closes."""
    prices = state or []
    rows = []
    for s in sold:
        prices = [*prices, s.price][-10:]
        rows.append((s.at, s.auction, seller, sum(prices) // len(prices)))
    return live.Folded(prices, outputs=tuple(rows))


@live.operator(
    form="unary",
    key="window",
    time=TIME,
    out="at long, number long, auction long, bidder long, price long",
)
def q7(at: int, window: int, state: Any, bids: Any, notified: Any) -> Any:
    """Find the highest bid of every ten seconds."""
    if notified:
        return live.Folded(None, outputs=((window, *state),))
    best = state
    for b in bids:
        if best is None or b.price > best[-1]:
            best = (b.number, b.auction, b.bidder, b.price)
    return live.Folded(best, later=() if state else ((window - 1, None),))


@live.operator(
    form="binary",
    sides=("side", "person", "auction"),
    key="seller",
    time=TIME,
    out="at long, auction long, seller long, name string, reserve long",
)
def q8(at: int, seller: int, state: Any, persons: Any, auctions: Any, notified: Any) -> Any:
    """Watch new users: auctions of persons that came in the same twelve hours."""
    if notified:
        return live.Folded(None)
    end = at // TWELVE_HOURS * TWELVE_HOURS + TWELVE_HOURS
    later = () if state else ((end - 1, None),)
    name, waiting = state or (None, [])
    name = persons[0].name if persons else name
    waiting = waiting + [(a.id, a.reserve) for a in auctions]
    if name is None:
        return live.Folded((None, waiting), later=later)
    rows = [(end, id_, seller, name, reserve) for id_, reserve in waiting]
    return live.Folded((name, []), outputs=tuple(rows), later=later)


# ---------------------------------------------------------------- what they are given


def bids(events: DataFrame) -> DataFrame:
    """Return the bids, a column for each of their values."""
    return events.where("bid IS NOT NULL").selectExpr(AT, "number", "bid.*")


def bids_by_window(events: DataFrame) -> DataFrame:
    """Return the bids, with the end of their ten seconds."""
    end = f"(at DIV {TEN_SECONDS} + 1) * {TEN_SECONDS} AS window"
    return bids(events).selectExpr("*", end)


def persons_and_auctions(events: DataFrame) -> DataFrame:
    """Return both, with the side that they are on and the seller's id."""
    return events.where("bid IS NULL").selectExpr(
        *(AT, "number", "IF(person IS NULL, 'auction', 'person') AS side"),
        "coalesce(person.id, auction.seller) AS seller",
        *("person.name", "person.city", "person.state"),
        *("auction.id", "auction.category", "auction.reserve"),
    )


def auctions_and_bids(events: DataFrame) -> DataFrame:
    """Return both, with the side that they are on and the auction's id."""
    return events.where("person IS NULL").selectExpr(
        *(AT, "number", "IF(bid IS NULL, 'auction', 'bid') AS side"),
        "coalesce(auction.id, bid.auction) AS item",
        *("auction.seller", "auction.category", "auction.reserve", "bid.price"),
        "unix_micros(auction.expires) AS expires",
    )


QUERIES = {
    "q1": (bids, q1),
    "q2": (bids, q2),
    "q3": (persons_and_auctions, q3),
    "q4": (auctions_and_bids, sales, q4),
    "q5": (bids, counts, q5),
    "q6": (auctions_and_bids, sales, q6),
    "q7": (bids_by_window, q7),
    "q8": (persons_and_auctions, q8),
}
