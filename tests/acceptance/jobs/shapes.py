"""Many small queries in one Spark: each reads what is there, and ends.

    shapes.py ORDERS.json RESULTS  [{"name", "query", "inputs": [...], "checkpoint", "output",
                                   "conf": {...},
                                     "words": [...]}, ...]

file sources (JSON), one file of each a batch, of some words only where they are given -> a query
with state -> one file per batch that put out anything, replaced if the batch runs again. Appends a
line of JSON to RESULTS whenever a query has ended: its name, and what went wrong (null where
nothing did). A few queries run at once: most of a small batch is waiting. In Python that Spark
3.5's environment has, too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
)

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

EVENTS = "id LONG, at TIMESTAMP, word STRING, amount LONG"
AT_ONCE = int(os.environ.get("STATESHIFT_QUERIES_AT_ONCE", "3"))


def windowed(events: DataFrame) -> DataFrame:
    events = events.withWatermark("at", "5 seconds")
    counted = events.groupBy(f.window("at", "10 seconds"), "word")
    counted = counted.agg(
        f.count("*").alias("n"), f.sum("amount").alias("total"), f.max("id").alias("last")
    )
    return counted.select("window.start", "word", "n", "total", "last")


def joined(events: DataFrame, how: str = "leftOuter") -> DataFrame:
    left = events.filter("id % 4 < 2").withWatermark("at", "5 seconds").alias("l")
    right = events.filter("id % 4 >= 2").withWatermark("at", "5 seconds").alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 15 SECONDS")
    found = left.join(right, near, how)
    return found.selectExpr("l.id", "l.word", "r.id AS other", "l.amount + r.amount AS amount")


def matched(events: DataFrame) -> DataFrame:
    """Spark refuses outer joins with state format 1 (SPARK-26154)."""
    return joined(events, "inner")


def sessions(events: DataFrame) -> DataFrame:
    events = events.withWatermark("at", "5 seconds")
    counted = events.groupBy(f.session_window("at", "4 seconds"), "word").count()
    return counted.select("session_window.start", "session_window.end", "word", "count")


def unique(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["word"]).select("word")


def distinct(events: DataFrame) -> DataFrame:
    return (
        events.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["word"]).select("word")
    )


def first(events: DataFrame) -> DataFrame:
    """Which rows they are is anybody's guess; how many are left is state."""
    return events.select(f.lit("a row").alias("row")).limit(80)


def limited(events: DataFrame) -> DataFrame:
    """Two stateful operators: the limit is operator 0, what it limits operator 1."""
    return distinct(events).limit(1000)


def chained(events: DataFrame) -> DataFrame:
    """Two stateful operators: each word once a second, those counted by windows."""
    once = events.withWatermark("at", "5 seconds").dropDuplicates(["word", "at"])
    counted = once.groupBy(f.window("at", "10 seconds"), "word").agg(f.count("*").alias("n"))
    return counted.select("window.start", "word", "n")


def totals(events: DataFrame) -> DataFrame:
    return events.groupBy().agg(f.count("*").alias("n"), f.sum("amount").alias("total"))


def counted(events: DataFrame) -> DataFrame:
    """A query, and below what became of it: an aggregate more in the middle and one at the end,
    and a wider column.
    """
    return _counted(events, f.count("*").alias("n"), f.max(f.col("id").cast("int")).alias("last"))


def counted_more(events: DataFrame) -> DataFrame:
    more = (
        f.min("amount").alias("least"),
        f.max("id").alias("last"),
        f.max("word").alias("word_again"),
    )
    return _counted(events, f.count("*").alias("n"), *more)


def _counted(events: DataFrame, *columns: Column) -> DataFrame:
    events = events.withWatermark("at", "5 seconds")
    counted = events.groupBy(f.window("at", "10 seconds"), "word").agg(*columns)
    return counted.select("window.start", *(name for name in counted.columns if name != "window"))


def paired(events: DataFrame) -> DataFrame:
    return _paired(events, "id", "word", "at")


def paired_more(events: DataFrame) -> DataFrame:
    """Both sides of the join remember a column more."""
    return _paired(events, "id", "word", "at", "amount")


def _paired(events: DataFrame, *columns: str) -> DataFrame:
    left = events.filter("id % 2 = 0").withWatermark("at", "5 seconds").select(*columns).alias("l")
    right = events.filter("id % 3 = 0").withWatermark("at", "5 seconds").select(*columns).alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 15 SECONDS")
    shown = [f"{side}.{name} AS {side}_{name}" for side in "lr" for name in columns if name != "at"]
    return left.join(right, near, "leftOuter").selectExpr(*shown)


def singled(events: DataFrame) -> DataFrame:
    return _singled(events, "int")


def singled_wider(events: DataFrame) -> DataFrame:
    """The key of the state has a wider column, which hashes otherwise."""
    return _singled(events, "long")


