"""What random walks and kills have found, each as the short walk that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.errors import JournalError, PlanError, StalePlan
from stateshift.report import Report
from tests.simulation.ground import JOB, FickleCluster, Ground, Moment, Run, Trouble
from tests.support.checkpoints import put


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def killed(label: str, times: int = 1) -> Trouble:
    return Trouble("kill", Moment(label, times))


def test_a_lock_that_was_taken_and_not_written_down_is_let_go_of_by_a_rollback(
    ground: Ground,
) -> None:
    run = ground.plan()
    ground.apply(run, killed("after create m:c1.stateshift-lock"))
    assert isinstance(ground.rollback(run), Report)
    ground.look()
    assert isinstance(ground.apply(ground.plan(target=run.target)), Report), (
        "the target is free again"
    )


def test_a_job_that_was_stopped_by_an_attempt_that_was_killed_runs_again_after_a_rollback(
    ground: Ground,
) -> None:
    run = ground.plan()
    ground.apply(run, killed("after stop"))
    assert ground.alive() == 0
    ground.resume(run, killed("before create c0:a/offsets/3"))
    ground.rollback(run)
    assert ground.alive(run.source) == 1


@pytest.mark.parametrize("seed", range(12))
def test_what_a_killed_process_had_not_synced_is_synced_before_it_counts(
    ground: Ground, seed: int
) -> None:
    """The resume recognises every file, writes none, and says that it is done; then the power
    fails.
    """
    run = ground.plan()
    ground.apply(run, killed("before sync c1:"))
    ground.resume(run, killed("after journal step-finished", 1))
    ground.crash(seed)
    ground.verify(run)
    assert isinstance(ground.resume(run), Report)
    ground.look()


def test_a_run_is_not_taken_back_from_under_the_one_that_moved_on(ground: Ground) -> None:
    """It would leave the second without its source, and the old job beside the new one."""
    first = ground.plan()
    ground.mood = "idle"
    ground.apply(first)
    second = ground.plan()
    ground.apply(second)
    for discard in (False, True):
        outcome = ground.rollback(first, discard=discard)
        assert isinstance(outcome, PlanError) and "run2 has moved orders on" in outcome.fact
    assert first.state == "finished"
    ground.look()
    ground.rollback(second)
    ground.look()


def test_a_run_is_not_taken_back_from_under_a_job_that_somebody_else_started(
    ground: Ground,
) -> None:
    first = ground.plan()
    ground.mood = "idle"
    ground.apply(first)
    second = ground.plan()
    ground.apply(second)
    ground.rollback(second)  # starts the job again where the first had brought it
    outcome = ground.rollback(first)
    assert isinstance(outcome, PlanError) and "this run did not start it" in outcome.fact
    ground.look()


def test_nobody_moves_on_from_a_target_that_is_still_being_worked_on(ground: Ground) -> None:
    first = ground.plan()
    ground.apply(first)
    second = ground.plan()
    ground.rollback(first, killed("before remove c1:a/commits/2"))
    outcome = ground.apply(second)
    assert (
        isinstance(outcome, JournalError)
        and "is the target of run run1, which has not ended" in outcome.fact
    )
    ground.rollback(first)
    ground.look()


def test_a_rollback_that_was_killed_does_not_go_on_under_a_run_that_has_moved_on_since(
    ground: Ground,
) -> None:
    first = ground.plan()
    ground.mood = "idle"
    ground.apply(first)
    second = ground.plan()
    ground.rollback(first, killed("after journal rollback-started"))
    assert isinstance(ground.apply(second), Report)
    for again in (ground.resume, ground.rollback):
        outcome = again(first)
        assert isinstance(outcome, PlanError) and "has moved orders on" in outcome.fact
    ground.look()
    ground.rollback(second)
    assert isinstance(ground.plan(), Run)


def test_the_slower_of_two_runs_on_one_source_does_not_start_the_old_job_again(
    ground: Ground,
) -> None:
    """Both were planned; the second ran through while the first was between its halt and its
    fence.
    """
    first, second = ground.plan(), ground.plan()
    outcome = ground.apply(first, Trouble("rival", Moment("before create c0:a/offsets/3", 1)))
    assert isinstance(outcome, StalePlan) and "fenced by run run2" in outcome.fact
    assert outcome.exit_code == 4, "the job runs: the other run has started it"
    assert second.state == "finished"
    report = ground.rollback(first)
    assert isinstance(report, Report)
    assert "run run2 has moved it away" in report.jobs[0].left[0]
    assert (ground.alive(), ground.alive(second.target)) == (1, 1)
    ground.look()


def test_a_halt_that_is_taken_back_more_than_once_leaves_the_job_running(ground: Ground) -> None:
    """Somebody puts a file on the target while the job is stopped; the run is resumed, and finds
    the same.
    """
    run = ground.plan()
    run.doubtful = True
    in_the_way = ground.disk.open(run.target)
    ground.cluster = FickleCluster("ours", on_stop=lambda request: put(in_the_way, "theirs", b"x"))
    ground.cluster.run(JOB, run.source)
    for attempt in (ground.apply, ground.resume, ground.resume):
        outcome = attempt(run)
        assert isinstance(outcome, StalePlan) and "the halt was taken back" in outcome.fact
        assert ground.alive(run.source) == 1
    assert list(ground.cluster.started.values()) == [1, 1, 1]
    assert isinstance(ground.rollback(run), Report)
    assert ground.alive(run.source) == 1


def test_a_kill_between_letting_go_of_the_lock_and_writing_it_down_does_not_touch_who_took_it_next(
    ground: Ground,
) -> None:
    first = ground.plan()
    ground.apply(first, killed("before write c1:a/state/0/0/1.delta"))
    ground.rollback(first, killed("after remove m:c1.stateshift-lock"))
    second = ground.plan(target=first.target)
    ground.apply(second, killed("before sync c1:"))
    held = ground.disk.snapshot(first.target, temporaries=True)
    assert isinstance(ground.rollback(first), Report)
    assert ground.disk.snapshot(first.target, temporaries=True) == held
    assert isinstance(ground.resume(second), Report)
    ground.look()


def test_a_run_killed_before_its_end_is_not_taken_back_without_asking_when_the_job_has_gone_on(
    ground: Ground,
) -> None:
    run = ground.plan()
    ground.apply(run, killed("after journal step-finished", 15))
    while run.state != "finished" and ground.epochs(run.target).get("a") != 3:
        ground.resume(run, killed("in the middle of journal run-finished"))
    outcome = ground.rollback(run, discard=False)
    assert isinstance(outcome, PlanError) and "committed batches" in outcome.fact
    assert isinstance(ground.rollback(run, discard=True), Report)
    ground.look()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("moment", ["after create c1:a/commits/2", "after write c1:a/commits/2"])
def test_a_power_cut_leaves_no_half_of_what_makes_an_image_visible(
    ground: Ground, moment: str, seed: int
) -> None:
    run = ground.plan()
    ground.apply(run, Trouble("crash", Moment(moment, 1)), seed)
    ground.look()
    assert isinstance(ground.resume(run), Report)
    ground.look()
