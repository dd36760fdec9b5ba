"""`stateshift rebalance` run after run, by cron and by hand: what a run takes from the ones before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.api.rebalancing.move_spec import file_name
from stateshift.api.rebalancing.past import JobPlace
from stateshift.api.rebalancing.whereabouts import Whereabouts, move_times
from stateshift.clusters.protocol import JobState
from stateshift.errors import ClusterError
from tests.advise.measured_flink import BEGAN
from tests.advise.rebalance.clusters import LOADS, FlinkClusters, moved
from tests.cli.support import said
from tests.support.ground import Around

pytestmark = pytest.mark.row("IF-19", "W-12", on="Flink")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[FlinkClusters]:
    with FlinkClusters(tmp_path).serving() as served:
        yield served


# ------------------------------------------------------------------ restarts that nobody measured


def test_a_move_is_not_dismissed_for_more_downtime_than_its_plan_expects(
    ground: FlinkClusters,
) -> None:
    """A restart of 5 minutes is not worth it within ten, and one of the plan's 30 seconds is."""
    ground.section = {"runs": 1, "horizon": 600}
    document = ground.document()
    assert moved(document) == [("orders", "east", "planned")]
    assert document["moves"][0]["downtime_seconds"] == 30.0


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_not_worth_the_least_downtime_of_any_plan_is_not_planned(
    ground: FlinkClusters, warm: bool
) -> None:
    ground.section = {"runs": 1, "horizon": 1, "warm": warm}
    document = ground.document()
    assert document["moves"] == []
    assert document["reason"].endswith("no move is worth what it costs")
    downtimes = {job["downtime_seconds"] for job in document["inputs"]["situation"]["jobs"]}
    assert downtimes == {15.0 if warm else 30.0}


# ------------------------------------------------------------------------- moves that have failed


def test_a_move_that_its_spec_made_fail_waits_until_the_spec_is_another(
    ground: FlinkClusters,
) -> None:
    ground.section = {"runs": 1, "cool_down": 60}
    ground.clusters["east"].fail()  # once: were it tried again, it would do
    done = ground.run("--yes")
    assert (done.code, ground.on("west")) == (7, sorted(LOADS)), "it runs again where it was"
    assert "taken back" in done.err and "resume" not in done.err.partition("error: ")[2]
    started = ground.submissions()["orders"]
    spoken = ground.run("--yes").out
    assert ground.on("east") == ["payments"]
    assert "its last move failed, and its spec is the same" in spoken
    ground.run("--yes")
    assert ground.submissions()["orders"] == started

    ground.arguments = ["--mended"]
    ground.loads = {job: 0.9 if job == "orders" else 0.2 for job in LOADS}  # it has room
    done = ground.run("--yes", "--drain", "west", "--json")
    assert ("orders", "east", "finished") in moved(done.document), done.out


# ------------------------------------------------------------------------- jobs that have ended


def end(ground: FlinkClusters, job: str, state: JobState = JobState.FINISHED) -> None:
    """A job ends on the cluster where it runs."""
    for twin in ground.clusters.values():
        for number, each in enumerate(twin.jobs):
            if each.job == job and each.status.state.alive:
                ended = replace(each.status, state=state)
                twin.jobs[number] = replace(each, status=ended)


def forget(ground: FlinkClusters, job: str) -> None:
    """A cluster tells nothing any more of jobs of this name that have ended."""
    for twin in ground.clusters.values():
        twin.jobs = [each for each in twin.jobs if each.job != job or each.status.state.alive]


def as_pattern(ground: FlinkClusters) -> dict[str, Any]:
    """The keys of a spec that means all jobs by one pattern."""
    (first, *_) = ground.spec()["jobs"]
    return {"jobs": [{**first, "name": "*", "target_directory": "file:///taken/{job}"}]}


def ran(ground: FlinkClusters, more: dict[str, Any], *argv: str, code: int = 0) -> Any:
    """The document of one run; then a quarter of an hour goes by."""
    words = ("rebalance", ground.write_spec(**more), "--once", *argv, "--json")
    done = said(*words, "--workdir", str(ground.state), adapters=ground.adapters)
    ground.clock.time += 900
    assert done.code == code, done.err
    return done.document


def jobs_of(document: Any) -> set[str]:
    return {job["name"] for job in document["inputs"]["situation"]["jobs"]}


def test_a_job_of_a_pattern_that_was_moved_and_has_ended_is_named_once(
    ground: FlinkClusters,
) -> None:
    ground.section = {"runs": 1}
    pattern = as_pattern(ground)
    (move,) = ran(ground, pattern, "--yes")["moves"]
    end(ground, move["job"])
    first = ran(ground, pattern)
    note = f"{move['job']}: it has ended on east (finished), and is left out until it runs again"
    assert note in first["notes"]
    assert jobs_of(first) == set(LOADS) - {move["job"]}
    assert "cannot tell" not in first["reason"]
    forget(ground, move["job"])
    second = ran(ground, pattern)
    assert note not in second["notes"]
    assert "cannot tell" not in second["reason"]
    ground.clusters["east"].run(move["job"], "again")
    ground.started["again"] = BEGAN
    assert move["job"] in jobs_of(ran(ground, pattern))


def test_a_job_that_the_spec_names_and_that_has_ended_is_named_each_time(
    ground: FlinkClusters,
) -> None:
    end(ground, "fraud")
    note = "fraud: it has ended on west (finished), and is left out until it runs again"
    for _ in range(2):
        document = ground.document("--yes")
        assert note in document["notes"]
        assert jobs_of(document) == {"orders", "payments", "audit"}
    assert moved(document) == [("orders", "east", "finished")]


