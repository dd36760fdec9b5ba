"""Jobs of Flink that keep incremental checkpoints are brought over while they run, from one real
Flink to another. What a job does after its last checkpoint is done again, in the same way: each
number has its line, once or twice.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.support import ROOT, environment
from tests.servers.flink_ground import Ground, incremental
from tests.servers.standby import LOST, Following, following
from tests.support.flink import until
from tests.support.moving import has_begun, killed_at

pytestmark = pytest.mark.servers


def words(ground: Ground, **other: str) -> list[str]:
    return ["--checkpoint-ms", "1500", *incremental(ground.folder, **other)]


def job_of(ground: Ground, id: str, **more: object) -> dict[str, object]:
    submit = ground.submit("orders", *words(ground))
    return ground.job("orders", id, mode="warm", submit=submit, source_submit=submit, **more)


def goes_on(ground: Ground) -> None:
    ground.goes_on("orders", twice=True)


@pytest.mark.row("T-1", "T-5", "IF-2", "IF-12", "IF-17")
def test_a_job_is_brought_over_while_it_runs_and_ends_with_its_last_checkpoint(
    ground: Ground,
) -> None:
    id = ground.started("orders", *words(ground))
    spec = ground.spec(job_of(ground, id, rounds=3))
    plan = ground.said("plan", spec)
    assert [one["purpose"] for one in plan["plans"]] == ["warm", "halt", "move"]
    assert any(
        "does since its last checkpoint is done again" in found["message"]
        for found in plan["findings"]
    )
    report = ground.applied(spec)
    assert report["state"] == "finished"
    (job,) = report["report"]["jobs"]
    assert len(job["rounds"]) >= 3 and all(one["files"] for one in job["rounds"])
    assert not (ground.folder / "taken").exists(), "no savepoint was taken"
    ground.said("verify", ground.workdir)
    (ground.folder / "checkpoints" / id).rename(ground.folder / "gone")
    assert ground.said("verify", ground.folder / "new-orders", "--deep")["restartable"]
    goes_on(ground)


@pytest.mark.slow
def test_the_example_waits_for_the_night_and_may_be_told_not_to(ground: Ground) -> None:
    """configs/examples/flink-warm.json, with a window that is never open while this runs."""
    (job,) = json.loads((ROOT / "configs" / "examples" / "flink-warm.json").read_text("utf-8"))[
        "jobs"
    ]
    own = job_of(ground, ground.started("orders", *words(ground)))
    places = (
        "job_ids",
        "target_directory",
        "new_savepoint_path",
        "source_cluster",
        "target_cluster",
    )
    hour = (time.gmtime().tm_hour + 12) % 24
    job |= {key: own[key] for key in (*places, "submit", "source_submit")}
    spec = ground.spec({**job, "cutover": f"{hour:02}:00-{hour:02}:30 UTC"})
    run = begun(ground, spec)
    until(lambda: any((ground.folder / "new-orders").glob("*")))
    time.sleep(3)
    assert ground.here.ask(f"/jobs/{own['job_ids'][0]}")["state"] == "RUNNING"  # type: ignore[index]
    ground.said("cutover", ground.workdir)
    assert run.wait(120) == 0
    goes_on(ground)


def begun(ground: Ground, spec: Path) -> subprocess.Popen[bytes]:
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "stateshift",
            "apply",
            str(spec),
            "--yes",
            "--workdir",
            str(ground.workdir),
        ],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: has_begun(ground.workdir, "copy/"))
    return run


@pytest.mark.slow
def test_killed_in_its_rounds_and_at_every_phase_and_resumed_one_job_goes_on(
    ground: Ground,
) -> None:
    id = ground.started("orders", *words(ground))
    spec = ground.spec(job_of(ground, id, rounds=2))
    killed_at(
        "copy/", ("apply", str(spec), "--yes", "--workdir", str(ground.workdir)), ground.workdir, {}
    )
    for step in ("halt/", "transform/", "publish/", "submit/", "confirm/"):
        killed_at(step, ("resume", str(ground.workdir)), ground.workdir, {})
    assert ground.said("resume", ground.workdir)["state"] == "finished"
    assert len(ground.there.running()) == 1
    goes_on(ground)


@pytest.mark.slow
def test_taken_back_the_old_job_goes_on_from_its_last_checkpoint(ground: Ground) -> None:
    id = ground.started("orders", *words(ground))
    spec = ground.spec(job_of(ground, id))
    killed_at(
        "submit/",
        ("apply", str(spec), "--yes", "--workdir", str(ground.workdir)),
        ground.workdir,
        {},
    )
    assert ground.said("rollback", ground.workdir, "--yes")["state"] == "rolled-back"
    assert not list((ground.folder / "new-orders").rglob("*"))
    assert [job["name"] for job in ground.here.running()] == ["orders"]
    goes_on(ground)


@pytest.mark.slow
def test_given_up_in_its_rounds_nothing_is_left_and_the_job_has_not_been_touched(
    ground: Ground,
) -> None:
    id = ground.started("orders", *words(ground))
    spec = ground.spec(job_of(ground, id, cutover="manual"))
    run = begun(ground, spec)
    until(lambda: any((ground.folder / "new-orders").glob("*")))
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    assert ground.said("rollback", ground.workdir, "--yes")["state"] == "rolled-back"
    assert not list((ground.folder / "new-orders").rglob("*"))
    assert ground.here.ask(f"/jobs/{id}")["state"] == "RUNNING"
    goes_on(ground)


@pytest.mark.parametrize(
    ("setting", "words_of_it"),
    [
        (
            {"execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION"},
            "deleted when it is",
        ),
        ({"execution.checkpointing.incremental": "false"}, "written again each time"),
    ],
)
@pytest.mark.slow
def test_a_job_that_cannot_be_followed_is_refused_before_anything_is_done(
    ground: Ground, setting: dict[str, str], words_of_it: str
) -> None:
    id = ground.started("orders", *words(ground, **setting))
    until(lambda: ground.here.checkpointed(id))
    told = ground.applied(ground.spec(job_of(ground, id)), code=4)
    assert words_of_it in json.dumps(told)
    assert ground.here.ask(f"/jobs/{id}")["state"] == "RUNNING"
    assert not (ground.folder / "new-orders").exists()


@pytest.mark.slow
@pytest.mark.row("W-21", on="Flink")
def test_a_standby_whose_job_and_checkpoints_are_gone_stays_and_a_job_starts_from_it(
    ground: Ground,
) -> None:
    id = ground.started("orders", *words(ground))
    with lost_standby(ground, id) as standby:
        kept = standby.image()
        standby.end()
        assert standby.image() == kept
        job = ground.there.run(
            "jobs.Count",
            *ground.arguments("orders"),
            *words(ground),
            parallelism=2,
            savepoint=standby.target,
        )
        assert ground.there.state(job) == "RUNNING"
        goes_on(ground)


@pytest.mark.slow
@pytest.mark.row("W-21", on="Flink")
def test_a_standby_whose_checkpoints_are_there_again_can_be_taken_back(ground: Ground) -> None:
    id = ground.started("orders", *words(ground))
    with lost_standby(ground, id) as standby:
        (ground.folder / "gone").rename(ground.folder / "checkpoints" / id)
        until(lambda: standby.lost() is None)
        standby.end()
        back = standby.asked("rollback", str(standby.workdir), "--yes")
        assert back.returncode == 0, back.stderr
        assert standby.image() == {}
    last = ground.here.retained(id)
    ground.here.run(
        "jobs.Count", *ground.arguments("orders"), *words(ground), parallelism=2, savepoint=last
    )
    goes_on(ground)


@pytest.mark.row("W-22")
def test_a_job_whose_region_is_gone_goes_on_from_its_standby(ground: Ground) -> None:
    """From the standby's place alone; the process that feeds it ends by itself."""
    id = ground.started("orders", *words(ground))
    target = ground.folder / "new-orders"
    with following(ground.folder, ground.spec(job_of(ground, id, cutover="never")), target) as fed:
        fed.says("can be started from")
        ground.here.cancelled(id)
        (ground.folder / "checkpoints" / id).rename(ground.folder / "gone")
        fed.says(LOST)
        standby = ground.said("status", target)
        assert standby["role"] == "standby" and standby["rpo_seconds"] > 0
        report = ground.said("failover", target, "--yes")["report"]
        assert fed.process.wait(60) == 4, fed.told.read_text()
    (job,) = report["jobs"]
    assert job["failover"]["epoch"] == standby["epoch"] and job["failover"]["rto_seconds"] > 0
    assert job["failover"]["fenced"], "its cluster says that it does not run"
    assert ground.said("failover", target)["fenced"]
    goes_on(ground)