def _singled(events: DataFrame, kind: str) -> DataFrame:
    numbered = events.select("word", (f.col("id") % 9).cast(kind).alias("number"))
    return numbered.dropDuplicates(["word", "number"])


def in_pandas(events: DataFrame) -> DataFrame:
    output, state = "word STRING, n LONG, total LONG", "n LONG, total LONG"
    marked = events.withWatermark("at", "5 seconds").groupBy("word")
    return marked.applyInPandasWithState(
        counted_in_pandas, output, state, "update", "EventTimeTimeout"
    )


def counted_in_pandas(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas

    n, total = state.get if state.exists else (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield pandas.DataFrame({"word": [key[0]], "n": [-n], "total": [total]})
        return
    for frame in frames:
        n, total = n + len(frame), total + int(frame["amount"].sum())
    state.update((n, total))
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 40_000)
    yield pandas.DataFrame({"word": [key[0]], "n": [n], "total": [total]})


def timed(events: DataFrame) -> DataFrame:
    return _transformed(events.withWatermark("at", "5 seconds"), "Timed", "EventTime")


def expiring(events: DataFrame) -> DataFrame:
    return _transformed(events, "Expiring", "ProcessingTime")


def _transformed(events: DataFrame, processor: str, clock: str) -> DataFrame:
    import processors  # needs Spark 4.0

    output = "word STRING, n LONG, listed LONG, largest LONG, brief LONG"
    return events.groupBy("word").transformWithStateInPandas(
        getattr(processors, processor)(), output, "Update", clock
    )


QUERIES = {
    "counted": counted,
    "counted-more": counted_more,
    "paired": paired,
    "paired-more": paired_more,
    "singled": singled,
    "singled-wider": singled_wider,
    "window": windowed,
    "join": joined,
    "inner": matched,
    "session": sessions,
    "unique": unique,
    "distinct": distinct,
    "first": first,
    "limited": limited,
    "chained": chained,
    "totals": totals,
    "pandas": in_pandas,
    "timed": timed,
    "expiring": expiring,
}
MODES = {"totals": "update", "pandas": "update", "timed": "update", "expiring": "update"}


def main() -> None:
    orders = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config(
        "spark.sql.shuffle.partitions", "3"
    )
    # No batches without input: a query ends in the same batch with the same watermark whatever the
    # machine's mood.
    builder = builder.config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    builder = builder.config(
        "spark.sql.codegen.wholeStage", "false"
    )  # compiling takes longer than these run
    builder = builder.config("spark.locality.wait", "0").config("spark.default.parallelism", "2")
    builder = builder.config(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    builder = builder.config("spark.python.daemon.module", "warm")
    builder = builder.config(
        "spark.python.authenticate.socketTimeout", "120s"
    )  # on a machine that is busy
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    running: list[tuple[dict[str, Any], Any]] = []
    with Path(sys.argv[2]).open("a", buffering=1) as results:
        for order in orders:
            running.append((order, start(spark, order)))
            while len(running) >= AT_ONCE:
                running = [one for one in running if not told(results, *one)]
                time.sleep(0.02)
        while running:
            running = [one for one in running if not told(results, *one)]
            time.sleep(0.02)
    spark.stop()


def told(results: Any, order: dict[str, Any], query: Any) -> bool:
    """Whether the query has ended; then it was written down how."""
    if not isinstance(query, str) and query.isActive:
        return False
    failure = query if isinstance(query, str) else query.exception()
    results.write(
        json.dumps(
            {"name": order["name"], "wrong": None if failure is None else str(failure)[:4000]}
        )
        + "\n"
    )
    return True


def start(spark: SparkSession, order: dict[str, Any]) -> Any:
    """The running query, or why it did not start. It keeps the settings that it started with."""
    for key, value in order["conf"].items():
        spark.conf.set(key, value)
    output = Path(order["output"])
    output.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, number: int) -> None:
        rows = sorted(json.dumps(row.asDict(), default=str) for row in batch.collect())
        hidden = output / f".{number:06}.tmp"
        hidden.write_text("".join(f"{row}\n" for row in rows))
        os.replace(hidden, output / f"{number:06}.json")

    try:
        reader = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        events = reduce(DataFrame.union, [reader.json(place) for place in order["inputs"]])
        if order["words"]:
            events = events.filter(f.col("word").isin(order["words"]))
        writer = QUERIES[order["query"]](events).writeStream.option(
            "checkpointLocation", order["checkpoint"]
        )
        writer = writer.outputMode(MODES.get(order["query"], "append"))
        return writer.trigger(availableNow=True).foreachBatch(keep).start()
    except Exception as error:  # told to the scenario, which names the one that failed
        return str(error) or type(error).__name__
    finally:
        for key in order["conf"]:
            spark.conf.unset(key)


if __name__ == "__main__":
    main()
