"""A fleet of real Spark executors leaves the same plan, journal, evidence and bytes as no fleet,
whoever is killed.

One checkpoint of some sixteen hundred files, and one reference run without a fleet. Every scenario
carries out the same spec to the same target (put away by the one before), slowed down so far that
there is a middle to kill somebody in.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.storage.local.storage import LocalStorage
from tests.acceptance.standalone import Standalone, standalone
from tests.acceptance.support import Ran, environment, stateshift
from tests.support.checkpoints import Checkpoint

pytestmark = pytest.mark.spark

SHARDS, BATCHES = 8, 200
OPERATIONS_PER_SECOND = 1000
EXECUTORS = {
    "PYSPARK_SUBMIT_ARGS": "--conf spark.executor.memory=512m --conf spark.ui.enabled=false pyspark-shell",
}


@dataclass(frozen=True)
class Ground:
    """A checkpoint, a spec, and what a run without a fleet made of them."""

    folder: Path
    bytes: dict[str, bytes]
    journal: list[dict[str, Any]]

    def apply(self, name: str, *flags: str, code: int | None = 0, **environment: str) -> Ran:
        return stateshift(
            *self.words(name, *flags), cwd=self.folder, code=code, env={**EXECUTORS, **environment}
        )

    def resume(self, name: str, *flags: str, code: int | None = 0) -> Ran:
        return stateshift(
            "resume", f"runs/{name}", "--json", *flags, cwd=self.folder, code=code, env=EXECUTORS
        )

    @contextmanager
    def started(self, name: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
        """A run at work; whatever the scenario finds, nobody writes to the target after it."""
        process = subprocess.Popen(
            [sys.executable, "-m", "stateshift", *self.words(name, *flags)],
            cwd=self.folder,
            text=True,
            env={**environment(), **EXECUTORS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def words(self, name: str, *flags: str) -> list[str]:
        return ["apply", "spec.json", "--yes", "--json", "--workdir", f"runs/{name}", *flags]

    def records(self, name: str) -> list[dict[str, Any]]:
        return records_of(self.folder / "runs" / name / "journal")

    def finished(self, name: str) -> int:
        return sum(record["kind"] == "step-finished" for record in self.records(name))

    def begun(self, name: str) -> int:
        return sum(record["kind"] == "step-started" for record in self.records(name))

    def expect_the_same(self, name: str, *, undisturbed: bool = False) -> None:
        """The same bytes and evidence; where nothing happened on the way, the same journal."""
        assert bytes_of(self.folder / "target") == self.bytes
        assert evidence_of(self.records(name)) == evidence_of(self.journal)
        if undisturbed:
            assert Counter(map(timeless, self.records(name))) == Counter(
                map(timeless, self.journal)
            )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("fleet")
    Checkpoint(shards=SHARDS, batches=BATCHES).write(LocalStorage(str(folder / "orders")))
    for path in (folder / "orders").rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    job = {
        "name": "orders",
        "checkpoint_location": "orders",
        "remote_location": "target",
        "mode": "fork",
    }
    throttle = {"operations_per_second": OPERATIONS_PER_SECOND}
    spec = {"version": 1, "engine": "spark", "throttle": throttle, "jobs": [job]}
    (folder / "spec.json").write_text(json.dumps(spec))
    ground = Ground(folder, {}, [])
    ground.apply("without")
    return Ground(folder, bytes_of(folder / "target"), ground.records("without"))


@pytest.fixture
def ground(reference: Ground) -> Ground:
    shutil.rmtree(reference.folder / "target", ignore_errors=True)
    for left in reference.folder.glob("*stateshift-lock"):
        left.unlink()
    return reference


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("spark")) as started:
        yield started


def records_of(journal: Path) -> list[dict[str, Any]]:
    if not journal.exists():
        return []
    lines = journal.read_text().split("\n")[
        :-1
    ]  # the last one may be in the middle of being written
    return [json.loads(line.partition(" ")[2]) for line in lines]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, our own temporary files too: none may be left."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def evidence_of(records: list[dict[str, Any]]) -> dict[str, Any]:
    found = {r["step"]: {**r["evidence"]} for r in records if r["kind"] == "step-finished"}
    for evidence in found.values():
        evidence.pop("repeated", None)
    return found


def timeless(record: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in record.items() if k not in ("at", "seconds", "run")})


def wait(
    done: Callable[[], bool], process: subprocess.Popen[str], seconds_max: float = 400
) -> None:
    until = time.monotonic() + seconds_max
    while not done():
        assert process.poll() is None, (
            f"ended with {process.returncode}\n{process.communicate()[1][-3000:]}"
        )
        assert time.monotonic() < until, "nothing happens"
        time.sleep(0.02)


def ended(process: subprocess.Popen[str], code: int) -> str:
    """Its stderr, once it has ended as it should."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, f"{process.returncode}\n{out[-2000:]}\n{err[-5000:]}"
    return err


