"""One loop: barriers, order, no more steps after a failure, nothing twice, and back the same way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stateshift import executor
from stateshift.errors import StorageError
from stateshift.journal import Journal, PlanAdopted, RollbackStarted, RunFailed, RunResumed, RunStarted
from stateshift.plan import Phase, Plan, phases_of
from stateshift.step import CopyFiles, WriteFile
from stateshift.storage.protocol import Content, Storage, Traits
from stateshift.survey import FileInfo
from tests.support.worlds import Twins

HERE, THERE = "file:///here", "file:///there"


class Lines:
    content = b""

    def read(self) -> bytes:
        return self.content

    def append(self, line: bytes) -> None:
        self.content += line

    def cut(self, size: int) -> None:
        self.content = self.content[:size]


class Watching:
    """A storage that notes when each write begins and ends, takes its time, and fails where it is told to."""

    def __init__(self, storage: Storage, seen: list[tuple[str, str]], failing: set[str]) -> None:
        self._storage, self._seen, self._failing, self._lock = storage, seen, failing, threading.Lock()

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    @property
    def location(self) -> str:
        return self._storage.location

    @property
    def traits(self) -> Traits:
        return self._storage.traits

    def list(self, under: str = "") -> Iterator[FileInfo]:
        return self._storage.list(under)

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        with self._lock:
            self._seen.append(("begin", path))
        time.sleep(0.005)
        if path in self._failing:
            raise StorageError(f"no space for {path}", location=self.location)
        written = self._storage.write(path, content, modified)
        with self._lock:
            self._seen.append(("end", path))
        return written


def writes(*paths: str) -> tuple[WriteFile, ...]:
    return tuple(WriteFile.of(f"step/{path}", THERE, path, path.encode()) for path in paths)


def plan_of(*phases: Phase) -> Plan:
    return Plan("orders", "spark", "move", HERE, THERE, 2, phases_of(*phases), (), "facts")


class Bench:
    """A plan, adopted, on a disk that is watched."""

    def __init__(self, plan: Plan, parallel: int = 4, failing: tuple[str, ...] = ()) -> None:
        self.seen: list[tuple[str, str]] = []
        self.failing = set(failing)
        self.twins = Twins(wrap=lambda storage: Watching(storage, self.seen, self.failing))  # type: ignore[arg-type,return-value]
        self.world = replace(self.twins.world, parallel=parallel)
        self.plan, self.journal = plan, Journal(Lines())
        self.journal.append(RunStarted(1.0, "run-1", "0", "spec", ("orders",)))
        steps = sum(len(phase.steps) for phase in plan.phases)
        self.journal.append(PlanAdopted(2.0, 0, "orders", "move", plan.fingerprint, steps))

    def run(self) -> None:
        executor.execute(0, self.plan, self.world, self.journal)

    def begun(self) -> list[str]:
        return [path for what, path in self.seen if what == "begin"]


COPY, PUBLISH = ("a", "b", "c", "d", "e", "f"), ("x", "y", "z")


def test_phases_are_barriers() -> None:
    bench = Bench(plan_of(Phase("copy", writes(*COPY)), Phase("publish", writes(*PUBLISH), ordered=True)))
    bench.run()
    last_copy = max(bench.seen.index(("end", path)) for path in COPY)
    assert last_copy < min(bench.seen.index(("begin", path)) for path in PUBLISH)


def test_the_steps_of_an_ordered_phase_follow_one_another() -> None:
    bench = Bench(plan_of(Phase("publish", writes(*PUBLISH), ordered=True)))
    bench.run()
    assert bench.seen == [(what, path) for path in PUBLISH for what in ("begin", "end")]


@pytest.mark.parametrize("parallel", [1, 3])
def test_never_more_steps_run_at_once_than_the_world_allows(parallel: int) -> None:
    bench = Bench(plan_of(Phase("copy", writes(*COPY))), parallel)
    bench.run()
    running, most = 0, 0
    for what, _ in bench.seen:
        running += 1 if what == "begin" else -1
        most = max(most, running)
    assert most == parallel


def test_after_the_first_failure_no_step_begins_and_the_next_phase_does_not_either() -> None:
    plan = plan_of(Phase("copy", writes(*COPY)), Phase("publish", writes(*PUBLISH), ordered=True))
    bench = Bench(plan, parallel=2, failing=("b",))
    with pytest.raises(StorageError, match="no space for b") as caught:
        bench.run()
    assert caught.value.where["step"] == "step/b"
    assert len(bench.begun()) <= 4
    assert not set(bench.begun()) & set(PUBLISH)
    steps = bench.journal.progress.plans[0].steps
    assert steps["step/a"].state == "finished", "what ran beside the failure was let finish, and is written down"


def test_what_the_journal_holds_as_finished_is_not_done_again() -> None:
    bench = Bench(plan_of(Phase("copy", writes(*COPY))), parallel=1, failing=("d",))
    with pytest.raises(StorageError):
        bench.run()
    bench.journal.append(RunFailed(3.0, "StorageError", "no space", None, 6))
    bench.journal.append(RunResumed(4.0))
    bench.failing.clear()
    bench.seen.clear()
    bench.run()
    assert bench.begun() == ["d", "e", "f"]
    assert bench.journal.progress.plans[0].finished_at is not None


def test_a_rollback_goes_back_the_way_it_came_and_leaves_nothing() -> None:
    plan = plan_of(Phase("copy", writes(*COPY)), Phase("publish", writes(*PUBLISH), ordered=True))
    bench = Bench(plan)
    bench.run()
    bench.journal.append(RollbackStarted(9.0))
    executor.roll_back(0, plan, bench.world, bench.journal)
    progress = bench.journal.progress.plans[0]
    assert {step.state for step in progress.steps.values()} == {"undone"}
    assert progress.undone
    assert bench.twins.held(THERE) == {}


def test_a_rollback_says_what_it_had_to_leave() -> None:
    bench = Bench(plan_of(Phase("copy", writes("a"))))
    bench.run()
    bench.twins.put(THERE, {"a": b"theirs"})
    bench.journal.append(RollbackStarted(9.0))
    executor.roll_back(0, bench.plan, bench.world, bench.journal)
    assert "changed since" in bench.journal.progress.plans[0].steps["step/a"].left[0]
    assert bench.twins.held(THERE) == {"a": b"theirs"}


def test_asked_later_a_step_says_that_its_evidence_is_gone() -> None:
    bench = Bench(plan_of(Phase("copy", writes("a", "b"))))
    bench.run()
    progress = bench.journal.progress.plans[0]
    assert executor.ask(0, bench.plan, progress, bench.world) == []
    bench.twins.disk.open(THERE).remove("b")
    (broken,) = executor.ask(0, bench.plan, progress, bench.world)
    assert (broken.step, broken.discrepancy.place) == ("step/b", "b")
    assert executor.ask(0, bench.plan, progress, bench.world, kinds=("FenceSource",)) == []


def test_a_step_is_written_down_before_its_effect_and_with_its_evidence_after() -> None:
    twins = Twins()
    twins.put(HERE, {"a": b"one"})
    step = CopyFiles("copy/0", HERE, THERE, (FileInfo("a", 3),))
    bench = Bench(plan_of(Phase("copy", (step,))))
    bench.twins.put(HERE, {"a": b"one"})
    bench.run()
    done = bench.journal.progress.plans[0].steps["copy/0"]
    assert done.evidence is not None
    assert done.evidence["files"][0][:2] == ["a", 3]
    assert (done.files, done.bytes) == (1, 3)
