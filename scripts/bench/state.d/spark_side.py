"""What Spark itself does with a checkpoint of `making`, in a process of its own, so that it can be
measured whole.

    python spark_side.py export CHECKPOINT OUT CORES     the state reader, writing Parquet
    python spark_side.py read CHECKPOINT - CORES         the state reader, decoding everything and
                                                         keeping nothing
    python spark_side.py ask CHECKPOINT - CORES          the state reader, with a sum over all entries
    python spark_side.py odd CHECKPOINT OUT CORES        the state reader, writing every second key
    python spark_side.py repartition CHECKPOINT N CORES  Spark's own offline repartition, in place
                                                         (RocksDB)
    python spark_side.py rerun PLACE N CORES OUT         the query again from its first input, with
                                                         N shards

Its last line is JSON: `ready`, the time at which the session could be used, and `done`, both of the
clock that `time.time` has, for the process that started this one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from making import PROVIDERS, query, session, started

MEMORY = os.environ.get("STATESHIFT_BENCH_HEAP", "6g")


def main(what: str, place: str, argument: str, cores: str, out: str = "") -> None:
    provider = (
        json.loads((Path(place) / "made.json").read_text())["provider"]
        if what == "rerun"
        else "rocksdb"
    )
    shards = int(argument) if what == "rerun" else 8
    spark = session(int(cores), PROVIDERS[provider], shards, MEMORY)
    ready = time.time()
    if what == "export":
        entries(spark, place).write.mode("overwrite").parquet(argument)
    elif what == "read":
        entries(spark, place).write.format("noop").mode("overwrite").save()
    elif what == "ask":
        entries(spark, place).selectExpr("count(*)", "sum(value.count)").collect()
    elif what == "odd":
        entries(spark, place).where("key.item % 2 <> 0").write.mode("overwrite").parquet(argument)
    elif what == "repartition":
        spark._streamingCheckpointManager.repartition(place, int(argument))
    elif what == "rerun":
        running = started(query(spark, Path(place) / "input", None), Path(out))
        running.processAllAvailable()
        running.stop()
    done = time.time()
    print(json.dumps({"ready": ready, "done": done}), flush=True)
    spark.stop()


def entries(spark: Any, checkpoint: str) -> Any:
    return spark.read.format("statestore").load(checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
