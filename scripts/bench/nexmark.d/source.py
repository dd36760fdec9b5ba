"""NEXMark's events as a source of Spark's: streaming, in open loop, or as a table.

    events(spark, market, end=20_000, batch=5_000)                     # all there is, batch by batch
    events(spark, market, began="/tmp/began")                          # open loop, without an end
    spark.read.format("nexmark").options(**market.options(), end="20000").load()

Option      means
seed ...    those of `Market`
end         so many events there are; without it there is no end
began       a file with the time (seconds since 1970) at which number 0 is due: number n is due
            n / rate seconds later, whoever reads it and however late; until the file is there,
            nothing is due. Without `began` all events up to `end` are due at once
batch       at most so many events in a micro-batch
partitions  so many tasks read a micro-batch; 2 if nothing is said

Offsets are numbers of events. What was read can be read again at any time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
from events import SCHEMA, Market
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

ARROW_ROWS = 50_000


def events(spark: SparkSession, market: Market, **options: object) -> DataFrame:
    """Return the events of a market as they come."""
    spark.dataSource.register(Nexmark)
    said = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("nexmark").options(**market.options(), **said).load()


class Nexmark(DataSource):
    """The source, by the name of nexmark."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return Table(Numbers.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return Stream(Numbers.of(self.options))


class Range(InputPartition):
    """The numbers that one task reads."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last


@dataclass(frozen=True)
class Numbers:
    """Which events there are, when, and who reads them."""

    market: Market
    end: int | None
    began: Path | None
    batch: int | None
    partitions: int

    @classmethod
    def of(cls, options: Any) -> Numbers:
        """Return what the options ask for."""
        end, began, batch = (options.get(name) for name in ("end", "began", "batch"))
        if end is None and began is None:
            raise ValueError("nexmark: say where the events end (end) or when they are due (began)")
        return cls(
            market=Market.of(options),
            end=None if end is None else int(end),
            began=None if began is None else Path(began),
            batch=None if batch is None else int(batch),
            partitions=int(options.get("partitions", 2)),
        )

    def next_end(self, first: int) -> int:
        """Return where a micro-batch ends that begins at a number: at what is due now."""
        limits = [self._due(), self.end]
        if self.batch is not None:
            limits.append(first + self.batch)
        return max(first, min(limit for limit in limits if limit is not None))

    def _due(self) -> int | None:
        """Return how many events are due; None if it is all of them."""
        if self.began is None:
            return None
        try:
            began = float(self.began.read_text())
        except (FileNotFoundError, ValueError):  # a file that is just written may be empty
            return 0
        return int(max(0.0, time.time() - began) * self.market.rate)

    def shared(self, first: int, last: int) -> list[Range]:
        """Return the numbers in a range as the tasks share them."""
        count = self.partitions
        cuts = [first + (last - first) * part // count for part in range(count + 1)]
        return [Range(begin, end) for begin, end in pairwise(cuts)]

    def read(self, part: Range) -> Iterator[pyarrow.RecordBatch]:
        """Return the events of a task."""
        for first in range(part.first, max(part.last, part.first + 1), ARROW_ROWS):
            yield self.market.batch(first, min(first + ARROW_ROWS, part.last))


class Stream(DataSourceStreamReader):
    """The events as they come due."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def initialOffset(self) -> dict[str, int]:
        return {"number": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"number": self._numbers.next_end(start["number"] if start else 0)}

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        return self._numbers.shared(start["number"], end["number"])

    def read(self, partition: Any) -> Iterator[pyarrow.RecordBatch]:
        return self._numbers.read(partition)

    def commit(self, end: Any) -> None:
        """Keep nothing: all events can be made again."""

    def stop(self) -> None:
        """Close nothing."""


class Table(DataSourceReader):
    """The events up to the end, as a table."""

    def __init__(self, numbers: Numbers) -> None:
        if numbers.end is None:
            raise ValueError("nexmark: a table has an end, say where (end)")
        self._numbers, self._end = numbers, numbers.end

    def partitions(self) -> Sequence[InputPartition]:
        return self._numbers.shared(0, self._end)

    def read(self, partition: Any) -> Iterator[pyarrow.RecordBatch]:
        return self._numbers.read(partition)
