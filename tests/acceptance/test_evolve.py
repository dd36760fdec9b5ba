"""State whose columns were changed goes on in a real Spark under the changed query, which Spark
refuses as it is.

The changed query over all input, from nothing, is what it is held against. What a column that was
added holds for older rows, only its default can say.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.matrix.ground import Order, run_spark
from tests.acceptance.support import stateshift, write_records

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = {
    f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
}
V3 = {**ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": "3"}
V4 = {**ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": "4"}
FEW_SNAPSHOTS = {f"{STATE}maintenanceInterval": "1h"}

FIRST, ALL = 3, 5
# Events of the first input are those of a smaller id, a second after each other.
OLD = FIRST * 30

Row = dict[str, Any]


def of_counted(row: Row) -> Row:
    """Windows that were open already know nothing of older amounts."""
    minutes, seconds = row["start"].rsplit(":", 2)[1:]
    old = int(minutes) * 60 + int(seconds) < OLD
    return {**row, "least": None, "word_again": None} if old else row


def of_paired(row: Row) -> Row:
    new = {
        f"{side}_amount": -1
        for side in "lr"
        if row[f"{side}_id"] is not None and row[f"{side}_id"] < OLD
    }
    return {**row, **new}


@dataclass(frozen=True)
class Evolving:
    """A query, what it becomes, what is asked of the command line for each store, and a row as far
    as the change can be seen in it.
    """

    query: str
    after: str
    flags: tuple[tuple[str, ...], ...]
    seen: Callable[[Row], Row]


COUNTED = Evolving(
    "counted",
    "counted-more",
    (("--add", "min:bigint@count", "--widen", "max=long", "--add", "word:string"),),
    of_counted,
)
SINGLED = Evolving("singled", "singled-wider", (("--widen-key", "number=long"),), lambda row: row)


def paired_in(*stores: str) -> Evolving:
    flags = tuple(("--store", store, "--add", "amount:long=-1@at") for store in stores)
    return Evolving("paired", "paired-more", flags, of_paired)


INDEXED = ("left-keyWithIndexToValue", "right-keyWithIndexToValue")
CASES: dict[str, tuple[Evolving, dict[str, str]]] = {
    "counted-hdfs": (COUNTED, {}),
    "counted-rocksdb": (COUNTED, ROCKSDB),
    "singled-hdfs": (SINGLED, {}),
    "singled-rocksdb": (SINGLED, ROCKSDB),
    "paired-hdfs": (paired_in(*INDEXED), {}),
    "paired-rocksdb-v3": (paired_in(*(f"default/{name}" for name in INDEXED)), V3),
    "paired-rocksdb-v4": (
        paired_in(*(f"default/{side}-keyWithTsToValues" for side in ("left", "right"))),
        V4,
    ),
}


def feed(folder: Path, first: int, last: int) -> None:
    """Half a minute of events a file, a second after each other."""
    for number in range(first, last):
        records = [
            {
                "id": i,
                "at": f"2026-01-01T00:{i // 60:02}:{i % 60:02}Z",
                "word": f"w{i * 7 % 23}",
                "amount": i * i,
            }
            for i in range(number * 30, number * 30 + 30)
        ]
        write_records(folder / f"{number:03}.json", records)


def run(folder: Path, orders: Sequence[Order]) -> None:
    wrong = run_spark(sys.executable, folder / "spark", orders)
    assert wrong.keys() == {order.name for order in orders}
    assert not any(wrong.values()), {name: told for name, told in wrong.items() if told}


def rows(*outputs: Path, seen: Callable[[Row], Row]) -> Counter[str]:
    found = (
        json.loads(line)
        for output in outputs
        for path in sorted(output.glob("*.json"))
        for line in path.open()
    )
    return Counter(json.dumps(seen(row)) for row in found)


@pytest.mark.row("IS-12")
def test_a_query_with_other_columns_goes_on_with_the_state_it_had(tmp_path: Path) -> None:
    inputs, checkpoints, outputs = tmp_path / "input", tmp_path / "checkpoints", tmp_path / "output"

    def orders(what: str, changed: bool) -> list[Order]:
        return [
            Order(
                f"{name}.{what}",
                case.after if changed else case.query,
                (str(inputs),),
                checkpoints / f"{name}.{what}",
                outputs / f"{name}.{what}",
                {**FEW_SNAPSHOTS, **conf},
            )
            for name, (case, conf) in CASES.items()
        ]

    feed(inputs, 0, FIRST)
    run(tmp_path, orders("base", False))
    for name, (case, _) in CASES.items():
        source = checkpoints / f"{name}.base"
        for number, flags in enumerate(case.flags):
            target = (
                checkpoints / f"{name}.{'changed' if number == len(case.flags) - 1 else number}"
            )
            where = (
                "--to",
                target,
                "--fork",
                "--waive",
                "paths-stay",
                "--workdirs",
                tmp_path / "runs",
                "--yes",
            )
            stateshift("evolve", source, *flags, *where, cwd=tmp_path)
            stateshift("verify", "--deep", target, cwd=tmp_path)
            source = target
    feed(inputs, FIRST, ALL)
    run(tmp_path, [*orders("changed", True), *orders("anew", True)])
    wrong = {}
    for name, (case, _) in CASES.items():
        places = [outputs / f"{name}.{what}" for what in ("base", "changed")]
        before = rows(places[0], seen=lambda row: row)
        expected = rows(outputs / f"{name}.anew", seen=case.seen)
        found = rows(places[1], seen=lambda row: row)
        # What was put out before the change has the old columns: those rows are told by what they
        # have in common.
        assert len(list(before.elements())) + len(list(found.elements())) == len(
            list(expected.elements())
        ), name
        if found - expected or not found:
            wrong[name] = found - expected
    assert not wrong
    told = run_spark(sys.executable, tmp_path / "spark", orders("base", True))
    assert all("NOT_COMPATIBLE" in str(text) or "SCHEMA" in str(text) for text in told.values()), (
        told
    )
