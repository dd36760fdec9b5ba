"""The stateful processors of shapes.py (transformWithState, Spark 4.0 and later): a value, a list
and a map state, with timers or with a time to live. A module of its own, so that Python workers
find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas
from pyspark.sql.streaming import StatefulProcessor


class Counting(StatefulProcessor):
    """Counts a word's rows, lists their ids, and keeps the largest amount by the id's rest; the
    list is begun anew and an item taken out of the map now and then, so that there are deletes.
    Everything it keeps shows in what it puts out.
    """

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n LONG", self.ttl_ms)
        self.listed = handle.getListState("listed", "id LONG", self.ttl_ms)
        self.largest = handle.getMapState("largest", "rest INT", "amount LONG", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = self.count.get()[0] if self.count.exists() else 0
        for frame in rows:
            for row in sorted(frame.itertuples(), key=lambda row: row.id):
                n += 1
                self.listed.appendValue((int(row.id),))
                rest = (int(row.id) % 5,)
                if row.id % 7 == 0 and self.largest.exists() and self.largest.containsKey(rest):
                    self.largest.removeKey(rest)
                else:
                    self.largest.updateValue(rest, (int(row.amount),))
        self.count.update((n,))
        brief = self.remember(timerValues)
        yield self.row(key, n, brief)

    def row(self, key: Any, n: int, brief: int) -> Any:
        listed = (
            sum((at + 1) * item[0] for at, item in enumerate(self.listed.get()))
            if self.listed.exists()
            else 0
        )
        largest = (
            sum(amount[0] for _, amount in self.largest.iterator()) if self.largest.exists() else 0
        )
        told = {
            "word": [key[0]],
            "n": [n],
            "listed": [listed],
            "largest": [largest],
            "brief": [brief],
        }
        return pandas.DataFrame(told)

    def remember(self, times: Any) -> int:
        """What is done about time."""
        return 0

    def close(self) -> None:
        """Nothing is held open."""


class Timed(Counting):
    """With timers; those the watermark passes fire, and begin the list anew."""

    def remember(self, times: Any) -> int:
        self.handle.registerTimer(times.getCurrentWatermarkInMs() + 40_000)
        return len(list(self.handle.listTimers()))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        n = self.count.get()[0] if self.count.exists() else 0
        yield self.row(key, -n, expiredTimerInfo.getExpiryTimeInMs())
        self.listed.clear()


class Expiring(Counting):
    """With a time to live that nothing sees the end of, but one value, which has always expired
    a batch later.
    """

    ttl_ms = 30 * 24 * 3_600_000

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.brief = handle.getValueState("brief", "n LONG", 1)

    def remember(self, times: Any) -> int:
        there = int(self.brief.exists())
        self.brief.update((1,))
        return there
