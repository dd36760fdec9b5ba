"""Make the checkpoint that the benchmarks look at: real Spark, one windowless count, 200
partitions, 80 batches.

    python scripts/bench/make_checkpoint.py DIRECTORY [--partitions 200] [--batches 80]

Leaves `DIRECTORY/checkpoint-200x80` (about 34,000 files, Hadoop's .crc sidecars among them) and
prints its path. A checkpoint that is there and complete is used again: making one takes minutes,
and is no part of what is measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--batches", type=int, default=80)
    options = parser.parse_args()
    print(checkpoint(options.directory, options.partitions, options.batches))


def checkpoint(directory: Path, partitions: int = 200, batches: int = 80) -> Path:
    """The path of a complete checkpoint of that shape below `directory`, made now if it is not
    there.
    """
    place = directory.absolute() / f"checkpoint-{partitions}x{batches}"
    if not (place / "commits" / str(batches - 1)).exists():
        making = place.with_name(place.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        _write_input(making / "input", batches)
        _run_job(making, partitions)
        (making / "checkpoint").rename(place)
        shutil.rmtree(making)
    return place


def _write_input(folder: Path, batches: int) -> None:
    """One file a batch; every key comes in the first and a few change in each of the others."""
    folder.mkdir(parents=True)
    for batch in range(batches):
        keys = range(20_000) if batch == 0 else range(batch * 100, batch * 100 + 400)
        (folder / f"{batch:04}.json").write_text(
            "".join(json.dumps({"key": f"customer-{key}"}) + "\n" for key in keys)
        )


def _run_job(folder: Path, partitions: int) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "20s")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    counts = (
        spark.readStream.schema("key STRING")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "input"))
        .groupBy("key")
        .count()
    )
    query = (
        counts.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
