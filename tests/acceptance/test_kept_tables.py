"""A checkpoint whose tables were kept, and one more made of its changelogs, goes on in a real Spark
as if nothing had happened; copied, and where it lies.

Other Sparks than the installed one are environments below STATESHIFT_SPARKS: <version>/bin/python
(scripts/sparks makes them). Changelogs are there since Spark 3.5.
"""

from __future__ import annotations

import os
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
INSTALLED = "installed"
SPARKS = os.environ.get("STATESHIFT_SPARKS")
# Which Spark writes the checkpoint, and which one goes on with what was made of it.
PAIRS = [
    (INSTALLED, INSTALLED),
    ("3.5.9", "3.3.4"),
    ("3.5.9", "3.5.9"),
    ("4.0.5", "4.0.5"),
    ("4.1.4", "4.1.4"),
    ("4.2.1", "4.2.1"),
]


def python_of(version: str) -> str:
    if version == INSTALLED:
        return sys.executable
    if not SPARKS:
        pytest.skip("needs the Sparks of scripts/sparks: STATESHIFT_SPARKS=DIRECTORY")
    return str(Path(SPARKS) / version / "bin" / "python")


@pytest.mark.row("IS-17")
@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_what_kept_its_tables_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, writer: str, reader: str
) -> None:
    """What nobody changed goes on in the Spark that wrote it: before 3.5 none reads changelogs."""
    written_by, read_by = python_of(writer), python_of(reader)

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

    def run(python: str, every: dict[tuple[str, str], Order]) -> None:
        wrong = run_spark(python, tmp_path / "spark", list(every.values()))
        assert wrong == {order.name: None for order in every.values()}

    # Without changelogs Spark writes tables with every batch; with them, none before its
    # maintenance does. What waits for its end is deleted with the last files.
    feed(tmp_path, 0, 2)
    run(written_by, orders(ROCKSDB))
    feed(tmp_path, 2, 5)
    every = orders(CHANGELOG)
    run(written_by, every)
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
    run(written_by, {(query, way): one for (query, way), one in every.items() if way == WAYS[0]})
    run(read_by, {(query, way): one for (query, way), one in every.items() if way != WAYS[0]})
    for query in QUERIES:
        expected, *others = (rows_of(every[query, way].output, 0) for way in WAYS)
        assert expected and others == [expected, expected], query
        for way in WAYS[1:]:
            own = every[query, "untouched"].checkpoint, every[query, way].checkpoint
            stateshift("diff", *own, cwd=tmp_path)
