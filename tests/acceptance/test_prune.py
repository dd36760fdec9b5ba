"""Pruned state goes on in a real Spark: keys that were left behind begin anew, all others go on."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.matrix.ground import Order, run_spark
from tests.acceptance.support import stateshift
from tests.acceptance.test_evolve import FEW_SNAPSHOTS, FIRST, OLD, ROCKSDB, V4, feed

pytestmark = pytest.mark.spark

ALL = 5
WORD = "w7"
# Of each query: its settings, and the word of a key as a condition sees it.
CASES = {
    "counted-hdfs": ("counted", {}, "key.word"),
    "counted-rocksdb": ("counted", ROCKSDB, "key.word"),
    "paired-hdfs": ("paired", {}, "key.field0"),
    "paired-rocksdb-v4": ("paired", V4, "key.field0"),
}
Row = dict[str, Any]


def lost(query: str, row: Row) -> bool:
    """Whether a row needs what the base had of the word."""
    if row.get("word", row.get("l_word")) != WORD:
        return False
    if query == "counted":
        minutes, seconds = row["start"].rsplit(":", 2)[1:]
        return int(minutes) * 60 + int(seconds) < OLD
    return any(row[name] is not None and row[name] < OLD for name in ("l_id", "r_id"))


def rows(output: Path) -> Counter[str]:
    lines = (line for path in sorted(output.glob("*.json")) for line in path.open())
    return Counter(json.dumps(json.loads(line), sort_keys=True) for line in lines)


def run(folder: Path, orders: list[Order]) -> None:
    wrong = run_spark(sys.executable, folder / "spark", orders)
    assert not any(wrong.values()), {name: told for name, told in wrong.items() if told}


@pytest.mark.slow
def test_keys_that_were_left_behind_begin_anew_and_all_others_go_on(tmp_path: Path) -> None:
    inputs, checkpoints, outputs = tmp_path / "input", tmp_path / "checkpoints", tmp_path / "output"

    def orders(what: str) -> list[Order]:
        made = []
        for name, (query, conf, _) in CASES.items():
            place = f"{name}.{what}"
            settings = {**FEW_SNAPSHOTS, **conf}
            made.append(
                Order(place, query, (str(inputs),), checkpoints / place, outputs / place, settings)
            )
        return made

    feed(inputs, 0, FIRST)
    run(tmp_path, orders("base"))
    for name, (_, _, word) in CASES.items():
        source, target = checkpoints / f"{name}.base", checkpoints / f"{name}.pruned"
        where = ("--to", target, "--where", f"{word} = '{WORD}'", "--fork", "--waive", "paths-stay")
        stateshift("prune", source, *where, "--workdirs", tmp_path / "runs", "--yes", cwd=tmp_path)
        stateshift("verify", "--deep", target, cwd=tmp_path)
    feed(inputs, FIRST, ALL)
    run(tmp_path, [*orders("pruned"), *orders("anew")])
    for name, (query, _, _) in CASES.items():
        after = rows(outputs / f"{name}.anew") - rows(outputs / f"{name}.base")
        expected = Counter({row: n for row, n in after.items() if not lost(query, json.loads(row))})
        assert rows(outputs / f"{name}.pruned") == expected, name
        assert expected < after, f"{name}: nothing was lost, so nothing is shown"
