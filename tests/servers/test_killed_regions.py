"""A region is killed at random moments, and so are the commands that bring its job back: a real Spark
reads a real Kafka, with its checkpoint on a real S3.

Four moments, ten with --full, or as many as STATESHIFT_FAILOVER_MOMENTS says, from the
STATESHIFT_FAILOVER_FIRST-th on.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.storage.opening import open_patiently
from tests.servers.regions import (
    RECORDS,
    Primary,
    Regions,
    commits,
    ends_of,
    regions,
    until,
    wrong_outputs,
)
from tests.support.servers import Unavailable

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.timeout(4 * 3600),
]
MOMENTS = os.environ.get("STATESHIFT_FAILOVER_MOMENTS")
FIRST = int(os.environ.get("STATESHIFT_FAILOVER_FIRST", "0"))
AFTER_SECONDS_MAX = 6.0  # after the first image
MTIME_SECONDS = 1.1  # a modification time of S3 has whole seconds
BATCHES_MORE = 2


@pytest.mark.row("W-21", on="Spark, S3")
@pytest.mark.row("W-22", on="Spark, S3, Kafka")
@pytest.mark.row("W-23", on="Spark")
def test_whenever_a_region_is_killed_its_job_goes_on_exactly(
    request: pytest.FixtureRequest, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    moments = int(MOMENTS or (10 if request.config.getoption("--full") else 4))
    try:
        with regions(tmp_path, dice) as both:
            for number in range(FIRST, FIRST + moments):
                both.dice = random.Random(f"{seed} {number}")
                began = time.monotonic()
                told = lives_through_it(both)
                took = time.monotonic() - began
                print(f"moment {number} (seed {seed}): {told}; {took:.0f} s", flush=True)
    except Unavailable as reason:
        pytest.skip(f"what a region needs cannot be had: {reason}")


def lives_through_it(both: Regions) -> str:
    """Kill the region of one job, and follow the job. Return what happened, in words."""
    dice = both.dice
    with both.primary() as primary:
        time.sleep(dice.uniform(0.0, AFTER_SECONDS_MAX))
        acts = []
        if dice.random() < 0.25:
            rehearsed(both, primary)
            acts.append("drill")
        killed = both.kill(primary)
        acts.append(f"killed {' '.join(killed)}")
        is_silent = "storage" in killed or dice.random() < 0.3
        words = ("--primary-is-down",) if is_silent else ()
        done = both.finished("failover", primary.target, primary.folder / "failover", *words)
        told = done["report"]["jobs"][0]["failover"]
        assert primary.fed.process.wait(120) == 4, primary.fed.told.read_text()
        both.bring_back()
        is_told_right(primary, told)
        woken(both, primary, told)
        goes_on(primary)
        lost = told["rpo"]["batches"]
        acts.append(f"lost {lost}, {told['rpo']['seconds']:.1f} s, from {told['epoch']}")
        if dice.random() < 0.25:
            comes_home(both, primary)
            acts.append("failback")
        return ", ".join(acts)


def rehearsed(both: Regions, primary: Primary) -> None:
    """A drill beside who feeds the standby changes nothing, wherever it is killed."""
    both.finished("drill", primary.target, primary.folder / "drill")
    assert list(open_patiently(f"{primary.target}-drill").list()) == []
    assert primary.fed.process.poll() is None, primary.fed.told.read_text()
    verdict = look.restartable(primary.target, open_patiently, thorough=True)
    assert verdict.restartable, verdict.findings


def is_told_right(primary: Primary, told: Any) -> None:
    """What was lost is what the primary has committed after the epoch that the job went on from."""
    committed, epoch = commits(primary.storage), told["epoch"]
    real_seconds = told["claimed_at"] - committed[epoch]
    assert told["rpo"]["seconds"] == pytest.approx(real_seconds, abs=MTIME_SECONDS)
    if told["rpo"]["batches"] is not None:
        assert told["rpo"]["batches"] == max(committed) - epoch
    assert told["rpo"]["records"] == RECORDS - sum(ends_of(primary.standby, epoch).values())


def woken(both: Regions, primary: Primary, told: Any) -> None:
    """The old primary is fenced; woken up, it commits nothing, and who fed the standby neither."""
    fenced = both.asked("failover", primary.target, "--json")
    assert fenced.returncode == 0, fenced.stderr
    answer = json.loads(fenced.stdout)
    committed = commits(primary.storage)
    assert answer["fenced"]
    assert answer["batches_ahead"] == max(committed) - told["epoch"]
    has_died = primary.driver.process.poll() is not None
    tag, driver = f"woken-{primary.number}", both.spare[-1] if has_died else primary.driver
    driver.wait()
    both.ask(driver, primary.source, primary.folder / "woken", tag)
    until(lambda: both.state_of(tag) == "failed", "the old job goes on")
    assert commits(primary.storage) == committed
    if both.dice.random() < 0.2:
        assert both.asked("resume", str(primary.fed.workdir)).returncode == 4
        assert both.asked("verify", primary.source).returncode == 5


def goes_on(primary: Primary) -> None:
    """All that has come out is what an undisturbed job would have put out."""
    newest = max(commits(primary.standby))
    until(lambda: max(commits(primary.standby)) >= newest + BATCHES_MORE, "it does not go on")
    assert wrong_outputs(primary.standby, primary.output) == []


def comes_home(both: Regions, primary: Primary) -> None:
    """The job runs at home again, and no longer at its standby."""
    both.finished("failback", primary.target, primary.folder / "failback")
    there, newest = commits(primary.standby), max(commits(primary.storage))
    until(lambda: max(commits(primary.storage)) >= newest + BATCHES_MORE, "it does not go on")
    assert commits(primary.standby) == there
    assert wrong_outputs(primary.storage, primary.output) == []
