"""A checkpoint whose tables were kept, and one more made of its changelogs, goes on in a real Spark
as if nothing had happened; copied, and where it lies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.matrix.events import PARITIES, feed
from tests.acceptance.matrix.ground import Order, rows_of, run_spark
from tests.acceptance.support import stateshift
from tests.acceptance.test_in_place import CHANGELOG, ROCKSDB, STATE

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = ("window", "unique")
WAYS = ("untouched", "in-place", "copied")
FEW = {f"{STATE}maintenanceInterval": "1h"}


@pytest.mark.row("IS-17")
def test_what_kept_its_tables_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def orders(conf: Mapping[str, str]) -> dict[tuple[str, str], Order]:
        inputs = tuple(str(tmp_path / "input" / parity) for parity in PARITIES)
        made = {}
        for query in QUERIES:
            for way in WAYS:
                place = tmp_path / query / way
                name, checkpoint = f"{query}.{way}", place / "checkpoint"
                made[query, way] = Order(
                    name, query, inputs, checkpoint, place / "output", {**FEW, **conf}
                )
        return made

    def run(every: dict[tuple[str, str], Order]) -> None:
        wrong = run_spark(sys.executable, tmp_path / "spark", list(every.values()))
        assert wrong == {order.name: None for order in every.values()}

    # Without changelogs Spark writes tables with every batch; with them, none before its
    # maintenance does. What waits for its end is deleted with the last files.
    feed(tmp_path, 0, 2)
    run(orders(ROCKSDB))
    feed(tmp_path, 2, 5)
    every = orders(CHANGELOG)
    run(every)
    for (query, way), order in every.items():
        flags: tuple[str | Path, ...] = ("--in-place",)
        if way == "untouched":
            continue
        if way == "copied":
            moved = order.checkpoint.with_name("moved")
            flags = ("--to", moved, "--waive", "paths-stay")
            every[query, way] = replace(order, checkpoint=moved)
        tables = {path.name for path in order.checkpoint.rglob("*.sst")}
        workdir = order.checkpoint.parent / "run"
        options = ("--keep-tables", *flags, "--yes", "--workdir", workdir)
        stateshift("compact", order.checkpoint, *options, cwd=tmp_path)
        after = every[query, way].checkpoint
        state = [path for path in after.rglob("*") if "_stateshift" not in path.parts]
        assert not [path for path in state if path.suffix == ".changelog"]
        left = {path.name for path in state if path.suffix == ".sst"}
        assert left & tables and left - tables, f"{query}.{way}"
        stateshift("verify", "--deep", after, cwd=tmp_path)
        stateshift("diff", tmp_path / query / "untouched/checkpoint", after, cwd=tmp_path)
    feed(tmp_path, 5, 7)
    run(every)
    for query in QUERIES:
        expected, *others = (rows_of(every[query, way].output, 0) for way in WAYS)
        assert expected and others == [expected, expected], query
        for way in WAYS[1:]:
            own = every[query, "untouched"].checkpoint, every[query, way].checkpoint
            stateshift("diff", *own, cwd=tmp_path)
