"""NEXMark's events as Parquet files, which applications read as a stream.

    write(folder, market, first, end)    one file, which appears whole
    stream(spark, folder)                what is there, and what comes: a file a batch

A file's name begins with the number of its first event; Spark reads files in the order in which
they were written.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
from events import SCHEMA, Market
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema


def write(folder: Path, market: Market, first: int, end: int) -> None:
    """Write the events from one number to before another."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first:012}.parquet"
    hidden = path.with_name(f".{path.name}")
    table = pyarrow.Table.from_batches([market.batch(first, end)])
    pyarrow.parquet.write_table(table, hidden, compression="lz4")
    os.replace(hidden, path)


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the events in a folder as they come."""
    reader = spark.readStream.schema(from_arrow_schema(SCHEMA))
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))
