"""The demo's job is brought over while it runs, by the real command line and an example: orders
keep coming, the new job comes up and waits before the old one is stopped, and what comes out is
what an unmoved job would have written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shop import Shop
from tests.acceptance.support import ROOT, end_jobs, environment, stateshift, wait_until
from tests.acceptance.test_move import committed
from tests.support.examples import example

pytestmark = pytest.mark.spark
FILES = 60


class Fed:
    """Files come for as long as this lasts."""

    def __init__(self, shop: Shop, first: int) -> None:
        self.shop, self.next, self._end = shop, first, threading.Event()
        self._thread = threading.Thread(target=self._feed)

    def _feed(self) -> None:
        while self.next < FILES and not self._end.wait(0.4):
            self.shop.feed(self.next, self.next + 1)
            self.next += 1

    @contextmanager
    def coming(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield Shop(tmp_path, "moved")
    end_jobs(tmp_path, ("here", "there"))


@pytest.fixture
def running(shop: Shop, tmp_path: Path) -> Shop:
    """The job has state, and some batches behind it."""
    shop.feed(0, 10)
    said(
        tmp_path,
        "apply",
        example("first.json", tmp_path),
        "--yes",
        "--workdir",
        tmp_path / "runs" / "first",
    )
    until(lambda: committed(tmp_path / "here"), tmp_path)
    return shop


def said(folder: Path, *words: str | Path, code: int = 0) -> Any:
    return stateshift(*words, "--json", cwd=ROOT, env={"DEMO_DIR": str(folder)}, code=code).json


def until(done: Callable[[], bool], folder: Path) -> None:
    wait_until(done, "nothing comes of it", 180, logs=folder / "jobs")


def spec(folder: Path, **keys: Any) -> Path:
    path = example("warm.json", folder)
    plain = json.loads(path.read_text())
    plain["jobs"][0] |= keys
    path.write_text(json.dumps(plain))
    return path


def finished(shop: Shop, fed: Fed) -> None:
    shop.feed(fed.next, FILES)
    shop.finish(FILES)
    until(lambda: shop.complete(FILES), shop.folder)
    assert shop.recognise() == shop.expected(FILES)


@pytest.mark.row("T-1", "T-5", "T-9", "T-22", "IS-17")
def test_it_is_brought_over_while_it_runs_and_counts_on_as_if_it_had_not(
    running: Shop, tmp_path: Path
) -> None:
    fed, workdir = Fed(running, 10), tmp_path / "runs" / "move"
    with fed.coming():
        report = said(tmp_path, "apply", spec(tmp_path), "--yes", "--workdir", workdir)["report"]
    (job,) = report["jobs"]
    phases = {phase["name"]: phase for phase in job["phases"]}
    assert job["rounds"] and phases["round 1"]["files"] > 0
    assert phases["prepare"]["start"] < phases["halt"]["start"], (
        "it was up before the old one was stopped"
    )
    assert phases["publish"]["start"] + phases["publish"]["seconds"] < phases["halt"]["start"] + 10
    assert 0 < report["downtime_seconds"] < job["downtime_without_rounds"]
    assert stateshift("verify", workdir, cwd=ROOT, env={"DEMO_DIR": str(tmp_path)}).code == 0
    finished(running, fed)


@pytest.mark.row("T-1", "T-3")
@pytest.mark.slow
def test_told_to_wait_it_is_watched_paused_throttled_and_then_cut_over(
    running: Shop, tmp_path: Path
) -> None:
    fed, workdir = Fed(running, 10), tmp_path / "runs" / "move"
    with fed.coming(), applying(spec(tmp_path, cutover="manual"), workdir, tmp_path) as process:
        waiting = seen(tmp_path, workdir, lambda told: (told["live"] or {}).get("waiting"))
        assert (
            waiting["live"]["left"]["demo"]["round"] >= 1
            and waiting["live"]["downtime_seconds"] is not None
        )
        assert said(tmp_path, "pause", workdir)["state"] == "paused"
        seen(tmp_path, workdir, lambda told: told["live"] and told["live"]["paused"])
        before = said(tmp_path, "status", workdir)["live"]["left"]["demo"]["round"]
        time.sleep(2)
        assert said(tmp_path, "status", workdir)["live"]["left"]["demo"]["round"] == before
        said(tmp_path, "throttle", workdir, "50MB", "--operations", "500")
        said(tmp_path, "resume", workdir)
        seen(tmp_path, workdir, lambda told: told["live"] and not told["live"]["paused"])
        assert (
            committed(tmp_path / "here")
            and not (tmp_path / "there" / "_stateshift" / "waiting").exists()
        )
        said(tmp_path, "cutover", workdir)
        assert process.wait(120) == 0
    steered = [one["what"] for one in said(tmp_path, "status", workdir)["report"]["steered"]]
    assert [what for what in steered if what != "throttle"] == [
        "pause",
        "go on",
        "cutover",
    ] and "throttle" in steered
    finished(running, fed)


@pytest.mark.row("T-3")
@pytest.mark.slow
def test_taken_back_while_it_is_at_work_nothing_is_left_and_the_job_has_not_noticed(
    running: Shop, tmp_path: Path
) -> None:
    fed, workdir = Fed(running, 10), tmp_path / "runs" / "move"
    with fed.coming(), applying(spec(tmp_path, cutover="manual"), workdir, tmp_path) as process:
        seen(tmp_path, workdir, lambda told: (told["live"] or {}).get("waiting"))
        assert said(tmp_path, "rollback", workdir, "--yes")["state"] == "rolled-back"
        assert process.wait(30) == 130
    assert not (tmp_path / "there").exists() and not list(tmp_path.glob("*.stateshift-lock"))
    finished(running, fed)


@contextmanager
def applying(path: Path, workdir: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "stateshift",
        "apply",
        str(path),
        "--yes",
        "--workdir",
        str(workdir),
    ]
    with (folder / "apply.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(), "DEMO_DIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def seen(folder: Path, workdir: Path, wanted: Callable[[Any], Any]) -> Any:
    """What `status` tells once it is so."""
    last = time.monotonic() + 60
    while True:
        if (workdir / "journal").exists():
            told = said(folder, "status", workdir)
            if wanted(told):
                return told
        assert time.monotonic() < last, (folder / "apply.log").read_text()
        time.sleep(0.2)
