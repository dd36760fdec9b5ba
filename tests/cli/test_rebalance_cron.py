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
from tests.advise.rebalance.living import LOADS, Living, moved
from tests.cli.support import said

pytestmark = pytest.mark.row("IF-19", "W-12", on="Flink")


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path).serving() as served:
        yield served


# ------------------------------------------------------------------ restarts that nobody measured


def test_a_move_is_not_dismissed_for_more_downtime_than_its_plan_expects(living: Living) -> None:
    """A restart of 5 minutes is not worth it within ten, and one of the plan's 30 seconds is."""
    living.section = {"runs": 1, "horizon": 600}
    document = living.document()
    assert moved(document) == [("orders", "east", "planned")]
    assert document["moves"][0]["downtime_seconds"] == 30.0


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_not_worth_the_least_downtime_of_any_plan_is_not_planned(
    living: Living, warm: bool
) -> None:
    living.section = {"runs": 1, "horizon": 1, "warm": warm}
    document = living.document()
    assert document["moves"] == []
    assert document["reason"].endswith("no move is worth what it costs")
    downtimes = {job["downtime_seconds"] for job in document["inputs"]["situation"]["jobs"]}
    assert downtimes == {15.0 if warm else 30.0}


# ------------------------------------------------------------------------- moves that have failed


def test_a_move_that_its_spec_made_fail_waits_until_the_spec_is_another(living: Living) -> None:
    living.section = {"runs": 1, "cool_down": 60}
    living.twins["east"].fail()  # once: were it tried again, it would do
    done = living.run("--yes")
    assert (done.code, living.on("west")) == (7, sorted(LOADS)), "it runs again where it was"
    assert "taken back" in done.err and "resume" not in done.err.partition("error: ")[2]
    started = living.submissions()["orders"]
    spoken = living.run("--yes").out
    assert living.on("east") == ["payments"]
    assert "its last move failed, and its spec is the same" in spoken
    living.run("--yes")
    assert living.submissions()["orders"] == started

    living.arguments = ["--mended"]
    living.loads = {job: 0.9 if job == "orders" else 0.2 for job in LOADS}  # it has room
    done = living.run("--yes", "--drain", "west", "--json")
    assert ("orders", "east", "finished") in moved(done.document), done.out


# ------------------------------------------------------------------------- jobs that have ended


def end(living: Living, job: str, state: JobState = JobState.FINISHED) -> None:
    """A job ends on the cluster where it runs."""
    for twin in living.twins.values():
        for number, each in enumerate(twin.jobs):
            if each.job == job and each.status.state.alive:
                ended = replace(each.status, state=state)
                twin.jobs[number] = replace(each, status=ended)


def forget(living: Living, job: str) -> None:
    """A cluster tells nothing any more of jobs of this name that have ended."""
    for twin in living.twins.values():
        twin.jobs = [each for each in twin.jobs if each.job != job or each.status.state.alive]


def as_pattern(living: Living) -> dict[str, Any]:
    """The keys of a spec that means all jobs by one pattern."""
    (first, *_) = living.spec()["jobs"]
    return {"jobs": [{**first, "name": "*", "target_directory": "file:///taken/{job}"}]}


def ran(living: Living, more: dict[str, Any], *argv: str, code: int = 0) -> Any:
    """The document of one run; then a quarter of an hour goes by."""
    words = ("rebalance", living.write(**more), "--once", *argv, "--json")
    done = said(*words, "--workdir", str(living.state), adapters=living.adapters)
    living.clock.seconds += 900
    assert done.code == code, done.err
    return done.document


def jobs_of(document: Any) -> set[str]:
    return {job["name"] for job in document["inputs"]["situation"]["jobs"]}


def test_a_job_of_a_pattern_that_was_moved_and_has_ended_is_named_once(living: Living) -> None:
    living.section = {"runs": 1}
    pattern = as_pattern(living)
    (move,) = ran(living, pattern, "--yes")["moves"]
    end(living, move["job"])
    first = ran(living, pattern)
    note = f"{move['job']}: it has ended on east (finished), and is left out until it runs again"
    assert note in first["notes"]
    assert jobs_of(first) == set(LOADS) - {move["job"]}
    assert "cannot tell" not in first["reason"]
    forget(living, move["job"])
    second = ran(living, pattern)
    assert note not in second["notes"]
    assert "cannot tell" not in second["reason"]
    living.twins["east"].run(move["job"], "again")
    living.started["again"] = BEGAN
    assert move["job"] in jobs_of(ran(living, pattern))


def test_a_job_that_the_spec_names_and_that_has_ended_is_named_each_time(living: Living) -> None:
    end(living, "fraud")
    note = "fraud: it has ended on west (finished), and is left out until it runs again"
    for _ in range(2):
        document = living.document("--yes")
        assert note in document["notes"]
        assert jobs_of(document) == {"orders", "payments", "audit"}
    assert moved(document) == [("orders", "east", "finished")]


