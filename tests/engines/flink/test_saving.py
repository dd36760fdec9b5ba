"""In which format savepoints are taken, and what of the start is refused before anything is
stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.protocol import Slots, Submission
from stateshift.errors import ClusterError
from stateshift.migration import Proposal
from stateshift.survey import Finding
from stateshift.testing.memory_flink import MemoryFlink
from tests.engines.flink.test_running import job, place, spec_of
from tests.support.ground import Ground

WHY = (
    "'orders_count' of orders asks its state asynchronously (state V2), and writes no "
    "canonical savepoint"
)


def proposed(ground: Ground, **more: Any) -> Proposal:
    return ground.propose(spec_of(job(**more)))


def told(proposal: Proposal, level: str) -> list[Finding]:
    found = [
        finding for plan in proposal.plans for finding in plan.findings if finding.level == level
    ]
    return list(dict.fromkeys(found))


def only_native(folder: Path) -> tuple[Ground, MemoryFlink]:
    ground, flink = place(folder)
    flink.only_native, flink.settings = WHY, {"state_backend": "HashMapStateBackend"}
    return ground, flink


def test_a_native_savepoint_is_taken_by_itself_where_no_canonical_one_can_be(
    tmp_path: Path,
) -> None:
    ground, flink = only_native(tmp_path)
    proposal = proposed(ground)
    assert not proposal.refusals
    assert [
        one
        for one in told(proposal, "note")
        if one.message.startswith(WHY) and "native format" in one.message
    ]
    assert ground.apply(proposal).state == "finished"
    assert flink.natives == [True]


def test_a_job_that_can_write_canonical_ones_is_asked_for_one(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    assert ground.apply(spec_of()).state == "finished"
    assert flink.natives == [False]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"stop": {"format": "canonical"}}, f"{WHY}: asked for one, the job fails"),
        (
            {"transform": [{"kind": "rescale", "max_parallelism": 64}]},
            f'{WHY}, and "kind": "rescale" needs one',
        ),
        (
            {"submit": {"command": "go", "flink_configuration": {"state.backend.type": "rocksdb"}}},
            (
                f"{WHY}, and the state backend 'rocksdb' of `submit`, which is not the job's "
                "own, needs one"
            ),
        ),
    ],
)
def test_where_something_needs_a_canonical_savepoint_the_plan_refuses(
    tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    ground, flink = only_native(tmp_path)
    assert [one.message for one in dict.fromkeys(proposed(ground, **more).refusals)] == [message]
    assert flink.natives == []


def test_the_same_state_backend_needs_no_canonical_savepoint(tmp_path: Path) -> None:
    ground, _ = only_native(tmp_path)
    submit = {"command": "go", "flink_configuration": {"state.backend.type": "hashmap"}}
    assert not proposed(ground, submit=submit).refusals


@pytest.mark.parametrize(("parallelism", "refused"), [(4, False), (8, False), (9, True)])
def test_more_subtasks_than_the_running_job_has_key_groups_are_refused(
    tmp_path: Path, parallelism: int, refused: bool
) -> None:
    ground, flink = place(tmp_path)
    flink.vertices = {"a": ("orders count", 2, 8), "b": ("all windows", 1, 1)}
    found = proposed(ground, submit={"command": "go", "parallelism": parallelism}).refusals
    assert bool(found) == refused
    told_max = (
        "asks for parallelism 9, and the state of 'orders count' of orders has max parallelism 8"
    )
    assert all(told_max in one.message for one in found)


def test_a_part_with_a_number_of_its_own_is_not_held_against_the_parallelism_of_the_job(
    tmp_path: Path,
) -> None:
    ground, flink = place(tmp_path)
    flink.vertices = {"a": ("orders count", 4, 128), "b": ("two of these", 2, 2)}
    assert not proposed(ground, submit={"command": "go", "parallelism": 16}).refusals


@pytest.mark.parametrize(("parallelism", "refused"), [(8, False), (9, True)])
def test_more_subtasks_than_an_image_has_key_groups_are_refused(
    tmp_path: Path, parallelism: int, refused: bool
) -> None:
    """The golden savepoint has 8 key groups; it is there already, and nobody is asked."""
    ground, flink = place(tmp_path)
    flink._take("file:///taken/savepoint-1")
    more = {
        "existing_savepoint_paths": ["file:///taken/savepoint-1"],
        "from_existing_savepoint": True,
    }
    asked = job(submit={"command": "go", "parallelism": parallelism}, **more)
    del asked["job_ids"], asked["source_cluster"], asked["source_submit"], asked["target_directory"]
    found = ground.propose(spec_of(asked)).refusals
    assert ["has max parallelism 8" in one.message for one in found] == [True] * refused


@pytest.mark.parametrize(
    ("slots", "refused"),
    [
        (Slots(8, 4), None),
        (Slots(8, 3), "has 3 free slots of 8"),
        (Slots(0, 0, on_demand=True), None),
        (Slots(8, 3, adaptive=True), None),
        (Slots(8, 0, adaptive=True), "has 0 free slots of 8"),
        (None, None),
    ],
)
def test_a_parallelism_above_the_free_slots_is_refused_and_can_be_waived(
    tmp_path: Path, slots: Slots | None, refused: str | None
) -> None:
    ground, flink = place(tmp_path)
    flink.places = slots
    submit = {"command": "go", "parallelism": 4}
    found = list(dict.fromkeys(proposed(ground, submit=submit).refusals))
    assert [refused in one.message and one.waive == "free-slots" for one in found if refused] == [
        True
    ] * bool(refused)
    assert bool(found) == bool(refused)
    assert not proposed(ground, submit=submit, waive=["free-slots"]).refusals


def test_the_slots_of_the_job_that_stops_count_where_it_goes_on_in_the_same_cluster(
    tmp_path: Path,
) -> None:
    ground, flink = place(tmp_path)
    flink.places, flink.vertices = Slots(8, 2), {"a": ("orders count", 2, 128)}
    assert not proposed(ground, submit={"command": "go", "parallelism": 4}).refusals
    assert proposed(ground, submit={"command": "go", "parallelism": 5}).refusals


def test_a_jar_that_the_cluster_has_not_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    flink.uploaded = {"1_orders.jar": "orders.jar"}
    assert not proposed(ground, submit={"command": "go", "jar_id": "1_orders.jar"}).refusals
    found = list(
        dict.fromkeys(proposed(ground, submit={"command": "go", "jar_id": "2_orders.jar"}).refusals)
    )
    assert [one.message for one in found] == ["memory has no jar '2_orders.jar'"]
    assert "jars there: 1_orders.jar" in str(found[0].hint)


def test_an_id_that_no_job_has_is_answered_with_the_jobs_that_run(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    flink.run("payments", "payments-id")
    found = list(dict.fromkeys(proposed(ground, job_ids=["order-id"]).refusals))
    assert "order-id on old: absent, and no savepoint can be taken" in found[0].message
    assert "orders-id (orders), payments-id (payments)" in str(found[0].hint)
    flink.jobs.clear()
    found = list(dict.fromkeys(proposed(ground, job_ids=["order-id"]).refusals))
    assert str(found[0].hint).startswith("no job runs on old")


def test_a_change_that_another_engine_calls_otherwise_is_named(tmp_path: Path) -> None:
    ground, _ = place(tmp_path)
    found = proposed(ground, transform=[{"kind": "repartition", "partitions": 4}]).refusals
    assert any('{"kind": "rescale", "parallelism"' in str(one.hint) for one in found)


def test_a_job_that_will_get_no_further_is_not_waited_for_and_the_way_out_is_back(
    tmp_path: Path,
) -> None:
    ground, flink = place(tmp_path)
    flink.hopeless = "the new key serializer must be compatible"
    began = ground.clock.now()
    with pytest.raises(
        ClusterError, match="orders fails again and again with the same: the new key"
    ) as raised:
        ground.apply(spec_of())
    assert ground.clock.now() - began < 60
    assert "stateshift rollback " in str(raised.value.hint)
    assert "it would fail in the same way as often as it is resumed" in str(raised.value.hint)
    flink._on_start = lambda submission: setattr(flink, "hopeless", None)
    assert ground.rollback().state == "rolled-back"


def test_a_job_that_restarts_for_ever_is_stopped_and_started_again_by_a_resume(
    tmp_path: Path,
) -> None:
    """It is alive, and would be found so by every resume: also by one with a submit that is
    mended.
    """
    ground, flink = place(tmp_path)
    flink.hopeless = "/ by zero"
    with pytest.raises(ClusterError, match="fails again and again with the same: / by zero"):
        ground.apply(spec_of())
    failing = flink.submissions[-1].tag
    flink._on_start = lambda submission: setattr(flink, "hopeless", None)
    assert ground.resume().state == "finished"
    assert flink.submissions[-1].tag == f"{failing}.again2"
    assert [job.tag for job in flink.jobs if job.status.state.alive] == [f"{failing}.again2"]


@pytest.mark.parametrize("fault", ["killed", "refused"])
def test_a_resume_that_ends_between_the_stop_and_the_start_is_made_good_by_the_next(
    tmp_path: Path, fault: str
) -> None:
    """The job is down, and was stopped by us: nobody else would start it again."""
    ground, flink = place(tmp_path)
    flink.hopeless = "/ by zero"
    with pytest.raises(ClusterError, match="fails again and again"):
        ground.apply(spec_of())
    failing, submit = flink.submissions[-1].tag, flink.submit

    def ends(submission: Submission) -> str:
        raise KeyboardInterrupt if fault == "killed" else ClusterError("the cluster refuses it")

    flink.submit = ends  # type: ignore[method-assign]
    with pytest.raises((KeyboardInterrupt, ClusterError)):
        ground.resume()
    assert not any(job.status.state.alive for job in flink.jobs)
    flink.submit, flink.hopeless = submit, None  # type: ignore[method-assign]
    assert ground.resume().state == "finished"
    assert [job.tag for job in flink.jobs if job.status.state.alive] == [f"{failing}.again2"]
