"""Which Spark goes on with what another one wrote, asked of them: the facts behind the findings of versions.

Needs the Sparks of `scripts/golden/all DIRECTORY`, named by STATESHIFT_SPARKS=DIRECTORY.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.support import JOBS, environment
from tests.formats.golden import ROOT

SPARKS = os.environ.get("STATESHIFT_SPARKS")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not SPARKS, reason="needs the Sparks of scripts/golden/all: STATESHIFT_SPARKS=DIRECTORY"),
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
}


@pytest.mark.row("IS-18")
@pytest.mark.parametrize("version", SAID)
def test_a_spark_goes_on_or_says_why_not(tmp_path: Path, version: str) -> None:
    python = Path(SPARKS or "") / version / "bin" / "python"
    orders = []
    for case in SAID[version]:
        written, name = case.split("/")
        place = tmp_path / case.replace("/", "-").replace(".", "_")
        shutil.copytree(ROOT / f"spark-{written}" / name / "checkpoint", place)
        orders.append({"case": name, "checkpoint": str(place), "conf": FORMAT_2 if name.endswith("format2") else {}})
    path = tmp_path / "orders.json"
    path.write_text(json.dumps(orders))
    env = {**environment(), "PYSPARK_PYTHON": str(python), "TZ": "UTC"}
    ran = subprocess.run(
        [str(python), str(JOBS / "restart.py"), str(path)], capture_output=True, text=True, env=env, timeout=800
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = dict(zip(SAID[version], json.loads(ran.stdout.strip().splitlines()[-1]).values(), strict=True))
    wrong = {
        case: told[case]
        for case, said in SAID[version].items()
        if (told[case] is not None if said is None else said not in (told[case] or ""))
    }
    assert not wrong
