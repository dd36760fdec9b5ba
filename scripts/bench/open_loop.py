"""A log that nobody has to store, read in open loop: record n is due when the rates say so, whoever
reads it and however late. `FOLDER/rates.json` has when which rate began, `[[at, rate], ...]`. Its only
column is a record's number, `i`: what else a record has is computed from that.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

BATCH = 50_000


@dataclass(frozen=True)
class Rates:
    """When which rate began, and so which record is due when."""

    steps: tuple[tuple[float, float], ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Rates:
        path = folder / "rates.json"
        steps = json.loads(path.read_text()) if path.exists() else []
        return cls(tuple((at, rate) for at, rate in steps))

    def then(self, folder: Path, rate: float) -> Rates:
        """Return the same with another rate from now on, written down."""
        steps = (*self.steps, (time.time(), rate))
        hidden = folder / "rates.tmp"
        hidden.write_text(json.dumps(steps))
        os.replace(hidden, folder / "rates.json")
        return Rates(steps)

    def number_at(self, at: float) -> int:
        """How many records are due by a time."""
        ends = (*self.steps, (at, 0.0))
        return int(
            sum(
                max(0.0, min(after[0], at) - begin) * rate
                for (begin, rate), after in pairwise(ends)
            )
        )

    def due(self, number: int) -> float:
        """When a record is due."""
        left = float(number)
        for (begin, rate), after in pairwise((*self.steps, (float("inf"), 0.0))):
            if left < (after[0] - begin) * rate:
                return begin + left / rate
            left -= (after[0] - begin) * rate
        raise ValueError(f"record {number} is never due")

    def dues(self, numbers: Any) -> Any:
        """When each record of an array is due."""
        begins = np.array([begin for begin, _ in self.steps])
        rates = np.array([rate for _, rate in self.steps])
        first = np.concatenate(([0.0], np.cumsum(np.diff(begins) * rates[:-1])))
        step = np.searchsorted(first, numbers, side="right") - 1
        return begins[step] + (numbers - first[step]) / rates[step]


class Range(InputPartition):
    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last


class Reader(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.folder = Path(options["folder"])
        self.partitions_count = int(options.get("partitions", 2))

    def initialOffset(self) -> dict[str, int]:
        return {"number": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        last = 0 if start is None else start["number"]
        return {"number": max(last, Rates.read(self.folder).number_at(time.time()))}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        first, last = start["number"], end["number"]
        count = self.partitions_count
        cuts = [first + (last - first) * number // count for number in range(count + 1)]
        return [Range(begin, end) for begin, end in pairwise(cuts)]

    def read(self, partition: Any) -> Iterator[pyarrow.RecordBatch]:
        for first in range(partition.first, max(partition.last, partition.first + 1), BATCH):
            last = min(first + BATCH, partition.last)
            numbers = pyarrow.array(np.arange(first, last, dtype=np.int64))
            yield pyarrow.RecordBatch.from_arrays([numbers], ["i"])

    def commit(self, end: Any) -> None:
        pass

    def stop(self) -> None:
        pass


class OpenLoop(DataSource):
    @classmethod
    def name(cls) -> str:
        return "openloop"

    def schema(self) -> str:
        return "i long"

    def streamReader(self, schema: Any) -> Reader:
        return Reader(self.options)
