"""State that was changed on its way goes on in a real Spark as if nothing had happened.

One Spark runs the base queries over the first input; each change of each of them is made by the command line; a second
Spark carries on all of them, changed and untouched, over the rest. What comes out has to be the same.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import job, last_number, stateshift, write_records

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # minutes of real Spark: ./scripts/test --full

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = {
    f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
}
V4 = {**ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": "4"}
V3 = {**ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": "3"}
FORMAT_2 = {**ROCKSDB, f"{STATE}checkpointFormatVersion": "2"}
CHECKED = {f"{STATE}rowChecksum.enabled": "true"}
FEW_SNAPSHOTS = {f"{STATE}maintenanceInterval": "1h"}

BASES: dict[str, tuple[str, dict[str, str]]] = {
    "window-hdfs": ("window", {}),
    "window-rocksdb": ("window", ROCKSDB),
    "join-hdfs": ("join", {}),
    "join-rocksdb": ("join", V4),
    "window-format2": ("window", FORMAT_2),
    "window-checked": ("window", CHECKED),
    "window-rocksdb-checked": ("window", {**ROCKSDB, **CHECKED}),
    "join-rocksdb-v3-checked": ("join", {**V3, **CHECKED}),
    "join-rocksdb-v4-checked": ("join", {**V4, **CHECKED}),
    "join-rocksdb-v2": ("join", ROCKSDB),
    "session-hdfs": ("session", {}),
    "session-rocksdb": ("session", ROCKSDB),
    "distinct-rocksdb": ("distinct", ROCKSDB),
    "limited-rocksdb": ("limited", ROCKSDB),
    "totals-hdfs": ("totals", {}),
    "totals-rocksdb": ("totals", ROCKSDB),
}

# What is asked of the command line for each change.
CHANGES: dict[str, tuple[str, ...]] = {
    "compact": ("compact",),
    "repartition-3": ("repartition", "--partitions", "3"),
    "repartition-8": ("repartition", "--partitions", "8"),
    "rewind": ("rewind", "--batch", "2"),
    "fork": ("fork",),
    "to-rocksdb": ("convert", "--provider", "rocksdb"),
    "to-hdfs": ("convert", "--provider", "hdfs-backed"),
    "zstd": ("convert", "--codec", "zstd"),
    "v1": ("convert", "--checkpoint-format", "v1"),
    "unlimited": ("rename", "--operator", "1=0", "--drop-operator", "0"),
}
# Changes after which another query goes on: the one without the limit.
QUERY_AFTER = {"unlimited": "distinct"}

DAILY = [
    ("window-hdfs", "compact"), ("window-hdfs", "repartition-3"), ("window-hdfs", "rewind"),
    ("window-hdfs", "to-rocksdb"), ("window-rocksdb", "compact"), ("window-rocksdb", "repartition-8"),
    ("join-hdfs", "repartition-8"), ("join-rocksdb", "repartition-3"),
]  # fmt: skip
NOT_CONVERTED = (
    "session-hdfs", "session-rocksdb", "join-rocksdb", "join-rocksdb-v3-checked", "join-rocksdb-v4-checked",
)  # fmt: skip
ONLY = {"v1": "window-format2", "unlimited": "limited-rocksdb"}
FIRST, ALL = 4, 6


def every() -> Iterator[tuple[str, str]]:
    """All that can be combined."""
    for base, (_, conf) in BASES.items():
        rocksdb = f"{STATE}providerClass" in conf
        for change in CHANGES:
            refused = change.startswith("to-") and base in NOT_CONVERTED
            useless = change == ("to-rocksdb" if rocksdb else "to-hdfs")
            if not refused and not useless and ONLY.get(change, base) == base:
                yield base, change


def feed(folder: Path, first: int, last: int, words: Callable[[int], bool] = lambda word: True) -> None:
    """Half a minute of events a file, a second after each other; of some words only."""
    for number in range(first, last):
        records = [
            {"id": i, "at": f"2026-01-01T00:{i // 60:02}:{i % 60:02}Z", "word": f"w{i * 7 % 23}", "amount": i * i}
            for i in range(number * 30, number * 30 + 30)
            if words(i * 7 % 23)
        ]
        write_records(folder / f"{number:03}.json", records)


def order(
    query: str, inputs: list[Path], checkpoint: Path, output: Path, conf: dict[str, str], words: Sequence[str] = ()
) -> dict[str, Any]:
    places = {"inputs": [str(place) for place in inputs], "checkpoint": str(checkpoint), "output": str(output)}
    return {"query": query, "conf": conf, "words": list(words), **places}


def run(folder: Path, orders: list[dict[str, Any]]) -> None:
    path = folder / "orders.json"
    path.write_text(json.dumps(orders))
    wrong = job("shapes.py", path, cwd=folder).json
    assert not any(wrong.values()), {place: told for place, told in wrong.items() if told}


def rows_of(*outputs: Path) -> list[str]:
    return [line for output in outputs for path in sorted(output.glob("*.json")) for line in path.open()]


@dataclass(frozen=True)
class Places:
    folder: Path

    @property
    def input(self) -> Path:
        return self.folder / "input"

    def checkpoint(self, base: str, change: str) -> Path:
        return self.folder / "checkpoints" / f"{base}.{change}"

    def output(self, base: str, change: str) -> Path:
        return self.folder / "output" / f"{base}.{change}"

    def feed(self, first: int, last: int) -> None:
        feed(self.input, first, last)

    def run(self, runs: list[tuple[str, str]]) -> None:
        run(self.folder, [self._order(base, change) for base, change in runs])

    def change(self, base: str, change: str) -> None:
        source, target = self.checkpoint(base, "untouched"), self.checkpoint(base, change)
        kind, *flags = CHANGES[change]
        flags += [] if kind == "fork" else ["--fork"]  # the untouched one goes on
        where = ("--to", target, "--waive", "paths-stay", "--workdirs", self.folder / "runs", "--yes", "--json")
        ran = stateshift(kind, source, *flags, *where, cwd=self.folder)
        assert ran.json["state"] == "finished"
        kept = last_number(target / "commits")
        shutil.copytree(self.output(base, "untouched"), self.output(base, change))
        for path in self.output(base, change).iterdir():
            if int(path.stem) > kept:
                path.unlink()

    def recognise(self, base: str, change: str) -> Any:
        """Every row that came out; of running totals, the last."""
        rows = rows_of(self.output(base, change))
        return rows[-1:] if base.startswith("totals") else Counter(rows)

    def _order(self, base: str, change: str) -> dict[str, Any]:
        query, conf = BASES[base]
        query = QUERY_AFTER.get(change, query)
        places = self.checkpoint(base, change), self.output(base, change)
        return order(query, [self.input], *places, {**FEW_SNAPSHOTS, **conf})


@pytest.mark.row("IS-11")
@pytest.mark.row("IS-12")
@pytest.mark.row("IS-17")
@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(DAILY, id="daily"),
        *(pytest.param([p for p in every() if p[0] == base], id=base, marks=pytest.mark.slow) for base in BASES),
    ],
)
def test_changed_state_goes_on_as_if_nothing_had_happened(tmp_path: Path, wanted: list[tuple[str, str]]) -> None:
    places = Places(tmp_path)
    bases = [(base, "untouched") for base in dict.fromkeys(base for base, _ in wanted)]
    places.feed(0, FIRST)
    places.run(bases)
    for base, change in wanted:
        places.change(base, change)
    places.feed(FIRST, ALL)
    places.run(bases + wanted)
    different = []
    for base, change in wanted:
        found, expected = places.recognise(base, change), places.recognise(base, "untouched")
        assert expected, "a query that puts nothing out shows nothing"
        if found != expected:
            different.append((base, change, expected - found, found - expected))
        partitions = {"repartition-3": "3", "repartition-8": "8"}.get(change, "5")
        newest = places.checkpoint(base, change) / "offsets"
        assert f'"spark.sql.shuffle.partitions":"{partitions}"' in (newest / str(last_number(newest))).read_text()
    assert not different


@pytest.mark.slow
@pytest.mark.row("IS-16")
def test_parts_of_a_split_and_what_was_merged_go_on_as_one_job_would_have(tmp_path: Path) -> None:
    """One job over two inputs is split by the words that come in each, the parts go on alone and are merged again; a
    second one is never touched."""
    even, odd = tmp_path / "even", tmp_path / "odd"
    words = {place: [f"w{n}" for n in range(23) if (n % 2 == 0) == (place == even)] for place in (even, odd)}
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"

    def go(name: str, *inputs: Path) -> dict[str, Any]:
        return order("window", list(inputs), checkpoint / name, output / name, FEW_SNAPSHOTS)

    def feed_both(first: int, last: int) -> None:
        feed(even, first, last, lambda word: word % 2 == 0)
        feed(odd, first, last, lambda word: word % 2 == 1)

    flags = ("--yes", "--waive", "paths-stay", "--workdirs", tmp_path / "runs")
    feed_both(0, 3)
    run(tmp_path, [go("untouched", even, odd), go("even", even), go("odd", odd), go("whole", even, odd)])

    stateshift("merge", checkpoint / "even", checkpoint / "odd", "--to", checkpoint / "merged", *flags, cwd=tmp_path)
    parts = [word for name in ("part-0", "part-1") for word in ("--to", checkpoint / name)]
    values = [word for place in (even, odd) for word in ("--values", ",".join(words[place]))]
    stateshift("split", checkpoint / "whole", *parts, "--column", "word", *values, *flags, cwd=tmp_path)

    feed_both(3, 5)
    split = [{**go(f"part-{n}", even, odd), "words": words[place]} for n, place in enumerate((even, odd))]
    run(tmp_path, [go("untouched", even, odd), go("merged", even, odd), *split])
    expected = Counter(rows_of(output / "untouched"))
    assert expected
    assert Counter(rows_of(output / "even", output / "odd", output / "merged")) == expected
    assert Counter(rows_of(output / "whole", output / "part-0", output / "part-1")) == expected
