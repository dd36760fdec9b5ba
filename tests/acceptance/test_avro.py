"""State in Avro rows, changed on its way, in the hands of a real Spark: it goes on as that which
nobody changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.matrix.damage import copied
from tests.acceptance.matrix.damaging import files_of, write_files
from tests.acceptance.support import JOBS, environment, stateshift
from tests.formats.golden import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CASES = ("tws-avro", "tws-avro-evolved")
CHANGES: dict[str, tuple[str, ...]] = {
    "untouched": ("fork",),
    "spread": ("repartition", "--partitions", "3", "--fork"),
    "gathered": ("repartition", "--partitions", "1", "--fork"),
    "compacted": ("compact", "--fork"),
    "recoded": ("convert", "--codec", "zstd", "--fork"),
}


@pytest.mark.row("IS-11")
@pytest.mark.row("IS-12")
@pytest.mark.row("IS-16")
def test_avro_rows_that_were_changed_on_their_way_go_on_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    for case in CASES:
        source, made_at = tmp_path / f"{case}-source", f"/tmp/stateshift-golden/{case}/checkpoint"
        write_files(
            source,
            copied(files_of(ROOT / "spark-4.3.0" / case / "checkpoint"), made_at, str(source)),
        )
        for change, (kind, *words) in CHANGES.items():
            where = (
                "--to",
                tmp_path / f"{case}-{change}",
                "--workdirs",
                tmp_path / "runs",
                "--waive",
                "paths-stay",
            )
            stateshift(kind, source, *words, *where, "--yes", cwd=tmp_path)
    assert _restarted(tmp_path) == {
        f"{case}-{change}": None for case in CASES for change in CHANGES
    }
    for case in CASES:
        expected = (tmp_path / f"{case}-untouched.rows").read_text()
        assert expected
        for change in CHANGES:
            assert (tmp_path / f"{case}-{change}.rows").read_text() == expected
            stateshift("verify", tmp_path / f"{case}-{change}", "--deep", cwd=tmp_path)
            stateshift(
                "diff", tmp_path / f"{case}-untouched", tmp_path / f"{case}-{change}", cwd=tmp_path
            )


def _restarted(folder: Path) -> dict[str, str | None]:
    names = [f"{case}-{change}" for case in CASES for change in CHANGES]
    orders = [
        {
            "case": name.rpartition("-")[0],
            "checkpoint": str(folder / name),
            "output": str(folder / f"{name}.rows"),
        }
        for name in names
    ]
    (folder / "orders.json").write_text(json.dumps(orders))
    golden = os.pathsep.join(
        (str(ROOT.parents[1] / "scripts" / "golden"), environment()["PYTHONPATH"])
    )
    ran = subprocess.run(
        [sys.executable, str(JOBS / "restart.py"), str(folder / "orders.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        env={**environment(), "PYTHONPATH": golden, "TZ": "UTC"},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    return {name: told[str(folder / name)] for name in names}
