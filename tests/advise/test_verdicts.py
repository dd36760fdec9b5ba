"""Verdicts, their reasons, and how long fewer has to be wanted before it is advised."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from stateshift.advise.evaluate.flink_formulas import decide
from stateshift.advise.evaluate.inputs import (
    Circumstances,
    FlinkInputs,
    FreeSlots,
    RestartCost,
    Wish,
)
from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.verdicts import (
    Verdict,
    judge,
    restart_seconds,
    settled_changes,
    verdict_on,
    wished_less,
)
from stateshift.plain import from_plain, to_plain
from tests.advise.making import HOUR, keyed, load, sample, vertex

pytestmark = pytest.mark.row("IF-19", "W-11", on="Flink")
NOW = 100_000.0


def around(**more: Any) -> Circumstances:
    return Circumstances("orders", NOW, **more)


def judged(*loads: VertexLoad, **more: Any) -> Verdict:
    return judge(loads, around(**more))


def said(verdict: Verdict) -> str:
    return "\n".join(verdict.reasons)


def test_a_job_at_95_percent_fits_and_its_headroom_is_told() -> None:
    verdict = judged(load(4, 1000, 0.95, lag=0))
    assert verdict.word == "fits"
    assert verdict.headroom == pytest.approx(0.05)
    assert "at 95%, headroom 5%: the operator would leave it, its band ends at 100%" in said(
        verdict
    )


def test_a_job_that_falls_back_is_scaled() -> None:
    verdict = judged(load(4, 1000, 1.0, lag=60_000, lag_rate=200))
    assert (verdict.word, verdict.parallelism, verdict.wanted) == ("scale", 4, 8)
    assert "never drained at today's capacity" in said(verdict)


def test_a_backlog_is_drained_in_what_is_left_of_the_capacity() -> None:
    verdict = judged(load(10, 1000, 0.5, lag=60_000))
    assert verdict.drain_seconds == pytest.approx(60)


def test_a_job_moves_where_its_cluster_has_no_room() -> None:
    busy = load(4, 1000, 1.0, lag=60_000, lag_rate=200)
    assert judged(busy, slots=FreeSlots(8, 4)).word == "scale"
    assert judged(busy, slots=FreeSlots(6, 2)).word == "move"
    assert "4 more slots, and this cluster has 2 free of 6" in said(
        judged(busy, slots=FreeSlots(6, 2))
    )
    assert judged(busy, slots=FreeSlots(6, 2, on_demand=True)).word == "scale"


def test_only_a_vertex_outside_makes_others_change() -> None:
    source = load(1, 1000, 0.6, id="s", lag=0, lag_rate=0)
    fine = load(4, 1000, 0.9, id="c", inputs=keyed("s", "REBALANCE"))
    assert judged(source, fine).changes == {}
    drowning = replace(source, lag=200_000, lag_rate=900)
    assert judged(drowning, fine).changes.keys() == {"s", "c"}


def test_a_source_that_hides_its_backlog_does_not_pass_for_one_that_keeps_up() -> None:
    source = load(1, 760, 0.02, id="s", backpressured=0.98, lag=None)
    full = load(2, 760, 0.99, id="c", inputs=keyed("s"))
    verdict = judged(source, full)
    assert verdict.word == "scale"
    assert verdict.changes == {"c": 4}
    assert "held back for 98% of the time" in said(verdict)


def test_skew_is_told() -> None:
    verdict = judged(load(4, 1000, 0.9, lag=0, records_skew=2.8))
    assert "2.8 times the mean" in said(verdict)


def test_a_bound_is_told_with_the_command_that_lifts_it() -> None:
    source = load(1, 1000, 0.1, id="s", lag=900_000, lag_rate=100)
    count = load(4, 1000, 1.0, id="c", inputs=keyed("s"), parallelism_max=8)
    verdict = judged(source, count, location="s3://b/savepoint-1")
    assert verdict.changes["c"] == 8
    assert "stateshift repartition s3://b/savepoint-1 --to s3://b/savepoint-1-16" in said(verdict)


def test_a_price_is_told_where_one_is_given() -> None:
    settings = Settings(cost_per_hour=0.25)
    verdict = judged(load(4, 1000, 1.0, lag=60_000, lag_rate=200), settings=settings)
    assert (verdict.cost_per_hour, verdict.cost_per_hour_wanted) == (1.0, 2.0)


def test_the_measured_restart_counts_only_if_the_settings_say_so() -> None:
    measured = RestartCost(40.0, "runs")
    assert restart_seconds(around(restart=measured)) == 300
    tracking = Settings(restart_time_tracking=True)
    assert restart_seconds(around(restart=measured, settings=tracking)) == 40
    assert restart_seconds(around(settings=tracking)) == 300
    slow = replace(measured, seconds=5000.0)
    assert restart_seconds(around(restart=slow, settings=tracking)) == 900


def test_what_cannot_be_measured_is_unknown_and_says_why() -> None:
    verdict = verdict_on(FlinkInputs(around(trouble="http://jm:8081 does not answer")))
    assert (verdict.word, verdict.reasons) == ("unknown", ("http://jm:8081 does not answer",))
    assert verdict_on(FlinkInputs(around())).word == "unknown"


def test_a_verdict_is_the_same_from_inputs_that_were_written_down() -> None:
    samples = tuple(sample(at, vertex(at, 1000, 1.0, lag=at * 200)) for at in (400.0, 460.0))
    inputs = FlinkInputs(replace(around(), now=460.0), samples)
    again = from_plain(FlinkInputs, to_plain(inputs))
    assert again == inputs
    assert verdict_on(again) == verdict_on(inputs)
    assert verdict_on(inputs).word == "scale"


# ------------------------------------------------------------------------------- fewer, not at once


def test_a_vertex_of_a_hundred_subtasks_is_counted_in_subtasks() -> None:
    assert "40 subtasks would do" in said(judged(load(100, 1000, 0.1, lag=0)))


def test_fewer_are_advised_only_once_that_was_wanted_for_the_whole_interval() -> None:
    idle = load(10, 1000, 0.1, lag=0)
    assert judged(idle).word == "fits"
    assert "4 subtasks would do; advised once it was so for 3600 s" in said(judged(idle))
    short = (Wish(NOW - HOUR + 1, {"v": 4}),)
    assert judged(idle, wishes=short).word == "fits"
    long = (Wish(NOW - HOUR, {"v": 4}), Wish(NOW - 600, {"v": 6}))
    assert judged(idle, wishes=long).changes == {"v": 6}
    broken = (Wish(NOW - 2 * HOUR, {"v": 4}), Wish(NOW - 600, {"v": 10}))
    assert judged(idle, wishes=broken).word == "fits"


class Keeper:
    """A model of the delay, kept as the operator keeps it: the start of the unbroken wish for less,
    and everything wished since.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.since: float | None = None
        self.wished: list[tuple[float, int]] = []

    def next(self, now: float, parallelism: int, wanted: int) -> int:
        if wanted >= parallelism:
            self.since, self.wished = None, []
            return wanted
        self.since = now if self.since is None else self.since
        self.wished.append((now, wanted))
        if now - self.since < self.interval:
            return parallelism
        return max(count for time, count in self.wished if time >= now - self.interval)


