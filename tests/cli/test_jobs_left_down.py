"""A job that a run has left down, or may have: everybody is told, until somebody has started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.support import said
from tests.cli.test_move import AGAIN, START, move, start_of
from tests.cli.test_move import ground as ground

NEVER_ENDS = "#!/bin/sh\ntouch stopping\nsleep 600\n"


def row_of(folder: str = ".") -> str:
    (row,) = [line for line in said("runs", folder).out.splitlines() if "orders" in line]
    return row


def metric(name: str) -> str:
    lines = said("metrics", ".").out.splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"stateshift_job_{name}{{")]
    return value


def killed_while_it_stops(ground: Path, *flags: str, how: int = signal.SIGKILL) -> None:
    start_of(NEVER_ENDS, "stop")
    words = ("move", "orders", "--to", "new", "--workdir", "run", "--stop", "./stop")
    command = [sys.executable, "-m", "stateshift", *words, "--start", "./start", *flags, "-y"]
    process = subprocess.Popen(command, cwd=ground, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (ground / "stopping").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (ground / "stopping").exists()
    os.kill(process.pid, how)
    process.wait()


def test_a_stop_that_was_killed_is_told_as_one_that_nobody_knows_of(ground: Path) -> None:
    killed_while_it_stops(ground)
    first = said("status", "run").out.splitlines()[0]
    assert first.startswith("may have been stopped or not, at ") and first.endswith(": orders")
    assert "may be down" in row_of()
    (job,) = said("status", "run", "--json").document["report"]["jobs"]
    assert job["down"] is None
    assert (metric("down"), metric("may_be_down")) == ("0", "1")
    back = said("rollback", "run", "--yes")
    assert back.code == 10, "nobody knows whether it runs"
    assert "may have been stopped or not" in back.err
    again = said("rollback", "run", "--yes", "--runs-again")
    assert again.code == 0, again.err
    assert "may be" not in row_of() and metric("may_be_down") == "0"
    assert "rollback by " in said("status", "run").out.rpartition("--runs-again")[0]


def test_a_job_that_somebody_has_started_is_said_to_run_by_whoever_knows_it(ground: Path) -> None:
    start_of("#!/bin/sh\nexit 3\n")
    assert move("--stop", "./stop", "--start", "./start").code == 10
    back = said("rollback", "run", "--yes")
    assert back.code == 10 and f"stateshift rollback {ground}/run --runs-again" in back.err
    assert "is down" in row_of() and metric("down") == "1"
    assert said("rollback", "run", "--yes").code == 10, "nobody has said anything"
    assert "--runs-again" in said("status", "run").out
    assert said("rollback", "run", "--yes", "--runs-again").code == 0
    assert "is down" not in row_of() and metric("down") == "0"
    (job,) = said("status", "run", "--json").document["report"]["jobs"]
    assert job["down"] is False and job["left"] == []


def test_a_run_that_failed_is_taken_back_beside_a_job_that_was_started_by_hand(
    ground: Path,
) -> None:
    """It is started once: by hand."""
    start_of("#!/bin/sh\nexit 0\n")
    start_of(AGAIN, "again")
    killed_while_it_stops(ground, "--restart", "./again")
    back = said("rollback", "run", "--yes", "--runs-again")
    assert back.code == 0, back.err
    assert not (ground / "again.log").exists()
    assert not list((ground / "orders").rglob("_stateshift/*"))


def test_an_interrupted_wait_names_both_ways_out_and_where_the_job_is(ground: Path) -> None:
    words = ("move", "orders", "--to", "new", "--workdir", "run", "--stop", "./stop")
    command = [sys.executable, "-m", "stateshift", *words, "--start", "./start", "-y"]
    start_of("#!/bin/sh\nexit 0\n")
    start_of("#!/bin/sh\nexit 0\n", "stop")
    process = subprocess.Popen(command, cwd=ground, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "it is waited for" in line:
            process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    text = "".join(lines)
    assert f"orders was started at file://{ground}/new, and has " in text
    assert " s of at most 300 s" in text, "how long it is waited for"
    hint = lines[-1]
    assert hint.startswith(f"hint: stateshift resume {ground}/run; ")
    assert f"stateshift rollback {ground}/run" in hint
    assert "orders was started on the target, and may run there" in hint


def test_where_start_and_restart_fail_both_ways_out_are_said(ground: Path) -> None:
    start_of("#!/bin/sh\necho no such cluster >&2\nexit 3\n")
    start_of("#!/bin/sh\necho no such queue >&2\nexit 4\n", "again")
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again")
    assert ran.code == 10, ran.err
    (hint,) = [line for line in ran.err.splitlines() if line.startswith("hint: ")]
    assert f"stateshift resume {ground}/run" in hint
    assert f"stateshift rollback {ground}/run" in hint
    assert "(" not in hint, hint
    assert "no such queue" in ran.err


def test_a_rollback_says_what_it_discards_and_where_the_job_goes_on(ground: Path) -> None:
    start_of(START)
    start_of(AGAIN, "again")
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again")
    assert ran.code == 0, ran.err
    back = said("rollback", "run", "--yes", "--discard-progress")
    assert back.code == 0, back.err
    assert f"orders: batch 6 at file://{ground}/new is discarded" in back.err
    assert f"orders was started again from file://{ground}/orders" in back.err
    assert not (ground / "new").exists()


@pytest.mark.parametrize("verb", ["verify", "status", "rollback", "resume"])
def test_a_run_that_is_misspelt_is_told_as_one(ground: Path, verb: str) -> None:
    assert said("move", "orders", "--to", "new", "-y").code == 0
    (name,) = os.listdir(".stateshift")
    told = said(verb, f"{name[:-1]}~")
    assert told.code == 4 and f"did you mean '{name}'?" in told.err
    assert said("verify", f"nowhere/{name[:-1]}~").code == 5, "a path is a location"
    assert said("verify", "nowhere").code == 5


def test_resume_takes_yes_as_the_others_do(ground: Path) -> None:
    assert move().code == 0
    assert said("resume", "run", "--yes").code == 0


@pytest.mark.parametrize(
    ("failing", "named"), [("stop", "--stop"), ("start", "--start"), ("again", "--restart")]
)
def test_what_was_typed_is_what_a_message_names(ground: Path, failing: str, named: str) -> None:
    """Nobody who typed `move` has seen the keys of the spec that it writes."""
    start_of("#!/bin/sh\nexit 0\n")
    start_of(AGAIN, "again")
    if failing == "again":
        start_of("#!/bin/sh\nexit 3\n")
    start_of("#!/bin/sh\nexit 4\n", failing)
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./again")
    assert f"the command `{named}` ended with exit code 4" in ran.err, ran.err
    for key in ("source_submit", "`submit`", "old-commands", "new-commands", "option submit"):
        said_later = ran.err.partition("if this is interrupted")[2]
        told = [line for line in said_later.splitlines() if line.startswith(("error", "hint"))]
        assert key not in "\n".join(told)


def test_a_program_that_is_not_there_is_told_by_the_option(ground: Path) -> None:
    ran = move("--stop", "./stop", "--start", "./start", "--restart", "./agaain")
    assert ran.code == 4, ran.err
    assert "no program ./agaain for its command `--restart`" in ran.err
    assert "correct the option --restart" in ran.err and "of the cluster" not in ran.err


def test_a_job_whose_files_are_new_is_stopped_by_an_option(ground: Path) -> None:
    ran = move(yes=True)
    assert "is the job stopped?" in ran.err
    assert "stateshift move --stop" in ran.err
