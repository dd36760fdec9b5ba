"""`stateshift live import`, `export` and `evict`, as a shell has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

JOB = """
from stateshift import live

@live.operator(key="key", time="at", out="key long, n long", bins=8)
def count(key, state, values):
    n = (state or 0) + len(values)
    return live.Folded(n, ((key, n),))

def from_row(key, value):
    return value["n"]

def other_row(key, value):
    return value["n"] + 1
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOB)
    key = pa.array([{"key": number} for number in range(20)], pa.struct([("key", pa.int64())]))
    value = pa.array([{"n": number} for number in range(20)], pa.struct([("n", pa.int64())]))
    pyarrow.parquet.write_table(pa.table({"key": key, "value": value}), tmp_path / "in.parquet")
    return tmp_path


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stateshift", "live", *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=600)


@pytest.mark.long
def test_state_goes_in_and_comes_out_as_it_was(place):
    into = ["group", "jobs:count", "in.parquet", "--with", "jobs:from_row", "--worker", "west"]
    came = run(place, "import", *into, "--json")
    assert came.returncode == 0, came.stderr
    assert json.loads(came.stdout)["keys"] == 20
    gone = run(place, "export", "group", "jobs:count", "--to", "out.jsonl")
    assert gone.returncode == 0, gone.stderr
    rows = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert sorted((row["key"], row["state"]) for row in rows) == [(n, str(n)) for n in range(20)]
    again = run(place, "import", *into)
    assert again.returncode == 0, again.stderr
    into[into.index("jobs:from_row")] = "jobs:other_row"
    other = run(place, "import", *into)
    assert other.returncode == 4
    assert "has a state already" in other.stderr


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        (
            ["import", "group", "jobs:nobody", "in.parquet", "--worker", "w"],
            2,
            "cannot be imported",
        ),
        (["import", "group", "jobs:from_row", "in.parquet", "--worker", "w"], 2, "is no operator"),
        (["import", "group", "jobs:count", "in.parquet", "--worker", "w"], 2, "object a key"),
        (
            [
                "import",
                "group",
                "jobs:count",
                "jobs.py",
                "--worker",
                "w",
                "--with",
                "jobs:from_row",
            ],
            3,
            "neither",
        ),
        (["export", "group", "jobs:count", "--to", "out.jsonl"], 4, "is no group"),
        (["evict", "group", "west"], 4, "is no group"),
    ],
)
def test_what_cannot_be_done_is_said(place, words, code, fact):
    done = run(place, *words)
    assert done.returncode == code, done.stderr
    assert fact in done.stderr
    assert "Traceback" not in done.stderr
