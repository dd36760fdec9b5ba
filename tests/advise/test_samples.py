"""Which samples count, and the rates over them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from stateshift.advise.evaluate.loads import VertexLoad, loads_of
from stateshift.advise.evaluate.samples import JobSample, SubtaskSample, Unusable, usable
from stateshift.advise.evaluate.settings import Settings
from tests.advise.making import HOUR, sample, subtask, vertex

pytestmark = pytest.mark.row("IF-19", "W-11", on="Flink")
DEFAULT = Settings()


def steady(*seconds: float, **more: float) -> list[JobSample]:
    return [sample(at, vertex(at, 1000, 0.5), **more) for at in seconds]


def why(samples: list[JobSample], now: float | None = None, settings: Settings = DEFAULT) -> str:
    counted = usable(samples, samples[-1].time if now is None else now, settings)
    assert isinstance(counted, Unusable)
    return counted.why


def only_load(samples: list[JobSample], settings: Settings = DEFAULT) -> VertexLoad:
    counted = usable(samples, samples[-1].time, settings)
    assert not isinstance(counted, Unusable), counted.why
    return loads_of(counted, settings)[0]


def test_two_samples_suffice() -> None:
    load = only_load(steady(400, 460))
    assert load.input_rate == pytest.approx(1000)
    assert load.busy == pytest.approx(0.5)


def test_samples_before_the_job_has_settled_are_void() -> None:
    assert "runs for 200 s" in why(steady(100, 200))
    assert "it takes two" in why(steady(299, 400))


def test_samples_of_before_the_last_start_are_void() -> None:
    before, after = steady(1000, 1060), steady(400, started=1100)
    assert "since the job was started" in why([*before, *after])


def test_samples_of_another_parallelism_are_void() -> None:
    other = sample(400, vertex(400, 1000, 0.5, parallelism=2))
    assert "changed" in why([other, *steady(460)])


def test_old_samples_tell_nothing() -> None:
    samples = steady(400, 460)
    assert "sample.age-max" in why(samples, now=460 + 2.1 * HOUR)
    assert "3 samples" not in why(steady(400, 400 + 2.1 * HOUR))


def test_samples_of_a_slow_cron_job_count_though_they_are_further_apart_than_the_window() -> None:
    counted = usable(steady(400, 400 + HOUR), 400 + HOUR, DEFAULT)
    assert not isinstance(counted, Unusable)
    assert len(counted) == 2


def test_only_the_window_counts_where_it_is_full() -> None:
    counted = usable(steady(400, 1000, 1600, 2000), 2000, DEFAULT)
    assert not isinstance(counted, Unusable)
    assert [each.time for each in counted] == [1600, 2000]


def test_counters_that_go_back_tell_nothing() -> None:
    samples = [*steady(400), sample(460, vertex(460, 500, 0.5))]
    assert "records in went back from 400000 to 230000" in why(samples)


def with_restart(at: float, restarted_at: float, attempt: int | None) -> JobSample:
    """A look at a job of which subtask 2 was restarted."""
    even = subtask(at, 250, 0.5)
    alone = replace(subtask(at - restarted_at, 250, 0.5), attempt=attempt)
    records = 3 * (even.records_in or 0) + (alone.records_in or 0)
    subtasks = (even, even, alone, even)
    of_all = {"subtasks": subtasks, "records_in": records, "records_out": records}
    return sample(at, vertex(at, 1000, 0.5, **of_all))


def test_a_subtask_that_was_restarted_alone_is_named() -> None:
    said = why([*steady(1000, 1060), with_restart(1120, 1100, None)])
    assert said.startswith("orders: subtask 2 of 4 was restarted alone 20 s ago")
    assert "from 300 s after that on (stabilization.interval)" in said


def test_samples_behind_the_restart_of_one_subtask_count_once_it_has_settled() -> None:
    looks = [with_restart(at, 1100, None) for at in (1120, 1420, 1480)]
    assert "restarted alone" in why([*steady(1000, 1060), *looks[:2]])
    load = only_load([*steady(1000, 1060), *looks])
    assert load.input_rate == pytest.approx(1000)
    assert load.busy == pytest.approx(0.5)


def test_a_subtask_that_has_overtaken_its_own_counters_is_known_by_its_attempt() -> None:
    """It was restarted a minute behind the first look, and has run for longer since."""
    first = with_restart(400, 0, 0)
    samples = [first, with_restart(1000, 460, 1)]
    assert "subtask 2 of 4 was restarted alone 540 s ago" in why(samples)
    assert only_load([*samples, with_restart(1060, 460, 1)]).input_rate == pytest.approx(1000)


def test_a_clock_that_is_unsteady_by_milliseconds_is_no_restart() -> None:
    before = with_restart(460, 0, 0)
    subtasks = list(before.vertices[0].subtasks)
    subtasks[2] = replace(subtasks[2], idle_ms=(subtasks[2].idle_ms or 0) - 5)
    unsteady = sample(461, replace(before.vertices[0], subtasks=tuple(subtasks)))
    assert "orders: the time that it runs went back" in why([before, unsteady])


def test_a_counter_that_went_back_takes_nothing_from_later_samples() -> None:
    back = [sample(at, vertex(at, 500, 0.5)) for at in (460, 520)]
    assert only_load([*steady(400), *back]).input_rate == pytest.approx(500)


def test_busy_time_that_goes_back_a_little_is_none() -> None:
    """As seen of a source of Flink 2.3 that was held back all the time."""
    first = SubtaskSample(100_000, 2512.0, 0.0, 397_488.0)
    then = SubtaskSample(100_000, 2509.0, 0.0, 457_491.0)
    load = only_load(
        [
            sample(at, vertex(at, 250, 0, subtasks=(each,) * 4))
            for at, each in ((400, first), (460, then))
        ]
    )
    assert load.busy == 0.0
    assert load.backpressured == pytest.approx(1.0, abs=0.001)


def test_a_clock_that_goes_back_tells_nothing() -> None:
    earlier = SubtaskSample(100_000, 200.0, 300.0, 900.0)
    samples = [*steady(400), sample(460, vertex(460, 1000, 0.5, subtasks=(earlier,) * 4))]
    assert "the time that it runs went back" in why(samples)


@pytest.mark.parametrize("value", [None, math.nan])
def test_a_counter_that_is_missing_tells_nothing(value: float | None) -> None:
    broken = replace(subtask(460, 250, 0.5), busy_ms=value)
    samples = [*steady(400), sample(460, vertex(460, 1000, 0.5, subtasks=(broken,) * 4))]
    assert "busy time" in why(samples)


def test_a_subtask_that_is_missing_tells_nothing() -> None:
    few = vertex(460, 1000, 0.5)
    samples = [*steady(400), sample(460, replace(few, subtasks=few.subtasks[:3]))]
    assert "3 of 4 subtasks" in why(samples)


def test_an_earlier_sample_that_misses_something_is_left_out() -> None:
    broken = replace(subtask(430, 250, 0.5), busy_ms=None)
    partial = sample(430, vertex(430, 1000, 0.5, subtasks=(broken,) * 4))
    assert only_load([*steady(400), partial, *steady(460)]).busy == pytest.approx(0.5)
    assert "it takes two" in why([partial, *steady(460)])


def test_nothing_is_told_while_flink_gathers_nothing_new() -> None:
    first = sample(400, vertex(400, 1000, 0.5))
    assert "nothing new" in why([first, replace(first, time=460)])


def test_a_look_that_sees_nothing_new_takes_nothing_from_the_others() -> None:
    """As when somebody looks a moment after cron did."""
    samples = steady(400, 460)
    again = replace(samples[-1], time=463)
    assert only_load([*samples, again]).input_rate == pytest.approx(1000)
    assert only_load([*samples, again, *steady(520)]).busy == pytest.approx(0.5)
    assert "nothing new" in why([samples[-1], again])


def test_rates_are_taken_by_the_clock_of_the_tasks() -> None:
    """Flink answers what it has fetched: here the second sample is ten seconds old."""
    old = replace(sample(450, vertex(450, 1000, 0.5)), time=460)
    assert only_load([*steady(400), old]).input_rate == pytest.approx(1000)


def test_the_busiest_subtask_counts_or_the_mean() -> None:
    def uneven(at: float) -> JobSample:
        hot, cold = subtask(at, 700, 0.9), subtask(at, 100, 0.1)
        return sample(at, vertex(at, 1000, 0.0, subtasks=(hot, cold, cold, cold)))

    load = only_load([uneven(400), uneven(460)])
    assert load.busy == pytest.approx(0.9)
    assert load.records_skew == pytest.approx(2.8)
    mean = only_load([uneven(400), uneven(460)], Settings(busy_time_aggregator="AVG"))
    assert mean.busy == pytest.approx(0.3)


def test_a_source_is_observed_only_while_enough_waits_and_often_enough() -> None:
    def look(at: float, lag: float) -> JobSample:
        held = SubtaskSample(250 * at, 200 * at, 0.0, 800 * at)
        return sample(at, vertex(at, 1000, 0.0, subtasks=(held,) * 4, lag=lag))

    assert only_load([look(400, 0), look(460, 90_000)]).observed is None
    seen = only_load([look(400, 0), look(460, 90_000), look(520, 90_000)])
    assert seen.observed == pytest.approx(5000)
    little = only_load([look(400, 0), look(460, 29_000), look(520, 29_000)])
    assert little.observed is None


def test_a_lag_that_grows_counts_as_arriving() -> None:
    first = sample(400, vertex(400, 1000, 1.0, lag=0))
    last = sample(460, vertex(460, 1000, 1.0, lag=12_000))
    assert only_load([first, last]).lag_rate == pytest.approx(200)