@pytest.mark.row("W-23")
def test_a_standby_is_rehearsed_while_it_is_fed(ground: Ground) -> None:
    """The job of the drill writes elsewhere; it and the copy are gone afterwards."""
    id = ground.started("orders", *words(ground))
    target, drilled = ground.folder / "new-orders", ground.folder / "drilled"
    own = job_of(ground, id, cutover="never")
    arguments = ["--counters", "orders", "--keys", "7", "--name", "drill", "--output", str(drilled)]
    arguments += ["--checkpoint-ms", "1500", *incremental(drilled)]
    start = {**ground.submit("orders"), "arguments": arguments}
    spec = ground.spec({**own, "drill": {"submit": start}})
    with following(ground.folder, spec, target) as fed:
        fed.says("can be started from")
        done = ground.said("drill", target, "--yes", "--workdir", ground.folder / "runs" / "drill")
        (job,) = done["report"]["jobs"]
        assert done["state"] == "rolled-back" and not done["report"]["left"]
        assert job["drill"]["good"] and job["drill"]["epoch"] is not None
        assert not list(ground.folder.glob("new-orders-drill*"))
        assert not ground.there.running() and [one["jid"] for one in ground.here.running()] == [id]
        assert (drilled / "orders").exists(), "it ran, and wrote where it was told to"
        told = ground.said("status", target)
        assert told["role"] == "standby" and told["last_good_drill"] == told["last_drill"]
        assert fed.process.poll() is None
    goes_on(ground)


