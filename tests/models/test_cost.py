"""What moving costs: by hand for two steps, and over the papers' sweeps, where the slopes come
of the model alone.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.dataflow.move_steps import (
    AllAtOnce,
    Batched,
    BinMove,
    Fluid,
    Optimised,
    Strategy,
    in_steps,
)
from stateshift.errors import SpecError
from stateshift.live.protocol.configuration import moves_between
from tests.models.cost import Ground, Prediction, drain_seconds, even_state, predict
from tests.models.sweeps import (
    PAPER,
    STRATEGIES,
    flat_up_to,
    over_bins,
    over_both,
    over_keys,
    over_rates,
    rebalanced,
    skewed,
    slope,
)

# Four bins of 100 bytes on two workers of four; each worker gives and takes 100 bytes a second, and
# is half busy.
GROUND = Ground(
    (0, 0, 1, 1),
    (100.0,) * 4,
    rate=40.0,
    bandwidth=100.0,
    capacity=40.0,
    step_seconds=0.5,
    record_bytes=1.0,
)
SPREAD = (BinMove(0, 0, 2), BinMove(2, 1, 3))
QUIET = 1 / 20
FINE = (Fluid(), Batched(4), Optimised())


def test_a_step_takes_as_long_as_its_busiest_worker() -> None:
    found = predict([SPREAD], GROUND)
    assert found == Prediction(1.5 + QUIET, 1.5, 2 * 200 + 40 * 1.5, 1)
    assert predict([(BinMove(0, 0, 2), BinMove(1, 0, 3))], GROUND).seconds == 2.5
    assert predict([(BinMove(0, 0, 2), BinMove(2, 1, 2))], GROUND).seconds == 2.5


@pytest.mark.row("M-4")
def test_without_a_gap_the_next_step_waits_for_what_the_first_left_and_with_one_it_does_not() -> (
    None
):
    """Half busy: 1.5 s of waiting leave 0.75 s of work, which takes 1.5 s to be done beside what
    comes meanwhile.
    """
    steps = [(move,) for move in (BinMove(0, 0, 1), BinMove(0, 1, 0))]
    level = replace(GROUND, rate=20.0)
    # After the first step worker 1 has three of four bins: it is busy for 15 of 40.
    assert predict(steps, level).latency_seconds_max == pytest.approx(1.5 + 1.5 * 0.25 + 1 / 25)
    assert drain_seconds(1.5, 0.25) == 0.5
    assert predict(steps, level, math.inf).latency_seconds_max == pytest.approx(1.5 + 1 / 25)
    assert predict(steps, level, 0.2).latency_seconds_max == pytest.approx(
        1.5 + 1.5 * 0.25 - 0.75 * 0.2 + 1 / 25
    )
    assert predict(steps, level, math.inf).seconds == pytest.approx(1.5 + 0.5 + 1.5)


@pytest.mark.row("M-4")
def test_at_half_load_a_gap_brings_the_worst_latency_from_two_steps_to_one() -> None:
    steps = [
        (BinMove(bin, 0, 2),) if n % 2 == 0 else (BinMove(bin, 2, 0),)
        for bin in (0,)
        for n in range(40)
    ]
    ground = replace(GROUND, rate=20.0 / 0.5, step_seconds=0.0)
    transfer = 1.0
    assert predict(steps, ground).latency_seconds_max == pytest.approx(
        2 * transfer + QUIET, rel=0.01
    )
    assert predict(steps, ground, math.inf).latency_seconds_max == pytest.approx(transfer + QUIET)


@st.composite
def migrations(draw: st.DrawFn) -> tuple[tuple[BinMove, ...], Ground]:
    bins, workers = 1 << draw(st.integers(0, 5)), draw(st.integers(1, 5))
    assigned = st.lists(st.integers(0, workers - 1), min_size=bins, max_size=bins)
    before, after = draw(assigned), draw(assigned)
    state = draw(st.lists(st.floats(1, 1e6), min_size=bins, max_size=bins))
    ground = Ground(
        tuple(before), tuple(state), rate=100.0, bandwidth=1e4, capacity=draw(st.floats(200, 1e4))
    )
    return moves_between(before, after), ground


@given(migrations(), st.sampled_from(FINE))
@settings(deadline=None)
def test_no_strategy_is_worse_than_all_at_once_but_in_how_long_it_takes(
    migration: tuple[tuple[BinMove, ...], Ground], strategy: Strategy
) -> None:
    """But for what a record takes when nothing moves: on the way, one worker may have more than
    before or after.
    """
    moves, ground = migration
    quiet = 1 / (ground.capacity - ground.rate)
    fine, once = (predict(in_steps(s, moves), ground, math.inf) for s in (strategy, AllAtOnce()))
    assert fine.latency_seconds_max <= once.latency_seconds_max * (1 + 1e-9) + quiet
    assert fine.extra_bytes <= once.extra_bytes * (1 + 1e-9)
    assert fine.seconds >= once.seconds * (1 - 1e-9)


@given(migrations(), st.sampled_from(STRATEGIES), st.floats(0, 100))
@settings(deadline=None)
def test_a_longer_gap_never_makes_a_record_wait_longer(
    migration: tuple[tuple[BinMove, ...], Ground], strategy: Strategy, gap: float
) -> None:
    moves, ground = migration
    steps = in_steps(strategy, moves)
    waits = [
        predict(steps, ground, seconds).latency_seconds_max for seconds in (0.0, gap, math.inf)
    ]
    assert waits == sorted(waits, reverse=True)


# ---------------------------------------------------------------------------------------------- the papers' sweeps


@pytest.mark.row("M-21")
@pytest.mark.parametrize("gap", [0.0, math.inf])
def test_latency_falls_with_the_number_of_bins_but_not_all_at_once(gap: float) -> None:
    for strategy in FINE:
        assert slope(over_bins(strategy, gap)) == pytest.approx(-1, abs=0.1), strategy
    assert slope(over_bins(AllAtOnce(), gap)) == pytest.approx(0, abs=0.05)
    assert slope(over_bins(AllAtOnce(), gap, PAPER)) == pytest.approx(-0.07, abs=0.005)


@pytest.mark.row("M-21")
@pytest.mark.parametrize("gap", [0.0, math.inf])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_latency_grows_as_the_keys_do(strategy: Strategy, gap: float) -> None:
    assert slope(over_keys(strategy, gap)) == pytest.approx(1, abs=0.1)


@pytest.mark.row("M-21")
@pytest.mark.parametrize("gap", [0.0, math.inf])
def test_with_as_many_keys_in_each_bin_latency_stays_where_it_is_but_not_all_at_once(
    gap: float,
) -> None:
    for strategy in FINE:
        assert slope(over_both(strategy, gap)) == pytest.approx(0, abs=0.05), strategy
    assert slope(over_both(AllAtOnce(), gap)) == pytest.approx(1, abs=0.05)


def test_where_something_else_takes_the_time_the_slopes_are_others() -> None:
    """They come of the model: a step of a second for itself hides its state, and many bins gain
    nothing.
    """
    assert slope(over_bins(Fluid(), setting=replace(PAPER, step_seconds=1.0))) > -0.5
    assert slope(over_keys(Fluid(), setting=replace(PAPER, step_seconds=1.0))) < 0.5


def test_durations_stay_while_bins_grow_and_grow_with_the_keys() -> None:
    for strategy in (AllAtOnce(), Optimised()):
        seconds = [point.prediction.seconds for point in over_bins(strategy)]
        assert max(seconds) < 2 * min(seconds)
    seconds = [point.prediction.seconds for point in over_both(Fluid())]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 100 * seconds[0]


@pytest.mark.row("M-22")
def test_latency_is_flat_until_a_worker_is_busy_all_the_time() -> None:
    for strategy in (*STRATEGIES, None):
        points = over_rates(strategy)
        assert flat_up_to(points) == 16e6
        assert points[-1].prediction.latency_seconds_max == math.inf


@pytest.mark.row("M-22")
def test_in_steps_latency_is_ten_times_lower_and_more() -> None:
    once, fine = (
        rebalanced(s, 4096, 16384e6).latency_seconds_max for s in (AllAtOnce(), Optimised())
    )
    assert once / fine > 10


@pytest.mark.row("M-23")
def test_all_at_once_needs_a_copy_of_what_it_moves_and_steps_do_not() -> None:
    state = 16e9 * 8
    once, batched, fluid = (
        rebalanced(s, 4096, 16e9).extra_bytes for s in (AllAtOnce(), Optimised(), Fluid())
    )
    assert once > state / 4
    assert batched < state / 100
    assert fluid < batched


def test_a_quarter_of_the_bins_is_away() -> None:
    moves = moves_between(skewed(4096, 16), [bin % 16 for bin in range(4096)])
    assert len(moves) == 1024
    assert {move.source % 2 for move in moves} == {0}
    assert {move.target % 2 for move in moves} == {1}


def test_a_ground_that_cannot_be_is_refused_with_all_of_it() -> None:
    ground = replace(
        GROUND, rate=0.0, bandwidth=-1.0, capacity=math.nan, state_bytes=even_state(8, 8, 8)
    )
    with pytest.raises(SpecError) as refused:
        predict([], ground, gap_seconds_max=-1)
    pointers = [complaint.pointer for complaint in refused.value.complaints]
    assert pointers == ["/rate", "/bandwidth", "/capacity", "/state_bytes", "/gap_seconds_max"]


def test_a_worker_that_cannot_keep_up_never_gets_done() -> None:
    assert predict([SPREAD], replace(GROUND, capacity=20.0)).latency_seconds_max == math.inf
