"""Which events of a run are told, when, and how often; on a disk and a cluster in memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.errors import JOB_DOWN, ClusterError, Interrupted, StateshiftError
from stateshift.migration import notifications
from stateshift.specification import Spec, parse_spec, to_plain_spec
from tests.support.ground import Ground, running_spec, spec_of
from tests.support.living import LivingGround, warm_spec


def on(folder: Path, *events: str, then: str = "true", **more: Any) -> dict[str, Any]:
    """Receivers that append the document to a file named after the event."""
    return {
        event: {
            "command": ["sh", "-c", f"cat >> {folder}/{event}; {then}"],
            **more,
        }
        for event in events
    }


def told(folder: Path, event: str) -> list[dict[str, Any]]:
    path = folder / event
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


ALL = ("ready", "failed", "finished")


@pytest.mark.row("W-13")
def test_a_run_that_ends_well_tells_that_it_is_finished(ground: Ground, tmp_path: Path) -> None:
    ground.write()
    ground.apply(spec_of(spec_on=on(tmp_path, *ALL)))
    (event,) = told(tmp_path, "finished")
    assert event["run"] == "run-run"
    assert event["state"] == "finished"
    assert event["jobs"] == ["orders"]
    assert event["workdir"] == str(ground.workdir().path)
    assert event["error"] is None
    assert told(tmp_path, "ready") == told(tmp_path, "failed") == []
    assert ground.workdir().read(notifications.NOTED) == {"finished": ground.clock.now()}


def test_a_run_that_fails_tells_why(ground: Ground, tmp_path: Path) -> None:
    ground.write()
    ground.cluster.run("orders", "file:///here/orders")

    def refuse(_: object) -> None:
        raise ClusterError("the queue is full", hint="ask for a larger queue")

    ground.cluster._on_start = refuse
    with pytest.raises(StateshiftError) as caught:
        ground.apply(running_spec(spec_on=on(tmp_path, *ALL)))
    (event,) = told(tmp_path, "failed")
    assert event["error"] == type(caught.value).__name__
    assert event["message"] in caught.value.fact
    assert event["message"].startswith("down since")
    assert event["exit_code"] == caught.value.exit_code == JOB_DOWN
    assert event["state"] == "failed"
    assert f"exit code {JOB_DOWN}" in event["text"]
    assert told(tmp_path, "finished") == []


@pytest.mark.parametrize("then", ["exit 3", "sleep 60"])
def test_a_receiver_that_fails_or_hangs_changes_nothing_but_the_log(
    then: str, ground: Ground, tmp_path: Path
) -> None:
    ground.write()
    began = time.monotonic()
    report = ground.apply(spec_of(spec_on=on(tmp_path, "finished", then=then, seconds_max=0.5)))
    assert time.monotonic() - began < 30
    assert report.state == "finished"
    log = (ground.workdir().path / "log").read_text()
    assert "was not notified of finished" in log or "nobody was notified of finished" in log
    assert not (ground.workdir().path / notifications.NOTED).exists()


def test_an_end_that_nobody_got_is_kept_and_sent_once_by_a_resume(
    ground: Ground, tmp_path: Path
) -> None:
    ground.write()
    mended = tmp_path / "mended"
    then = f'[ -e "{mended}" ] || {{ rm {tmp_path}/finished; exit 3; }}'
    ground.apply(spec_of(spec_on=on(tmp_path, "finished", then=then, seconds_max=0.4)))
    assert (ground.workdir().path / "unsent").is_dir()
    mended.touch()
    for _ in range(2):
        assert ground.resume().state == "finished"
        assert len(told(tmp_path, "finished")) == 1
    assert (ground.workdir().path / notifications.NOTED).exists()


def test_an_end_that_was_not_sent_is_sent_by_a_resume_and_then_no_more(
    ground: Ground, tmp_path: Path
) -> None:
    ground.write()
    ground.apply(spec_of(spec_on=on(tmp_path, "finished")))
    (ground.workdir().path / notifications.NOTED).unlink()  # as if it had been killed before
    assert ground.resume().state == "finished"
    assert len(told(tmp_path, "finished")) == 2
    assert ground.resume().state == "finished"
    assert len(told(tmp_path, "finished")) == 2


def test_a_run_that_is_interrupted_tells_that_it_failed_and_its_resume_that_it_is_finished(
    ground: Ground, tmp_path: Path
) -> None:
    ground.write()
    spec = spec_of(spec_on=on(tmp_path, *ALL))
    adapters = ground.adapters
    proposal = migration.propose(spec, adapters, ground.workdir("planning"))
    adapters.stop.set()
    with pytest.raises(Interrupted):
        migration.apply(proposal, "run-1", ground.workdir(), adapters)
    (event,) = told(tmp_path, "failed")
    assert (event["state"], event["exit_code"]) == ("interrupted", 130)
    assert "stateshift resume" in event["hint"]
    assert ground.resume().state == "finished"
    assert len(told(tmp_path, "finished")) == 1


def test_a_rollback_that_succeeds_tells_nothing(ground: Ground, tmp_path: Path) -> None:
    ground.write()
    ground.apply(spec_of(spec_on=on(tmp_path, "failed")))
    assert ground.rollback().state == "rolled-back"
    assert ground.resume().state == "rolled-back"
    assert told(tmp_path, "failed") == []


def test_a_warm_move_that_waits_for_its_cutover_tells_once_that_it_is_ready(
    tmp_path: Path,
) -> None:
    ground = LivingGround(tmp_path)
    ground.job.moods = dict.fromkeys(ground.job.moods, 0.0)

    def look() -> None:
        if len(ground.clock.waits) == 60:
            ground.workdir().steering.ask_cutover(now=False)

    ground.clock.on_sleep = look
    report = ground.warm(cutover="manual", spec_on=on(tmp_path, *ALL))
    assert report.state == "finished"
    (event,) = told(tmp_path, "ready")
    assert event["state"] == "running"
    assert "it waits for `stateshift cutover`" in event["text"]
    assert len(told(tmp_path, "finished")) == 1


def test_a_warm_move_that_needs_nobody_does_not_tell_that_it_is_ready(tmp_path: Path) -> None:
    ground = LivingGround(tmp_path)
    ground.job.moods = dict.fromkeys(ground.job.moods, 0.0)
    assert ground.warm(spec_on=on(tmp_path, *ALL)).state == "finished"
    assert told(tmp_path, "ready") == []


def test_a_standby_tells_once_that_there_is_an_image_to_start_from(tmp_path: Path) -> None:
    ground = LivingGround(tmp_path)
    ground.job.moods = dict.fromkeys(ground.job.moods, 0.0)

    def look() -> None:
        looks = len(ground.clock.waits)
        if looks % 100 == 0:
            ground.job.batch()
        if looks == 500:
            ground.workdir().steering.ask_stop()

    ground.clock.on_sleep = look
    with pytest.raises(Interrupted):
        ground.warm(cutover="never", spec_on=on(tmp_path, *ALL))
    (event,) = told(tmp_path, "ready")
    assert event["jobs"] == ["orders"]
    assert "can be started from epoch" in event["text"]


def test_a_spec_with_receivers_is_kept_whole_in_the_workdir(ground: Ground, tmp_path: Path) -> None:
    ground.write()
    spec = spec_of(spec_on=on(tmp_path, "finished"))
    ground.apply(spec)
    kept: Spec = parse_spec(json.dumps(ground.workdir().read("spec.json")))
    assert kept.on == spec.on
    assert to_plain_spec(kept)["on"] == ground.workdir().read("proposal.json")["spec"]["on"]
    assert warm_spec().on is None
