"""Bins that move at random between workers that read at random, and die at random."""

from __future__ import annotations

from functools import cache
from itertools import chain

import pytest

from tests.conftest import SEED
from tests.live.bins.forms import ASK_LATER, FORMS
from tests.live.bins.walking import END, Walk
from tests.live.bins.workers import BINS, alone

HOMES = (("driver",), ("executors",), ("driver", "executors"))
WALKS = 10


@cache
def wanted(form: str) -> list[tuple[int, ...]]:
    """What one worker alone puts out."""
    return alone(FORMS[form], END)


@pytest.mark.long
@pytest.mark.sample(12)
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("homes", HOMES, ids="/".join)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(WALKS))
def test_wherever_bins_go_the_rows_are_those_of_one_worker_alone(number, form, homes, kills):
    ground = Walk(FORMS[form], (SEED, number, form, homes), kills, homes=homes).run()
    assert ground.put_out() == wanted(form)
    assert sum(len(w.running.ledger.here) for w in ground.workers.values()) == BINS


@pytest.mark.long
@pytest.mark.row("M-24")
@pytest.mark.sample(12)
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("homes", HOMES, ids="/".join)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(WALKS))
def test_however_bins_are_split_and_merged_the_rows_are_those_of_one_worker_alone(
    number, form, homes, kills
):
    walk = Walk(FORMS[form], (SEED, "bins", number, form, homes), kills, homes=homes, resizes=True)
    ground = walk.run()
    assert ground.put_out() == wanted(form)
    assert {w.running.bins for w in ground.workers.values()} == {ground.bins}
    here = sorted(chain.from_iterable(w.running.ledger.here for w in ground.workers.values()))
    assert here == list(range(ground.bins))


@pytest.mark.sample(4)
@pytest.mark.parametrize("resizes", [False, True])
@pytest.mark.parametrize("homes", HOMES, ids="/".join)
@pytest.mark.parametrize("number", range(4 * WALKS))
def test_whoever_is_evicted_the_others_move_bins_and_the_rows_are_those_of_one_worker_alone(
    number, homes, resizes
):
    seed = (SEED, "evicted", number, homes)
    walk = Walk(
        FORMS["fold"],
        seed,
        kills=True,
        homes=homes,
        is_forgetful=False,
        resizes=resizes,
        evicts=True,
    )
    ground = walk.run()
    assert ground.put_out() == wanted("fold")
    assert {worker.running.bins for worker in ground.workers.values()} == {ground.bins}
    here = sorted(chain.from_iterable(w.running.ledger.here for w in ground.workers.values()))
    assert here == list(range(ground.bins))


@pytest.mark.sample(4)
@pytest.mark.parametrize("resizes", [False, True])
@pytest.mark.parametrize("homes", HOMES, ids="/".join)
@pytest.mark.parametrize("number", range(4 * WALKS))
def test_whoever_starts_from_nothing_the_rows_are_those_of_one_worker_alone(number, homes, resizes):
    walk = Walk(
        FORMS["fold"],
        (SEED, "joins", number, homes),
        kills=True,
        homes=homes,
        is_forgetful=False,
        resizes=resizes,
        evicts=number % 2 == 0,
        joins="north",
    )
    ground = walk.run()
    assert "north" in ground.workers
    assert ground.put_out() == wanted("fold")
    here = sorted(chain.from_iterable(w.running.ledger.here for w in ground.workers.values()))
    assert here == list(range(ground.bins))


@pytest.mark.long
def test_walks_move_bins_and_what_is_asked_for_in_each_form():
    for form, operator in FORMS.items():
        given = Walk(operator, ("moves", form), kills=False).run().given()
        assert len(given) > BINS, form
        assert any(one.kept.due for one in given) == (form in ASK_LATER)
