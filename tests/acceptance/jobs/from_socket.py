"""A job that reads lines from a socket, which nobody can read a second time.

    from_socket.py PORT CHECKPOINT LINES

Counts the lines; ends once it has committed so many.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession


def main() -> None:
    port, checkpoint, lines = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port)
    query = (
        source.load()
        .groupBy("value")
        .count()
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    read = 0
    while read < lines:
        time.sleep(0.2)
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
