"""Bins, and the function that says where they are: updated, retired, split, merged, refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import SpecError
from stateshift.live.protocol.configuration import (
    BINS_MAX,
    Configuration,
    Update,
    apply_updates,
    bin_of,
    bits_of,
    initial_configuration,
    merge,
    retire,
    split,
)
from tests.models.bin_messages import moves_at, worker_of

HASHES = st.integers(0, (1 << 64) - 1)


def evenly(bins: int, workers: int) -> Configuration:
    """Bins dealt out to the workers in turn."""
    return initial_configuration([bin % max(workers, 1) for bin in range(bins)], workers)


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    bins, workers = 1 << draw(st.integers(0, 4)), draw(st.integers(1, 5))
    start = initial_configuration(
        draw(st.lists(st.integers(0, workers - 1), min_size=bins, max_size=bins)), workers
    )
    told = draw(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(0, bins - 1), st.integers(0, workers - 1))
        )
    )
    by_place = {(time, bin): worker for time, bin, worker in told}
    return apply_updates(
        start, (Update(time, bin, worker) for (time, bin), worker in sorted(by_place.items()))
    )


@pytest.mark.row("M-2")
def test_a_bin_is_the_leading_bits_of_a_hash() -> None:
    assert bin_of(0b1011 << 60, 8) == 0b101
    assert bin_of((1 << 64) - 1, BINS_MAX) == BINS_MAX - 1
    assert {bin_of(hashed, 1) for hashed in (0, 1 << 63)} == {0}


@given(hashed=HASHES, bits=st.integers(0, 19))
@settings(deadline=None)
def test_the_halves_of_a_bin_lie_beside_each_other(hashed: int, bits: int) -> None:
    assert bin_of(hashed, 2 << bits) // 2 == bin_of(hashed, 1 << bits)
    assert bits_of(1 << bits) == bits


@pytest.mark.row("M-1")
def test_an_update_holds_from_its_time_on_until_the_next_one() -> None:
    configuration = apply_updates(
        evenly(4, 2), [Update(16, 0, 1), Update(20, 3, 0), Update(30, 0, 0)]
    )
    assert [configuration.worker(time, 0) for time in (0, 15, 16, 29, 30, 99)] == [0, 0, 1, 1, 0, 0]
    assert configuration.at(20) == (1, 1, 0, 0)
    assert moves_at(configuration, 16) == ((0, 0, 1),)
    assert moves_at(configuration, 17) == ()
    assert configuration.last == 30


@given(configurations(), st.integers(0, 45), st.integers(0, 45))
@settings(deadline=None)
@pytest.mark.row("M-1")
def test_what_is_retired_changes_no_time_that_is_left(
    configuration: Configuration, frontier: int, later: int
) -> None:
    left = retire(configuration, frontier)
    assert left.at(frontier + later) == configuration.at(frontier + later)
    assert left.since == frontier
    assert all(entry.time > frontier for history in left.history for entry in history[1:])
    assert retire(left, frontier) == left


def test_when_every_update_is_past_one_entry_for_each_bin_is_left() -> None:
    configuration = apply_updates(
        evenly(4, 2), [Update(time, time % 4, time // 4 % 2) for time in range(400)]
    )
    assert sum(map(len, configuration.history)) > 300
    assert sum(map(len, retire(configuration, 400).history)) == 4


def test_a_retired_time_is_nobodys_question() -> None:
    with pytest.raises(AssertionError, match="retired"):
        retire(evenly(4, 2), 10).worker(9, 0)


@given(configurations(), HASHES, st.integers(0, 45))
@settings(deadline=None)
@pytest.mark.row("M-24")
def test_a_split_moves_no_key_at_any_time(
    configuration: Configuration, hashed: int, time: int
) -> None:
    halves = split(configuration)
    assert halves.bins == 2 * configuration.bins
    assert worker_of(halves, time, hashed) == worker_of(configuration, time, hashed)
    assert merge(halves).at(time) == configuration.at(time)


@pytest.mark.row("M-24")
def test_halves_that_were_apart_are_one_bin_again_once_that_time_is_retired() -> None:
    apart = apply_updates(split(evenly(2, 2)), [Update(10, 1, 1), Update(20, 1, 0)])
    with pytest.raises(SpecError) as refused:
        merge(apart)
    assert [(c.pointer, c.found) for c in refused.value.complaints] == [("/bins/0", [0, 1])]
    assert merge(retire(apart, 20)) == retire(evenly(2, 2), 20)


def _complaints(attempt: object, *arguments: object) -> list[tuple[str, str]]:
    assert callable(attempt)
    with pytest.raises(SpecError) as refused:
        attempt(*arguments)
    assert refused.value.hint is None or len(refused.value.hint) > 10
    return [(complaint.pointer, complaint.message) for complaint in refused.value.complaints]


@pytest.mark.parametrize(
    ("bins", "told"), [(0, "0"), (3, "take 2 or 4"), (12, "take 8 or 16"), (1 << 21, "more than")]
)
def test_bins_that_are_no_power_of_two_are_refused(bins: int, told: str) -> None:
    (pointer, message), *more = _complaints(evenly, bins, 2)
    assert (pointer, told in message, more) == ("/bins", True, [])


def test_everything_wrong_with_a_beginning_is_told_at_once() -> None:
    assert _complaints(initial_configuration, [0, 2, -1], 2) == [
        ("/bins", "3 bins are no power of two: take 2 or 4"),
        ("/bins/1", "there is no worker 2 among 2"),
        ("/bins/2", "there is no worker -1 among 2"),
    ]
    assert [pointer for pointer, _ in _complaints(evenly, 5, 0)] == ["/bins", "/workers"]


def test_everything_wrong_with_updates_is_told_at_once_and_nothing_else() -> None:
    before = retire(apply_updates(evenly(4, 2), [Update(8, 1, 0)]), 5)
    told = [
        Update(6, 0, 1),
        Update(7, 9, 1),
        Update(6, 2, 0),
        Update(9, 2, 7),
        Update(4, 9, -1),
        Update(9, 3, 1),
        Update(9, 3, 0),
        Update(9, 3, 0),
    ]
    assert _complaints(apply_updates, before, told) == [
        ("/1/bin", "there is no bin 9 among 4"),
        ("/2/time", "time runs backwards, from 7 to 6"),
        ("/3/worker", "there is no worker 7 among 2"),
        ("/4/time", "time runs backwards, from 9 to 4"),
        ("/4/bin", "there is no bin 9 among 4"),
        ("/4/worker", "there is no worker -1 among 2"),
        ("/6/worker", "bin 3 is at worker 1 at time 9 already"),
        ("/7/worker", "bin 3 is at worker 1 at time 9 already"),
    ]
    assert _complaints(apply_updates, before, [Update(7, 1, 1)])[0][0] == "/0/time"


def test_an_update_of_a_time_that_is_retired_would_hide_a_move_and_is_refused() -> None:
    before = retire(evenly(4, 2), 5)
    assert _complaints(apply_updates, before, [Update(5, 0, 1)]) == [
        ("/0/time", "time runs backwards, from 6 to 5")
    ]
    assert moves_at(apply_updates(before, [Update(6, 0, 1)]), 6) == ((0, 0, 1),)
    assert moves_at(apply_updates(evenly(4, 2), [Update(0, 0, 1)]), 0) == ((0, 0, 1),)


@pytest.mark.row("M-24")
def test_updates_may_speak_of_more_bins_than_there_are_and_of_fewer() -> None:
    finer = apply_updates(evenly(2, 2), [Update(5, 1, 1)], bins=4)
    assert finer.at(5) == (0, 1, 1, 1)
    assert apply_updates(finer, [Update(6, 0, 1)], bins=1).at(6) == (1, 1, 1, 1)
    assert _complaints(apply_updates, finer, [Update(6, 2, 0)], 2) == [
        ("/0/bin", "there is no bin 2 among 2")
    ]
    assert _complaints(apply_updates, finer, [Update(6, 0, 0)], 3)[0][0] == "/bins"


@pytest.mark.long
def test_more_bins_than_a_routing_table_bears_are_refused() -> None:
    assert _complaints(split, evenly(BINS_MAX, 1))[0][0] == "/bins"
    assert _complaints(merge, evenly(1, 1))[0][0] == "/bins"
