"""A checkpoint that was compacted where it lies goes on in a real Spark as if nothing had happened;
and so does one whose compaction was taken back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acceptance.matrix.events import ALL, BEFORE, PARITIES, feed
from tests.acceptance.matrix.ground import Order, rows_of, run_spark
from tests.acceptance.support import stateshift

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = {
    f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
CHANGELOG = {**ROCKSDB, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"}
BASES = {
    "window.hdfs": ("window", {}),
    "window.rocksdb": ("window", CHANGELOG),
    "join.rocksdb": ("join", {**CHANGELOG, "spark.sql.streaming.join.stateFormatVersion": "4"}),
    "session.hdfs": ("session", {}),
}
WAYS = ("untouched", "compacted", "taken-back")


def run(folder: Path, orders: Sequence[Order]) -> None:
    wrong = run_spark(sys.executable, folder / "spark", orders)
    assert wrong == {order.name: None for order in orders}


def files_of(checkpoint: Path) -> int:
    hidden = "_stateshift"
    return sum(
        path.is_file() and hidden not in path.parts and path.suffix != ".crc"
        for path in checkpoint.rglob("*")
    )


@pytest.mark.row("IS-17")
def test_what_was_compacted_where_it_lies_goes_on_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    def order(base: str, way: str) -> Order:
        query, conf = BASES[base]
        place, inputs = (
            tmp_path / base / way,
            tuple(str(tmp_path / "input" / parity) for parity in PARITIES),
        )
        few = {f"{STATE}maintenanceInterval": "1h"}
        return Order(
            f"{base}.{way}", query, inputs, place / "checkpoint", place / "output", {**few, **conf}
        )

    every = [order(base, way) for base in BASES for way in WAYS]
    feed(tmp_path, 0, BEFORE)
    run(tmp_path, every)
    for one in every:
        if not one.name.endswith("untouched"):
            before = files_of(one.checkpoint)
            workdir = one.checkpoint.parent / "run"
            flags = ("--in-place", "--yes", "--workdir", workdir)
            stateshift("compact", one.checkpoint, *flags, cwd=tmp_path)
            assert files_of(one.checkpoint) < before
            stateshift("verify", "--deep", one.checkpoint, cwd=tmp_path)
        if one.name.endswith("taken-back"):
            stateshift("rollback", workdir, "--yes", cwd=tmp_path)
            assert files_of(one.checkpoint) == before
            stateshift("verify", "--deep", one.checkpoint, cwd=tmp_path)
    feed(tmp_path, BEFORE, ALL)
    run(tmp_path, every)
    for base in BASES:
        expected, *others = (rows_of(order(base, way).output, BEFORE - 1) for way in WAYS)
        assert expected and others == [expected, expected], base
