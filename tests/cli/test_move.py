"""`stateshift move`: the commonest move without a spec, on real files with real shell commands."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stateshift.storage.opening import open_storage
from tests.cli.support import Said, said
from tests.support.checkpoints import Checkpoint

# The job, as a command starts it: it commits the batch that comes next.
START = """#!/bin/sh
place="${STATESHIFT_CHECKPOINT#file://}"
printf 'v1\\n{"nextBatchWatermarkMs":0}' > "$place/commits/6"
echo started >> started
"""
STOP = """#!/bin/sh
echo "${STATESHIFT_CHECKPOINT#file://}" >> stopped
"""


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a checkpoint `orders` and two commands, in which the program runs."""
    Checkpoint(batches=6).write(open_storage(str(tmp_path / "orders")))
    for name, text in (("start", START), ("stop", STOP)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def move(*flags: str, yes: bool = True) -> Said:
    return said("move", "orders", "--to", "new", "--workdir", "run", *flags, *(["-y"] * yes))


def spec() -> Any:
    return json.loads(Path("run", "spec.json").read_text())


@pytest.mark.row("W-6")
def test_an_image_moves_and_nothing_is_started(ground: Path) -> None:
    ran = move("--json")
    assert ran.code == 0, ran.err
    assert ran.document["state"] == "finished"
    assert (ground / "new" / "metadata").exists()
    assert not (ground / "started").exists()
    (job,) = spec()["jobs"]
    assert "mode" not in job and "target_cluster" not in job


def test_the_command_starts_the_job_once_and_its_commit_ends_the_move(ground: Path) -> None:
    ran = move("--start", "./start", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["state"] == "finished"
    assert (ground / "started").read_text() == "started\n"
    assert (ground / "new" / "commits" / "6").exists()
    phases = [phase["name"] for phase in ran.document["report"]["jobs"][0]["phases"]]
    assert phases[-2:] == ["submit", "confirm"]


def test_a_rollback_and_a_resume_from_elsewhere_mean_the_same_commands(
    ground: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = (ground / "start").read_text()
    (ground / "start").write_text("#!/bin/sh\nexit 1\n")
    assert move("--start", "./start").code == 7
    (ground / "start").write_text(works)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    ran = said("resume", str(ground / "run"), "--json")
    assert ran.code == 0, ran.err
    assert (ground / "started").read_text() == "started\n"


def test_a_command_that_is_not_there_is_refused_before_anything_is_stopped(ground: Path) -> None:
    ran = move("--warm", "--stop", "./stop", "--start", "./strat")
    assert ran.code == 4, ran.err
    assert "there is no program ./strat" in ran.err and "--start" in ran.err
    assert not (ground / "stopped").exists()


AGAIN = """#!/bin/sh
echo "${STATESHIFT_CHECKPOINT#file://}" >> again.log
"""
STAYS_DOWN = "if the move fails or is rolled back, orders stays down"


def start_of(text: str, name: str = "start") -> None:
    Path(name).write_text(text)
    Path(name).chmod(0o755)


@pytest.mark.row("W-26")
def test_the_plan_says_that_a_job_stays_down_which_only_its_person_can_start(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 3\n")
    ran = move("--stop", "./stop", "--start", "./start")
    assert ran.code == 10, ran.err
    said_first, _, said_later = ran.err.partition("orders: halt")
    assert f"warn: {STAYS_DOWN}: a cluster of kind command does not tell" in said_first
    assert "--restart COMMAND" in said_first
    assert "orders is stopped: start it again" in said_later


@pytest.mark.row("W-26")
def test_a_move_that_fails_starts_the_job_again_by_the_command_for_it(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 3\n")
    start_of(AGAIN, "again")
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again")
    assert ran.code == 7, ran.err
    assert "was started again where it was" in ran.err and STAYS_DOWN not in ran.err
    assert (ground / "again.log").read_text() == f"{ground}/orders\n"


def test_a_rollback_that_leaves_the_job_down_says_so_by_its_exit_code(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 3\n")
    assert move("--stop", "./stop", "--start", "./start").code == 10
    back = said("rollback", "run", "--yes")
    assert back.code == 10, back.err
    assert "down since " in back.err and "hint: start it where it was" in back.err
    assert "rolled-back" in back.out and said("rollback", "run", "--yes", "--json").code == 10


def test_a_rollback_that_starts_the_job_again_is_done(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 3\n")
    start_of(AGAIN, "again")
    assert move("--stop", "./stop", "--start", "./start", "--restart", "./again").code == 7
    back = said("rollback", "run", "--yes")
    assert back.code == 0 and "down since" not in back.err, back.err


def test_a_wait_without_a_terminal_says_what_for_and_a_way_back_what_it_does(
    ground: Path,
) -> None:
    """In a log nobody sees a bar: a phase without an amount says what it is at."""
    start_of(AGAIN, "again")
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again")
    assert ran.code == 0, ran.err
    lines = ran.err.splitlines()
    assert lines[lines.index("orders: confirm") + 1].startswith("orders: wait until orders has ")
    back = said("rollback", "run", "--yes", "--discard-progress")
    assert "orders: stop orders on " in back.err
    assert "orders: start orders again where it was" in back.err
    assert "orders: lift the fence at " in back.err
    assert "undo: stop" not in back.err


def test_a_start_that_nothing_can_stop_is_in_the_plan(ground: Path) -> None:
    start_of(AGAIN, "again")
    has_none = "new-commands has no command to stop a job"
    warned = f"{has_none}: once orders runs there, a rollback needs you"
    assert f"warn: {warned}" in move("--start", "./start").err
    assert said("rollback", "run", "--yes", "--discard-progress").code in (0, 7)


def test_a_plan_says_what_becomes_of_the_job_if_its_start_fails(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 3\n")
    start_of(AGAIN, "again")
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again", "-v")
    assert (
        "note: if the move fails (its start, too) or is rolled back, orders is started" in ran.err
    )
    assert "has no command to stop" not in ran.err


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ((), "the image of orders is at file://{}/new: start the job from there"),
        (("--start", "./start"), "orders runs from file://{}/new"),
    ],
)
def test_whoever_has_moved_a_job_is_told_where_it_is_and_what_to_do_now(
    ground: Path, options: tuple[str, ...], fact: str
) -> None:
    ran = move(*options)
    assert ran.code == 0 and fact.format(ground) in ran.err.splitlines(), ran.err
    assert f"  keep file://{ground}/orders until orders has gone on there" in ran.err
    for verb in ("verify", "rollback"):
        assert f"stateshift {verb} {ground}/run" in ran.err


def test_nothing_of_a_run_that_was_taken_back_holds(ground: Path) -> None:
    assert move().code == 0 and said("verify", "run").code == 0
    assert said("rollback", "run", "--yes").code == 0
    judged = said("verify", "run")
    assert judged.code == 5 and "was rolled back: what it did was taken back" in judged.out
    assert said("verify", "run", "--json").document["holds"] is False


def test_a_command_for_the_way_back_that_is_not_there_is_refused_before_the_stop(
    ground: Path,
) -> None:
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./agaain")
    assert ran.code == 4, ran.err
    assert "there is no program ./agaain" in ran.err and "--restart" in ran.err
    assert not (ground / "stopped").exists()


def test_a_stop_that_fails_is_not_told_as_a_job_that_runs_again(ground: Path) -> None:
    """Nobody knows whether it has stopped: the report says so, and the hint claims nothing else."""
    start_of("#!/bin/sh\nexit 1\n", "stop")
    ran = move("--stop", "./stop", "--start", "./start")
    assert ran.code == 7, ran.err
    assert "started again where it was" not in ran.err
    assert "was taken back" in ran.err


STOPS_AND_FAILS = """#!/bin/sh
echo stopped >> stop.log
[ "$(wc -l < stop.log)" -ge 2 ]
"""


def test_a_stop_that_was_cut_short_is_completed_before_the_job_is_started_again(
    ground: Path,
) -> None:
    """It had its effect, and nobody heard of it: the job would run nowhere."""
    start_of(STOPS_AND_FAILS, "stop")
    start_of(AGAIN, "again")
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again")
    assert ran.code == 7, ran.err
    assert len((ground / "stop.log").read_text().splitlines()) == 2
    assert (ground / "again.log").read_text() == f"{ground}/orders\n"
    assert "was started again where it was" in ran.err


def test_of_a_stop_that_fails_again_the_last_line_says_what_nobody_knows(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 1\n", "stop")
    start_of(AGAIN, "again")
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again")
    assert ran.code == 7 and not (ground / "again.log").exists(), ran.err
    (hint,) = [line for line in ran.err.splitlines() if line.startswith("hint: orders was taken")]
    assert "and orders may have been stopped or not: start it again from " in hint


def test_a_run_whose_job_is_down_says_so_in_the_list(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 3\n")
    assert move("--stop", "./stop", "--start", "./start").code == 10
    (row,) = [line for line in said("runs", ".").out.splitlines() if "orders" in line]
    assert "is down" in row


def test_a_job_that_is_not_stopped_has_no_way_back(ground: Path) -> None:
    ran = move("--start", "./start", "--restart", "./start")
    assert ran.code == 2
    assert "--restart needs --stop" in ran.err
    assert not (ground / "run").exists()


@pytest.mark.row("W-6")
def test_a_warm_move_stops_the_job_by_its_command_at_the_end(ground: Path) -> None:
    ran = move("--warm", "--stop", "./stop", "--start", "./start", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["state"] == "finished"
    assert (ground / "stopped").read_text() == f"{ground}/orders\n"
    assert (ground / "started").read_text() == "started\n"
    (job,) = spec()["jobs"]
    assert job["mode"] == "warm"


def test_where_nobody_can_be_asked_nothing_moves_without_yes(ground: Path) -> None:
    ran = move("--warm", yes=False)
    assert ran.code == 2
    assert "--yes" in ran.err
    assert not (ground / "new").exists()


def answer_as_a_person(until: float) -> None:
    """Stop the job as soon as a marker asks for it."""
    while time.monotonic() < until:
        for asked in Path("run").rglob("*.stop"):
            asked.with_suffix(".stopped").touch()
            return
        time.sleep(0.05)


def test_a_person_stops_the_job_of_a_warm_move_that_has_no_command_for_it(ground: Path) -> None:
    """Without a terminal they are asked by a marker file, and answer by another."""
    person = threading.Thread(target=answer_as_a_person, args=(time.monotonic() + 60,))
    person.start()
    ran = move("--warm", "--json")
    person.join()
    assert ran.code == 0, ran.err
    assert ran.document["state"] == "finished"
    assert spec()["clusters"] == [{"name": "person", "kind": "manual"}]
    assert (ground / "new" / "metadata").exists()


def test_a_job_is_not_stopped_that_nobody_starts(ground: Path) -> None:
    ran = move("--stop", "./stop")
    assert ran.code == 2
    assert "--stop needs --start" in ran.err
    assert not (ground / "stopped").exists() and not (ground / "run").exists()


def test_what_is_typed_is_meant_as_it_is(ground: Path) -> None:
    """A `$` in a command is the shell's, and not a placeholder of the spec."""
    ran = move("--start", './start && echo "${STATESHIFT_JOB}" > called')
    assert ran.code == 0, ran.err
    assert (ground / "called").read_text() == "orders\n", "the job is named after its source"


def test_a_start_that_fails_is_told_with_the_way_back(ground: Path) -> None:
    ran = move("--start", "echo no such cluster >&2; exit 3", "--json")
    assert ran.code == 7
    assert "no such cluster" in ran.document["message"]
    assert "the command `--start` ended with exit code 3" in ran.document["message"]
    assert "mend what the command --start calls" in ran.document["hint"]
    assert "submit" not in ran.document["hint"] + ran.document["message"]
    assert said("rollback", "run", "--yes").code == 0
    assert not (ground / "new" / "metadata").exists()


@pytest.mark.parametrize("workdir", [[], ["--workdir", "../new/run"]])
def test_no_workdir_is_made_inside_a_checkpoint(
    ground: Path, monkeypatch: pytest.MonkeyPatch, workdir: list[str]
) -> None:
    monkeypatch.chdir(ground / "orders")
    before = sorted(Path().iterdir())
    refused = said("move", ".", "--to", "../new", *workdir, "--yes")
    assert refused.code == 2 and "which is moved" in refused.err
    assert sorted(Path().iterdir()) == before and not (ground / "new").exists()
