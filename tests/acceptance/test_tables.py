"""Tables and MANIFEST of ours in the hands of RocksDB itself, and RocksDB state of ours in those of
every Spark.

Other Sparks than the installed one are environments below STATESHIFT_SPARKS: <version>/bin/python
has that pyspark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stateshift.formats.blocks import block_of
from stateshift.formats.rocksdb.manifest import CURRENT, MANIFEST, TableFacts, encode_manifest
from stateshift.formats.rocksdb.sst_encoding import encode_sst
from stateshift.formats.sorting import SortedPiles
from tests.acceptance.support import JOBS, environment, stateshift, write_records

pytestmark = pytest.mark.spark

SPARKS = Path(os.environ.get("STATESHIFT_SPARKS") or "/nowhere")
PYTHONS = {"installed": Path(sys.executable)} | {
    path.parent.parent.name: path for path in SPARKS.glob("*/bin/python")
}
STATE = "spark.sql.streaming.stateStore."
ROCKSDB = {
    f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
LOGGED = {**ROCKSDB, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"}
FORMAT_2 = {f"{STATE}checkpointFormatVersion": "2"}

# query, configuration, the first Spark that has it, and what is asked of the command line
COMPACT, SPREAD, GATHERED = (
    ("compact",),
    ("repartition", "--partitions", "8"),
    ("repartition", "--partitions", "2"),
)
CASES: dict[str, tuple[str, dict[str, str], tuple[int, int], tuple[str, ...]]] = {
    "compact": ("window", ROCKSDB, (3, 3), COMPACT),
    "spread": ("join", ROCKSDB, (3, 3), SPREAD),
    "prefixed": ("session", ROCKSDB, (3, 3), GATHERED),
    "converted": ("window", {}, (3, 3), ("convert", "--provider", "rocksdb")),
    "logged": ("window", LOGGED, (3, 5), SPREAD),
    "format 2": ("window", {**ROCKSDB, **FORMAT_2}, (4, 0), COMPACT),
    "format 2, logged": ("window", {**LOGGED, **FORMAT_2}, (4, 0), GATHERED),
    "families": (
        "join",
        {**LOGGED, "spark.sql.streaming.join.stateFormatVersion": "3"},
        (4, 1),
        SPREAD,
    ),
    "lists": (
        "join",
        {**ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": "4"},
        (4, 3),
        GATHERED,
    ),
}
FIRST, ALL = 3, 5


def rocksdb_jar(python: Path) -> Path:
    found = (
        "import pathlib, pyspark; "
        "print(*pathlib.Path(pyspark.__file__).parent.glob('jars/rocksdbjni*.jar'))"
    )
    return Path(
        subprocess.run(
            [python, "-c", found], capture_output=True, text=True, check=True
        ).stdout.strip()
    )


def database(folder: Path, state: dict[bytes, bytes], count: int) -> None:
    """The state in `count` tables."""
    piles = SortedPiles(bytes_max=1 << 20)
    items = list(state.items())
    for start in range(0, len(items), 1000):
        piles.add(0, block_of(items[start : start + 1000]))
    pile, facts = piles.pile(0), {}
    folder.mkdir()
    for number, (after, upto) in enumerate(pairwise([None, *pile.bounds(count), None]), 2):
        with (folder / f"{number:06}.sst").open("wb") as file:
            facts[number] = _written(file, encode_sst(pile.blocks(after, upto)))
    assert all(table.records for table in facts.values())
    (folder / MANIFEST).write_bytes(encode_manifest(facts))
    (folder / "CURRENT").write_bytes(CURRENT)


def _written(file: Any, pieces: Any) -> TableFacts:
    while True:
        try:
            file.write(next(pieces))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("python", [pytest.param(path, id=name) for name, path in PYTHONS.items()])
def test_rocksdb_reads_every_entry_and_goes_on_writing(tmp_path: Path, python: Path) -> None:
    keys = (b"\1" + b"%d" % (n * 7919 % 30_000) * (n % 40 // 13 + 1) for n in range(30_000))
    state = {key: (b"%d," % n) * (n % 60) for n, key in enumerate(keys)} | {
        b"\1": b"",
        b"\2" * 20_000: b"v" * 100_000,
    }
    database(tmp_path / "db", state, 3)
    java = shutil.which(
        "java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")
    ) or shutil.which("java")
    command = [
        java or "java",
        "-cp",
        rocksdb_jar(python),
        JOBS / "OpenTables.java",
        tmp_path / "db",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    expected = zlib.crc32(b"".join(key + state[key] for key in sorted(state)))
    first, again = ran.stdout.splitlines()
    assert first.split()[1:] == again.split() == [str(len(state)), str(expected)]


def feed(folder: Path, first: int, last: int) -> None:
    for number in range(first, last):
        events = range(number * 30, number * 30 + 30)
        write_records(
            folder / f"{number:03}.json",
            [
                {
                    "id": i,
                    "at": f"2026-01-01T00:{i // 60:02}:{i % 60:02}Z",
                    "word": f"w{i * 7 % 23}",
                    "amount": i * i,
                }
                for i in events
            ],
        )


def version_of(python: Path) -> tuple[int, int]:
    asked = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    major, minor, *_ = subprocess.run(
        asked, capture_output=True, text=True, check=True
    ).stdout.split(".")
    return int(major), int(minor)


class Queries:
    """The cases that a Spark knows, each once changed and once not, below one folder."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        version = version_of(python)
        self.cases = [case for case, (_, _, since, _) in CASES.items() if version >= since]

    def both(self) -> Iterator[str]:
        for case in self.cases:
            yield from (case, f"{case}, changed")

    def run(self, names: list[str]) -> None:
        """Spark 4.0 marks its snapshots with the checkpoint format of the first query that a JVM
        has run.
        """
        for format_2 in (False, True):
            self._run([name for name in names if name.startswith("format 2") == format_2])

    def _run(self, names: list[str]) -> None:
        path, results = self.folder / "orders.json", self.folder / "results"
        path.write_text(json.dumps([self._order(name) for name in names]))
        results.unlink(missing_ok=True)
        own = {"PYSPARK_PYTHON": str(self.python)}
        with (self.folder / "log").open("w") as log:
            ran = subprocess.run(
                [self.python, JOBS / "shapes.py", path, results],
                cwd=self.folder,
                env={**environment(), **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                timeout=1700,
            )
        assert ran.returncode == 0, (self.folder / "log").read_text()[-3000:]
        wrong = {told["name"]: told["wrong"] for told in map(json.loads, results.open())}
        assert wrong == dict.fromkeys(names)

    def change(self, case: str) -> None:
        source, target = (self.folder / "checkpoints" / name for name in (case, f"{case}, changed"))
        where = (
            "--to",
            target,
            "--waive",
            "paths-stay",
            "--workdirs",
            self.folder / "runs",
            "--yes",
            "--json",
        )
        stateshift(*CASES[case][3], source, "--fork", *where, cwd=self.folder)
        state = [path.suffix for path in (target / "state").rglob("*") if path.is_file()]
        assert ".sst" in state and ".changelog" not in state
        shutil.copytree(self.folder / "output" / case, self.folder / "output" / f"{case}, changed")

    def rows(self, name: str) -> Counter[str]:
        return Counter(
            line
            for path in sorted((self.folder / "output" / name).glob("*.json"))
            for line in path.open()
        )

    def _order(self, name: str) -> dict[str, Any]:
        query, conf, _, _ = CASES[name.removesuffix(", changed")]
        places = {
            "checkpoint": str(self.folder / "checkpoints" / name),
            "output": str(self.folder / "output" / name),
        }
        conf = {f"{STATE}maintenanceInterval": "1h", **conf}
        inputs = [str(self.folder / "input")]
        return {"name": name, "query": query, "inputs": inputs, **places, "conf": conf, "words": []}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.row("IS-12")
@pytest.mark.parametrize("python", [pytest.param(path, id=name) for name, path in PYTHONS.items()])
def test_every_spark_goes_on_from_state_written_as_tables(tmp_path: Path, python: Path) -> None:
    queries = Queries(tmp_path, python)
    feed(tmp_path / "input", 0, FIRST)
    queries.run(queries.cases)
    for case in queries.cases:
        queries.change(case)
    feed(tmp_path / "input", FIRST, ALL)
    queries.run(list(queries.both()))
    assert not list((tmp_path / "checkpoints").glob("*%20*")), (
        "paths that are quoted are another directory to Spark"
    )
    for case in queries.cases:
        assert queries.rows(case), "a query that puts nothing out shows nothing"
        assert queries.rows(f"{case}, changed") == queries.rows(case), case
