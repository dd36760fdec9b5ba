"""Make the golden savepoints of jobs that read a table of Iceberg, with Flink's real connector.

./scripts/golden-flink iceberg [VERSION...]

tests/golden/iceberg/<version>-idle/    the job has read all files of its table
                     <version>-unread/  readers have two of four files, two are pending
                     <version>-empty/   the table has no snapshot yet
    image/      the savepoint, as Flink left it
    told.json   {"flink", "image": where _metadata is, "unread": the number of files,
                 "snapshot", "time_ms": the table's newest, as its metadata has it}
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.acceptance.test_reposition_tables import do
from tests.support.flink import Cluster, cluster_of, lines, until
from tests.support.flink_iceberg import RUNTIMES, class_path, job_jar
from tests.support.flink_kafka import started
from tests.support.servers import group

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "iceberg"
WORK = Path("/tmp/golden-flink-iceberg")
FILES, ROWS = 4, 6
ROW_MS = 2000  # a file takes longer than the savepoint


def main(versions: Sequence[str]) -> None:
    for version in versions or tuple(RUNTIMES):
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir()
        do(WORK, "iceberg", *(f"append:here.db.source:{number}" for number in range(FILES)))
        env = {"STATESHIFT_FLINK_VERSION_A": version, "STATESHIFT_FLINK_JARS": class_path(version)}
        with group(WORK / "servers", "flink-a", **env) as up:
            make_all(cluster_of(up, "flink-a"), version)
    shutil.rmtree(WORK)


def make_all(cluster: Cluster, version: str) -> None:
    jar, told = job_jar(cluster.lib, WORK), {"flink": version, "unread": 0}
    words = {"warehouse": WORK / "here", "output": WORK / "sums"}
    (metadata,) = (WORK / "here/db/source/metadata").glob(f"v{FILES + 1}.metadata.json")
    plain = json.loads(metadata.read_text())
    newest = {each["snapshot-id"]: each["timestamp-ms"] for each in plain["snapshots"]}
    snapshot: int = plain["current-snapshot-id"]
    told |= {"snapshot": snapshot, "time_ms": newest[snapshot]}

    job = started(cluster, jar, "jobs.SumsOfTable", {**words, "row-ms": ROW_MS})
    time.sleep(4)
    unread = {**told, "unread": FILES}
    keep(f"{version}-unread", cluster.saved(job, WORK / "saved"), unread)
    cluster.cancelled(job)
    shutil.rmtree(WORK / "sums", ignore_errors=True)
    job = started(cluster, jar, "jobs.SumsOfTable", words)
    until(lambda: len(lines(WORK / "sums")) == FILES * ROWS)
    time.sleep(2)
    keep(f"{version}-idle", cluster.stopped(job, WORK / "saved"), told)
    words = {"warehouse": WORK / "here", "table": "db.unwritten"}
    job = started(cluster, jar, "jobs.SumsOfTable", words)
    time.sleep(4)
    empty = {**told, "snapshot": None, "time_ms": None}
    keep(f"{version}-empty", cluster.stopped(job, WORK / "saved"), empty)


def keep(name: str, place: Path, told: dict[str, Any]) -> None:
    folder = GOLDEN / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place, folder / "image" / place.name)
    told = {**told, "image": f"image/{place.name}"}
    (folder / "told.json").write_text(json.dumps(told) + "\n")
    print(f"{name}: {sum(file.stat().st_size for file in folder.rglob('*'))} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
