"""`stateshift rebalance` run after run, by cron and by hand: what a run takes from the ones before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.advise.rebalance.living import Living, moved

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
