"""NEXMark's events: persons, auctions and bids of an online market, each a function of its number.

    number % 50    0              1, 2, 3       4 ... 49
    is             a person       an auction    a bid

    number   long        0, 1, 2, ...; the order of the events, and nobody has one twice
    at       timestamp   event time: it never goes back, and `dilation` seconds pass in one second
    person   id, name, city, state                            null where it is none
    auction  id, seller, category, initial, reserve, expires  likewise
    bid      auction, bidder, price                           likewise

The rules and figures are those of NEXMark's generator as Megaphone runs it (strymon-system/megaphone
at 45d31e2, nexmark/src/event.rs and config.rs): most auctions are of a hot seller, half of the bids
go to a hot auction, prices are spread evenly over six powers of ten. As there, a seller or an
auction may be named a little before it comes. Texts that no query reads are left out: item,
description, e-mail address, credit card. The chance is ours: a number's hash instead of the next
number of a generator, so that everybody can make any event again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pyarrow

GROUP = 50  # of so many events
PERSONS = 1  # are persons,
AUCTIONS = 3  # auctions, and the others bids

FIRST_ID = 1000  # of persons, and of auctions
FIRST_CATEGORY = 10
CATEGORIES = 5
LEAD = 10  # so many ids may be named before they come
HOT = 100  # of so many ids one is hot at a time
HOT_SELLERS = 4  # of so many auctions, all but one are of a hot seller
HOT_AUCTIONS = 2  # of so many bids, all but one go to a hot auction
HOT_BIDDERS = 4  # of so many bids, all but one are of a hot bidder

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("phoenix", "los angeles", "san francisco", "boise", "portland"),
    *("bend", "redmond", "seattle", "kent", "cheyenne"),
)
FIRST_NAMES = (
    *("peter", "paul", "luke", "john", "saul", "vicky", "kate", "julie", "sarah"),
    *("deiter", "walter"),
)
LAST_NAMES = (
    *("shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones"),
    "noris",
)
NAMES = tuple(f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES)
PRICES = np.array([round(100 * 10 ** (6 * step / 4096)) for step in range(4096)])

BASE = 1_767_225_600_000_000  # 2026-01-01, event time of number 0, microseconds since 1970
SECOND = 1_000_000
MILLISECOND = 1_000

TIME = pyarrow.timestamp("us", "UTC")
LONG = pyarrow.int64()
TEXT = pyarrow.string()
PERSON = pyarrow.struct({"id": LONG, "name": TEXT, "city": TEXT, "state": TEXT})
AUCTION = pyarrow.struct(
    {
        "id": LONG,
        "seller": LONG,
        "category": LONG,
        "initial": LONG,
        "reserve": LONG,
        "expires": TIME,
    }
)
BID = pyarrow.struct({"auction": LONG, "bidder": LONG, "price": LONG})
SCHEMA = pyarrow.schema(
    {"number": LONG, "at": TIME, "person": PERSON, "auction": AUCTION, "bid": BID}
)

Numbers = Any  # an array of numpy, of int64


class Person(NamedTuple):
    """Somebody who has registered, and may sell and bid."""

    id: int
    name: str
    city: str
    state: str


class Auction(NamedTuple):
    """Something for sale. Bids below the reserve, or from `expires` on, do not count."""

    id: int
    seller: int
    category: int
    initial: int
    reserve: int
    expires: int


class Bid(NamedTuple):
    """What somebody would pay at an auction."""

    auction: int
    bidder: int
    price: int


class Event(NamedTuple):
    """An event as Python has it; times are microseconds since 1970."""

    number: int
    at: int
    person: Person | None = None
    auction: Auction | None = None
    bid: Bid | None = None


@dataclass(frozen=True)
class Market:
    """All events there will ever be.

    Args:
        seed: another one makes other events.
        rate: events in a second of the clock.
        dilation: seconds of event time that pass in a second of the clock.
        in_flight: auctions that are open at a time, about.
        active: of so many persons that came last, one sells or bids.
    """

    seed: int = 1
    rate: int = 1000
    dilation: int = 1
    in_flight: int = 100
    active: int = 1000

    @classmethod
    def of(cls, options: Any) -> Market:
        """Return the market that the options of a source ask for, which are text."""
        names = [field.name for field in fields(cls) if field.name in options]
        return cls(**{name: int(options[name]) for name in names})

    def options(self) -> dict[str, str]:
        """Return the options that ask a source for this market."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}

    def at(self, numbers: Numbers) -> Numbers:
        """Return the event time of numbers, in microseconds since 1970."""
        return BASE + numbers * (self.dilation * SECOND) // self.rate

    def batch(self, first: int, last: int) -> pyarrow.RecordBatch:
        """Return the events from one number to before another."""
        numbers = np.arange(first, last, dtype=np.int64)
        place = numbers % GROUP
        is_person, is_bid = place < PERSONS, place >= PERSONS + AUCTIONS
        is_auction = ~(is_person | is_bid)
        columns = [
            pyarrow.array(numbers),
            pyarrow.array(self.at(numbers)).cast(TIME),
            _spread(self._persons(numbers[is_person]), is_person, PERSON),
            _spread(self._auctions(numbers[is_auction]), is_auction, AUCTION),
            _spread(self._bids(numbers[is_bid]), is_bid, BID),
        ]
        return pyarrow.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def events(self, first: int, last: int) -> list[Event]:
        """Return the same as Python's values."""
        return events_of(self.batch(first, last))

    # ---------------------------------------------------------------- the three kinds

    def _persons(self, numbers: Numbers) -> list[Any]:
        draw = _Chance(self.seed, numbers)
        return [
            FIRST_ID + _last_person(numbers),
            _texts(NAMES, draw),
            _texts(CITIES, draw),
            _texts(STATES, draw),
        ]

    def _auctions(self, numbers: Numbers) -> list[Any]:
        draw = _Chance(self.seed, numbers)
        hot = _last_person(numbers) // HOT * HOT
        seller = np.where(draw.below(HOT_SELLERS) > 0, hot, self._any_person(numbers, draw))
        category = draw.below(CATEGORIES)
        initial, above = PRICES[draw.below(len(PRICES))], PRICES[draw.below(len(PRICES))]
        now = self.at(numbers)
        horizon = self.at(numbers + self.in_flight * GROUP // AUCTIONS) - now
        length = 1 + draw.below(np.maximum(2 * horizon, 1))
        expires = -(-(now + length) // MILLISECOND) * MILLISECOND  # timers know no microseconds
        return [
            FIRST_ID + _last_auction(numbers),
            FIRST_ID + seller,
            FIRST_CATEGORY + category,
            initial,
            initial + above,
            pyarrow.array(expires).cast(TIME),
        ]

    def _bids(self, numbers: Numbers) -> list[Any]:
        draw = _Chance(self.seed, numbers)
        hot = _last_auction(numbers) // HOT * HOT
        auction = np.where(draw.below(HOT_AUCTIONS) > 0, hot, self._any_auction(numbers, draw))
        hot = _last_person(numbers) // HOT * HOT + 1
        bidder = np.where(draw.below(HOT_BIDDERS) > 0, hot, self._any_person(numbers, draw))
        return [FIRST_ID + auction, FIRST_ID + bidder, PRICES[draw.below(len(PRICES))]]

    def _any_person(self, numbers: Numbers, draw: _Chance) -> Numbers:
        """Return one of the persons that came last, or will come soon."""
        persons = _last_person(numbers) + 1
        active = np.minimum(persons, self.active)
        return persons - active + draw.below(active + LEAD)

    def _any_auction(self, numbers: Numbers, draw: _Chance) -> Numbers:
        """Return one of the auctions that may be open, or will be soon."""
        last = _last_auction(numbers)
        first = np.maximum(last - self.in_flight, 0)
        return first + draw.below(last - first + 1 + LEAD)


def events_of(batch: pyarrow.RecordBatch) -> list[Event]:
    """Return the events of a batch as Python's values."""
    numbers, times = batch["number"].to_pylist(), batch["at"].cast(LONG).to_pylist()
    persons = [one and Person(**one) for one in batch["person"].to_pylist()]
    auctions = [one and _auction(one) for one in batch["auction"].to_pylist()]
    bids = [one and Bid(**one) for one in batch["bid"].to_pylist()]
    return list(map(Event, numbers, times, persons, auctions, bids))


def _last_person(numbers: Numbers) -> Numbers:
    """Return how many persons have come before the last one."""
    return numbers // GROUP


def _last_auction(numbers: Numbers) -> Numbers:
    """Return how many auctions have come before the last one."""
    in_group = np.clip(numbers % GROUP - PERSONS, -1, AUCTIONS - 1)
    return np.maximum(numbers // GROUP * AUCTIONS + in_group, 0)


class _Chance:
    """Numbers drawn for each event: of its number, the seed, and how many were drawn before."""

    def __init__(self, seed: int, numbers: Numbers) -> None:
        self._seed, self._numbers, self._drawn = seed, numbers.astype(np.uint64), 0

    def below(self, limit: Any) -> Numbers:
        """Return numbers from 0 to below a limit, or to below each event's own."""
        self._drawn += 1
        start = (self._seed * 1000 + self._drawn) * 0x9E3779B97F4A7C15 % (1 << 64)
        drawn = _mixed(_mixed(self._numbers) + np.uint64(start))
        return (drawn % np.asarray(limit).astype(np.uint64)).astype(np.int64)


def _mixed(z: Numbers) -> Numbers:
    """Return a hash of each number: the last step of SplitMix64 (Steele, Lea, Flood, 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _texts(of: tuple[str, ...], draw: _Chance) -> pyarrow.Array:
    return pyarrow.array(of).take(pyarrow.array(draw.below(len(of))))


def _spread(columns: list[Any], where: Any, kind: pyarrow.StructType) -> pyarrow.StructArray:
    """Return values of one kind of event where there are such, and null elsewhere."""
    arrays = [pyarrow.array(column) for column in columns]
    whole = pyarrow.StructArray.from_arrays(arrays, fields=list(kind))
    places = np.cumsum(where) - 1
    return whole.take(pyarrow.array(places, mask=~where))


def _auction(values: dict[str, Any]) -> Auction:
    return Auction(**{**values, "expires": _microseconds(values["expires"])})


def _microseconds(at: Any) -> int:
    return pyarrow.scalar(at, TIME).cast(LONG).as_py()
