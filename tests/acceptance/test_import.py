"""A real Spark goes on from state that was made of rows: an answer to SQL, with other values."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.matrix.ground import Order
from tests.acceptance.support import stateshift
from tests.acceptance.test_evolve import FEW_SNAPSHOTS, FIRST, ROCKSDB, feed
from tests.acceptance.test_prune import ALL, WORD, lost, rows, run

pytestmark = pytest.mark.spark

MORE = 1000
CASES = {"hdfs": dict[str, str](), "rocksdb": ROCKSDB}
EDITED = (
    f"select key, struct_pack(count := value.count + case when key.word = '{WORD}' then {MORE} "
    "else 0 end, max := value.max) as value from state_0"
)


def more(row: str) -> str:
    """A row as it comes out of the edited state."""
    plain = json.loads(row)
    if lost("counted", plain):
        plain["n"] += MORE
    return json.dumps(plain, sort_keys=True)


@pytest.mark.row("W-18")
def test_edited_counts_are_what_a_real_spark_goes_on_from(tmp_path: Path) -> None:
    inputs, checkpoints, outputs = tmp_path / "input", tmp_path / "checkpoints", tmp_path / "output"

    def orders(what: str) -> list[Order]:
        made = []
        for name, conf in CASES.items():
            place, settings = f"{name}.{what}", {**FEW_SNAPSHOTS, **conf}
            there = checkpoints / place, outputs / place
            made.append(Order(place, "counted", (str(inputs),), *there, settings))
        return made

    feed(inputs, 0, FIRST)
    run(tmp_path, orders("base"))
    before = {name: rows(outputs / f"{name}.base") for name in CASES}
    for name in CASES:
        source, target = checkpoints / f"{name}.base", checkpoints / f"{name}.edited"
        words = ("--template", source, "--to", target, "--waive", "paths-stay", "--yes")
        stateshift("import", EDITED, *words, "--workdirs", tmp_path / "runs", cwd=tmp_path)
        stateshift("verify", "--deep", target, cwd=tmp_path)
    feed(inputs, FIRST, ALL)
    run(tmp_path, [*orders("base"), *orders("edited")])
    for name in CASES:
        after = rows(outputs / f"{name}.base") - before[name]
        expected = Counter({more(row): count for row, count in after.items()})
        assert rows(outputs / f"{name}.edited") == expected != after, name
