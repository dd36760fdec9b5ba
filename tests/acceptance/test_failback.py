"""The demo's job is lost with its region, goes on at its standby, and goes home once the region is
back, by the real command line: what comes out is what an undisturbed job would have written.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateshift.formats.marks import ASIDE, fence_owner
from tests.acceptance.shop import Shop
from tests.acceptance.support import ROOT, end_jobs, stateshift
from tests.acceptance.test_failover import begun, failover, lose
from tests.acceptance.test_move import committed
from tests.acceptance.test_warm import applying, finished, said, seen, until
from tests.support.examples import example
from tests.support.moving import killed_at

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield Shop(tmp_path, "moved")
    end_jobs(tmp_path, ("here", "there"))


def files(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def fences(folder: Path) -> list[str]:
    """The fences that are up."""
    found = [path for path, content in files(folder).items() if fence_owner(content)]
    return [path for path in found if not path.startswith(ASIDE)]


@pytest.mark.row("W-23")
def test_the_region_is_back_and_the_job_goes_home(shop: Shop, tmp_path: Path) -> None:
    fed = begun(shop, tmp_path)
    here, there, runs = (tmp_path / name for name in ("here", "there", "runs"))
    with fed.coming():
        with applying(example("standby.json", tmp_path), runs / "move", tmp_path) as feeder:
            lose(tmp_path, runs / "move")
            failover(tmp_path, "--primary-is-down", "--yes")
            assert feeder.wait(60) == 4, (tmp_path / "apply.log").read_text()
        (tmp_path / "gone").rename(here)
        assert failover(tmp_path)["fenced"] and fences(here)
        before = files(here)

        words = ("failback", there, "--yes", "--workdir", runs / "back")
        told = stateshift(*words, "--json", cwd=ROOT, env={"DEMO_DIR": str(tmp_path)})
        (job,) = told.json["report"]["jobs"]
        assert told.json["state"] == "finished" and job["downtime_seconds"] > 0
        assert job["set_aside"].endswith(f"{ASIDE}{told.json['run']}")
        assert said(tmp_path, "status", there)["role"] == "went-home"
        assert not fences(here) and fences(there)
        folder = f"{ASIDE}{told.json['run']}/"
        now = files(here)
        for path, content in before.items():
            if not path.endswith(".crc"):
                assert content in (now.get(folder + path), now.get(path)), path
        (again,) = [line for line in told.err.splitlines() if "keep a standby" in line]
    finished(shop, fed)
    verdict = said(tmp_path, "verify", here, "--deep")
    assert verdict["restartable"]

    # The old direction, by the command that was printed.
    command = shlex.split(again.partition("stateshift apply ")[2])
    with applying(Path(command[0]), runs / "again", tmp_path):
        seen(tmp_path, runs / "again", lambda told: any(
            job["standby"] for job in told["report"]["jobs"]))  # fmt: skip
        assert said(tmp_path, "status", there)["role"] == "standby"
        assert said(tmp_path, "verify", there)["restartable"]


@pytest.mark.slow
@pytest.mark.row("W-23")
def test_killed_at_every_step_of_the_way_home_one_job_goes_on(shop: Shop, tmp_path: Path) -> None:
    fed = begun(shop, tmp_path)
    here, there, runs = (tmp_path / name for name in ("here", "there", "runs"))
    more, place = {"DEMO_DIR": str(tmp_path)}, runs / "back"
    with fed.coming():
        with applying(example("standby.json", tmp_path), runs / "move", tmp_path) as feeder:
            lose(tmp_path, runs / "move")
            failover(tmp_path, "--primary-is-down", "--yes")
            assert feeder.wait(60) == 4, (tmp_path / "apply.log").read_text()
        (tmp_path / "gone").rename(here)
        failover(tmp_path)
        until(lambda: committed(there), tmp_path)
        words = ("failback", str(there), "--yes", "--workdir", str(place))
        killed_at("copy/", words, place, more)
        for step in ("halt/", "publish/", "submit/", "confirm/"):
            killed_at(step, ("resume", str(place)), place, more)
        assert said(tmp_path, "resume", place)["state"] == "finished"
    finished(shop, fed)
