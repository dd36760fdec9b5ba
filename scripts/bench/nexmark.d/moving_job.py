"""A worker of the bench of moves: a query's main operator, in an application of its own.

    moving_job.py FOLDER NAME QUERY

FOLDER/events is the input, FOLDER/group what the workers share; all rows go to FOLDER/output. It
ends when there is a file FOLDER/stop.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import event_files
import live_queries
from native_rows import session

from stateshift import live

BYTES_A_BATCH = 4_000_000


def main() -> None:
    """Run the operator until it is to stop."""
    folder, name, query = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    frame, operator, *_ = live_queries.QUERIES[query]
    spark = session(live_queries, master="local[1]")
    events = event_files.stream(spark, folder / "events", BYTES_A_BATCH)
    output = live.files(str(folder / "output"))
    worker = live.Worker(str(folder / "group"), name, operator, output, first=("west", "east"))
    writer = frame(events).writeStream.foreachBatch(worker)
    writer = writer.option("checkpointLocation", str(folder / name / "checkpoint"))
    running = writer.start()
    while running.isActive and not (folder / "stop").exists():
        time.sleep(0.1)
    if running.exception() is not None:
        raise SystemExit(str(running.exception()))
    running.stop()


if __name__ == "__main__":
    main()
