"""One application that counts with so many bins, and nothing moves: latencies, a case after the other.

    steady.py '{"folder": …, "rate": 2000, "seconds": 8, "cases": [{"bins": 256, "count": "key-count", …}, …]}'

Prints a line of JSON for each case.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from counting import counting, first_count
from job import Came, alive, records, session
from latency import latencies, summary
from open_loop import Rates
from pyspark.sql import SparkSession

from stateshift import live
from stateshift.live.bins.adoption import bring_in
from stateshift.live.bins.files import Files
from stateshift.live.folder import Folder
from stateshift.storage.opening import open_patiently

WARM_UP_SECONDS = 3.0
STARTED_MAX = 60.0


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(1)
    first = {**asked["cases"][0], "bins": 256}
    measured(spark, asked, first, Path(asked["folder"]) / "warm")
    for number, case in enumerate(asked["cases"]):
        found = measured(spark, asked, case, Path(asked["folder"]) / str(number))
        print(json.dumps({**case, **found}), flush=True)


def measured(
    spark: SparkSession, asked: dict[str, Any], case: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Run a query over a state of its own, and return its latencies."""
    operator = counting(case["count"], case["bins"])
    group = str(folder / "group")
    _seed(group, operator, case)
    came = Came(folder / "west")
    worker = live.Worker(group, "west", operator, came)
    rows = records(spark, folder, case["keys"], case["count"])
    writer = rows.writeStream.foreachBatch(worker)
    load = os.getloadavg()[0]
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.start()
    rates = Rates().then(folder, asked["rate"])
    ends = time.monotonic() + STARTED_MAX
    while len(list(folder.glob("west/came/*"))) < 5 and time.monotonic() < ends:
        query = alive(query, writer)
        time.sleep(0.1)
    time.sleep(WARM_UP_SECONDS)
    begin = time.time()
    time.sleep(asked["seconds"])
    end = time.time()
    number = rates.number_at(end)
    while True:
        files = folder.glob("west/came/*[0-9].npy")
        found = latencies(map(np.load, files), rates)
        if len(found) >= number:
            break
        if time.time() > end + STARTED_MAX:
            return {"saturated": True, "during": summary(found.between(begin, end))}
        time.sleep(0.2)
    query.stop()
    worker.stop()
    return {"during": summary(found.between(begin, end)), "load": round(load, 1)}


def _seed(group: str, operator: Any, case: dict[str, Any]) -> None:
    """Let every key have a state."""
    storage = open_patiently(group)
    Folder(storage).ensure()
    keys: Any = pa.array(range(case["keys"]), pa.int64())
    if case["count"] == "hash-count":
        keys = pa.array([f"visitor-{key}" for key in range(case["keys"])])
    key = pa.StructArray.from_arrays([keys], ["key"])
    table = pa.table({"key": key, "value": pa.array([1] * case["keys"], pa.int64())})
    bring_in(Files(storage), operator, table, ("west",), first_count)


if __name__ == "__main__":
    main()
