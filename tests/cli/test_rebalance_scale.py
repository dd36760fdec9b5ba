"""`"scale": true`: a job of Flink that cannot keep up gets more workers where it is, or on its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.advise.rebalance.decision import decide
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.situation import Policy
from tests.advise.rebalance.clusters import FlinkClusters
from tests.advise.rebalance.grounds import job, situation

pytestmark = pytest.mark.row("IF-19", on="Flink")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[FlinkClusters]:
    with FlinkClusters(tmp_path, loads={"orders": 1.0}, lag=300_000).serving() as served:
        yield served


def parallelisms(ground: FlinkClusters, cluster: str) -> list[Any]:
    return [each.options["parallelism"] for each in ground.clusters[cluster].submissions]


def test_a_job_that_cannot_keep_up_gets_more_workers_where_it_is(ground: FlinkClusters) -> None:
    ground.section = {"scale": True}
    assert ground.document("--yes")["moves"] == [], "as a move, it takes two runs"
    (move,) = ground.document("--yes")["moves"]
    assert (move["from"], move["to"], move["state"]) == ("west", "west", "finished")
    assert move["parallelism"] == {"orders": 4}
    assert move["gain"] > 2 * move["cost"] > 0
    assert ground.where() == {"orders": ["west"]}
    assert parallelisms(ground, "west") == [4]
    assert ground.document("--yes")["moves"] == [], "it cools down"
    ground.loads, ground.lag = {"orders": 0.3}, 0
    ground.clock.time += 86400
    ground.document("--yes")
    ground.section = {}
    drained = ground.document("--drain", "west", "--yes")
    assert drained["drained"][0]["empty"]
    assert parallelisms(ground, "east") == [4], "what it was scaled to goes along"


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"scale": True, "parallelism_max": 2},
        {"scale": True, "paused": ["orders"]},
        {"scale": True, "cordon": ["west"]},
        {"scale": True, "horizon": 1},
    ],
)
def test_nothing_is_scaled_unasked_or_beyond_a_bound(ground: FlinkClusters, section: Any) -> None:
    ground.section = {"runs": 1, **section}
    assert ground.document("--yes")["moves"] == []
    assert parallelisms(ground, "west") == []


def test_bounds_that_contradict_each_other_are_refused(ground: FlinkClusters) -> None:
    ground.section = {"scale": True, "parallelism_min": 4, "parallelism_max": 2}
    done = ground.run()
    assert (done.code, "/rebalance/parallelism_max" in done.err) == (2, True)


def test_a_parallelism_changes_on_the_way_of_a_move() -> None:
    jobs = [job(f"j{n}", "a", 2.0, width=4, wanted=2) for n in range(4)]
    of = situation({"a": 8, "b": 8}, jobs)
    decision = decide(of, replace(Policy(), runs=1), Memory())
    (move,) = decision.moves
    assert move.parallelism == dict.fromkeys(move.jobs, 2), "fewer, since it is restarted anyway"


def test_no_job_is_scaled_where_its_cluster_has_no_workers_left() -> None:
    late = job("late", "a", 3.9, width=4, wanted=6, keeps_up=False, pinned=True)
    for slots, count in ((5, 0), (6, 1)):
        decision = decide(
            situation({"a": slots, "b": 8}, [late]), replace(Policy(), runs=1), Memory()
        )
        assert len(decision.moves) == count