@pytest.mark.slow
@pytest.mark.row("W-22")
def test_a_job_that_runs_on_is_cancelled_before_its_standby_is_started(ground: Ground) -> None:
    id = ground.started("orders", *words(ground))
    target = ground.folder / "new-orders"
    with following(ground.folder, ground.spec(job_of(ground, id, cutover="never")), target) as fed:
        fed.says("can be started from")
        report = ground.said("failover", target, "--yes")["report"]
        assert fed.process.wait(60) == 4, fed.told.read_text()
    assert report["jobs"][0]["failover"]["fenced"]
    assert not ground.here.running() and len(ground.there.running()) == 1
    goes_on(ground)


@pytest.mark.row("W-23", on="Flink")
def test_a_job_goes_home_from_its_standby(ground: Ground) -> None:
    """To a new folder below the old one; and a standby of it can be kept again."""
    id = ground.started("orders", *words(ground))
    target, runs = ground.folder / "new-orders", ground.folder / "runs"
    with following(ground.folder, ground.spec(job_of(ground, id, cutover="never")), target) as fed:
        fed.says("can be started from")
        ground.here.cancelled(id)
        ground.said("failover", target, "--yes", "--workdir", runs / "failover")
        assert fed.process.wait(60) == 4, fed.told.read_text()
    (away,) = ground.there.running()
    until(lambda: ground.there.checkpointed(away["jid"]))
    report = ground.said("failback", target, "--yes", "--workdir", runs / "back")
    (job,) = report["report"]["jobs"]
    assert report["state"] == "finished" and job["downtime_seconds"] is not None
    assert not ground.there.running() and len(ground.here.running()) == 1
    assert ground.said("status", target)["role"] == "went-home"
    (home,) = ground.here.running()
    until(lambda: ground.here.checkpointed(home["jid"]))
    again = runs / "back" / "standby.json"
    (kept,) = json.loads(again.read_text())["jobs"]
    with following(runs, again, Path(kept["remote_location"].removeprefix("file://"))) as fed:
        fed.says("can be started from")
    goes_on(ground)


@contextmanager
def lost_standby(ground: Ground, id: str) -> Iterator[Following]:
    """A standby at work whose job has ended, and whose checkpoints have gone: what an engineer asks
    for first has been refused.
    """
    spec = ground.spec(job_of(ground, id, cutover="never"))
    with following(ground.folder, spec, ground.folder / "new-orders") as standby:
        standby.says("can be started from")
        ground.here.cancelled(id)
        (ground.folder / "checkpoints" / id).rename(ground.folder / "gone")
        assert "stays, and can be started from" in standby.says(LOST)
        kept = standby.image()
        lost = standby.lost()
        assert lost is not None and lost["since"]
        for refused in (("rollback", "--yes"), ("cutover", "--now")):
            told = standby.asked(refused[0], str(standby.workdir), *refused[1:])
            assert told.returncode == 4, told.stderr
            assert "--discard" not in told.stderr
        assert standby.image() == kept and standby.process.poll() is None
        assert standby.asked("verify", str(standby.target), "--deep").returncode == 0
        yield standby