@pytest.mark.parametrize("seed", range(40))
def test_walks_of_the_load_are_answered_as_by_the_model(seed: int) -> None:
    chance = random.Random(seed)
    settings = Settings(scale_down_interval=chance.choice([600.0, 3600.0]))
    keeper, wishes, now, parallelism = Keeper(settings.scale_down_interval), [], NOW, 20
    for _ in range(60):
        now += chance.choice([60.0, 300.0, 900.0])
        busy = chance.choice([0.05, 0.1, 0.2, 0.3, 0.3, 0.3, 1.0])
        look = load(parallelism, 1000, busy, lag=0, lag_rate=200 if busy == 1.0 else 0)
        (decision,) = decide([look], settings, 300.0)
        told = settled_changes(
            (decision,), Circumstances("orders", now, settings, wishes=tuple(wishes))
        )
        expected = keeper.next(now, parallelism, decision.wanted)
        if not decision.is_outside:
            expected = parallelism
        assert told.get("v", parallelism) == expected, f"seed {seed}"
        wishes.append(Wish(now, {"v": decision.wanted}))
        if expected != parallelism:  # the job is restarted with it, and earlier wishes are void
            keeper, wishes, parallelism = Keeper(settings.scale_down_interval), [], expected


def test_what_was_wanted_before_nobody_looked_for_long_does_not_count() -> None:
    default = Settings()
    (decision,) = decide([load(10, 1000, 0.1, lag=0)], default, 300.0)
    seldom = [Wish(NOW - 5000, {"v": 4}), Wish(NOW - 12_000, {"v": 4})]
    assert wished_less(decision, seldom, NOW, default) == 4
    before = [Wish(NOW - 10_000, {"v": 4})]
    assert wished_less(decision, before, NOW, default) is None
    assert wished_less(decision, [Wish(NOW - 60, {"v": 4}), *before], NOW, default) is None


# ------------------------------------------------------------------------------- saturated


