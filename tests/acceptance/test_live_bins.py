"""Bins move between two real applications while both run: the rows are those of one alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import xxhash

from stateshift.live.protocol.configuration import bin_of
from tests.acceptance.live_operators import BINS, LATER
from tests.acceptance.living_bins import Bins, group, half
from tests.support.open_loop import TIES

pytestmark = pytest.mark.spark


@pytest.mark.row("M-1", "M-2", "M-6", "M-7")
def test_half_of_the_bins_move_and_the_rows_are_those_of_one_worker_alone(tmp_path: Path) -> None:
    with group(tmp_path, "west", "east") as bins:
        bins.begin()
        at = bins.move(dict.fromkeys(half(), "east"), seconds=3)
        # Old commits are forgotten: these are read while they are there.
        bins.wait(lambda: bins.given() == half(), "not all bins are given")
        bins.wait(lambda: len(bins.taken()) == len(half()), "not all bins are taken")
        taken = bins.taken()
        bins.until_the_end()
    assert bins.outputs() == bins.alone()
    assert_put_out_where_they_were(bins, at)
    assert [one.bin for one in taken] == half()
    assert any(one.kept.due for one in taken), "what is to be seen again has moved along"


KILLS = {
    "giver, once it is decided": ("west", "decided"),
    "giver, once it has given": ("west", "given"),
    "taker, once it is decided": ("east", "decided"),
    "taker, once it is given": ("east", "given"),
    "taker, once it has taken": ("east", "taken"),
}


@pytest.mark.slow
@pytest.mark.row("M-6", "M-7")
@pytest.mark.parametrize("who", KILLS)
def test_a_worker_that_is_killed_during_a_move_goes_on_where_it_was(
    tmp_path: Path, who: str
) -> None:
    victim, moment = KILLS[who]
    with group(tmp_path, "west", "east") as bins:
        bins.begin()
        at = bins.move(dict.fromkeys(half(), "east"), seconds=3)
        if moment == "given":
            bins.wait(bins.given, "nothing is given")
        elif moment == "taken":
            bins.wait(bins.taken, "nothing is taken")
        bins.kill(victim)
        bins.start(victim)
        bins.until_the_end()
    assert bins.outputs() == bins.alone()
    assert_put_out_where_they_were(bins, at)


def assert_put_out_where_they_were(bins: Bins, at: int) -> None:
    """A row is put out by the worker that had its bin at the row's time."""
    for worker, (number, key, *_) in bins.put_out():
        time = number // TIES if number >= 0 else -number // 3 + LATER
        hashed = xxhash.xxh64_intdigest(key.to_bytes(8, "little", signed=True), seed=42)
        has_moved = bin_of(hashed, BINS) % 2 == 0 and time >= at
        assert worker == ("east" if has_moved else "west")
