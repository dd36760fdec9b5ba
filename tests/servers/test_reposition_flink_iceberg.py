"""A real Flink job of SQL that reads a table of Iceberg reads on in another one, which was written
anew, and in a copy in another warehouse. Counts and sums by word, of which every one is written, are
those of a batch over all rows: none is lost, and none is added twice.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.jobs.cloned import ROWS
from tests.acceptance.support import ROOT, stateshift
from tests.acceptance.test_reposition_tables import counted, do
from tests.support.flink import cluster_of, lines, until
from tests.support.flink_iceberg import class_path, job_jar
from tests.support.flink_kafka import started
from tests.support.servers import Unavailable, group

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.row("W-5")]
SHOWN_ON = "Flink, Iceberg"

READ, ALL = 2, 4  # appends that the job has read before, and afterwards


def written(*folders: Path) -> dict[str, list[tuple[int, int]]]:
    """Every count and sum of each word, in their order."""
    found: dict[str, list[tuple[int, int]]] = {}
    for folder in folders:
        for word, count, total in lines(folder):
            found.setdefault(word, []).append((count, total))
    return {word: sorted(own) for word, own in found.items()}


def assert_exact(found: dict[str, list[tuple[int, int]]], appends: int) -> None:
    """Each count of each word is there once, and the last ones are those of a batch."""
    expected = counted(appends)
    assert {word: [count for count, _ in own] for word, own in found.items()} == {
        word: list(range(1, count + 1)) for word, (count, _) in expected.items()
    }
    assert {word: list(own[-1]) for word, own in found.items()} == expected


@pytest.mark.parametrize("version", ["1.20.5", "2.0.2"])
def test_a_job_reads_on_in_another_table_without_a_loss_and_without_a_repetition(
    tmp_path: Path, version: str
) -> None:
    try:
        jars = class_path(version)
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    do(tmp_path, "iceberg", *(f"append:here.db.source:{number}" for number in range(READ)))
    settings = {"STATESHIFT_FLINK_VERSION_A": version, "STATESHIFT_FLINK_JARS": jars}
    with group(tmp_path / "servers", "flink-a", **settings) as servers:
        cluster = cluster_of(servers, "flink-a")
        jar = job_jar(cluster.lib, tmp_path)

        def start(warehouse: str, table: str, output: str, image: Path | None = None) -> str:
            words = {"warehouse": tmp_path / warehouse, "table": table, "output": tmp_path / output}
            return started(cluster, jar, "jobs.SumsOfTable", words, image)

        job = start("here", "db.source", "sums")
        until(lambda: len(lines(tmp_path / "sums")) == READ * ROWS)
        time.sleep(2)
        image = cluster.stopped(job, tmp_path / "taken")
        assert_exact(written(tmp_path / "sums"), READ)
        late = [
            f"append:{table}:{n}" for table in ("here.db.anew", "there.db.copy") for n in (2, 3)
        ]
        copies = ("ctas:here.db.source:here.db.anew", "copy:here.db.source:there.db.copy")
        do(tmp_path, "iceberg", *copies, *late)

        job = start("here", "db.anew", "unchanged", image)
        until(lambda: cluster.state(job) == "FAILED")
        assert "is not a parent ancestor of end snapshot" in cluster.why(job)

        def reposition(to: str, *flags: str | Path, code: int = 0) -> Any:
            env = {"STATESHIFT_WORKDIRS": str(tmp_path / "runs"), "PYTHONPATH": str(ROOT)}
            words = ("reposition", image, "--to", tmp_path / to, *flags, "--yes", "--json")
            return stateshift(*words, cwd=tmp_path, code=code, env=env)

        anew, old = tmp_path / "here/db/anew", ("--from-table", tmp_path / "here/db/source")
        assert "has no snapshot" in reposition("late", "--table", anew, code=4).out
        (source,) = reposition("to-anew", "--table", anew, *old, "--compare-rows").json["sources"]
        assert source["from"] != source["to"] and (source["again"], source["skipped"]) == (0, 0)
        (source,) = reposition("to-copy", "--table", tmp_path / "there/db/copy").json["sources"]
        assert source["from"] == source["to"] and (source["again"], source["skipped"]) == (0, 0)

        for to, warehouse, table in (("anew", "here", "db.anew"), ("copy", "there", "db.copy")):
            target, more = tmp_path / f"to-{to}", tmp_path / f"sums-{to}"
            stateshift("verify", target, "--deep", cwd=tmp_path)
            job = start(warehouse, table, more.name, target)
            until(lambda more=more: len(lines(more)) == (ALL - READ) * ROWS)
            time.sleep(2)  # one that is read twice would come now
            assert_exact(written(tmp_path / "sums", more), ALL)
            cluster.cancelled(job)

        # A table without a snapshot: what is taken of its job fits another table as it is.
        job = start("here", "db.unwritten", "nothing")
        time.sleep(3)
        image = cluster.stopped(job, tmp_path / "taken")
        refused = reposition("none", "--table", anew, *old, code=4)
        assert "has found no snapshot in its table yet" in refused.out
        job = start("here", "db.source", "from-nothing", image)
        until(lambda: len(lines(tmp_path / "from-nothing")) == READ * ROWS)
        assert_exact(written(tmp_path / "from-nothing"), READ)
        cluster.cancelled(job)