def test_a_job_without_a_trace_is_waited_for_until_a_day_has_gone_by(living: Living) -> None:
    end(living, "fraud", JobState.FAILED)
    document = living.document()
    assert "1 of 4 jobs" in document["reason"]
    assert any("it has ended on west (failed)" in stay["reason"] for stay in document["stay"])
    forget(living, "fraud")
    assert "1 of 4 jobs" in living.document()["reason"]
    living.clock.seconds += 86400
    document = living.document()
    assert any("has not run anywhere for a day" in note for note in document["notes"])
    assert "cannot tell" not in document["reason"]


def test_a_job_is_not_taken_for_ended_while_a_cluster_gives_no_answer(living: Living) -> None:
    """It may run there."""
    end(living, "fraud")

    class Silent:
        def __init__(self, cluster: Any) -> None:
            self.cluster = cluster

        def __getattr__(self, name: str) -> Any:
            return getattr(self.cluster, name)

        def alive(self) -> Any:
            raise ClusterError("it does not answer")

    east = living.twins["east"]
    living.asking = lambda cluster: Silent(cluster) if cluster is east else cluster
    document = living.document()
    assert "fraud" in jobs_of(document)
    assert not document["notes"]


# ------------------------------------------------------------------------ two runs within seconds


def test_a_run_within_seconds_of_another_does_not_count_as_the_second(living: Living) -> None:
    living.run("--yes", minutes=0.1)
    for _ in range(5):
        document = json.loads(living.run("--yes", "--json", minutes=0.1).out)
        assert moved(document) == []
        assert "in 1 of the 2 runs that it takes: the last one was" in document["reason"]
    living.clock.seconds += 60
    assert moved(living.document("--yes")) == [("orders", "east", "finished")]


def test_a_clock_that_was_set_back_does_not_keep_a_run_from_counting(living: Living) -> None:
    living.run("--yes", minutes=-30)
    assert moved(living.document()) == [("orders", "east", "planned")]


def test_a_run_that_cannot_decide_leaves_what_was_counted(living: Living) -> None:
    living.run("--yes")
    end(living, "fraud", JobState.FAILED)
    assert "cannot tell" in living.document()["reason"]
    living.twins["west"].run("fraud", "again")
    living.started["again"] = BEGAN
    assert moved(living.document()) == [("orders", "east", "planned")]


# ------------------------------------------------------ clusters that make slots when they need some


def on_demand(living: Living, **capacities: Any) -> dict[str, Any]:
    """The keys of a spec between two Flinks that make slots, with what it says of each."""
    for served in living.served.values():
        served.configured = {"kubernetes.cluster-id": "x"}
    spec = living.spec()
    for name, capacity in capacities.items():
        spec["rebalance"]["clusters"][name]["capacity"] = capacity
    return {"rebalance": spec["rebalance"]}


def test_a_capacity_in_the_spec_lets_a_cluster_be_drained_that_makes_slots(
    living: Living,
) -> None:
    refused = ran(living, on_demand(living), "--drain", "west", code=4)
    assert refused["reason"].startswith(
        "cannot tell: west: it makes slots when they are needed: "
        'give it a "capacity" in "rebalance" of the spec'
    )
    document = ran(living, on_demand(living, west=4, east=16), "--drain", "west", code=4)
    assert {move["job"] for move in document["moves"]} == set(LOADS)


def test_what_others_have_taken_of_such_a_cluster_counts(living: Living) -> None:
    spec = on_demand(living, west=4, east=16) | {"jobs": living.spec()["jobs"]}
    living.loads = {**living.loads, "other": 0.5}
    living.twins["east"].run("other", "other-0")
    living.started["other-0"] = BEGAN - 3600
    document = ran(living, spec)
    clusters = document["inputs"]["situation"]["clusters"]
    assert {each["name"]: each["other_load"] for each in clusters} == {"west": 0, "east": 2}
    note = "jobs that the spec does not have take 2 slots, which count as busy all the time"
    assert f"east: {note}" in document["notes"]


# ------------------------------------------------------------------------ a clock that was wrong


def test_a_clock_that_was_a_month_ahead_at_a_move_keeps_nothing_once_it_is_right(
    living: Living,
) -> None:
    living.section = {"runs": 1}
    month = 30 * 86400
    assert moved(living.document("--yes")) == [("orders", "east", "finished")]
    moves = living.state / "moves" / "0001.json"
    record = json.loads(moves.read_text())
    moves.write_text(json.dumps({**record, "at": record["at"] + month}))
    living.clock.seconds += 3600
    document = living.document()
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
