"""The executor: the order of things, what is skipped, what happens when a step fails, and the
way back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import executor
from stateshift.errors import ClusterError, Interrupted, StorageError
from stateshift.executor import DECODED_BYTES_MAX, WAITING_BYTES_MAX
from stateshift.formats import marks
from stateshift.journal import Journal, RollbackStarted, RunFailed, RunResumed
from stateshift.plan import Plan
from stateshift.report import summarize
from stateshift.step import CopyFiles, Evidence, TransformShard, WriteFile
from stateshift.step.evidence import JobConfirmed, JobStopped, OtherEvidence
from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.protocol import Content
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import MemoryStorage, ProcessGone
from stateshift.world import World
from tests.support.checkpoints import put
from tests.support.ground import SOURCE, TARGET, Around, Ground
from tests.support.steps import KeptLines, Told, execute, journal_of, phase, plan_of


def failing(error: Exception) -> Callable[[World], Evidence]:
    def does(world: World) -> Evidence:
        raise error

    return does


def resumed(lines: KeptLines) -> Journal:
    journal = Journal(KeptLines(lines.content))
    if journal.progress.state == "running":  # as a kill leaves it; else a failure was written down
        journal.append(RunFailed(5.0, "StorageError", "failed", None, 6))
    journal.append(RunResumed(6.0))
    return journal


def test_a_phase_begins_when_all_steps_of_the_one_before_have_ended() -> None:
    said: list[str] = []
    plan = plan_of(
        phase("copy", *(Told(f"copy/{n}", said) for n in range(8))),
        phase("transform", *(Told(f"transform/{n}", said) for n in range(8))),
        phase("compare", Told("compare/0", said)),
    )
    execute(0, plan, Ground().world, journal_of(plan))
    order = [line.split()[1].split("/")[0] for line in said]
    assert order == ["copy"] * 16 + ["transform"] * 16 + ["compare"] * 2


def test_an_ordered_phase_runs_its_steps_one_after_the_other() -> None:
    said: list[str] = []
    plan = plan_of(phase("publish", *(Told(f"publish/{n}", said) for n in range(9)), ordered=True))
    execute(0, plan, Ground().world, journal_of(plan))
    assert said == [f"{what} publish/{n}" for n in range(9) for what in ("run", "ran")]


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_no_more_steps_run_at_once_than_the_world_allows_and_no_fewer(parallel: int) -> None:
    lock, now, most = threading.Lock(), [0], [0]
    together = threading.Barrier(parallel)

    def does(world: World) -> Evidence:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(60)  # passed only where that many run at the same time
        with lock:
            now[0] -= 1
        return OtherEvidence()

    plan = plan_of(phase("copy", *(Told(f"copy/{n}", [], does) for n in range(parallel * 4))))
    execute(0, plan, Ground(parallel=parallel).world, journal_of(plan))
    assert most[0] == parallel


def most_at_once(world: World, expected: int, size: int) -> int:
    """How many of twelve steps that rewrite files of this size ran at the same time; waits until
    `expected` did.
    """
    lock, now, most = threading.Lock(), [0], [0]
    together = threading.Barrier(expected)

    def watched(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
        def content() -> Iterator[bytes]:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            together.wait(60)
            with lock:
                now[0] -= 1
            yield b"content"

        return (content,)

    steps = (
        TransformShard(
            f"transform/{n}",
            "watched",
            {},
            SOURCE,
            (FileInfo(f"a{n}", size, 1.0),),
            TARGET,
            (f"b{n}",),
        )
        for n in range(12)
    )
    plan = plan_of(phase("transform", *steps))
    execute(0, plan, replace(world, transforms={"watched": watched}), journal_of(plan))
    return most[0]


@pytest.mark.parametrize(
    ("size", "cores", "expected"),
    [
        (DECODED_BYTES_MAX, 2, 2),
        (DECODED_BYTES_MAX // 2, 1, 2),
        (DECODED_BYTES_MAX // 3, 2, 3),
        (10, 1, 4),
    ],
)
def test_steps_that_compute_over_much_state_wait_for_a_core(
    size: int, cores: int, expected: int
) -> None:
    assert most_at_once(replace(Ground().world, cores=cores), expected, size) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(10, 12), (WAITING_BYTES_MAX // 6, 6), (WAITING_BYTES_MAX // 3, 3)]
)
def test_small_steps_that_wait_for_a_network_run_beside_each_other(
    size: int, expected: int
) -> None:
    ground = Ground(parallel=3)
    far = lambda location: Far(ground.disk.open(location))  # noqa: E731
    assert most_at_once(replace(ground.world, storage=far, cores=3), expected, size) == expected


class Far(Around):
    """A storage on which many files at once are worth it."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.traits = replace(storage.traits, at_once=16)


