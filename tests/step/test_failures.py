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
from tests.support.ground import TARGET, Clock, Ground

SUBMIT = SubmitJob("submit/job", "ours", "orders", TARGET, None, {"application": "job.py"}, {})
AWAIT = AwaitProgress("confirm", "ours", "orders", TARGET, ("a/commits/2",), ("a/idle",), 1, 600.0)
OUTAGE = ended("java.io.IOException: no route to host\n" + FRAMES)


@pytest.fixture
def ground() -> Ground:
    ground = Ground(clock=Clock(1000.0))
    ground.give(TARGET, a_metadata=f'{{"id":"{QUERY}"}}'.encode())
    SUBMIT.run(ground.world)
    return ground


def says(ground: Ground, log: str, state: JobState = JobState.RUNNING) -> None:
    ground.cluster.set_state(tag_of(ground.world, "orders"), state, log)


def failed(ground: Ground) -> tuple[str, str, float]:
    """The fact, the hint, and for how long it was waited."""
    since = ground.clock.time
    with pytest.raises(ClusterError) as caught:
        AWAIT.run(ground.world)
    assert caught.value.exit_code == 7
    return caught.value.fact, caught.value.hint or "", ground.clock.time - since


def test_a_query_whose_state_cannot_be_loaded_is_waited_for_no_longer(ground: Ground) -> None:
    """Its driver may live on: then no exit code tells."""
    says(ground, began() + ended(STATE))
    fact, hint, seconds = failed(ground)
    assert seconds < 20
    assert fact.startswith(
        "orders is running, but a query of it has ended before it committed a batch: [CANNOT_LOAD"
    )
    assert "Resuming does not help" in hint and "`stateshift rollback WORKDIR`" in hint
    assert "stateshift resume" not in hint


def test_a_job_that_died_of_its_state_is_not_to_be_resumed(ground: Ground) -> None:
    says(ground, began() + ended(STATE), JobState.FAILED)
    _, hint, seconds = failed(ground)
    assert seconds == 0
    assert "stateshift rollback WORKDIR" in hint and "stateshift resume" not in hint


def test_an_application_that_does_not_fit_is_replaced_by_a_corrected_submit(ground: Ground) -> None:
    says(ground, began() + ended(SCHEMA + FRAMES), JobState.FAILED)
    _, hint, _ = failed(ground)
    assert "`stateshift resume WORKDIR --spec FILE`" in hint and "rollback" in hint


def test_a_submission_that_lacks_something_is_corrected(ground: Ground) -> None:
    says(ground, f"{TRACEBACK}ModuleNotFoundError: No module named 'orders'\n", JobState.FAILED)
    fact, hint, _ = failed(ground)
    assert "before it committed a batch: ModuleNotFoundError: No module named 'orders'" in fact
    assert hint.startswith(
        'correct "submit" in the spec, then `stateshift resume WORKDIR --spec FILE`'
    )


def test_an_outage_is_mended_and_resumed(ground: Ground) -> None:
    says(ground, began() + OUTAGE, JobState.FAILED)
    _, hint, _ = failed(ground)
    assert "mend this, and `stateshift resume WORKDIR` starts it again" in hint


def test_a_query_that_may_be_started_again_by_its_job_is_given_a_minute(ground: Ground) -> None:
    says(ground, began() + OUTAGE)
    _, hint, seconds = failed(ground)
    assert 60 <= seconds < 80
    assert "starts the job again" in hint


def test_a_query_that_its_job_has_started_again_is_waited_for(ground: Ground) -> None:
    def tick() -> None:
        if ground.clock.time > 1030:
            says(ground, began() + OUTAGE + began())
        if ground.clock.time > 1200:
            ground.give(TARGET, a_commits_2=b"v1")

    ground.clock = Clock(1000.0, tick)
    says(ground, began() + OUTAGE)
    assert AWAIT.run(ground.world).committed == ("a/commits/2",)


def test_a_query_with_a_checkpoint_elsewhere_is_none_of_the_run(ground: Ground) -> None:
    says(ground, began("other") + ended(STATE, query="8d2f4a16-0000-4000-8000-000000000000"))
    fact, _, seconds = failed(ground)
    assert seconds > 600 and "has committed nothing in 600 s" in fact


def test_a_driver_whose_query_has_ended_is_stopped_before_it_is_started_again(
    ground: Ground,
) -> None:
    first = tag_of(ground.world, "orders")
    says(ground, began() + ended(SCHEMA))
    assert AWAIT.is_hopeless(ground.world)
    evidence = SUBMIT.again(ground.world, hopeless=True)
    assert evidence.tag == f"{first}.again2"
    assert (
        not ground.cluster.find(first).state.alive and ground.cluster.find(evidence.tag).state.alive
    )
    assert not AWAIT.is_hopeless(ground.world)
    assert SUBMIT.again(ground.world).tag == evidence.tag


def test_a_job_that_gets_further_is_not_hopeless_whatever_its_log_says(ground: Ground) -> None:
    says(ground, began() + ended(SCHEMA))
    ground.give(TARGET, a_commits_2=b"v1")
    assert not AWAIT.is_hopeless(ground.world)


def test_a_query_that_its_job_starts_again_within_a_minute_is_not_hopeless(ground: Ground) -> None:
    def tick() -> None:
        if ground.clock.time > 1030:
            says(ground, began() + OUTAGE + began())

    ground.clock = Clock(1000.0, tick)
    says(ground, began() + OUTAGE)
    assert not AWAIT.is_hopeless(ground.world)


def test_what_a_living_driver_prints_is_not_its_end(ground: Ground) -> None:
    says(
        ground,
        began()
        + TRACEBACK
        + "ValueError: bad gauge\nError: metrics endpoint not reachable, going on\n",
    )
    _, _, seconds = failed(ground)
    assert seconds > 600, "it may only be slow"
    assert not AWAIT.is_hopeless(ground.world)


def test_a_job_that_ended_well_in_vain_is_told_from_one_that_has_committed(ground: Ground) -> None:
    says(ground, "", JobState.FINISHED)
    assert AWAIT.ended_in_vain(ground.world)
    ground.give(TARGET, a_commits_2=b"v1")
    assert not AWAIT.ended_in_vain(ground.world)
