"""Two queries whose driver has its page: one without a name, and one called "per region".

told_by_driver.py CHECKPOINT PORT
"""

import sys

from pyspark.sql import SparkSession

CHECKPOINT, PORT = sys.argv[1:]
SETTINGS = {
    "spark.ui.port": PORT,
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "true",
}


def main() -> None:
    spark = SparkSession.builder.master("local[1]").config(map=SETTINGS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for folder, name in (("unnamed", None), ("named", "per region")):
        rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        counts = rows.groupBy((rows.value % 7).alias("key")).count()
        writer = counts.writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", f"{CHECKPOINT}/{folder}")
        writer = writer.trigger(processingTime="2 seconds")
        (writer if name is None else writer.queryName(name)).start()
    spark.streams.awaitAnyTermination()


main()