def test_after_the_first_failure_no_step_begins_and_those_that_run_end() -> None:
    said: list[str] = []
    failed = threading.Event()

    def fail(world: World) -> Evidence:
        failed.set()
        raise StorageError("the disk is full")

    def slow(world: World) -> Evidence:
        failed.wait(60)
        threading.Event().wait(0.05)
        return {"done": True}

    steps = [
        Told("copy/0", said, slow),
        Told("copy/1", said, fail),
        *(Told(f"copy/{n}", said) for n in range(2, 9)),
    ]
    plan = plan_of(phase("copy", *steps), phase("compare", Told("compare/0", said)))
    journal = journal_of(plan)
    with pytest.raises(StorageError, match="the disk is full") as caught:
        execute(0, plan, Ground(parallel=2).world, journal)
    assert caught.value.where["step"] == "copy/1"
    assert said == ["run copy/0", "run copy/1", "ran copy/0"]
    assert journal.progress.plans[0].finished("copy/0"), (
        "its evidence is written down, though another one failed"
    )
    assert not journal.progress.plans[0].finished("copy/1")


def test_finished_steps_are_skipped_and_begun_ones_repeated() -> None:
    said: list[str] = []
    broken = plan_of(
        phase(
            "copy",
            Told("copy/0", said),
            Told("copy/1", said, failing(StorageError("no"))),
            Told("copy/2", said),
        )
    )
    lines = KeptLines()
    with pytest.raises(StorageError):
        execute(0, broken, Ground(parallel=1).world, journal_of(broken, lines))
    said.clear()
    mended = plan_of(phase("copy", *(Told(f"copy/{n}", said) for n in range(3))))
    journal = resumed(lines)
    execute(0, mended, Ground(parallel=1).world, journal)
    assert said == ["run copy/1", "ran copy/1", "run copy/2", "ran copy/2"]
    steps = journal.progress.plans[0].steps
    assert {name for name, step in steps.items() if step.repeated} == {"copy/1"}
    evidence = steps["copy/1"].evidence
    assert evidence is not None and evidence.repeated, (
        "what an earlier attempt had done, this one cannot tell"
    )
    assert journal.progress.plans[0].finished_at is not None


def test_a_finished_plan_is_not_carried_out_again() -> None:
    said: list[str] = []
    plan = plan_of(phase("copy", Told("copy/0", said)))
    lines = KeptLines()
    execute(0, plan, Ground().world, journal_of(plan, lines))
    before = lines.content
    execute(0, plan, Ground().world, Journal(lines))
    assert said == ["run copy/0", "ran copy/0"]
    assert lines.content == before


def test_a_steps_record_is_written_before_it_begins_and_its_evidence_before_the_next() -> None:
    lines = KeptLines()
    states: list[str] = []

    def look(world: World) -> Evidence:
        steps = Journal(lines).progress.plans[0].steps
        states.append(" ".join(f"{name} {step.state}" for name, step in steps.items()))
        return {"seen": True}

    plan = plan_of(
        phase("publish", Told("publish/0", [], look), Told("publish/1", [], look), ordered=True)
    )
    execute(0, plan, Ground().world, journal_of(plan, lines))
    assert states == ["publish/0 started", "publish/0 finished publish/1 started"]


