"""Checkpoints that were copied by other means, in the hands of a real Spark: `verify` says what it
does, and what `move` and `repair` make of them goes on.
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

CASES = ("tws-timers", "tws-rows", "join-rocksdb-v3", "join-rocksdb-v4")
# What is at the place that the copy names.
PLACES = ("gone", "other", "different", "equal", "s3a", "hdfs")
ELSEWHERE = {"s3a": "s3a://bucket/orders", "hdfs": "hdfs://nowhere.invalid:8020/orders"}


def _placed(folder: Path, case: str, place: str) -> Path:
    """A copy of the case's checkpoint that names another place."""
    files, made_at = files_of(ROOT / "spark-4.3.0" / case / "checkpoint"), "/tmp/stateshift-golden"
    copy, old = folder / f"{case}-{place}", folder / f"{case}-{place}-old"
    location = ELSEWHERE.get(place, f"file:{old}")
    write_files(copy, copied(files, f"file:{made_at}/{case}/checkpoint", location))
    if place in ("equal", "different", "other"):
        write_files(old, copied(files, f"{made_at}/{case}/checkpoint", str(old)))
    for path in old.glob("state/*/_stateSchema/*/*"):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        if place == "other":  # the checkpoint of another run, whose schemas have other names
            path.rename(path.with_name(path.name[:-4] + "0000"))
        if place == "different":
            path.write_bytes(path.read_bytes().replace(b'"type":"long"', b'"type":"date"'))
    return copy


def _spark_goes_on(folder: Path, copies: dict[Path, str]) -> dict[Path, bool]:
    """Whether Spark goes on from each copy of a case."""
    orders = [{"case": case, "checkpoint": str(copy)} for copy, case in copies.items()]
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
    said = json.loads(ran.stdout.strip().splitlines()[-1])
    return {copy: said[str(copy)] is None for copy in copies}


@pytest.mark.row("W-1")
@pytest.mark.row("W-2")
def test_verify_says_of_a_copy_what_spark_does_with_it_and_a_repaired_one_goes_on(
    tmp_path: Path,
) -> None:
    copies = {_placed(tmp_path, case, place): case for case in CASES for place in PLACES}
    verdicts = {copy: stateshift("verify", copy, cwd=tmp_path, code=None).code for copy in copies}
    repaired = {}
    for case in CASES:
        for verb in ("repair", "move"):
            copy, to = _placed(tmp_path / verb, case, "gone"), tmp_path / f"{case}-{verb}"
            was_at = ("--was-at", f"{copy}-old") if verb == "repair" else ()
            words = (verb, copy, "--to", to, *was_at, "--waive", "paths-stay", "--yes")
            stateshift(*words, "--workdirs", tmp_path / "runs", cwd=tmp_path)
            stateshift("verify", to, "--deep", cwd=tmp_path)
            repaired[to] = case
    goes_on = _spark_goes_on(tmp_path, {**copies, **repaired})
    assert {copy: code == 0 for copy, code in verdicts.items()} == {
        copy: goes_on[copy] for copy in copies
    }
    assert all(goes_on[copy] for copy in repaired)
