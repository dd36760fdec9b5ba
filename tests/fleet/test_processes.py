"""Processes of this machine, real ones: the same journal and the same bytes as without them,
whichever is killed; and none is left, however a run ends.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, look, migration
from stateshift.engines.spark.rewrite import files as reshaping
from stateshift.engines.spark.rewrite import pieces
from stateshift.errors import Interrupted
from stateshift.fleet import Crew, Lost
from stateshift.fleet.carrier import OF_THIS_MACHINE
from stateshift.fleet.orders import decode_answer, encode_order
from stateshift.fleet.processes import ProcessCarrier
from stateshift.machine import PROCESS_BYTES, process_count, processes_here
from stateshift.migration import Adapters
from stateshift.migration.adapters import real_adapters
from stateshift.migration.processes import Processes, is_shared, processes_for
from stateshift.step import CopyFiles, TransformShard
from stateshift.survey import FileInfo
from stateshift.workdir import Workdir
from stateshift.world import Meter
from tests.engines.spark.golden import FOLDER
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, TARGET
from tests.support.processes import in_time, runs
from tests.support.steps import phase, plan_of

pytestmark = pytest.mark.skipif(processes_here(None) == 1, reason="one core shares with nobody")

GIB = 1 << 30
ANYTHING = encode_order("check", "", "token", modules=[], locations=[], there=[])
PARENT = """
import threading
from stateshift.fleet.processes import ProcessCarrier
from tests.fleet.test_processes import ANYTHING
carrier = ProcessCarrier(2, threading.Event())
carrier.carry(ANYTHING, "check/0")
print(*carrier.pids, flush=True)
threading.Event().wait()
"""


class Killing(ProcessCarrier):
    """Kills one of its processes before some of the orders, and is asked to stop at another."""

    def __init__(
        self,
        stop: threading.Event,
        kill_at: frozenset[int] = frozenset(),
        stop_at: int = -1,
        count: int = 2,
    ) -> None:
        super().__init__(count, stop)
        self.carried: list[str] = []
        self.killed = 0
        self._kill_at, self._stop_at, self._asked = kill_at, stop_at, stop
        self._counting = threading.Lock()

    def carry(self, order: str, label: str) -> str:
        with self._counting:
            number = len(self.carried)
            self.carried.append(label)
        if number == self._stop_at:
            self._asked.set()
        if number in self._kill_at:
            for pid in self.pids[:1]:
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
        return super().carry(order, label)


@pytest.fixture
def carrier() -> Iterator[ProcessCarrier]:
    made = ProcessCarrier(2, threading.Event())
    yield made
    pids = made.pids
    made.close()
    assert in_time(lambda: not any(map(runs, pids))), f"left: {pids}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "orders"
    for path, content in Checkpoint(shards=100).files().items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return place


COMPACT = {"kind": "compact"}
REPARTITION = {"kind": "repartition", "partitions": 2}


def spec(source: Path, target: Path, change: dict[str, Any] = COMPACT) -> dict[str, Any]:
    places = {"checkpoint_location": str(source), "remote_location": str(target)}
    job = {"name": "orders", **places, "transform": [change], "mode": "fork"}
    return {"version": 1, "parallel": 2, "jobs": [job]}


def adapters(carrier: ProcessCarrier | None) -> Adapters:
    """The real ones, with processes for everything; or without."""

    def open_processes(count: int, meter: Meter, stop: threading.Event) -> Processes:
        assert carrier is not None
        crew = Crew(carrier, meter, OF_THIS_MACHINE)
        return Processes(lambda: crew, bytes_min=0, step_bytes_min=0)

    made = real_adapters()
    return replace(made, open_processes=open_processes if carrier is not None else None)


@pytest.mark.long
def test_processes_read_what_is_exported_and_leave_nothing_else(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    carrier = Killing(threading.Event(), frozenset({3, 8}))
    readers = Processes(lambda: Crew(carrier, ways=OF_THIS_MACHINE), bytes_min=0)
    for suffix in ("jsonl", "parquet"):
        files = [tmp_path / f"{who}.{suffix}" for who in ("alone", "together")]
        made = look.export(str(source), str(files[0]))
        look.save(made, str(files[0]))
        look.save(made, str(files[1]), readers=readers)
        assert files[0].read_bytes() == files[1].read_bytes()
    readers.close()
    assert carrier.killed
    assert not list(scratch.iterdir())


def files_in(place: Path) -> dict[str, bytes]:
    found = {}
    for file in place.rglob("*"):
        if file.is_file() and ".stateshift" not in file.parts:
            found[str(file.relative_to(place))] = file.read_bytes()
    return found


def steps_of(workdir: Path) -> dict[str, Any]:
    """What the journal says of each step, but for times."""
    progress = migration.progress_of(Workdir(str(workdir)))
    steps = progress.plans[0].steps.items()
    return {name: (step.state, step.files, step.bytes, step.evidence) for name, step in steps}


@pytest.fixture
def alone(source: Path, tmp_path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """What a run without processes leaves, and writes down."""
    target, workdir = tmp_path / "target", tmp_path / "alone"
    api.apply(spec(source, target), workdir=workdir, adapters=adapters(None))
    left = files_in(target), steps_of(workdir)
    target.rename(tmp_path / "first")
    return left


@pytest.mark.long
def test_processes_leave_the_same_bytes_and_the_same_journal(
    source: Path, tmp_path: Path, alone: tuple[dict[str, bytes], dict[str, Any]]
) -> None:
    target, workdir = tmp_path / "target", tmp_path / "run"
    carrier = Killing(threading.Event())
    api.apply(spec(source, target), workdir=workdir, adapters=adapters(carrier))
    assert (files_in(target), steps_of(workdir)) == alone
    assert any(label.startswith("transform/state") for label in carrier.carried)
    assert any(label.startswith("compare/state") for label in carrier.carried)
    assert not any(label.startswith("copy") for label in carrier.carried), "copies only wait"
    assert "goes to process" in (workdir / "log").read_text()
    assert carrier.pids == []


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_process_that_is_killed_costs_its_step_and_nothing_else(
    seed: int, source: Path, tmp_path: Path, alone: tuple[dict[str, bytes], dict[str, Any]]
) -> None:
    kill_at = frozenset(random.Random(seed).sample(range(1, 7), 3))
    target, workdir = tmp_path / "target", tmp_path / "run"
    carrier = Killing(threading.Event(), kill_at)
    api.apply(spec(source, target), workdir=workdir, adapters=adapters(carrier))
    assert carrier.killed, f"none was there to be killed at {sorted(kill_at)}"
    left, steps = files_in(target), steps_of(workdir)
    assert left == alone[0]
    for name, (state, files, size, evidence) in steps.items():
        once = None if evidence is None else replace(evidence, repeated=False)
        assert (state, files, size, once) == alone[1][name]


@pytest.mark.long
def test_who_asks_to_stop_is_heeded_and_the_run_goes_on_without_processes(
    source: Path, tmp_path: Path, alone: tuple[dict[str, bytes], dict[str, Any]]
) -> None:
    target, workdir = tmp_path / "target", tmp_path / "run"
    stop = threading.Event()
    carrier = Killing(stop, stop_at=2)
    asked = replace(adapters(carrier), stop=stop)
    with pytest.raises(Interrupted):
        api.apply(spec(source, target), workdir=workdir, adapters=asked)
    assert carrier.pids == []
    api.resume(workdir, adapters=adapters(None))
    assert files_in(target) == alone[0]


def test_one_at_once_starts_no_process(source: Path, tmp_path: Path) -> None:
    asked = {**spec(source, tmp_path / "target"), "parallel": 1}
    carrier = Killing(threading.Event())
    api.apply(asked, workdir=tmp_path / "run", adapters=adapters(carrier))
    assert carrier.carried == []


def test_little_state_starts_no_process(source: Path, tmp_path: Path) -> None:
    carrier = Killing(threading.Event())
    made = replace(
        real_adapters(),
        open_processes=lambda count, meter, stop: Processes(lambda: Crew(carrier, meter)),
    )
    api.apply(spec(source, tmp_path / "target"), workdir=tmp_path / "run", adapters=made)
    assert carrier.carried == []


@pytest.mark.long
def test_processes_end_when_who_started_them_is_killed_and_leave_no_files(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=root,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert pids
    assert list(tmp_path.iterdir())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert in_time(lambda: not any(map(runs, pids))), f"left: {pids}"
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_signals_for_a_group_end_no_process(carrier: ProcessCarrier) -> None:
    done, _ = decode_answer(carrier.carry(ANYTHING, "check/0"))
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(done["pid"], number)
    assert decode_answer(carrier.carry(ANYTHING, "check/1"))[0] == done


@pytest.mark.long
def test_an_order_that_is_lost_says_how_its_process_ended(carrier: ProcessCarrier) -> None:
    done, _ = decode_answer(carrier.carry(ANYTHING, "check/0"))
    os.kill(done["pid"], signal.SIGKILL)
    with pytest.raises(Lost, match=f"process {done['pid']} was ended by SIGKILL"):
        carrier.carry(ANYTHING, "check/1")
    assert decode_answer(carrier.carry(ANYTHING, "check/2"))[0]["pid"] != done["pid"]


@pytest.mark.long
def test_what_is_at_work_ends_with_its_carrier() -> None:
    carrier = ProcessCarrier(1, threading.Event())
    carrier.carry(ANYTHING, "check/0")
    (pid,) = carrier.pids
    carrier.close()
    assert not runs(pid)


def test_a_process_is_not_counted_at_what_the_one_had_that_started_it() -> None:
    asked = "from stateshift.machine import memory_taken; print(memory_taken())"
    started = f"subprocess.run([sys.executable, '-c', {asked!r}], check=True)"
    parent = f"import subprocess, sys; held = b'x' * {GIB // 4}; {started}"
    told = subprocess.run([sys.executable, "-c", parent], check=True, capture_output=True)
    assert 0 < int(told.stdout) < GIB // 8


@pytest.mark.long
def test_fewer_are_at_work_where_one_has_taken_more_memory_than_was_counted() -> None:
    said: list[str] = []
    carrier = ProcessCarrier(2, threading.Event(), PROCESS_BYTES, said.append)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(carrier.carry, [ANYTHING] * 2, ["check/0", "check/1"]))
    assert len(carrier.pids) == carrier.slots(0) == 1
    (line,) = said
    assert re.fullmatch(r"processes: 1 at once from now on: .* 350 MiB are for all .*", line)
    carrier.carry(ANYTHING, "check/2")
    carrier.close()
    assert len(said) == 1


@pytest.mark.parametrize(
    ("parallel", "cores", "memory", "asked", "count"),
    [
        (None, 8, 64 * GIB, None, 8),  # one a core
        (3, 8, 64 * GIB, None, 3),  # no more than were asked for
        (16, 8, 64 * GIB, None, 8),  # and no more than there are cores
        (1, 8, 64 * GIB, None, 1),
        (None, 1, 64 * GIB, None, 1),
        (None, 64, 8 * GIB, None, 14),  # 60 % of the memory
        (None, 64, 64 * GIB, 2 * GIB, 5),  # what was asked for
        (None, 64, GIB // 4, None, 1),
        (None, 64, 64 * GIB, PROCESS_BYTES, 1),
    ],
)
def test_there_are_as_many_processes_as_cores_and_memory_allow(
    parallel: int | None, cores: int, memory: int, asked: int | None, count: int
) -> None:
    assert process_count(parallel, cores, memory, asked) == count


@pytest.mark.parametrize(
    ("sizes", "shared"), [((200 << 20, 56 << 20), True), ((200 << 20,), False), ((), False)]
)
def test_a_plan_is_shared_where_a_phase_has_much_to_compute(
    sizes: tuple[int, ...], shared: bool
) -> None:
    copied = CopyFiles("copy/0", SOURCE, TARGET, (FileInfo("large", 1 << 40),))
    steps = []
    for number, size in enumerate(sizes):
        inputs = (FileInfo(f"file/{number}", size),)
        steps.append(
            TransformShard(f"transform/{number}", "double", {}, SOURCE, inputs, TARGET, ("made",))
        )
    plan = plan_of(phase("copy", copied), phase("transform", *steps))
    assert is_shared(plan) == shared
    assert processes_for([plan], 1) == 1


@pytest.fixture
def large_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of Spark's whose shards count as large, and become several tables each: of
    those of an older version, and the changelogs since.
    """
    monkeypatch.setattr(pieces, "TABLE_BYTES", 1000)
    monkeypatch.setattr(reshaping, "PIECES_MAX", 1)
    place = tmp_path / "orders"
    shutil.copytree(FOLDER / "spark-4.3.0/window-rocksdb-changelog/checkpoint", place)
    for newest in place.glob("state/0/*/6.zip"):
        newest.unlink()
    return place


