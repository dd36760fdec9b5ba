"""A person at a terminal, and signals: real processes on a pseudo-terminal, with storages that
take their time.
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.checkpoints import Checkpoint

# The program with a local disk that is slow once the copying has begun: there is time to interrupt
# it.
SLOWLY = """
import glob, os, sys, time
from dataclasses import replace
from stateshift.cli import main
from stateshift.migration import real_adapters

class Slow:
    def __init__(self, inner):
        self.inner = inner
    def __getattr__(self, name):
        return getattr(self.inner, name)
    def chunks(self, path, offset=0, size=None):
        if any(b'"phase":"copy"' in open(journal, "rb").read() for journal in glob.glob(".stateshift/*/journal")):
            WAIT
        return self.inner.chunks(path, offset, size)

adapters = real_adapters()
sys.exit(main(None, replace(adapters, open_storage=lambda location: Slow(adapters.open_storage(location)))))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    from stateshift.storage.local.storage import LocalStorage

    Checkpoint(batches=4).write(LocalStorage(f"file://{tmp_path}/source"))
    job = {"job_name": "orders", "checkpoint_location": "source", "remote_location": "target/ck"}
    (tmp_path / "spec.json").write_text(
        json.dumps({"version": 1, "engine": "spark", "jobs": [job]})
    )
    return tmp_path


def program(wait: str = "pass") -> list[str]:
    return [sys.executable, "-c", SLOWLY.replace("WAIT", wait)]


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("CI", "NO_COLOR")}
    root = str(Path(__file__).resolve().parents[2])
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "100", "PYTHONPATH": root}


def at_terminal(
    argv: list[str], folder: Path, answer: bytes, at: bytes, env: dict[str, str]
) -> tuple[str, int]:
    """Run on a terminal, give `answer` when `at` is seen; everything that was seen, and the exit
    code.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    seen, answered, end = b"", False, time.monotonic() + 300
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                more = os.read(ours, 65536)
            except OSError:
                break
            if not more:
                break
            seen += more
        elif process.poll() is not None:
            break
        if not answered and at in seen:
            os.write(ours, answer)
            answered = True
    code = process.wait(60)
    os.close(ours)
    return seen.decode(), code


def state(folder: Path) -> str:
    run = next((folder / ".stateshift").iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "stateshift", "status", str(run), "--json"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    answer: str = json.loads(done.stdout)["state"]
    return answer


@pytest.mark.long
def test_a_person_is_shown_the_plan_and_asked(place: Path) -> None:
    seen, code = at_terminal(
        [*program(), "apply", "spec.json"], place, b"y\n", b"[y/N]", environment()
    )
    assert code == 0, seen
    assert (
        seen.index("orders: move its image")
        < seen.index("carry this out?")
        < seen.index("finished")
    )
    assert "\x1b[" in seen


def test_a_person_who_says_no_has_changed_nothing(place: Path) -> None:
    seen, code = at_terminal(
        [*program(), "apply", "spec.json"], place, b"n\n", b"[y/N]", environment()
    )
    assert code == 4 and "not confirmed; nothing was done" in seen
    assert not (place / ".stateshift").exists() and not (place / "target").exists()


@pytest.mark.long
def test_no_color_means_no_escape_is_written(place: Path) -> None:
    env = {**environment(), "NO_COLOR": "1"}
    seen, code = at_terminal([*program(), "apply", "spec.json", "--yes"], place, b"", b"never", env)
    assert code == 0 and "\x1b" not in seen


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_current_write_finish_and_names_the_resume_command(
    place: Path, number: int
) -> None:
    wait = "while not os.path.exists('go'): time.sleep(0.02)"
    process = subprocess.Popen(
        [*program(wait), "apply", "spec.json", "--yes"],
        cwd=place,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("orders: copy"):
            process.send_signal(number)
        if line.startswith("stopping after the current write"):
            break
    (place / "go").touch()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert f"hint: stateshift resume {place}/.stateshift/" in err
    assert "interrupted" in out and state(place) == "interrupted"


@pytest.mark.long
def test_a_second_signal_ends_the_process_where_it_is(place: Path) -> None:
    process = subprocess.Popen(
        [*program("time.sleep(300)"), "apply", "spec.json", "--yes"],
        cwd=place,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("orders: copy"):
            process.send_signal(signal.SIGINT)
        if line.startswith("stopping after"):
            process.send_signal(signal.SIGINT)
        if line.startswith("stopped at once"):
            assert f"stateshift resume {place}/.stateshift/" in line
            break
    assert process.wait(60) == 130
    assert state(place) == "interrupted"


def test_a_reader_who_leaves_early_is_no_error(place: Path) -> None:
    done = subprocess.run(
        f"'{sys.executable}' -m stateshift inspect source --files | head -1",
        shell=True,
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("Spark checkpoint") and done.stderr == ""


def test_whoever_writes_to_nobody_is_ended_as_by_sigpipe(place: Path) -> None:
    nobody, pipe = os.pipe()
    os.close(nobody)
    for flags in ([], ["--json"]):
        argv = [sys.executable, "-m", "stateshift", "inspect", "source", *flags]
        done = subprocess.run(
            argv, cwd=place, env=environment(), stdout=pipe, stderr=subprocess.PIPE, check=False
        )
        assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
    os.close(pipe)


@pytest.mark.parametrize("streams", ["2>/dev/full", ">&- 2>&-"])
def test_a_run_that_nobody_can_hear_is_carried_out(place: Path, streams: str) -> None:
    command = f"'{sys.executable}' -m stateshift apply spec.json --yes {streams}"
    done = subprocess.run(
        command, shell=True, cwd=place, env=environment(), stdout=subprocess.PIPE, check=False
    )
    assert done.returncode == 0
    assert state(place) == "finished"


@pytest.mark.parametrize("columns", [20, 40, 100])
def test_progress_stays_on_one_line_of_a_narrow_terminal(columns: int, tmp_path: Path) -> None:
    program = (
        "from stateshift.cli.shell.progress import Bar\n"
        "bar = Bar()\n"
        "bar.phase('a-rather-long-name-of-a-job', 'copy', 3000, 1 << 30)\n"
        "for _ in range(3): bar.done(300, 100 << 20); bar._progress.refresh()\n"
        "bar.phase('orders', 'submit', 0, 0)\n"
        "bar.step('start', 'wait until the job has committed its first batch' * 3)\n"
        "bar._progress.refresh()\n"
        "bar.close()\n"
    )
    at = {**environment(), "COLUMNS": str(columns)}
    seen, code = at_terminal([sys.executable, "-c", program], tmp_path, b"", b"never", at)
    assert code == 0
    drawn = re.split(r"\r\n?", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen))
    assert max(map(len, drawn)) <= columns
    assert seen.count("\n") <= 1  # the last one is left, and erased
    assert any("copy" in line for line in drawn)
