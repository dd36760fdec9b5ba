"""The rows of the native queries on a real Spark, one query after the other in one session.

    native_rows.py FILE [QUERY ...]

FILE has then, by query, the rows that came out: `{"q1": [[at, ...], ...], ...}`, times as
microseconds since 1970.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import events
import native
import source
from events import Market
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

END = 8_000
TRIES = 4
BATCH = 3_000  # of that many events; three of them, so that states are used again
MARKET = Market(dilation=15)  # two minutes: windows of one minute come and go
NEW_USERS = Market(dilation=20_000)  # 44 hours: so do windows of twelve
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.python.authenticate.socketTimeout": "120s",  # a machine may be busy
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
}


def main() -> None:
    """Run the queries that are asked for, or all, and write down what came out."""
    queries = sys.argv[2:] or list(native.QUERIES)
    spark = session(native)
    found = {query: patiently(spark, query) for query in queries}
    Path(sys.argv[1]).write_text(json.dumps(found))


def session(*modules: ModuleType, master: str = "local[2]") -> SparkSession:
    """Return a session whose workers can unpickle what is in modules of this folder."""
    for module in (events, source, *modules):  # workers have none of their names
        cloudpickle.register_pickle_by_value(module)
    return SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()


def patiently(spark: SparkSession, query: str) -> list[list[Any]]:
    """Return what comes out of a query. Spark waits ten seconds for a Python worker to come, which
    a busy machine may not keep.
    """
    for _ in range(TRIES - 1):
        try:
            return rows(spark, query)
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
            print(f"{query}: a worker has not come in time, once more", file=sys.stderr)
    return rows(spark, query)


def rows(spark: SparkSession, query: str) -> list[list[Any]]:
    """Return what comes out of a query when all events have come."""
    found: list[Iterable[Any]] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.extend(batch.withColumn("at", f.unix_micros("at")).collect())

    coming = source.events(spark, market(query), end=END, batch=BATCH)
    with tempfile.TemporaryDirectory(prefix="nexmark-") as checkpoint:
        writer = native.QUERIES[query](coming).writeStream.foreachBatch(keep)
        running = writer.option("checkpointLocation", checkpoint).start()
        running.processAllAvailable()
        running.stop()
    return [list(row) for row in found]


def market(query: str) -> Market:
    """Return the events that a query is tried with."""
    return NEW_USERS if query == "q8" else MARKET


if __name__ == "__main__":
    main()
