"""Which Spark goes on with what another one wrote, asked of them: the facts behind the findings of
versions.

Needs the Sparks of `scripts/golden/all DIRECTORY`, named by STATESHIFT_SPARKS=DIRECTORY.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.support import JOBS, environment, stateshift
from tests.formats.golden import ROOT

SPARKS = os.environ.get("STATESHIFT_SPARKS")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        not SPARKS, reason="needs the Sparks of scripts/golden/all: STATESHIFT_SPARKS=DIRECTORY"
    ),
]

FORMAT_2 = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
# Per Spark: what was written by which other one, and what it says of it; None where it goes on.
SAID: dict[str, dict[str, str | None]] = {
    "4.1.4": {
        "4.3.0/join-rocksdb-v4": "Valid versions are 1, 2, and 3",
        "4.0.5/join-hdfs-v1": None,
        "4.0.5/window-rocksdb-format2": "Expected v1, but found v2",
        "4.2.1/dedup-offsets2": "UnsupportedLogVersion",
    },
    "4.2.1": {
        "4.3.0/join-rocksdb-v4": "State format version 4 is under develop",
        "4.0.5/join-hdfs-v1": None,
        "4.0.5/window-rocksdb-format2": "Expected v1, but found v2",
        "4.3.0/dedup-checksum": None,
        "4.3.0/window-rocksdb-format2": None,
    },
    "4.3.0": {
        "4.0.5/join-hdfs-v1": None,
        "3.5.9/session-hdfs": None,
        # what may be null is not told alike
        "3.5.9/join-hdfs": "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    },
}


@pytest.mark.row("IS-18")
@pytest.mark.parametrize("version", SAID)
def test_a_spark_goes_on_or_says_why_not(tmp_path: Path, version: str) -> None:
    told = _restarted(version, tmp_path, {case: _copied(tmp_path, case) for case in SAID[version]})
    wrong = {
        case: told[case]
        for case, said in SAID[version].items()
        if (told[case] is not None if said is None else said not in (told[case] or ""))
    }
    assert not wrong


@pytest.mark.row("IS-18")
def test_a_join_of_3_5_goes_on_in_4_3_where_everything_may_be_null(tmp_path: Path) -> None:
    source, target = _copied(tmp_path, "3.5.9/join-hdfs"), tmp_path / "target"
    stores = [
        word for side in ("left", "right") for word in ("--store", f"{side}-keyWithIndexToValue")
    ]
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
    stateshift("evolve", source, *stores, "--nullable", "*", *where, cwd=tmp_path)
    assert _restarted("4.3.0", tmp_path, {"3.5.9/join-hdfs": target}) == {"3.5.9/join-hdfs": None}


def _copied(folder: Path, case: str) -> Path:
    written, name = case.split("/")
    place = folder / case.replace("/", "-").replace(".", "_")
    shutil.copytree(ROOT / f"spark-{written}" / name / "checkpoint", place)
    return place


def _restarted(version: str, folder: Path, places: Mapping[str, Path]) -> dict[str, str | None]:
    """Per case, what the Spark of that version says of it; None where it goes on."""
    python = Path(SPARKS or "") / version / "bin" / "python"
    orders = [
        {
            "case": case.split("/")[1],
            "checkpoint": str(place),
            "conf": FORMAT_2 if case.endswith("format2") else {},
        }
        for case, place in places.items()
    ]
    path = folder / "orders.json"
    path.write_text(json.dumps(orders))
    env = {**environment(), "PYSPARK_PYTHON": str(python), "TZ": "UTC"}
    ran = subprocess.run(
        [str(python), str(JOBS / "restart.py"), str(path)],
        capture_output=True,
        text=True,
        env=env,
        timeout=800,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return dict(zip(places, json.loads(ran.stdout.strip().splitlines()[-1]).values(), strict=True))
