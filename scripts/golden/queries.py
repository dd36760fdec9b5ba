"""The queries of the golden cases: one per kind of state, over a few batches of events. See
make.py.

query(spark, source) -> DataFrame        source: the stream of `EVENTS`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

EVENTS = "id LONG, at TIMESTAMP, word STRING, amount DOUBLE"


def windowed(spark: SparkSession, source: DataFrame) -> DataFrame:
    counted = source.withWatermark("at", "1 minute").groupBy(f.window("at", "10 seconds"), "word")
    return counted.agg(
        f.count("*").alias("n"), f.sum("amount").alias("total"), f.max("word").alias("last")
    )


def sessions(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Sessions of a word within a range of ids: some are merged, some are closed."""
    gap = f.session_window("at", "40 seconds")
    counted = source.withWatermark("at", "1 minute").groupBy(
        gap, "word", (f.col("id") % 2).alias("odd")
    )
    return counted.agg(f.count("*").alias("n"), f.sum("amount").alias("total"))


def deduplicated(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.withWatermark("at", "1 hour").dropDuplicates(["word", "at"])


def deduplicated_reordered(spark: SparkSession, source: DataFrame) -> DataFrame:
    """By columns in another order than the input has them, of which one may be null."""
    return source.select("amount", "at", "id", "word").dropDuplicates(["word", "amount"])


def deduplicated_whole(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.dropDuplicates()


def deduplicated_words(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Input and key are the same column."""
    return source.select("word").dropDuplicates()


def deduplicated_types(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.dropDuplicates(["large", "nested", "list", "s", "t", "i8", "raw", "f64", "b"])


def deduplicated_within(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["word", "id"])


def joined(spark: SparkSession, source: DataFrame) -> DataFrame:
    left = source.filter("id % 2 = 0").withWatermark("at", "1 hour").alias("l")
    right = source.filter("id % 2 = 1").withWatermark("at", "1 hour").alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 1 MINUTE")
    return left.join(right, near, "leftOuter")


def matched(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Spark refuses outer joins with state format 1 (SPARK-26154)."""
    left = source.filter("id % 2 = 0").withWatermark("at", "1 hour").alias("l")
    right = source.filter("id % 2 = 1").withWatermark("at", "1 hour").alias("r")
    return left.join(
        right, f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 1 MINUTE")
    )


def evicting(spark: SparkSession, source: DataFrame) -> DataFrame:
    """A join whose state shrinks: deletes, and lists that lose items."""
    left = source.filter("id % 2 = 0").withWatermark("at", "20 seconds").alias("l")
    right = source.filter("id % 2 = 1").withWatermark("at", "20 seconds").alias("r")
    near = f.expr("l.word = r.word AND r.at BETWEEN l.at AND l.at + INTERVAL 30 SECONDS")
    return left.join(right, near, "leftOuter")


def copied(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.select("id", "word")


def all_types(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.dropDuplicates()


def collected(spark: SparkSession, source: DataFrame) -> DataFrame:
    pairs = f.create_map("word", f.array("amount", f.lit(None).cast("double")))
    return source.groupBy("word").agg(
        f.first(pairs).alias("pairs"), f.max(f.struct("at", "word")).alias("latest")
    )


def exotic(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Intervals in keys; a string with a collation (no key may have one), a variant and a wide
    decimal in values (4.0 and later).
    """
    keys = source.selectExpr(
        "make_ym_interval(0, id % 5 - 2) AS months",
        "make_dt_interval(0, 0, id % 3 - 1, 0.5) AS span",
        "collate(word, 'UNICODE_CI') AS word",
        "parse_json(concat('{\"n\":', id, '}')) AS doc",
        "CAST(id AS DECIMAL(38, 2)) AS d",
    )
    values = [f.first("doc").alias("doc"), f.first("word").alias("word"), f.sum("d").alias("d")]
    return keys.groupBy("months", "span").agg(*values)


def total(spark: SparkSession, source: DataFrame) -> DataFrame:
    """No key at all: one row, in partition 0."""
    return source.groupBy().agg(f.count("*").alias("n"), f.max("word").alias("last"))


def limited(spark: SparkSession, source: DataFrame) -> DataFrame:
    return source.select("id", "word").limit(20)


def chained(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Three stateful operators: duplicates dropped, counted by ten seconds, and those counts by
    minute.
    """
    once = source.withWatermark("at", "10 seconds").dropDuplicates(["word", "at"])
    counted = once.groupBy(f.window("at", "10 seconds"), "word").agg(f.count("*").alias("n"))
    minute = f.window(f.window_time(counted["window"]), "1 minute")
    return counted.groupBy(minute, "word").agg(f.sum("n").alias("n"))


def rates(spark: SparkSession, source: DataFrame) -> DataFrame:
    """A stream of Spark's own instead of the events."""
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    return ticks.groupBy((f.col("value") % 7).alias("rest")).agg(f.count("*").alias("n"))


def micro_rates(spark: SparkSession, source: DataFrame) -> DataFrame:
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    return ticks.groupBy((f.col("value") % 7).alias("rest")).agg(f.count("*").alias("n"))


def numbered(spark: SparkSession, source: DataFrame) -> DataFrame:
    """A source that somebody wrote, with offsets of a shape of its own (Python sources need
    Spark 4.0).
    """
    from sources import Numbered

    spark.dataSource.register(Numbered)
    events = spark.readStream.format("numbered").load()
    return events.groupBy("word").agg(f.count("*").alias("n"), f.max("id").alias("last"))


def from_kafka(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Two topics of a real broker (see broker.py), which is given the events before the query
    reads them.
    """
    import broker

    events = broker.stream(spark)
    keyed = events.selectExpr(
        "topic", "CAST(key AS STRING) AS word", "CAST(offset AS LONG) AS at_offset"
    )
    return keyed.groupBy("topic", "word").agg(
        f.count("*").alias("n"), f.max("at_offset").alias("last")
    )


def calendars(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Calendar intervals, of months, days and microseconds side by side, in values."""
    spans = source.selectExpr(
        "word", "make_interval(0, id % 5, 0, id % 3 - 1, 1, 0, id + 0.000001) AS span"
    )
    spans = spans.selectExpr("word", "CASE WHEN word <> '' THEN span END AS span")
    first = spans.groupBy("word").agg(f.first("span").alias("span"), f.count("*").alias("n"))
    return first.select("word", f.col("span").cast("string"), "n")


def pandas_state(spark: SparkSession, source: DataFrame) -> DataFrame:
    marked = source.withWatermark("at", "1 minute")
    output, state = "word STRING, n LONG", "n LONG, total DOUBLE, last STRING"
    return marked.groupBy("word").applyInPandasWithState(
        counted_in_pandas, output, state, "update", "EventTimeTimeout"
    )


def counted_in_pandas(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas

    if state.hasTimedOut:
        state.remove()
        return
    n, total, last = state.get if state.exists else (0, 0.0, None)
    for frame in frames:
        n, total, last = (
            n + len(frame),
            total + float(frame["amount"].sum()),
            str(frame["at"].max()),
        )
    state.update((n, total, last))
    if n % 2:
        state.setTimeoutTimestamp(4_102_444_800_000)
    yield pandas.DataFrame({"word": [key[0]], "n": [n]})


def grouped(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Spark's typed API, which only the JVM has: java/Grouped.java."""
    return _typed(spark, "flat", source.withWatermark("at", "20 seconds"))


def grouped_one_by_one(spark: SparkSession, source: DataFrame) -> DataFrame:
    return _typed(spark, "mapped", source)


def _typed(spark: SparkSession, function: str, events: DataFrame) -> DataFrame:
    return DataFrame(getattr(spark._jvm.Grouped, function)(events._jdf), spark)


def tws_event(spark: SparkSession, source: DataFrame) -> DataFrame:
    return _transformed(source.withWatermark("at", "1 minute"), "Timed", "EventTime")


def tws_rows(spark: SparkSession, source: DataFrame) -> DataFrame:
    """The same over rows instead of pandas frames."""
    import processors

    keyed = source.withWatermark("at", "1 minute").withColumn("odd", (f.col("id") % 2).cast("int"))
    return keyed.groupBy("word", "odd").transformWithState(
        processors.ByRow(), "word STRING, n LONG", "Update", "EventTime"
    )


def tws_ttl(spark: SparkSession, source: DataFrame) -> DataFrame:
    return _transformed(source, "Expiring", "ProcessingTime")


def tws_evolved(spark: SparkSession, source: DataFrame) -> DataFrame:
    """What goes on from `tws_event`, for one word only: the state of others stays as that left
    it.
    """
    return _transformed(
        source.withWatermark("at", "1 minute").where("word = 'beta'"), "Evolved", "EventTime"
    )


def tws_types(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Avro has no null items in arrays, and Spark reads no bytes and shorts from it
    (AvroDeserializer, 4.3); Python's workers know no arrays in grouping keys.
    """
    import processors

    columns = {
        "list": f.array_compact("list"),
        "shorts": f.array_compact("shorts").cast("ARRAY<INT>"),
    }
    whole = source.withColumns(columns).drop("i8", "i16")
    made = processors.Typed(
        ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in whole.schema)
    )
    keys = [name for name in whole.columns if name not in ("list", "shorts")]
    return whole.groupBy(*keys).transformWithState(made, "n LONG", "Update", "None")


def _transformed(source: DataFrame, processor: str, time: str) -> DataFrame:
    import processors  # needs Spark 4.0

    made = getattr(processors, processor)()
    keyed = source.withColumn("odd", (f.col("id") % 2).cast("int")).groupBy("word", "odd")
    return keyed.transformWithStateInPandas(made, "word STRING, n LONG", "Update", time)