@pytest.mark.parametrize("rate", [39.2, 42.6, 0.3, 1000.0, 38.5, 1234.56])
def test_a_vertex_that_is_busy_all_the_time_never_fits_whatever_the_fraction(rate: float) -> None:
    """Nothing is seen to wait, so that what it can take and what it needs are one number."""
    source = load(1, rate, 0.02, id="s")
    verdict = judged(source, load(2, rate, 1.0, id="c", inputs=keyed("s")))
    assert verdict.word == "scale"
    assert "2 -> 4: it is busy all the time" in said(verdict)


def test_a_verdict_at_the_edge_stays_until_the_load_is_clearly_on_the_other_side() -> None:
    chance, wishes, words = random.Random(7), (), []
    for number in range(200):
        busy = min(1.0, 0.985 + chance.uniform(-0.02, 0.02))
        look = replace(around(wishes=wishes), now=NOW + 60 * number)
        verdict = judge([load(4, 1000 * busy, busy, lag=0)], look)
        wishes = (Wish(look.now, verdict.wish, verdict.states),)
        words.append(verdict.word)
    assert words == sorted(words), "it fits, until it does not, and then it never does again"
    calm = judge([load(4, 930, 0.93, lag=0)], replace(around(wishes=wishes), now=NOW + 60 * 200))
    assert calm.word == "fits"


def test_a_job_that_drains_what_waits_is_not_told_to_change_though_it_is_busy_all_the_time() -> (
    None
):
    verdict = judged(load(4, 1000, 1.0, lag=60_000, lag_rate=-500))
    assert verdict.word == "fits"
    assert verdict.drain_seconds == pytest.approx(120)


def test_a_vertex_that_is_busy_all_the_time_does_not_shrink() -> None:
    long = (Wish(NOW - HOUR, {"v": 1}), Wish(NOW - 600, {"v": 1}))
    assert judged(load(10, 1000, 1.0, lag=9000, lag_rate=-950), wishes=long).changes == {}


# ------------------------------------------------------------------------------- one key


def skewed(hot: float, others: float, parallelism: int, **more: Any) -> VertexLoad:
    mean = (hot + others * (parallelism - 1)) / parallelism
    fields = {"id": "c", "inputs": keyed("s"), "busy_mean": mean, "busiest": 0, **more}
    return load(parallelism, 1000, hot, **fields)


SOURCE = load(1, 1000, 0.02, id="s", lag=0)


def test_a_key_that_is_the_limit_is_named_and_no_parallelism_is_advised() -> None:
    verdict = judged(SOURCE, skewed(1.0, 0.2, 2, busiest=1))
    assert (verdict.word, verdict.changes, verdict.wanted) == ("limited", {}, 2)
    assert "subtask 1 of 2 is busy for 100% of the time, the others for 20%: one key" in said(
        verdict
    )
    assert verdict.states == {"c": "limited"}


def test_a_skew_that_more_subtasks_divide_is_scaled() -> None:
    assert judged(SOURCE, skewed(1.0, 0.6, 4)).word == "scale"
    even = judged(SOURCE, skewed(1.0, 0.2, 2, inputs=keyed("s", "REBALANCE")))
    assert even.word == "scale", "records go to any subtask, and no key is the reason"


def test_a_hot_key_does_not_matter_while_its_subtask_keeps_up() -> None:
    assert judged(SOURCE, skewed(0.9, 0.1, 4)).word == "fits"


def test_what_is_forwarded_is_as_skewed_as_what_it_comes_from() -> None:
    keyed_one = skewed(0.3, 0.1, 4)
    forwarded = skewed(1.0, 0.1, 4, id="f", inputs=keyed("c", "FORWARD"))
    assert judged(SOURCE, keyed_one, forwarded).word == "limited"
    source = skewed(1.0, 0.1, 4, id="s", inputs=(), lag=0, lag_rate=200)
    assert "one partition is the limit" in said(judged(source))


def test_an_operator_that_has_one_subtask_by_its_program_is_not_told_to_have_more() -> None:
    last = load(1, 1000, 1.0, id="c", inputs=keyed("s"), parallelism_max=1)
    verdict = judged(SOURCE, last)
    assert (verdict.word, verdict.changes) == ("limited", {})
    assert "repartition" not in said(verdict)


def test_beside_a_limited_vertex_only_those_change_that_have_too_little() -> None:
    full = load(2, 1000, 1.0, id="d", inputs=keyed("c", "REBALANCE"))
    fine = load(2, 1000, 0.9, id="e", inputs=keyed("d", "REBALANCE"))
    verdict = judged(SOURCE, skewed(1.0, 0.1, 4), full, fine)
    assert (verdict.word, set(verdict.changes)) == ("scale", {"d"})
    assert "one key" in said(verdict)
