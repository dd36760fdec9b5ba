"""NEXMark's events as Parquet files, which several applications read as streams.

    write(folder, market, first, end)          one file, which appears whole
    stream(spark, folder, bytes_a_batch=...)   what is there, and what comes

    with fed(folder, market, began, first):    an open loop: from `first` on, each event is written
        ...                                    once it is due, whoever reads it and however late

A file's name begins with the number of its first event; Spark reads files in the order in which
they were written.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pyarrow.parquet
from events import SCHEMA, Market
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

SECONDS_BETWEEN = 0.1


def write(folder: Path, market: Market, first: int, end: int) -> None:
    """Write the events from one number to before another."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first:012}.parquet"
    hidden = path.with_name(f".{path.name}")
    table = pyarrow.Table.from_batches([market.batch(first, end)])
    pyarrow.parquet.write_table(table, hidden, compression="lz4")
    os.replace(hidden, path)


def stream(spark: SparkSession, folder: Path, bytes_a_batch: int | None = None) -> DataFrame:
    """Return the events in a folder as they come."""
    reader = spark.readStream.schema(from_arrow_schema(SCHEMA))
    if bytes_a_batch is None:
        reader = reader.option("maxFilesPerTrigger", 1)
    else:
        reader = reader.option("maxBytesPerTrigger", bytes_a_batch)
    return reader.parquet(str(folder))


@contextmanager
def fed(folder: Path, market: Market, began: float, first: int) -> Iterator[None]:
    """Events are written as they come due, as long as the block lasts; event 0 is due at `began`,
    in seconds since 1970.
    """
    ends = threading.Event()

    def write_on() -> None:
        written = first
        while not ends.wait(SECONDS_BETWEEN):
            due = int((time.time() - began) * market.rate)
            if due > written:
                write(folder, market, written, due)
                written = due

    thread = threading.Thread(target=write_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
