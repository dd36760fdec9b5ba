"""Bins that are split and merged: which belong together, and who may count by which number."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import SpecError
from stateshift.live.protocol.configuration import (
    HASH_BITS,
    Update,
    WorkerMoves,
    apply_updates,
    bin_of,
    groups_to_resize,
    initial_configuration,
    is_settled,
    related_bins,
    resize_settled,
)

HASHES = st.integers(0, (1 << HASH_BITS) - 1)
COUNTS = st.sampled_from([1 << bits for bits in range(9)])


@given(HASHES, COUNTS, COUNTS)
@pytest.mark.row("M-24")
def test_a_key_is_in_one_of_the_bins_that_its_bin_becomes(hashed: int, before: int, after: int):
    assert bin_of(hashed, after) in related_bins(bin_of(hashed, before), before, after)


@given(COUNTS, COUNTS)
def test_whatever_becomes_of_bins_is_all_bins_once(before: int, after: int):
    found = list(chain.from_iterable(related_bins(bin, before, after) for bin in range(before)))
    assert sorted(set(found)) == list(range(after))
    assert len(found) == max(before, after)


def test_bins_that_are_merged_are_dealt_together_and_those_that_are_split_alone():
    assert list(groups_to_resize([5, 0, 4, 6], 8, 4)) == [(0,), (4, 5), (6,)]
    assert list(groups_to_resize([5, 0, 4, 6], 8, 2)) == [(0,), (4, 5, 6)]
    assert list(groups_to_resize([2, 0], 4, 16)) == [(0,), (2,)]


@pytest.mark.row("M-24")
def test_a_worker_is_settled_once_every_move_is_behind_it():
    moved = apply_updates(initial_configuration([0, 0], 2), [Update(45, 1, 1)])
    settled = WorkerMoves((45, 3), 0, 0)
    assert is_settled(moved, settled)
    assert is_settled(moved, WorkerMoves((45,), 0, 0))
    assert not is_settled(moved, WorkerMoves((44, 3), 0, 0))
    assert not is_settled(moved, WorkerMoves(None, 0, 0))
    assert not is_settled(moved, WorkerMoves((45, 3), 1, 0))
    assert not is_settled(moved, WorkerMoves((45, 3), 0, 1))


@pytest.mark.row("M-24")
def test_settled_workers_have_each_key_where_it_was_at_the_last_move():
    moved = apply_updates(
        initial_configuration([0, 1, 0, 1], 2), [Update(45, 1, 0), Update(50, 3, 0)]
    )
    split = resize_settled(moved, 16)
    assert split.at(50) == (0,) * 16
    assert resize_settled(split, 4).at(50) == moved.at(50)


@pytest.mark.row("M-24")
def test_halves_that_were_apart_can_be_merged_once_they_are_together():
    apart = apply_updates(initial_configuration([0, 0, 1, 1], 2), [Update(10, 1, 1)])
    with pytest.raises(SpecError, match="bins 0 and 1 are at different workers"):
        resize_settled(apart, 2)
    together = apply_updates(apart, [Update(20, 1, 0)])
    assert resize_settled(together, 2).at(20) == (0, 1)


def test_a_number_that_is_no_power_of_two_is_refused():
    with pytest.raises(SpecError, match="12 bins are no power of two: take 8 or 16"):
        resize_settled(initial_configuration([0, 0], 1), 12)
