"""A source for Spark that is an open loop, and can be read again from any row by anybody.

    spark.dataSource.register(OpenLoop)
    spark.readStream.format("open-loop").options(begin=FILE, rate=500, rows=9000, keys=100).load()

Rows are due one by one, `rate` a second, from the time on that stands in the file
`begin`, whoever reads them and however slowly. What is not due cannot be read; before the file is there, that is all
but the `first` rows. The file `end`, where one is named, says how many rows there are once that is known.

    number    n
    at        n // TIES: some rows have one time
    key       by n alone, scattered over 0 … keys - 1
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

TIES = 3
ROWS_AT_ONCE = 50_000
SCHEMA = "number long, at long, key long"


def rows(start: int, end: int, keys: int) -> pa.RecordBatch:
    """Return the rows from one number to another."""
    numbers = numpy.arange(start, end, dtype=numpy.int64)
    return pa.RecordBatch.from_pydict(
        {"number": numbers, "at": numbers // TIES, "key": scattered(numbers) % keys}
    )


def scattered(numbers: Any) -> Any:  # arrays of numpy
    """Return a number without order for each number, always the same."""
    with numpy.errstate(over="ignore"):
        mixed = (numbers.astype(numpy.uint64) + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> numpy.uint64(31)
        mixed *= numpy.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> numpy.uint64(29)
    return (mixed >> numpy.uint64(2)).astype(numpy.int64)


class Part(InputPartition):  # type: ignore[misc]  # pyspark has no types here
    """The rows from one number to another."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class Reader(DataSourceStreamReader):  # type: ignore[misc]
    """What is due, by the clock."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.begin = options["begin"]
        self.end = options.get("end")
        self.rate, self.count, self.keys = (int(options[key]) for key in ("rate", "rows", "keys"))
        self.first = int(options.get("first", "0"))
        self.parts = int(options.get("partitions", "1"))

    def initialOffset(self) -> dict[str, int]:
        """Return where a query begins."""
        return {"number": 0}

    def latestOffset(self) -> dict[str, int]:
        """Return how many rows are due."""
        try:
            began = float(Path(self.begin).read_text())
        except (FileNotFoundError, ValueError):
            return {"number": self.first}
        due = self.first + int((time.time() - began) * self.rate)
        return {"number": min(max(due, 0), self._count())}

    def _count(self) -> int:
        """Return how many rows there are, as far as that is known."""
        if self.end is None:
            return self.count
        try:
            return int(Path(self.end).read_text())
        except (FileNotFoundError, ValueError):
            return self.count

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
        """Return a batch's rows in parts."""
        first, count = start["number"], end["number"] - start["number"]
        cuts = [first + count * part // self.parts for part in range(self.parts + 1)]
        return [Part(*ends) for ends in pairwise(cuts)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        for start in range(partition.start, partition.end, ROWS_AT_ONCE):
            yield rows(start, min(start + ROWS_AT_ONCE, partition.end), self.keys)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is let go of: another application reads it too."""

    def stop(self) -> None:
        """Nothing is open."""


class OpenLoop(DataSource):  # type: ignore[misc]
    """The source by its name."""

    @classmethod
    def name(cls) -> str:
        """Return what a format is called by."""
        return "open-loop"

    def schema(self) -> str:
        """Return its columns."""
        return SCHEMA

    def streamReader(self, schema: object) -> Reader:
        """Return what reads it as a stream."""
        return Reader(self.options)