def waiving_paths(asked: dict[str, Any]) -> dict[str, Any]:
    """The same spec for a job whose input stays where it was."""
    (job,) = asked["jobs"]
    return {**asked, "jobs": [{**job, "waive": ["paths-stay"]}]}


def sharing_parts(carrier: ProcessCarrier | None) -> Adapters:
    """As `adapters`, and nothing is too little to be cut."""

    def open_processes(count: int, meter: Meter, stop: threading.Event) -> Processes:
        assert carrier is not None
        crew = Crew(carrier, meter, OF_THIS_MACHINE, part_bytes_min=1)
        return Processes(lambda: crew, bytes_min=0, step_bytes_min=0)

    return replace(adapters(carrier), open_processes=open_processes if carrier else None)


@pytest.mark.long
@pytest.mark.parametrize("change", [COMPACT, REPARTITION], ids=lambda change: change["kind"])
@pytest.mark.parametrize("kill_at", [(), (1, 4, 9), (2, 6, 8)])
def test_parts_of_large_shards_leave_the_same_bytes_whichever_process_is_killed(
    kill_at: tuple[int, ...], change: dict[str, Any], large_shards: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    asked = waiving_paths(spec(large_shards, target, change))
    api.apply(asked, workdir=tmp_path / "alone", adapters=sharing_parts(None))
    expected, steps = files_in(target), steps_of(tmp_path / "alone")
    target.rename(tmp_path / "first")
    carrier = Killing(threading.Event(), frozenset(kill_at), count=4)
    api.apply(asked, workdir=tmp_path / "run", adapters=sharing_parts(carrier))
    assert bool(carrier.killed) == bool(kill_at)
    zips = sum("/version/" in label for label in carrier.carried)
    assert zips > 0
    assert sum("/tables/" in label for label in carrier.carried) >= 2 * zips
    assert files_in(target) == expected
    for name, (state, count, size, evidence) in steps_of(tmp_path / "run").items():
        once = None if evidence is None else replace(evidence, repeated=False)
        assert (state, count, size, once) == steps[name]


@pytest.mark.long
@pytest.mark.parametrize("change", [COMPACT, REPARTITION], ids=lambda change: change["kind"])
@pytest.mark.parametrize("stop_at", [1, 4])
def test_parts_of_a_run_that_was_stopped_are_made_again_without_processes(
    stop_at: int, change: dict[str, Any], large_shards: Path, tmp_path: Path
) -> None:
    target, stop = tmp_path / "target", threading.Event()
    asked = waiving_paths(spec(large_shards, target, change))
    api.apply(asked, workdir=tmp_path / "alone", adapters=sharing_parts(None))
    expected = files_in(target)
    target.rename(tmp_path / "first")
    carrier = Killing(stop, stop_at=stop_at, count=4)
    with pytest.raises(Interrupted):
        api.apply(
            asked, workdir=tmp_path / "run", adapters=replace(sharing_parts(carrier), stop=stop)
        )
    api.resume(tmp_path / "run", adapters=adapters(None))
    assert files_in(target) == expected