def test_a_job_without_a_trace_is_waited_for_until_a_day_has_gone_by(ground: FlinkClusters) -> None:
    end(ground, "fraud", JobState.FAILED)
    document = ground.document()
    assert "1 of 4 jobs" in document["reason"]
    assert any("it has ended on west (failed)" in stay["reason"] for stay in document["stay"])
    forget(ground, "fraud")
    assert "1 of 4 jobs" in ground.document()["reason"]
    ground.clock.time += 86400
    document = ground.document()
    assert any("has not run anywhere for a day" in note for note in document["notes"])
    assert "cannot tell" not in document["reason"]


def test_a_job_is_not_taken_for_ended_while_a_cluster_gives_no_answer(
    ground: FlinkClusters,
) -> None:
    """It may run there."""
    end(ground, "fraud")

    class Silent(Around):
        def alive(self) -> Any:
            raise ClusterError("it does not answer")

    east = ground.clusters["east"]
    ground.wrap_cluster = lambda cluster: Silent(cluster) if cluster is east else cluster
    document = ground.document()
    assert "fraud" in jobs_of(document)
    assert not document["notes"]


# ------------------------------------------------------------------------ two runs within seconds


def test_a_run_within_seconds_of_another_does_not_count_as_the_second(
    ground: FlinkClusters,
) -> None:
    ground.run("--yes", minutes=0.1)
    for _ in range(5):
        document = json.loads(ground.run("--yes", "--json", minutes=0.1).out)
        assert moved(document) == []
        assert "in 1 of the 2 runs that it takes: the last one was" in document["reason"]
    ground.clock.time += 60
    assert moved(ground.document("--yes")) == [("orders", "east", "finished")]


def test_a_clock_that_was_set_back_does_not_keep_a_run_from_counting(ground: FlinkClusters) -> None:
    ground.run("--yes", minutes=-30)
    assert moved(ground.document()) == [("orders", "east", "planned")]


def test_a_run_that_cannot_decide_leaves_what_was_counted(ground: FlinkClusters) -> None:
    ground.run("--yes")
    end(ground, "fraud", JobState.FAILED)
    assert "cannot tell" in ground.document()["reason"]
    ground.clusters["west"].run("fraud", "again")
    ground.started["again"] = BEGAN
    assert moved(ground.document()) == [("orders", "east", "planned")]


# ------------------------------------------------------ clusters that make slots when they need some


def on_demand(ground: FlinkClusters, **capacities: Any) -> dict[str, Any]:
    """The keys of a spec between two Flinks that make slots, with what it says of each."""
    for served in ground.served.values():
        served.configured = {"kubernetes.cluster-id": "x"}
    spec = ground.spec()
    for name, capacity in capacities.items():
        spec["rebalance"]["clusters"][name]["capacity"] = capacity
    return {"rebalance": spec["rebalance"]}


def test_a_capacity_in_the_spec_lets_a_cluster_be_drained_that_makes_slots(
    ground: FlinkClusters,
) -> None:
    refused = ran(ground, on_demand(ground), "--drain", "west", code=4)
    assert refused["reason"].startswith(
        "cannot tell: west: it makes slots when they are needed: "
        'give it a "capacity" in "rebalance" of the spec'
    )
    document = ran(ground, on_demand(ground, west=4, east=16), "--drain", "west", code=4)
    assert {move["job"] for move in document["moves"]} == set(LOADS)


def test_what_others_have_taken_of_such_a_cluster_counts(ground: FlinkClusters) -> None:
    spec = on_demand(ground, west=4, east=16) | {"jobs": ground.spec()["jobs"]}
    ground.loads = {**ground.loads, "other": 0.5}
    ground.clusters["east"].run("other", "other-0")
    ground.started["other-0"] = BEGAN - 3600
    document = ran(ground, spec)
    clusters = document["inputs"]["situation"]["clusters"]
    assert {each["name"]: each["other_load"] for each in clusters} == {"west": 0, "east": 2}
    note = "jobs that the spec does not have take 2 slots, which count as busy all the time"
    assert f"east: {note}" in document["notes"]


# ------------------------------------------------------------------------ a clock that was wrong


def test_a_clock_that_was_a_month_ahead_at_a_move_keeps_nothing_once_it_is_right(
    ground: FlinkClusters,
) -> None:
    ground.section = {"runs": 1}
    month = 30 * 86400
    assert moved(ground.document("--yes")) == [("orders", "east", "finished")]
    moves = ground.state / "moves" / "0001.json"
    record = json.loads(moves.read_text())
    moves.write_text(json.dumps({**record, "at": record["at"] + month}))
    ground.clock.time += 3600
    document = ground.document()
    assert "cannot tell" not in document["reason"]
    assert not any("was moved a short time ago" in stay["reason"] for stay in document["stay"])


def test_a_move_that_is_still_to_come_makes_no_look_void() -> None:
    where = {
        name: Whereabouts(JobPlace("east", number=1, at=at))
        for name, at in (("a", 5.0), ("b", 9.0))
    }
    assert move_times(where, 7.0) == {"a": 5.0, "b": None}


# --------------------------------------------------------------------------- names of any length


@pytest.mark.parametrize("name", ["a" * 300, "\u8a02" * 300, "a/b" * 100, "half \ud800", ".."])
def test_the_image_of_a_job_of_any_name_lies_in_a_folder_of_its_own(name: str) -> None:
    folder, other = file_name(name), file_name(f"{name}b")
    assert folder != other
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", folder)
    assert len(folder) <= 255