@pytest.mark.slow
def test_a_fleet_of_local_processes_leaves_the_same_journal_and_bytes(ground: Ground) -> None:
    ran = ground.apply("local", "--fleet", "local[2]")
    assert ran.json["state"] == "finished"
    assert "fleet: local[2], 2 at once" in ran.err
    ground.expect_the_same("local", undisturbed=True)
    assert (ground.folder / "runs" / "local" / "fleet.log").exists()


@pytest.mark.slow
def test_an_executor_that_is_killed_costs_its_steps_and_nothing_else(
    ground: Ground, spark: Standalone
) -> None:
    with ground.started("executor", "--fleet", spark.master) as process:
        wait(lambda: ground.finished("executor") >= 2, process)
        # Between two steps an executor has nothing to lose: the next two have to be at work.
        wait(lambda: ground.begun("executor") >= ground.finished("executor") + 2, process)
        time.sleep(0.3)
        before = ground.finished("executor")
        assert spark.kill_executors() >= 1
        err = ended(process, 0)
    ground.expect_the_same("executor")
    repeated = [
        r
        for r in ground.records("executor")
        if r["kind"] == "step-finished" and r["evidence"].get("repeated")
    ]
    assert 1 <= len(repeated) <= 2, f"two cores were at work\n{err[-3000:]}"
    starts = Counter(r["step"] for r in ground.records("executor") if r["kind"] == "step-started")
    assert set(starts.values()) == {1}
    assert before < ground.finished("executor")


@pytest.mark.parametrize("again", [pytest.param("fleet", marks=pytest.mark.slow), "alone"])
@pytest.mark.slow
def test_a_killed_driver_is_resumed_with_a_fleet_or_without(
    ground: Ground, spark: Standalone, again: str
) -> None:
    name = f"driver-{again}"
    with ground.started(name, "--fleet", spark.master) as process:
        wait(lambda: ground.finished(name) >= 3, process)
        process.kill()
        process.communicate()
    assert ground.finished(name) < len(evidence_of(ground.journal))
    ground.resume(name, *(("--fleet", spark.master) if again == "fleet" else ()))
    ground.expect_the_same(name)


@pytest.mark.slow
def test_ctrl_c_ends_a_fleet_at_once_and_the_run_goes_on_later(
    ground: Ground, spark: Standalone
) -> None:
    with ground.started("ctrl-c", "--fleet", spark.master) as process:
        wait(lambda: ground.finished("ctrl-c") >= 1, process)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        err = ended(process, 130)
        assert time.monotonic() - began < 60
    assert "stateshift resume" in err
    assert "repeated" not in err, "what was cancelled is not taken for lost"
    ground.resume("ctrl-c")
    ground.expect_the_same("ctrl-c")


@pytest.mark.slow
def test_executors_without_a_package_are_named_before_anything_is_begun(
    ground: Ground, spark: Standalone
) -> None:
    bare = ground.folder / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    ran = ground.apply(
        "bare", "--fleet", spark.master, code=7, PYSPARK_PYTHON=str(bare), PYTHONPATH=_root_only()
    )
    assert "has no Python package" in ran.json["message"]
    assert "PYSPARK_PYTHON" in ran.json["hint"]
    assert ground.records("bare") == []
    assert not (ground.folder / "target").exists()


@pytest.mark.slow
def test_executors_without_the_python_that_was_named_are_told_of(
    ground: Ground, spark: Standalone
) -> None:
    ran = ground.apply(
        "nowhere", "--fleet", spark.master, code=7, PYSPARK_PYTHON="/nowhere/python3"
    )
    assert ran.json["message"] == "the executors have no Python at /nowhere/python3"
    assert ground.records("nowhere") == []


@pytest.mark.slow
def test_a_run_waits_for_a_worker_where_the_only_one_is_gone(
    ground: Ground, spark: Standalone
) -> None:
    with ground.started("worker", "--fleet", spark.master) as process:
        wait(lambda: ground.finished("worker") >= 2, process)
        spark.kill_workers()
        spark.start_worker()
        ended(process, 0)
    ground.expect_the_same("worker")


def _root_only() -> str:
    return environment()["PYTHONPATH"].split(os.pathsep)[0]
