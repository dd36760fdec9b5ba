"""The demo's job is rehearsed from its standby while it runs and its standby is fed, by the real
command line: what comes out is what an undisturbed job would have written, and nothing of the drill
is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.shop import Shop
from tests.acceptance.support import end_jobs
from tests.acceptance.test_failover import asked, begun
from tests.acceptance.test_warm import applying, finished, said, seen
from tests.support.examples import example
from tests.support.moving import killed_at

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield Shop(tmp_path, "moved")
    end_jobs(tmp_path, ("here", "there", "there-drill"))


def rehearsable(folder: Path) -> Path:
    path = example("standby.json", folder)
    plain = json.loads(path.read_text())
    plain["jobs"][0]["drill"] = {}
    path.write_text(json.dumps(plain))
    return path


@pytest.mark.row("W-23")
def test_a_standby_is_rehearsed_while_it_is_fed_and_nothing_comes_out(
    shop: Shop, tmp_path: Path
) -> None:
    fed = begun(shop, tmp_path)
    workdir, place = tmp_path / "runs" / "move", tmp_path / "there"
    with fed.coming(), applying(rehearsable(tmp_path), workdir, tmp_path) as feeder:
        seen(tmp_path, workdir, lambda told: any(job["standby"] for job in told["report"]["jobs"]))
        assert said(tmp_path, "status", place)["last_drill"] is None
        done = said(tmp_path, "drill", place, "--yes", "--workdir", tmp_path / "runs" / "drill")
        (job,) = done["report"]["jobs"]
        assert done["state"] == "rolled-back" and not done["report"]["left"]
        assert job["drill"]["good"] and 0 < job["drill"]["seconds"] < 120
        assert not list(tmp_path.glob("there-drill*"))
        told = said(tmp_path, "status", place)
        assert told["role"] == "standby" and told["generation"] == 1
        assert told["last_drill"]["good"] and told["last_good_drill"] == told["last_drill"]
        assert feeder.poll() is None, "it goes on"
        metrics = asked(tmp_path, "metrics", tmp_path / "runs").out
        assert 'stateshift_standby_drill_success{job="demo"} 1' in metrics
        words = ("drill", str(place), "--yes", "--workdir", str(tmp_path / "runs" / "killed"))
        killed = tmp_path / "runs" / "killed"
        killed_at("submit/", words, killed, {"DEMO_DIR": str(tmp_path)})
        assert said(tmp_path, "resume", killed)["report"]["jobs"][0]["drill"]["good"]
        assert not list(tmp_path.glob("there-drill*"))
        finished(shop, fed)
