"""The demo's job, moved while it runs by the real command line: two operators with state, started
and stopped through a spark_submit cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.shop import OPERATORS, Shop
from tests.acceptance.support import ROOT, Ran, content_of, end_jobs, stateshift, wait_until
from tests.support.examples import example

pytestmark = pytest.mark.spark


def committed(location: Path, epoch: int = 0) -> bool:
    """Whether both operators have committed that batch, or a later one."""
    commits = [
        max((int(path.name) for path in folder.glob("commits/[0-9]*")), default=-1)
        for folder in location.glob("[!_]*")
        if folder.is_dir()
    ]
    return len(commits) == len(OPERATORS) and min(commits) >= epoch


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield Shop(tmp_path, "moved")
    end_jobs(tmp_path, ("here", "there"))


def apply(folder: Path, name: str) -> Ran:
    """One of the demo's two specs; beside the job there is another one that nobody asked for."""
    path = example(name, folder)
    plain = json.loads(path.read_text())
    plain["jobs"].append(
        {
            "name": "other",
            "checkpoint_location": str(folder / "other"),
            "remote_location": str(folder / "other-target"),
        }
    )
    path.write_text(json.dumps(plain))
    given = ("--yes", "--json", "--job", "demo", "--workdir", folder / "runs" / name)
    return stateshift("apply", path, *given, cwd=ROOT, env={"DEMO_DIR": str(folder)})


@pytest.mark.slow  # in the default run a scene (tests/servers/test_scenes.py) moves a running job
@pytest.mark.row("IS-3")
@pytest.mark.row("IS-6")
@pytest.mark.row("IS-13")
@pytest.mark.row("IS-16")
def test_a_running_job_moves_and_counts_on_as_if_it_had_not(shop: Shop, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata").write_text('{"id":"not asked for"}')
    shop.feed(0, 20)
    apply(tmp_path, "first.json")
    _until(lambda: committed(here), "the job has not started", tmp_path)
    shop.feed(20, 30)  # ends in the middle of a minute, with orders that are still to be paid

    report = apply(tmp_path, "move.json").json
    assert report["state"] == "finished"
    assert report["report"]["downtime_seconds"] > 0
    assert committed(there), "apply came back before the target job had committed a batch"

    shop.feed(30, 40)
    shop.finish(40)
    expected = shop.expected(40)
    _until(lambda: shop.complete(40), "the results are not complete", tmp_path)
    assert shop.recognise() == expected

    names = json.loads((there / "_stateshift" / "operators.json").read_text())["operators"]
    assert set(names) == set(OPERATORS)
    assert {path.name for path in there.iterdir() if path.is_dir()} == {
        *names.values(),
        "_stateshift",
    }
    assert content_of(tmp_path / "other") == {"metadata": b'{"id":"not asked for"}'}
    assert not (tmp_path / "other-target").exists()


def _until(done: Callable[[], bool], otherwise: str, folder: Path) -> None:
    wait_until(done, otherwise, 90, logs=folder / "jobs")
