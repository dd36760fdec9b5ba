"""What a run makes of a Spark job that cannot succeed: it waits no longer, says why, and names
what helps.
"""

from __future__ import annotations

import pytest

from stateshift.clusters.protocol import JobState
from stateshift.errors import ClusterError
from stateshift.step import AwaitProgress, SubmitJob
from stateshift.step.marks import tag_of
from tests.clusters.test_spark_causes import FRAMES, QUERY, SCHEMA, STATE, TRACEBACK, began, ended
from tests.support.steps import TARGET, Stage, StepClock

SUBMIT = SubmitJob("submit/job", "ours", "orders", TARGET, None, {"application": "job.py"}, {})
AWAIT = AwaitProgress("confirm", "ours", "orders", TARGET, ("a/commits/2",), ("a/idle",), 1, 600.0)
OUTAGE = ended("java.io.IOException: no route to host\n" + FRAMES)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.give(TARGET, a_metadata=f'{{"id":"{QUERY}"}}'.encode())
    SUBMIT.run(stage.world)
    return stage


def says(stage: Stage, log: str, state: JobState = JobState.RUNNING) -> None:
    stage.cluster.set_state(tag_of(stage.world, "orders"), state, log)


def failed(stage: Stage) -> tuple[str, str, float]:
    """The fact, the hint, and for how long it was waited."""
    since = stage.clock.time
    with pytest.raises(ClusterError) as caught:
        AWAIT.run(stage.world)
    assert caught.value.exit_code == 7
    return caught.value.fact, caught.value.hint or "", stage.clock.time - since


def test_a_query_whose_state_cannot_be_loaded_is_waited_for_no_longer(stage: Stage) -> None:
    """Its driver may live on: then no exit code tells."""
    says(stage, began() + ended(STATE))
    fact, hint, seconds = failed(stage)
    assert seconds < 20
    assert fact.startswith(
        "orders is running, but a query of it has ended before it committed a batch: [CANNOT_LOAD"
    )
    assert "Resuming does not help" in hint and "`stateshift rollback WORKDIR`" in hint
    assert "stateshift resume" not in hint


def test_a_job_that_died_of_its_state_is_not_to_be_resumed(stage: Stage) -> None:
    says(stage, began() + ended(STATE), JobState.FAILED)
    _, hint, seconds = failed(stage)
    assert seconds == 0
    assert "stateshift rollback WORKDIR" in hint and "stateshift resume" not in hint


def test_an_application_that_does_not_fit_is_replaced_by_a_corrected_submit(stage: Stage) -> None:
    says(stage, began() + ended(SCHEMA + FRAMES), JobState.FAILED)
    _, hint, _ = failed(stage)
    assert "`stateshift resume WORKDIR --spec FILE`" in hint and "rollback" in hint


def test_a_submission_that_lacks_something_is_corrected(stage: Stage) -> None:
    says(stage, f"{TRACEBACK}ModuleNotFoundError: No module named 'orders'\n", JobState.FAILED)
    fact, hint, _ = failed(stage)
    assert "before it committed a batch: ModuleNotFoundError: No module named 'orders'" in fact
    assert hint.startswith(
        'correct "submit" in the spec, then `stateshift resume WORKDIR --spec FILE`'
    )


def test_an_outage_is_mended_and_resumed(stage: Stage) -> None:
    says(stage, began() + OUTAGE, JobState.FAILED)
    _, hint, _ = failed(stage)
    assert "mend this, and `stateshift resume WORKDIR` starts it again" in hint


def test_a_query_that_may_be_started_again_by_its_job_is_given_a_minute(stage: Stage) -> None:
    says(stage, began() + OUTAGE)
    _, hint, seconds = failed(stage)
    assert 60 <= seconds < 80
    assert "starts the job again" in hint


def test_a_query_that_its_job_has_started_again_is_waited_for(stage: Stage) -> None:
    def tick() -> None:
        if stage.clock.time > 1030:
            says(stage, began() + OUTAGE + began())
        if stage.clock.time > 1200:
            stage.give(TARGET, a_commits_2=b"v1")

    stage.clock = StepClock(tick)
    says(stage, began() + OUTAGE)
    assert AWAIT.run(stage.world).committed == ("a/commits/2",)


def test_a_query_with_a_checkpoint_elsewhere_is_none_of_the_run(stage: Stage) -> None:
    says(stage, began("other") + ended(STATE, query="8d2f4a16-0000-4000-8000-000000000000"))
    fact, _, seconds = failed(stage)
    assert seconds > 600 and "has committed nothing in 600 s" in fact


def test_a_driver_whose_query_has_ended_is_stopped_before_it_is_started_again(stage: Stage) -> None:
    first = tag_of(stage.world, "orders")
    says(stage, began() + ended(SCHEMA))
    assert AWAIT.is_hopeless(stage.world)
    evidence = SUBMIT.again(stage.world, hopeless=True)
    assert evidence.tag == f"{first}.again2"
    assert (
        not stage.cluster.find(first).state.alive and stage.cluster.find(evidence.tag).state.alive
    )
    assert not AWAIT.is_hopeless(stage.world)
    assert SUBMIT.again(stage.world).tag == evidence.tag


def test_a_job_that_gets_further_is_not_hopeless_whatever_its_log_says(stage: Stage) -> None:
    says(stage, began() + ended(SCHEMA))
    stage.give(TARGET, a_commits_2=b"v1")
    assert not AWAIT.is_hopeless(stage.world)


def test_a_query_that_its_job_starts_again_within_a_minute_is_not_hopeless(stage: Stage) -> None:
    def tick() -> None:
        if stage.clock.time > 1030:
            says(stage, began() + OUTAGE + began())

    stage.clock = StepClock(tick)
    says(stage, began() + OUTAGE)
    assert not AWAIT.is_hopeless(stage.world)


def test_what_a_living_driver_prints_is_not_its_end(stage: Stage) -> None:
    says(
        stage,
        began()
        + TRACEBACK
        + "ValueError: bad gauge\nError: metrics endpoint not reachable, going on\n",
    )
    _, _, seconds = failed(stage)
    assert seconds > 600, "it may only be slow"
    assert not AWAIT.is_hopeless(stage.world)


def test_a_job_that_ended_well_in_vain_is_told_from_one_that_has_committed(stage: Stage) -> None:
    says(stage, "", JobState.FINISHED)
    assert AWAIT.ended_in_vain(stage.world)
    stage.give(TARGET, a_commits_2=b"v1")
    assert not AWAIT.ended_in_vain(stage.world)
