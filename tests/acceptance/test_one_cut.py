"""Two jobs in a chain are lost with their region, one storage after the other, and go on from their
standbys at one cut: what comes out is what undisturbed jobs would have written.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import (
    JOBS,
    end_jobs,
    kill_jobs,
    last_number,
    running,
    write_records,
)
from tests.acceptance.test_failover import asked
from tests.acceptance.test_warm import said, until

pytestmark = pytest.mark.spark
NAMES = ("orders", "totals")
SHOPS = ("north", "south", "west")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name in ("input", "middle", "output"):
        (tmp_path / name).mkdir()
    yield tmp_path
    end_jobs(tmp_path, tuple(f"{side}/{name}" for side in ("here", "there") for name in NAMES))


def feed(folder: Path, first: int, last: int) -> None:
    for number in range(first, last):
        records = []
        for i, shop in enumerate(SHOPS):
            records.append({"id": f"{number}-{i}", "shop": shop, "amount": number + i})
        again = {"id": "everywhere", "shop": "north", "amount": 1}
        write_records(folder / "input" / f"{number:03}.json", [*records, again])


def expected(files: int) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = {}
    for i, shop in enumerate(SHOPS):
        counts[shop] = [files, sum(number + i for number in range(files))]
    counts["north"] = [counts["north"][0] + 1, counts["north"][1] + 1]
    return counts


def counted(folder: Path) -> dict[str, list[int]]:
    """The newest count of each shop."""
    found: dict[str, list[int]] = {}
    for path in sorted((folder / "output").glob("*.json")):
        found |= json.loads(path.read_text())
    return found


def spec(folder: Path, name: str, **keys: Any) -> Path:
    ends = {"orders": ("input", "middle"), "totals": ("middle", "output")}
    sinks = {
        "orders": {"kind": "file", "location": str(folder / "middle")},
        "totals": {"kind": "foreach-batch", "idempotent_by_batch": True},
    }
    jobs = []
    for job, (into, out) in ends.items():
        words = [job, "--input", str(folder / into), "--output", str(folder / out)]
        submit = {"application": str(JOBS / "chained.py"), "arguments": words, "seconds_max": 120}
        jobs.append(
            {
                "name": job,
                "checkpoint_location": str(folder / "here" / job),
                "target_cluster": "local",
                "submit": submit,
                "sink": sinks[job],
            }
        )
        if name == "standby":
            jobs[-1] |= {"mode": "warm", "cutover": "never", "waive": ["paths-stay"]}
            jobs[-1] |= {"remote_location": str(folder / "there" / job), "source_cluster": "local"}
    local = {"kind": "spark_submit", "master": "local[1]", "state_dir": str(folder / "jobs")}
    local["conf"] = {"spark.ui.enabled": "false"}  # type: ignore[assignment]
    path = folder / f"{name}.json"
    document = {"version": 1, "engine": "spark", "clusters": {"local": local}, "jobs": jobs, **keys}
    path.write_text(json.dumps(document))
    return path


@contextmanager
def feeding(folder: Path, *words: object) -> Iterator[None]:
    """The standbys are fed by a process, which is interrupted in the end."""
    log = folder / "feeding.log"
    with running(log, "-m", "stateshift", *words) as process:
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, log.read_text()


def kept(folder: Path, name: str) -> list[int]:
    path = folder / "there" / name / "_stateshift" / "standby.json"
    if not path.exists():
        return []
    state = json.loads(path.read_text())
    return [state["epoch"], *(each["epoch"] for each in state.get("earlier", ()))]


def newest(folder: Path, name: str) -> int:
    return last_number(folder / "here" / name / "commits")


def remove(path: Path) -> None:
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink()


def lose_output(folder: Path) -> int:
    """Remove what came out of batches that the standbys have not. Return how much that was."""
    lost = 0
    for log in (folder / "middle" / "_spark_metadata").iterdir():
        if log.name.isdecimal() and int(log.name) > kept(folder, "orders")[0]:
            for line in log.read_text().splitlines()[1:]:
                remove(Path(json.loads(line)["path"].removeprefix("file://")))
                lost += 1
            remove(log)
    for path in (folder / "output").glob("*.json"):
        if int(path.stem) > kept(folder, "totals")[-1]:
            path.unlink()
    return lost


@pytest.mark.slow
@pytest.mark.row("W-22")
def test_both_go_on_at_one_cut(folder: Path) -> None:
    first = spec(folder, "first", restart=False)
    feed(folder, 0, 3)
    said(folder, "apply", first, "--yes", "--workdir", folder / "runs" / "first")
    until(lambda: counted(folder) == expected(3), folder)

    # One round of both.
    workdir, standby = folder / "runs" / "standby", spec(folder, "standby")
    with feeding(folder, "apply", standby, "--yes", "--workdir", workdir):
        until(lambda: all(kept(folder, name) for name in NAMES), folder)
    before = {name: kept(folder, name)[0] for name in NAMES}
    feed(folder, 3, 5)
    until(lambda: counted(folder) == expected(5), folder)
    kill_jobs(folder / "jobs")
    (folder / "here" / "orders").rename(folder / "gone")  # first the storage of one

    # One round more of the other.
    with feeding(folder, "resume", workdir):
        until(lambda: kept(folder, "totals")[0] == newest(folder, "totals"), folder)
    assert kept(folder, "orders")[0] == before["orders"]
    assert kept(folder, "totals")[0] > kept(folder, "totals")[1] == before["totals"]
    (folder / "here" / "totals").rename(folder / "gone-totals")
    assert lose_output(folder) > 0

    places = [folder / "there" / name for name in NAMES]
    ahead = f"{places[1]}={kept(folder, 'totals')[0]}"
    refused = asked(folder, "failover", *places, "--primary-is-down", "--yes", "--epoch", ahead)
    assert refused.code == 4 and "have no common cut" in refused.err
    done = said(folder, "failover", *places, "--primary-is-down", "--yes")
    jobs = {job["job"]: job["failover"] for job in done["report"]["jobs"]}
    assert {name: told["epoch"] for name, told in jobs.items()} == before
    feed(folder, 5, 8)
    until(lambda: counted(folder) == expected(8), folder)
