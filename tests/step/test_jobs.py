"""Steps that touch something outside storage: they look before they act, and say how it ended."""

from __future__ import annotations

import pytest

from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.errors import ClusterError, StalePlan
from stateshift.formats.marks import encode_idle, fence_text
from stateshift.step import AwaitProgress, FenceSource, StopJob, SubmitJob
from stateshift.step.jobs import tag_of
from tests.support.worlds import Twins

HERE, THERE = "file:///here", "file:///there"
FENCE = FenceSource("halt/fence", HERE, ("offsets/3", "commits/3"))
SUBMIT = SubmitJob("submit/job", "east", "orders", THERE, None, {"application": "job.py"}, {})
AWAIT = AwaitProgress("confirm", "east", "orders", THERE, ("commits/3",), ("_stateshift/idle",), 2, 30.0)


def test_a_fence_is_put_up_once_and_taken_down_whole() -> None:
    twins = Twins()
    assert FENCE.run(twins.world) == FENCE.run(twins.world)
    assert set(twins.held(HERE)) == {"offsets/3", "commits/3"}
    assert FENCE.holds(twins.world, {}) == []
    assert FENCE.undo(twins.world, {}) == []
    assert twins.held(HERE) == {}


def test_a_job_that_committed_meanwhile_is_told_and_no_half_fence_is_left() -> None:
    twins = Twins()
    twins.put(HERE, {"commits/3": b"v1\n{}"})
    with pytest.raises(StalePlan, match="the job is still running"):
        FENCE.run(twins.world)
    assert twins.held(HERE) == {"commits/3": b"v1\n{}"}


def test_the_fence_of_another_run_is_told_by_its_name() -> None:
    twins = Twins()
    twins.put(HERE, {"offsets/3": fence_text("run-7").encode()})
    with pytest.raises(StalePlan, match="fenced by run run-7"):
        FENCE.run(twins.world)
    assert FENCE.undo(twins.world, None) == []
    assert set(twins.held(HERE)) == {"offsets/3"}, "what another run put up is not ours to take down"


def test_a_second_attempt_recognises_the_job_that_the_first_one_started() -> None:
    twins = Twins()
    assert SUBMIT.run(twins.world)["job"] == SUBMIT.run(twins.world)["job"]
    assert sum(twins.cluster.started.values()) == 1


def test_a_lost_answer_starts_no_second_job() -> None:
    twins = Twins()
    twins.cluster.lose_answers(1)
    with pytest.raises(ClusterError):
        SUBMIT.run(twins.world)
    SUBMIT.run(twins.world)
    assert sum(twins.cluster.started.values()) == 1


def test_another_run_starts_its_own_job() -> None:
    first, second = Twins(), Twins()
    assert tag_of(first.world, "orders") == tag_of(second.world, "orders")
    assert tag_of(first.world, "orders") != tag_of(first.world, "payments")


def test_a_submitted_job_is_stopped_when_it_is_taken_back() -> None:
    twins = Twins()
    evidence = SUBMIT.run(twins.world)
    assert SUBMIT.undo(twins.world, evidence) == []
    assert not twins.cluster.find(tag_of(twins.world, "orders")).state.alive


def _stop(**more: object) -> StopJob:
    return StopJob("halt/stop", "east", "orders", HERE, **more)  # type: ignore[arg-type]


def test_a_running_job_is_stopped_and_started_again_when_that_is_taken_back() -> None:
    twins = Twins()
    twins.cluster.run("orders", HERE)
    step = _stop(restart={"application": "job.py"})
    evidence = step.run(twins.world)
    assert evidence["state_before"] == "running"
    assert step.holds(twins.world, evidence) == []
    assert step.undo(twins.world, evidence) == []
    assert twins.cluster.find_source(StopRequest("orders", HERE)).state is JobState.RUNNING
    assert [submission.location for submission in twins.cluster.submissions] == [HERE]


def test_without_a_way_to_start_it_the_person_is_told_that_the_job_is_stopped() -> None:
    twins = Twins()
    twins.cluster.run("orders", HERE)
    evidence = _stop().run(twins.world)
    assert "start it again" in _stop().undo(twins.world, evidence)[0]


def test_a_job_that_was_not_running_is_not_started_by_a_rollback() -> None:
    twins = Twins()
    step = _stop(restart={"application": "job.py"})
    assert step.undo(twins.world, step.run(twins.world)) == []
    assert twins.cluster.submissions == []


def _submitted(twins: Twins, state: JobState = JobState.RUNNING) -> None:
    tag = tag_of(twins.world, "orders")
    twins.cluster.submit(Submission(tag, "orders", THERE))
    twins.cluster.set_state(tag, state)


def test_a_commit_of_the_job_is_what_was_waited_for() -> None:
    twins = Twins()
    _submitted(twins)
    twins.put(THERE, {"commits/3": b"v1\n{}"})
    evidence = AWAIT.run(twins.world)
    assert (evidence["committed"], evidence["idle"]) == (["commits/3"], [])


def test_a_job_that_is_restored_and_has_nothing_to_read_counts_and_is_told_apart() -> None:
    twins = Twins()
    _submitted(twins)
    twins.put(THERE, {"_stateshift/idle": encode_idle(tag_of(twins.world, "orders"), 2)})
    assert AWAIT.run(twins.world)["idle"] == ["commits/3"]


def test_the_note_of_an_earlier_job_does_not_count() -> None:
    twins = Twins()
    _submitted(twins)
    twins.put(THERE, {"_stateshift/idle": encode_idle("another-run.12345678", 2)})
    with pytest.raises(ClusterError, match="has committed nothing in 30 s"):
        AWAIT.run(twins.world)


def test_a_job_that_dies_is_told_with_the_way_out() -> None:
    twins = Twins()
    _submitted(twins, JobState.FAILED)
    with pytest.raises(ClusterError, match="failed before it committed a batch") as caught:
        AWAIT.run(twins.world)
    assert "rollback" in (caught.value.hint or "")
