"""The demo's job is lost with its region, and goes on at its standby, by the real command line: what
comes out is what an undisturbed job would have written, and the old job, started again, commits
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.formats.marks import INDEX, decode_index
from tests.acceptance.shop import APPLICATION, OPERATORS, Shop
from tests.acceptance.support import ROOT, Ran, end_jobs, kill_jobs, running, stateshift
from tests.acceptance.test_move import committed
from tests.acceptance.test_warm import Fed, applying, finished, said, seen, until
from tests.support.examples import example
from tests.support.moving import killed_at

COUNTS, JOINED = OPERATORS
pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield Shop(tmp_path, "moved")
    end_jobs(tmp_path, ("here", "there"))


def lost_output(folder: Path) -> int:
    """Remove what came out of batches that the standby has not, and will come out once more. Return
    how many there were.
    """
    lost, index = 0, decode_index((folder / "gone" / INDEX).read_bytes())
    for name, query in (("counts", COUNTS), ("joined", JOINED)):
        committed_here = folder / "there" / index[query] / "commits"
        kept = max(int(path.name) for path in committed_here.iterdir() if path.name.isdecimal())
        for path in (folder / "moved" / name).glob("*.json"):
            if int(path.stem) > kept:
                path.unlink()
                lost += 1
    return lost


def commits(folder: Path) -> dict[str, bytes]:
    """What queries have committed, but for our fence."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*")
             if path.is_file() and path.parent.name == "commits"}  # fmt: skip
    return {path: content for path, content in found.items() if b"stateshift fence" not in content}


def failover(folder: Path, *words: str, code: int = 0) -> Any:
    return said(folder, "failover", folder / "there", *words, code=code)


def asked(folder: Path, *words: str | Path) -> Ran:
    return stateshift(*words, cwd=ROOT, env={"DEMO_DIR": str(folder)}, code=None)


def begun(shop: Shop, folder: Path) -> Fed:
    """The job runs in region A, and has committed; files can be fed to it."""
    shop.feed(0, 10)
    first = example("first.json", folder)
    said(folder, "apply", first, "--yes", "--workdir", folder / "runs" / "first")
    until(lambda: committed(folder / "here"), folder)
    return Fed(shop, 10)


def lose(folder: Path, workdir: Path) -> None:
    """Region A is gone, and the standby has noticed."""
    seen(folder, workdir, lambda told: any(job["standby"] for job in told["report"]["jobs"]))
    time.sleep(5)  # some rounds more
    kill_jobs(folder / "jobs")
    (folder / "here").rename(folder / "gone")
    seen(folder, workdir, lambda told: any(job["source_lost"] for job in told["report"]["jobs"]))
    assert lost_output(folder) <= 40, "few batches are behind"


@pytest.mark.row("W-21", "W-22")
def test_the_region_is_gone_and_the_job_goes_on_from_the_standby_alone(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = begun(shop, tmp_path)
    workdir, here, gone = tmp_path / "runs" / "move", tmp_path / "here", tmp_path / "gone"
    with fed.coming(), applying(example("standby.json", tmp_path), workdir, tmp_path) as feeder:
        lose(tmp_path, workdir)
        # The process that feeds it runs on, beside the failover.
        standby = said(tmp_path, "status", tmp_path / "there")
        assert standby["role"] == "standby" and standby["rpo_seconds"] >= 0
        report = failover(tmp_path, "--primary-is-down", "--yes")["report"]
        assert feeder.wait(60) == 4, (tmp_path / "apply.log").read_text()
    (job,) = report["jobs"]
    assert job["failover"]["generation"] == 2 and not job["failover"]["fenced"]
    assert 0 <= job["failover"]["rpo"]["seconds"] < 60
    assert job["failover"]["rto_seconds"] > 0
    finished(shop, fed)
    assert said(tmp_path, "status", tmp_path / "there")["role"] == "failed-over"

    # The old primary wakes up.
    assert failover(tmp_path, code=6)["error"]
    gone.rename(here)
    before = commits(here)
    for _ in range(2):
        assert failover(tmp_path)["fenced"]
    monkeypatch.setenv("STATESHIFT_CHECKPOINT", str(here))
    words = (APPLICATION, *Shop(tmp_path, "again").arguments)
    with running(tmp_path / "again.log", *words) as process:
        assert process.wait(120) != 0, "it cannot commit, and ends"
    assert commits(here) == before
    told = asked(tmp_path, "resume", workdir)
    assert told.code == 4 and "taken over by a failover" in told.err
    there = commits(tmp_path / "there")
    refused = asked(tmp_path, "rollback", workdir, "--yes", "--discard-progress")
    assert refused.code == 4 and commits(tmp_path / "there") == there
    verdict = asked(tmp_path, "verify", here)
    assert verdict.code == 5 and f"runs at file://{tmp_path / 'there'} since" in verdict.out
    assert said(tmp_path, "status", here)["successor"] == f"file://{tmp_path / 'there'}"


@pytest.mark.slow
@pytest.mark.row("W-22")
def test_killed_at_every_step_one_job_goes_on(shop: Shop, tmp_path: Path) -> None:
    fed = begun(shop, tmp_path)
    workdir, place = tmp_path / "runs" / "move", tmp_path / "runs" / "failover"
    more = {"DEMO_DIR": str(tmp_path)}
    with fed.coming(), applying(example("standby.json", tmp_path), workdir, tmp_path) as feeder:
        lose(tmp_path, workdir)
        words = ("failover", str(tmp_path / "there"), "--yes", "--workdir", str(place))
        killed_at("prepare/", words, place, more)
        for step in ("halt/", "submit/", "confirm/"):
            killed_at(step, ("resume", str(place)), place, more)
        done = said(tmp_path, "resume", place)
        assert done["state"] == "finished" and done["report"]["jobs"][0]["failover"]["fenced"]
        assert feeder.wait(60) == 4, (tmp_path / "apply.log").read_text()
    finished(shop, fed)
