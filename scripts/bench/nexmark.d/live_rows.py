"""The rows of the live queries on a real Spark, one query after the other in one session.

    live_rows.py FILE [QUERY ...]

FILE is that of `native_rows`. Each operator is a `live.Worker` in a streaming query of its own; a
second one reads what the first one has written.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import event_files
import live_queries
import pyarrow
import pyarrow.parquet
from native_rows import BATCH, END, market, session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from stateshift import live
from stateshift.live.bins.operators import BinOperator

FILES_A_BATCH = 2  # of what the first operator has written


def main() -> None:
    """Run the queries that are asked for, or all, and write down what came out."""
    queries = sys.argv[2:] or list(live_queries.QUERIES)
    spark = session(live_queries)
    found = {query: rows(spark, query) for query in queries}
    Path(sys.argv[1]).write_text(json.dumps(found))


def rows(spark: SparkSession, query: str) -> list[list[Any]]:
    """Return what comes out of a query when all events have come."""
    frame, first, *others = live_queries.QUERIES[query]
    with tempfile.TemporaryDirectory(prefix="nexmark-") as folder:
        for begin in range(0, END, BATCH):
            events = Path(folder) / "events"
            event_files.write(events, market(query), begin, min(begin + BATCH, END))
        coming = frame(event_files.stream(spark, events))
        place = Path(folder) / first.name
        run(coming, first, place)
        for operator in others:
            coming = written(spark, first, place)
            place = Path(folder) / operator.name
            run(coming, operator, place)
        tables = [pyarrow.parquet.read_table(path) for path in (place / "output").glob("*")]
        columns = pyarrow.concat_tables(tables).to_pydict().values()
        return [list(row) for row in zip(*columns, strict=True)]


def run(coming: DataFrame, operator: BinOperator, place: Path) -> None:
    """Run an operator on all that comes."""
    output = live.files(str(place / "output"))
    worker = live.Worker(str(place / "group"), "west", operator, output)
    writer = coming.writeStream.foreachBatch(worker)
    running = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    try:
        running.processAllAvailable()
        running.stop()
    finally:
        worker.stop()


def written(spark: SparkSession, operator: BinOperator, place: Path) -> DataFrame:
    """Return what an operator has written as a stream, in the order of its commits."""
    reader = spark.readStream.schema(from_arrow_schema(operator.output))
    return reader.option("maxFilesPerTrigger", FILES_A_BATCH).parquet(str(place / "output"))


if __name__ == "__main__":
    main()
