"""`"scale": true`: a job of Flink that cannot keep up gets more workers where it is, or on its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.advise.rebalance.decision import decide
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.policy import Policy
from tests.advise.rebalance.grounds import job, situation
from tests.advise.rebalance.living import Living

pytestmark = pytest.mark.row("IF-19", on="Flink")


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path, loads={"orders": 1.0}, lag=300_000).serving() as served:
        yield served


def parallelisms(living: Living, cluster: str) -> list[Any]:
    return [each.options["parallelism"] for each in living.twins[cluster].submissions]


def test_a_job_that_cannot_keep_up_gets_more_workers_where_it_is(living: Living) -> None:
    living.section = {"scale": True}
    assert living.document("--yes")["moves"] == [], "as a move, it takes two runs"
    (move,) = living.document("--yes")["moves"]
    assert (move["from"], move["to"], move["state"]) == ("west", "west", "finished")
    assert move["parallelism"] == {"orders": 4}
    assert move["gain"] > 2 * move["cost"] > 0
    assert living.where() == {"orders": ["west"]}
    assert parallelisms(living, "west") == [4]
    assert living.document("--yes")["moves"] == [], "it cools down"
    living.loads, living.lag = {"orders": 0.3}, 0
    living.clock.seconds += 86400
    living.document("--yes")
    living.section = {}
    drained = living.document("--drain", "west", "--yes")
    assert drained["drained"][0]["empty"]
    assert parallelisms(living, "east") == [4], "what it was scaled to goes along"


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
def test_nothing_is_scaled_unasked_or_beyond_a_bound(living: Living, section: Any) -> None:
    living.section = {"runs": 1, **section}
    assert living.document("--yes")["moves"] == []
    assert parallelisms(living, "west") == []


def test_bounds_that_contradict_each_other_are_refused(living: Living) -> None:
    living.section = {"scale": True, "parallelism_min": 4, "parallelism_max": 2}
    done = living.run()
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
