"""The in-memory twin's own part: what it counts, and how it misbehaves when it is told to."""

from __future__ import annotations

import pytest

from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.errors import ClusterError
from stateshift.testing.memory_cluster import MemoryCluster

SUBMISSION = Submission("run.orders", "orders", "memory://b/orders")


def test_a_refused_submission_has_no_effect() -> None:
    cluster = MemoryCluster()
    cluster.fail(2)
    for _ in range(2):
        with pytest.raises(ClusterError, match="refused"):
            cluster.submit(SUBMISSION)
    assert cluster.find("run.orders").state is JobState.ABSENT
    assert cluster.submit(SUBMISSION) == "orders-1"
    assert cluster.started == {"run.orders": 1}


def test_a_lost_answer_is_found_by_its_tag() -> None:
    cluster = MemoryCluster()
    cluster.lose_answers()
    with pytest.raises(ClusterError, match="lost"):
        cluster.submit(SUBMISSION)
    assert cluster.submit(SUBMISSION) == "orders-1"
    assert cluster.started == {"run.orders": 1}


def test_a_delayed_submission_has_arrived_before_anybody_is_told_that_it_is_absent() -> None:
    cluster = MemoryCluster()
    cluster.delay()
    with pytest.raises(ClusterError, match="not answered in time"):
        cluster.submit(SUBMISSION)
    assert cluster.started == {}
    assert cluster.find("run.orders").state is JobState.RUNNING
    assert cluster.submit(SUBMISSION) == "orders-1"
    assert cluster.started == {"run.orders": 1}


def test_a_job_of_somebody_else_is_found_by_name_and_place_and_stopped() -> None:
    stopped: list[StopRequest] = []
    cluster = MemoryCluster(on_stop=stopped.append)
    cluster.run("orders", "memory://a/orders")
    request = StopRequest("orders", "memory://a/orders")
    assert cluster.find_source(StopRequest("orders", "memory://b/orders")).state is JobState.ABSENT
    assert cluster.find_source(request).state is JobState.RUNNING
    assert cluster.stop(request).state is JobState.FINISHED
    assert cluster.stop(request).state is JobState.FINISHED
    assert stopped == [request] == cluster.stops


def test_a_state_can_be_set_and_is_what_everybody_sees() -> None:
    cluster = MemoryCluster()
    cluster.submit(SUBMISSION)
    cluster.set_state("run.orders", JobState.FAILED, "out of memory")
    assert cluster.find("run.orders").detail == "out of memory"
    assert cluster.log("run.orders") == "out of memory"


def test_what_a_started_job_does_is_up_to_the_test() -> None:
    started: list[str] = []
    cluster = MemoryCluster(on_start=lambda submission: started.append(submission.location))
    cluster.submit(SUBMISSION)
    assert started == ["memory://b/orders"]
