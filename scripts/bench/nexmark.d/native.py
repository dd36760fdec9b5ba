"""NEXMark's queries as a user of Spark writes them, for Structured Streaming in append mode.

Each takes the streaming DataFrame of `source.events` and returns a streaming DataFrame whose rows
are those of `reference`, by the same names. Joins, windows and aggregates are Spark's own. An
auction that closes, and an average of a key's rows in their order, are none of these: a stream has
no `OVER`, and a bid's interval ends with its auction, not with a fixed time after it. So q4 and q6
are two `transformWithState`, one behind the other, which want RocksDB as the state store:

    spark.sql.streaming.stateStore.providerClass
    org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


def q1(events: DataFrame) -> DataFrame:
    """Convert prices: every bid, with its price in euros."""
    return bids(events).withColumn("price", f.expr("price * 89 DIV 100"))


def q2(events: DataFrame) -> DataFrame:
    """Select bids: those for auctions whose id is a multiple of 123."""
    return bids(events).where("auction % 123 = 0").select("at", "number", "auction", "price")


def q3(events: DataFrame) -> DataFrame:
    """Suggest local items: auctions of category 10, with their sellers from three states.

    Either may come first, and is kept for ever.
    """
    near = persons(events).where("state IN ('OR', 'ID', 'CA')").alias("p")
    items = auctions(events).where("category = 10").alias("a")
    return items.join(near, f.expr("p.id = a.seller")).selectExpr(
        "greatest(a.at, p.at) AS at", "a.id AS auction", "name", "city", "state"
    )


def q4(events: DataFrame) -> DataFrame:
    """Average the prices of a category: of all its auctions so far, whenever one closes.

    Two transformWithState: nothing of SQL does it.
    """
    return (
        sales(events)
        .groupBy("category")
        .transformWithState(
            Average(), "at timestamp, auction long, category long, average long", "append", "none"
        )
    )


def q5(events: DataFrame) -> DataFrame:
    """Find the hottest item: every second, the auction with most bids in the minute before."""
    minutes = f.window("at", "60 seconds", "1 second")
    counts = timely(bids(events)).groupBy(minutes, "auction").count()
    hottest = counts.groupBy("window").agg(f.max(f.struct("count", "auction")).alias("hottest"))
    return hottest.selectExpr("window.end AS at", "hottest.auction", "hottest.count")


def q6(events: DataFrame) -> DataFrame:
    """Average the prices of a seller: of the last ten auctions, whenever one closes.

    Two transformWithState: nothing of SQL does it.
    """
    return (
        sales(events)
        .groupBy("seller")
        .transformWithState(
            LastTen(), "at timestamp, auction long, seller long, average long", "append", "none"
        )
    )


def q7(events: DataFrame) -> DataFrame:
    """Find the highest bid of every ten seconds."""
    windows = timely(bids(events)).groupBy(f.window("at", "10 seconds"))
    highest = windows.agg(f.expr("max_by(struct(*), struct(price, -number))").alias("bid"))
    return highest.selectExpr(
        "window.end AS at", "bid.number", "bid.auction", "bid.bidder", "bid.price"
    )


def q8(events: DataFrame) -> DataFrame:
    """Watch new users: auctions of persons that came in the same twelve hours."""
    window = f.window("at", "12 hours")
    new = timely(persons(events)).select(window, "id", "name").alias("p")
    items = timely(auctions(events)).select(window, "id", "seller", "reserve").alias("a")
    return items.join(new, f.expr("p.id = a.seller AND p.window = a.window")).selectExpr(
        "a.window.end AS at", "a.id AS auction", "seller", "name", "reserve"
    )


QUERIES = {function.__name__: function for function in (q1, q2, q3, q4, q5, q6, q7, q8)}


# ---------------------------------------------------------------- the three streams


def persons(events: DataFrame) -> DataFrame:
    """Return the persons, a column for each of their values."""
    return events.where("person IS NOT NULL").select("at", "number", "person.*")


def auctions(events: DataFrame) -> DataFrame:
    """Return the auctions, a column for each of their values."""
    return events.where("auction IS NOT NULL").select("at", "number", "auction.*")


def bids(events: DataFrame) -> DataFrame:
    """Return the bids, a column for each of their values."""
    return events.where("bid IS NOT NULL").select("at", "number", "bid.*")


def timely(rows: DataFrame) -> DataFrame:
    """Return rows whose time is the watermark: none of them comes late."""
    return rows.withWatermark("at", "0 seconds")


# ---------------------------------------------------------------- auctions that close


def sales(events: DataFrame) -> DataFrame:
    """Return the auctions that found a buyer, once the watermark has passed their end.

    Times are numbers here: Spark hands a row's over with a time zone, and a state's without.
    """
    either = timely(events.where("person IS NULL")).selectExpr(
        "at",
        "number",
        "coalesce(auction.id, bid.auction) AS item",
        "unix_micros(at) AS time",
        "unix_micros(auction.expires) AS expires",
        *("auction.seller", "auction.category", "auction.reserve", "bid.price"),
    )
    sold = either.groupBy("item").transformWithState(
        Close(),
        "time long, auction long, seller long, category long, price long",
        "append",
        "eventTime",
    )
    return sold.withColumn("at", f.timestamp_micros("time"))


class Close(StatefulProcessor):
    """An auction and the highest price that was bid, until it closes."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._timers = handle
        columns = "seller long, category long, reserve long, expires long, price long"
        self._open = handle.getValueState("open", columns)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        open_ = self._open.get()
        for row in sorted(rows, key=lambda row: row.number):
            if row.seller is not None:
                open_ = (row.seller, row.category, row.reserve, row.expires, None)
                self._timers.registerTimer(row.expires // 1000)
            elif open_ is not None:
                *auction, reserve, expires, price = open_
                if row.time < expires and row.price >= reserve:
                    open_ = (*auction, reserve, expires, max(row.price, price or 0))
        if open_ is not None:
            self._open.update(open_)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        seller, category, _, expires, price = self._open.get()
        self._open.clear()
        if price is not None:
            yield Row(time=expires, auction=key[0], seller=seller, category=category, price=price)

    def close(self) -> None:
        pass


class Average(StatefulProcessor):
    """The sum and the number of a category's prices."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._so_far = handle.getValueState("so_far", "sum long, count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        total, count = self._so_far.get() or (0, 0)
        for row in sorted(rows, key=lambda row: (row.time, row.auction)):
            total, count = total + row.price, count + 1
            yield Row(at=row.at, auction=row.auction, category=key[0], average=total // count)
        self._so_far.update((total, count))

    def close(self) -> None:
        pass


class LastTen(StatefulProcessor):
    """The last ten prices of a seller."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._prices = handle.getValueState("prices", "prices array<long>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (prices,) = self._prices.get() or ([],)
        for row in sorted(rows, key=lambda row: (row.time, row.auction)):
            prices = [*prices, row.price][-10:]
            average = sum(prices) // len(prices)
            yield Row(at=row.at, auction=row.auction, seller=key[0], average=average)
        self._prices.update((prices,))

    def close(self) -> None:
        pass
