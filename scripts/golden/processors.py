"""Stateful processors of the golden cases (transformWithState, Spark 4.0 and later): a value, a
list and a map state, with timers or with a time to live. A module of its own, so that Python
workers find it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pandas
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Remembering(StatefulProcessor):
    """Counts rows, lists their ids, and keeps the largest amount by the id's rest; forgets the list
    of a round count and takes a key out of the map now and then, so that there are deletes.
    """

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n LONG, word STRING", self.ttl_ms)
        self.seen = handle.getListState("seen", "id LONG, amount DOUBLE", self.ttl_ms)
        self.largest = handle.getMapState(
            "largest", "rest INT, word STRING", "amount DOUBLE", self.ttl_ms
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = self.count.get()[0] if self.count.exists() else 0
        for frame in rows:
            for row in frame.itertuples():
                n += 1
                self.seen.appendValue(
                    (int(row.id), None if pandas.isna(row.amount) else float(row.amount))
                )
                rest = (int(row.id) % 3, key[0])
                if row.id % 11 == 0 and self.largest.exists() and self.largest.containsKey(rest):
                    self.largest.removeKey(rest)
                elif not pandas.isna(row.amount):
                    self.largest.updateValue(rest, (float(row.amount),))
        if n == 4:
            self.seen.put([(-1, None), (-2, 0.5)])
        self.count.update((n, key[0]))
        self.remember(n, timerValues)
        yield pandas.DataFrame({"word": [key[0]], "n": [n]})

    def remember(self, n: int, times: Any) -> None:
        """What is done about time."""

    def close(self) -> None:
        """Nothing is held open."""


class Timed(Remembering):
    """With timers; those the watermark passes fire."""

    def remember(self, n: int, times: Any) -> None:
        self.handle.registerTimer(times.getCurrentWatermarkInMs() + 3_600_000 * n)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        self.count.clear()
        yield pandas.DataFrame({"word": [key[0]], "n": [0]})


class ByRow(Timed):
    """Over rows."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = self.count.get()[0] if self.count.exists() else 0
        for row in rows:
            n += 1
            self.seen.appendValue((row.id, row.amount))
            if row.amount is not None:
                self.largest.updateValue((row.id % 3, key[0]), (row.amount,))
        self.count.update((n, key[0]))
        self.remember(n, timerValues)
        yield Row(word=key[0], n=n)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        self.count.clear()
        yield Row(word=key[0], n=0)


class Evolved(Timed):
    """The same after its values got other columns: wider, in another order, new ones between
    them.
    """

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "word STRING, note STRING, n DOUBLE", None)
        self.seen = handle.getListState(
            "seen", "amount DOUBLE, id LONG, place STRUCT<x: INT>", None
        )
        self.largest = handle.getMapState(
            "largest", "rest INT, word STRING", "times INT, amount DOUBLE", None
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = self.count.get()[2] if self.count.exists() else 0
        for frame in rows:
            for row in frame.itertuples():
                n += 1
                amount = None if pandas.isna(row.amount) else float(row.amount)
                self.seen.appendValue((amount, int(row.id), (int(row.id) % 7,)))
                if row.id % 3 == 1:
                    self.largest.updateValue((1, key[0]), (int(n), amount))
        self.count.update((key[0], "evolved", float(n)))
        yield pandas.DataFrame({"word": [key[0]], "n": [int(n)]})


class Typed(StatefulProcessor):
    """Keeps a row of every type, in each kind of state."""

    def __init__(self, columns: str) -> None:
        self.columns = columns

    def init(self, handle: Any) -> None:
        nested = (
            "m MAP<STRING, ARRAY<INT>>, deep ARRAY<STRUCT<x: INT, y: MAP<STRING, DATE>>>, "
            "nothing VOID"
        )
        self.last = handle.getValueState("last", f"{self.columns}, {nested}")
        self.every = handle.getListState("every", self.columns)
        self.by = handle.getMapState(
            "by", "d DATE, large DECIMAL(30,5), s STRING, t TIMESTAMP", "f32 FLOAT, n LONG"
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = 0
        for row in rows:
            n += 1
            values = tuple(row)
            day = row.d or datetime.date(2026, 1, 1)
            deep = [(1, {"a": day, "": day}), None, (None, {}), (2, None)]
            self.last.update(
                (*values, {row.s or "": [1, -1], "none": [], "null": None}, deep, None)
            )
            self.every.appendValue(values)
            self.by.updateValue((row.d, row.large, row.s, row.t), (row.f32, n))
        yield Row(n=n)

    def close(self) -> None:
        """Nothing is held open."""


class Expiring(Remembering):
    """With a time to live; nothing lives long enough to see it end."""

    ttl_ms = 30 * 24 * 3_600_000
