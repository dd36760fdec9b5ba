"""Golden checkpoints of other Sparks, gone on with in this one: each query reads one more file of
events, and ends.

    restart.py ORDERS.json  [{"case": "window-hdfs", "checkpoint": "/copy", "conf": {...}, "output":
                            "/rows"}, ...]

Run by the Python that has the Spark in question. Prints a JSON object: per checkpoint, what went
wrong; null where nothing did. What a query puts out is kept in the file that its order names, if it
names one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "golden"))

import queries as q
from cases import CASES, TYPES
from pyspark.sql import DataFrame, SparkSession

WORDS = ["alpha", "beta", "gamma", "délta", "", "epsilon zeta"]


def main() -> None:
    orders = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config(
        "spark.driver.host", "localhost"
    )
    builder = builder.config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps({order["checkpoint"]: run(spark, order) for order in orders}))
    spark.stop()


def run(spark: SparkSession, order: dict) -> str | None:
    case = CASES[order["case"]]
    place = Path(order["checkpoint"]).with_suffix(".input")
    place.mkdir(exist_ok=True)
    lines = [
        {
            "id": n,
            "at": f"2026-01-01T00:{10 + n % 40}:00Z",
            "word": WORDS[n * n % 6],
            "amount": n / 4,
        }
        for n in range(100, 112)
    ]
    (place / "more.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for key, value in order.get("conf", {}).items():
        spark.conf.set(key, value)

    output: list[str] = []

    def collect(batch: DataFrame, number: int) -> None:
        output.extend(sorted(map(repr, batch.collect())))

    try:
        reader = spark.readStream.schema(TYPES if order["case"].endswith("types") else q.EVENTS)
        if order["case"] == "dedup-offsets2" and hasattr(reader, "name"):
            reader = reader.name("events")
        events = reader.json(str(place))
        writer = (
            (case.then or case.query)(spark, events)
            .writeStream.outputMode(case.mode)
            .foreachBatch(collect)
        )
        writer = writer.option("checkpointLocation", order["checkpoint"])
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        if query.isActive:
            query.stop()
            return "did not end"
        if "output" in order:
            Path(order["output"]).write_text("\n".join(output))
    except Exception as error:  # told to the test, which knows what to expect
        return str(error)[:3000]
    finally:
        for key in order.get("conf", {}):
            spark.conf.unset(key)
    return None


if __name__ == "__main__":
    main()