@pytest.mark.parametrize("parallel", [1, 4])
def test_somebody_who_asks_to_stop_is_heeded_before_the_next_step(parallel: int) -> None:
    ground, said = Ground(parallel=parallel), list[str]()

    def interrupt(world: World) -> Evidence:
        ground.stop.set()
        return OtherEvidence()

    copies = [Told(f"copy/{n}", said) for n in range(5)]
    plan = plan_of(phase("halt", Told("halt/0", said, interrupt)), phase("copy", *copies))
    lines = KeptLines()
    with pytest.raises(Interrupted):
        execute(0, plan, ground.world, journal_of(plan, lines))
    assert said == ["run halt/0", "ran halt/0"]
    ground.stop.clear()
    execute(0, plan, ground.world, resumed(lines))
    assert len(said) == 12


def run_up_to(plan: Plan, lines: KeptLines, ground: Ground) -> Journal:
    journal = journal_of(plan, lines)
    try:
        execute(0, plan, ground.world, journal)
    except StorageError as error:
        journal.append(RunFailed(3.0, "StorageError", error.fact, None, 6))
    journal.append(RollbackStarted(4.0))
    return journal


def test_a_rollback_runs_backwards_over_what_was_begun_and_tells_which_was_not_finished() -> None:
    said, fail = list[str](), failing(StorageError("no"))
    plan = plan_of(
        phase("halt", Told("halt/0", said), Told("halt/1", said), ordered=True),
        phase("copy", Told("copy/0", said)),
        phase(
            "publish", Told("p/0", said), Told("p/1", said, fail), Told("p/2", said), ordered=True
        ),
    )
    journal = run_up_to(plan, KeptLines(), Ground())
    said.clear()
    executor.roll_back(0, plan, Ground().world, journal)
    assert said == [
        "undo p/1 (unfinished)",
        "undo p/0",
        "undo copy/0",
        "undo halt/1",
        "undo halt/0",
    ]
    assert journal.progress.plans[0].undone


def test_a_rollback_writes_down_what_it_had_to_leave_and_the_report_tells() -> None:
    plan = plan_of(
        phase("copy", Told("copy/0", [], left=("x: changed since",)), Told("copy/1", []))
    )
    journal = run_up_to(plan, KeptLines(), Ground())
    executor.roll_back(0, plan, Ground().world, journal)
    assert journal.progress.plans[0].steps["copy/0"].left == ("x: changed since",)
    assert summarize(journal.progress).jobs[0].left == ("x: changed since",)


def test_a_rollback_goes_on_where_it_stopped() -> None:
    said: list[str] = []
    ground = Ground()

    def refuse(world: World) -> None:
        raise ClusterError("still running")

    steps = [Told("halt/0", said), Told("halt/1", said, undoes=refuse), Told("halt/2", said)]
    plan = plan_of(phase("halt", *steps, ordered=True))
    lines = KeptLines()
    journal = run_up_to(plan, lines, ground)
    said.clear()
    with pytest.raises(ClusterError):
        executor.roll_back(0, plan, ground.world, journal)
    mended = plan_of(phase("halt", *(Told(f"halt/{n}", said) for n in range(3)), ordered=True))
    executor.roll_back(0, mended, ground.world, Journal(lines))
    assert said == ["undo halt/2", "undo halt/1", "undo halt/0"]


def test_a_rollback_can_be_interrupted_between_two_steps() -> None:
    said, ground = list[str](), Ground()
    steps = (Told("halt/0", said), Told("halt/1", said, undoes=lambda world: ground.stop.set()))
    plan = plan_of(phase("halt", *steps, ordered=True))
    journal = run_up_to(plan, KeptLines(), ground)
    said.clear()
    with pytest.raises(Interrupted):
        executor.roll_back(0, plan, ground.world, journal)
    assert said == ["undo halt/1"]


def test_a_plan_that_was_taken_back_and_carried_out_again_can_be_taken_back_again() -> None:
    """As the halt plan is, when what is found after it is not what the proposal was made from."""
    said: list[str] = []
    plan = plan_of(phase("halt", Told("halt/0", said)))
    lines, ground = KeptLines(), Ground()
    journal = journal_of(plan, lines)
    execute(0, plan, ground.world, journal)
    executor.roll_back(0, plan, ground.world, journal)
    execute(0, plan, ground.world, journal)
    assert not journal.progress.plans[0].undone
    assert Journal(lines).progress.plans[0].finished("halt/0")
    executor.roll_back(0, plan, ground.world, journal)
    assert said == ["run halt/0", "ran halt/0", "undo halt/0"] * 2


