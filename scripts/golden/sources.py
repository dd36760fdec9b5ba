"""A source of our own for the golden cases, whose offsets look like no other's: nested, with lists,
text and nulls. Spark keeps them as they are. A module of its own, so that Python workers find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

BATCHES = 3


class Part(InputPartition):  # type: ignore[misc]
    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last


class Reader(DataSourceStreamReader):  # type: ignore[misc]
    """Twelve events a batch; a new reader goes on where the last offset says."""

    def __init__(self) -> None:
        self.count = 0

    def initialOffset(self) -> dict[str, Any]:
        return self._offset(0)

    def latestOffset(self) -> dict[str, Any]:
        self.count = min(self.count + 1, BATCHES)
        return self._offset(self.count)

    def _offset(self, count: int) -> dict[str, Any]:
        cursor = {"at": 12 * count, "path": ["a b", "é", ""], "pages": [[1, None], [2, 0.5]]}
        return {"table": "orders", "cursor": cursor, "closed": None, "12": {"x": "y"}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        return [Part(start["cursor"]["at"], end["cursor"]["at"])]

    def read(self, partition: Part) -> Iterator[tuple[Any, ...]]:
        for number in range(partition.first, partition.last):
            yield number, "abcdé"[number % 5] * (number % 4)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is held for a restart."""


class Numbered(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "numbered"

    def schema(self) -> str:
        return "id LONG, word STRING"

    def streamReader(self, schema: Any) -> Reader:
        return Reader()
