"""Jobs that run are stopped with savepoints, moved and started elsewhere: on a disk and a cluster
in memory, with lost answers and kills at every effect. The real thing is in
tests/servers/test_flink_moves.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.protocol import Gone, SavepointRequest
from stateshift.engines.flink.plan.move import identity_of
from stateshift.errors import ClusterError, PlanError, StateshiftError
from stateshift.formats.uid import flink_operator_id
from stateshift.specification import Spec, parse_spec
from stateshift.survey import ClusterFacts, Facts, Survey
from stateshift.testing.memory_flink import MemoryFlink
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.engines.flink import golden
from tests.support.checkpoints import put
from tests.support.ground import Ground

TWO = "flink-2.3.0/count-two"
TAKEN, TARGET = "file:///taken", "file:///there/orders"
CLUSTERS = {"old": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}


def place(folder: Path) -> tuple[Ground, MemoryFlink]:
    """A job `orders-id` runs; its savepoint is the golden one."""
    ground = Ground(folder)

    def take(location: str) -> None:
        top = golden.FOLDER / TWO / golden.told(TWO)["image"]
        for file in sorted(top.iterdir()):
            put(ground.disk.open(location), file.name, file.read_bytes())

    flink = MemoryFlink(take)
    flink.run("orders", "orders-id")
    ground.cluster = flink
    return ground, flink


def job(name: str = "orders", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "job_ids": ["orders-id"],
        "source_cluster": "old",
        "target_cluster": "old",
        "target_directory": TAKEN,
        "new_savepoint_path": f"file:///there/{name}",
        "submit": {"command": "go"},
        "source_submit": {"command": "back"},
        **more,
    }


def spec_of(*jobs: dict[str, Any], **beside: Any) -> Spec:
    jobs = jobs or (job(),)
    beside.setdefault("on_failure", "stop")
    return parse_spec(
        json.dumps(
            {"version": 1, "engine": "flink", "clusters": CLUSTERS, "jobs": list(jobs), **beside}
        )
    )


@pytest.mark.row("IF-2")
def test_a_running_job_ends_with_its_savepoint_and_starts_from_the_new_one(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    report = ground.apply(spec_of())
    assert report.state == "finished"
    assert [submission.location for submission in flink.submissions] == [TARGET]
    assert list(flink.savepoints.values()) == [f"{TAKEN}/savepoint-1"]
    assert "_metadata" in ground.held(TARGET)
    assert [running.state for running in flink.running("orders-id")] == ["finished"]


def test_a_job_that_fails_behind_its_savepoint_is_moved_and_the_report_says_so(
    tmp_path: Path,
) -> None:
    ground, flink = place(tmp_path)
    flink.fails_behind = "no broker"
    report = ground.apply(spec_of())
    assert report.state == "finished" and len(flink.submissions) == 1
    (note,) = report.jobs[0].notes
    assert (
        "failed while it was stopped, but its savepoint is whole" in note and "(no broker)" in note
    )


def lost_by(
    flink: MemoryFlink, monkeypatch: pytest.MonkeyPatch, ground: Ground, name: str, case: str = TWO
) -> None:
    """A cluster of one application that goes with its job, before it can say where the savepoint
    is.
    """

    def gone(request: SavepointRequest) -> str:
        flink.jobs.clear()
        if name:
            top = golden.FOLDER / case / golden.told(case)["image"]
            for file in sorted(top.iterdir()):
                put(ground.disk.open(f"{TAKEN}/{name}"), file.name, file.read_bytes())
        raise Gone("its cluster is gone", 0.0, cluster="old", job=request.job_id)

    monkeypatch.setattr(flink, "savepoint", gone)


def test_a_savepoint_that_a_cluster_did_not_live_to_tell_is_found_where_it_was_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, flink = place(tmp_path)
    lost_by(flink, monkeypatch, ground, "savepoint-orders-0123456789ab")
    assert ground.apply(spec_of()).state == "finished"
    wanted = golden.looked_at(ground.disk, f"{TAKEN}/savepoint-orders-0123456789ab")[1].images[0]
    found = golden.looked_at(ground.disk, TARGET)[1].images[0]
    assert {o.id for o in found.operators} == {o.id for o in wanted.operators}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("", TWO),  # none at all
        ("savepoint-others-0123456789ab", TWO),  # of another job
        (
            "savepoint-orders-0123456789ab",
            "flink-2.3.0/count-saved",
        ),  # of a job that went on after it
    ],
)
def test_what_did_not_end_the_job_is_not_taken_for_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, case: str
) -> None:
    ground, flink = place(tmp_path)
    lost_by(flink, monkeypatch, ground, name, case)
    with pytest.raises(ClusterError, match="its cluster is gone"):
        ground.apply(spec_of())
    assert ground.held(TARGET) == {}


def test_the_plan_of_a_running_job_takes_a_savepoint_and_says_what_comes_later(
    tmp_path: Path,
) -> None:
    ground, flink = place(tmp_path)
    halt, move = ground.propose(spec_of()).plans
    assert [step.kind for step in halt] == ["TakeSavepoint"]
    assert move.provisional
    assert any("once they are taken" in finding.message for finding in move.findings)
    assert flink.savepoints == {}


@pytest.mark.row("T-21")
@pytest.mark.parametrize(
    ("cancel", "words"),
    [(True, "between its savepoint and its cancellation"), (False, "the old job goes on")],
)
def test_records_that_would_be_lost_or_doubled_are_told_before(
    tmp_path: Path, cancel: bool, words: str
) -> None:
    ground, flink = place(tmp_path)
    spec = spec_of(job(cancel_job=cancel))
    assert any(
        words in finding.message for plan in ground.propose(spec).plans for finding in plan.findings
    )
    ground.apply(spec)
    assert [running.state for running in flink.running("orders-id")] == [
        "finished" if cancel else "running"
    ]


@pytest.mark.row("IF-13")
def test_jobs_that_divide_one_take_one_savepoint(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    parts = {
        name: [f"{name}-{part}" for part in ("source", "count", "lines")]
        for name in ("orders", "payments")
    }
    ground.apply(spec_of(*(job(name, operators=uids) for name, uids in parts.items())))
    assert len(flink.savepoints) == 1
    for name, uids in parts.items():
        image = golden.looked_at(ground.disk, f"file:///there/{name}")[1].images[0]
        assert {operator.id for operator in image.operators} == set(map(flink_operator_id, uids))


def test_an_operator_that_no_job_takes_along_stops_the_run_and_the_old_job_goes_on(
    tmp_path: Path,
) -> None:
    ground, flink = place(tmp_path)
    jobs = (
        job("orders", operators=["orders-count"]),
        job("payments", operators=["payments-count"]),
    )
    with pytest.raises(
        PlanError, match="none of the jobs that divide this workflow takes them along"
    ):
        ground.apply(spec_of(*jobs))
    assert [(s.location, s.options) for s in flink.submissions] == [
        (f"{TAKEN}/savepoint-1", {"command": "back"})
    ]


def test_a_job_that_does_not_run_is_refused_with_the_way_out(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    flink.jobs.clear()
    with pytest.raises(PlanError, match="no savepoint can be taken") as refused:
        ground.apply(spec_of())
    assert "existing_savepoint_paths" in (refused.value.hint or "")


def test_a_cluster_that_cannot_be_asked_for_savepoints_is_refused(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    flink.kind = "command"
    with pytest.raises(PlanError, match="cannot be asked for a savepoint"):
        ground.apply(spec_of())
    assert flink.savepoints == {}


def test_a_cluster_that_does_not_tell_progress_is_handed_the_job_and_that_is_said(
    tmp_path: Path,
) -> None:
    ground, flink = place(tmp_path)
    flink.kind = "command"
    existing = golden.write(ground.disk, TWO)
    not_taken = ("job_ids", "source_cluster", "source_submit", "target_directory")
    given = {key: value for key, value in job().items() if key not in not_taken}
    spec = spec_of({**given, "existing_savepoint_paths": [existing]})
    assert any(
        "is not asked how far" in finding.message
        for finding in ground.propose(spec).plans[0].findings
    )
    assert ground.apply(spec).state == "finished"
    assert [submission.location for submission in flink.submissions] == [TARGET]


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ({"job_ids": ["orders-id", "other-id"]}, "several images become one"),
        ({"operators": ["orders-count"]}, "only some operators go along"),
    ],
)
def test_what_needs_a_new_savepoint_is_refused_without_a_place_for_it(
    tmp_path: Path, more: dict[str, Any], fact: str
) -> None:
    ground, flink = place(tmp_path)
    flink.run("other", "other-id")
    plain = {key: value for key, value in job(**more).items() if key != "new_savepoint_path"}
    with pytest.raises(PlanError, match=fact):
        ground.apply(spec_of(plain))
    assert flink.savepoints == {}


def test_a_job_that_stays_where_it_is_starts_from_the_savepoint_itself(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    plain = {key: value for key, value in job().items() if key != "new_savepoint_path"}
    assert ground.apply(spec_of(plain)).state == "finished"
    assert [submission.location for submission in flink.submissions] == [f"{TAKEN}/savepoint-1"]


def test_of_several_jobs_a_person_starts_the_old_ones_again(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    flink.epoch = 0
    flink.run("other", "other-id")
    with pytest.raises(
        PlanError, match="comes from two images"
    ):  # both savepoints are the same one, here
        ground.apply(spec_of(job(job_ids=["orders-id", "other-id"])))
    assert flink.submissions == []


def test_a_savepoint_whose_answer_was_lost_is_the_one_that_counts(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    flink.lose_savepoints()
    with pytest.raises(ClusterError, match="no answer"):
        ground.apply(spec_of())
    assert ground.resume().state == "finished"
    assert len(flink.savepoints) == 1


def test_taken_back_the_old_job_is_started_from_its_savepoint_once(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    flink.epoch = 0  # the new job never completes a checkpoint
    with pytest.raises(ClusterError, match="has completed no checkpoint"):
        ground.apply(spec_of())
    ground.rollback()
    back = [
        submission for submission in flink.submissions if submission.options == {"command": "back"}
    ]
    assert [submission.location for submission in back] == [f"{TAKEN}/savepoint-1"]
    assert ground.held(TARGET) == {}


def test_taken_back_while_its_savepoint_is_under_way_the_old_job_is_started_again_behind_it(
    tmp_path: Path,
) -> None:
    """Nobody can call off the end of a job: a rollback that saw it run would leave it to end."""
    ground, flink = place(tmp_path)
    flink.slow_savepoints()
    with pytest.raises(ClusterError, match="it takes long"):
        ground.apply(spec_of())
    ground.rollback()
    assert [(started.options, started.location) for started in flink.submissions] == [
        ({"command": "back"}, f"{TAKEN}/savepoint-1")
    ]


def test_a_job_restored_from_another_image_is_not_taken_for_ours(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)

    def start(submission: Any) -> None:
        flink.jobs[-1] = type(flink.jobs[-1])(
            "orders", "file:///elsewhere", submission.tag, flink.jobs[-1].status
        )

    flink._on_start = start
    with pytest.raises(ClusterError, match="was restored from file:///elsewhere"):
        ground.apply(spec_of())


def test_a_run_killed_at_any_effect_ends_with_one_savepoint_and_one_job(
    tmp_path: Path, moments: Callable[[int], range]
) -> None:
    unharmed, flink = place(tmp_path / "unharmed")
    counted = Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply(spec_of())
    assert len(counted.seen) > 20
    for number in moments(len(counted.seen)):
        ground, flink = place(tmp_path / str(number))
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.apply(spec_of())
        ground.wrap = lambda storage: storage
        ground.resume()
        assert ground.held(TARGET) == unharmed.held(TARGET), f"killed at effect {number}"
        assert (len(flink.savepoints), len(flink.submissions)) == (1, 1)


@pytest.mark.parametrize("fault", ["fail", "lose_answers", "delay", "lose_savepoints"])
def test_whatever_the_cluster_does_one_job_is_started(tmp_path: Path, fault: str) -> None:
    ground, flink = place(tmp_path)
    getattr(flink, fault)()
    with pytest.raises(StateshiftError):
        ground.apply(spec_of())
    assert ground.resume().state == "finished"
    assert (len(flink.savepoints), len(flink.submissions)) == (1, 1)


def test_a_cluster_that_went_with_its_job_makes_no_plan_stale_and_another_target_does() -> None:
    def facts(here: str | None, there: str | None) -> Facts:
        surveys = [Survey(location, None, "empty", ()) for location in ("file:///taken", TARGET)]
        old, new = (
            ClusterFacts(name, "flink_rest", version, "running", None)
            for name, version in (("old", here), ("new", there))
        )
        return Facts(source=surveys[0], target=surveys[1], source_cluster=old, target_cluster=new)

    assert identity_of(facts("2.3.0", "2.3.0")) == identity_of(facts(None, "2.3.0"))
    assert identity_of(facts("2.3.0", "2.3.0")) != identity_of(facts("2.3.0", "1.20.5"))


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_taken_back_goes_on_from_where_the_old_job_has_got_to_since(
    tmp_path: Path, killed: bool
) -> None:
    """It runs under another id by then: a resume ends that one, and does not start the target
    from the old image.
    """
    ground, flink = place(tmp_path)
    flink.fail(1)
    with pytest.raises(StateshiftError, match="refused"):
        ground.apply(spec_of(on_failure="finish"))
    [again] = [one for one in flink.jobs if one.status.state.alive]
    assert (again.location, again.tag is not None and again.tag.endswith(".restart")) == (
        f"{TAKEN}/savepoint-1",
        True,
    )
    if killed:
        flink.lose_savepoints(1)
        with pytest.raises(ClusterError, match="no answer"):
            ground.resume()
    assert ground.resume().state == "finished"
    alive = [one.location for one in flink.jobs if one.status.state.alive]
    assert alive == [TARGET]
    assert len(flink.savepoints) == 2 + killed, "one of each job: a lost answer is taken back, too"
    assert golden.looked_at(ground.disk, f"{TAKEN}/savepoint-2")[1].images


def test_taken_back_twice_the_last_job_is_the_one_that_goes_on(tmp_path: Path) -> None:
    ground, flink = place(tmp_path)
    for attempt in (1, 2):
        flink.fail(1)
        with pytest.raises(StateshiftError, match="refused"):
            ground.apply(spec_of(on_failure="finish")) if attempt == 1 else ground.resume()
        alive = [one.location for one in flink.jobs if one.status.state.alive]
        assert alive == [f"{TAKEN}/savepoint-{attempt}"]
    assert ground.rollback().state == "rolled-back"
    assert [one.location for one in flink.jobs if one.status.state.alive] == [
        f"{TAKEN}/savepoint-2"
    ]