def test_a_rollback_sweeps_the_places_it_wrote_to_and_names_what_is_not_ours() -> None:
    ground = Ground()
    ground.give(SOURCE, a=b"1", b=b"2")
    copy = CopyFiles("copy/0", SOURCE, TARGET, (FileInfo("a", 1), FileInfo("b", 1)))
    plan = plan_of(phase("copy", copy))
    journal = run_up_to(plan, KeptLines(), ground)
    ground.give(TARGET, theirs=b"3")
    killed = ground.world.storage(TARGET)
    with pytest.raises(ProcessGone):
        killed.write("c", lambda: (ground.disk.kill(), iter((b"4",)))[1])
    assert len(ground.disk.snapshot(TARGET, temporaries=True)) == 4
    executor.roll_back(0, plan, ground.world, journal)
    assert ground.disk.snapshot(TARGET, temporaries=True) == {"theirs": b"3"}
    assert ground.disk.snapshot(SOURCE) == {"a": b"1", "b": b"2"}
    assert summarize(journal.progress).left == (
        f"{TARGET}: 1 file that this run did not write (theirs): left there; look at what that "
        "is, and remove it before a job is moved there again",
    )


@pytest.mark.parametrize("kept", [(), ("offsets/0",)])
def test_of_a_first_deployment_no_empty_place_is_left(tmp_path: Path, kept: Sequence[str]) -> None:
    place = tmp_path / "job"
    index = WriteFile("publish/index", str(place), marks.INDEX, "e30=")
    plan = plan_of(phase("publish", index, ordered=True))
    plan = replace(plan, purpose="start", source=str(place), target=str(place))
    world = replace(Ground().world, storage=LocalStorage)
    journal = journal_of(plan)
    execute(0, plan, world, journal)
    for path in kept:
        put(LocalStorage(str(place)), path, b"v1")
    executor.roll_back(0, plan, world, journal)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [place / path for path in kept]
    assert place.exists() == bool(kept)


def test_ask_names_each_finished_step_whose_evidence_is_broken() -> None:
    fine, broken = Told("copy/0", []), Told("copy/1", [], broken="nothing")
    unfinished = Told("compare/0", [], failing(StorageError("no")), broken="this is not asked")
    plan = plan_of(phase("copy", fine, broken), phase("compare", unfinished))
    lines, ground = KeptLines(), Ground()
    with pytest.raises(StorageError):
        execute(0, plan, ground.world, journal_of(plan, lines))
    found = executor.ask(plan, Journal(lines).progress.plans[0], ground.world)
    assert [(one.step, one.discrepancy.found) for one in found] == [("copy/1", "nothing")]
    assert (
        executor.ask(plan, Journal(lines).progress.plans[0], ground.world, kinds=("CopyFiles",))
        == []
    )


@pytest.mark.row("T-22")
def test_downtime_is_counted_from_the_first_attempt_to_stop_the_job() -> None:
    """A kill between the stop and its record does not make the job's time in the dark disappear."""
    ground = Ground()

    def stops(world: World) -> Evidence:
        return JobStopped("finished", "finished", at=world.clock.now(), seconds=0.0)

    def confirms(world: World) -> Evidence:
        return JobConfirmed(("commits/2",), at=world.clock.now())

    dead = plan_of(phase("halt", Told("halt/stop", [], failing(StorageError("killed")))))
    lines = KeptLines()
    with pytest.raises(StorageError):
        execute(0, dead, ground.world, journal_of(dead, lines))
    ground.clock.time += 3600
    plan = plan_of(
        phase("halt", Told("halt/stop", [], stops)),
        phase("confirm", Told("confirm/0", [], confirms)),
    )
    journal = resumed(lines)
    execute(0, plan, ground.world, journal)
    assert summarize(journal.progress).downtime_seconds == 3600
    assert summarize(journal.progress).jobs[0].downtime_from == "halt"
