"""How far a worker without bins counts as having come, and whose moves are left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateshift.live.protocol.configuration import (
    Configuration,
    Update,
    apply_updates,
    frontier_without_bins,
    initial_configuration,
    next_move,
)
from tests.models.bin_messages import moves_at

WORKERS, BINS, LAST = 4, 4, 20
TIMES = st.integers(0, LAST)
MOMENTS = st.tuples(TIMES, st.integers(0, 3))
UPDATES = st.lists(
    st.builds(Update, TIMES, st.integers(0, BINS - 1), st.integers(0, WORKERS - 1)), max_size=8
)
WORKER = st.integers(0, WORKERS - 1)


def moved(updates: list[Update]) -> Configuration:
    unique = {(update.time, update.bin): update for update in updates}
    return apply_updates(initial_configuration([0, 1, 0, 1], WORKERS), sorted(unique.values()))


@given(UPDATES, WORKER, st.none() | MOMENTS, st.lists(MOMENTS, max_size=3))
def test_no_row_is_left_out_that_is_the_workers_own(updates, worker, own, others):
    configuration = moved(updates)
    after = frontier_without_bins(configuration, worker, own, others)
    if after == own:
        return
    assert (own is None or after > own) and after <= min(others)
    first = 0 if own is None else own[0]
    for time in range(first, LAST + 1):
        is_left_out = (time, 4) < after or (own is not None and time == first)
        if is_left_out:
            assert worker not in configuration.at(time)


@given(UPDATES, WORKER, MOMENTS)
def test_a_worker_that_never_has_a_bin_is_where_the_slowest_is(updates, worker, frontier):
    theirs = [update for update in updates if update.worker != worker]
    others = [frontier, (LAST, 9)]
    has_begun_with_some = worker in (0, 1)
    after = frontier_without_bins(moved(theirs), worker, None, others)
    assert after == (None if has_begun_with_some else frontier)


def test_a_worker_with_bins_is_where_its_source_is():
    configuration = moved([Update(10, 0, 2), Update(15, 0, 3)])
    assert frontier_without_bins(configuration, 0, (3, 1), [(9, 0)]) == (3, 1)
    assert frontier_without_bins(configuration, 2, (3, 1), [(9, 0)]) == (9, 0)
    assert frontier_without_bins(configuration, 2, (3, 1), [(12, 0)]) == (9,)
    assert frontier_without_bins(configuration, 2, (12, 0), [(14, 0)]) == (12, 0)
    assert frontier_without_bins(configuration, 2, (15, 0), [(18, 0)]) == (18, 0)
    assert frontier_without_bins(configuration, 2, (3, 1), []) == (3, 1)


@given(UPDATES, WORKER, TIMES)
def test_the_next_move_of_a_worker_is_one_that_it_gives_or_takes(updates, worker, since):
    configuration = moved(updates)
    times = [
        time
        for time in range(since, LAST + 1)
        if any(worker in (source, target) for _, source, target in moves_at(configuration, time))
    ]
    assert next_move(configuration, worker, since) == min(times, default=None)
