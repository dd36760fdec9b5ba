"""What a worker does next, by its state, a batch and the news: a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.live.bins.batches import NOTHING, Records, RowBatch
from stateshift.live.bins.bin_run import (
    Apply,
    ArrivedBin,
    BatchResult,
    BinResult,
    Give,
    LeaveOut,
    Take,
)
from stateshift.live.bins.commits import BinSnapshot, Commit, FilePiece, HeldRows, Ledger
from stateshift.live.bins.files import Proposal
from stateshift.live.bins.worker_state import News, PendingCommit, WaitingRows, WorkerState
from stateshift.live.protocol.configuration import (
    Update,
    apply_updates,
    initial_configuration,
)

# Four bins at two workers; bins 0 and 2 change places at time 50.
CONFIGURATION = apply_updates(
    initial_configuration([0, 0, 1, 1], 2), [Update(50, 0, 1), Update(50, 2, 0)]
)
KEPT = BinSnapshot((FilePiece("a", 0, 9),), 1)
LAST = Commit(7, 3, "query", 0.0, 0.0, (40,), {}, 0)
STATE = WorkerState(0, 4, Ledger(LAST, {0: KEPT, 1: replace(KEPT, due=(45,))}), ("long",))
NEWS = News(CONFIGURATION)
HELD = HeldRows(1, None, (FilePiece("b", 0, 9),))
AHEAD = replace(
    STATE,
    ledger=replace(STATE.ledger, here={1: KEPT}, held={1: HELD}),
    waiting={1: WaitingRows(HELD, (70,), 2, 7)},
)
CAME = {2: {50: ArrivedBin(1, KEPT)}}
ROWS = RowBatch({3: Records([((41,), "k", 1)])}, {"": (41,)}, 1)


def plan(state=STATE, frontier=(60,), news=NEWS, batch=NOTHING, query="query"):
    return state.after(batch, news, frontier, query)


@pytest.mark.parametrize(
    ("given", "stages"),
    [
        ({"frontier": None}, {}),
        ({"frontier": (45,)}, {}),
        ({"frontier": (46,)}, {1: (Apply((46,)),)}),
        (
            {"frontier": (60,)},
            {
                0: (Apply((50,)), Give(50, 1), LeaveOut((60,))),
                1: (Apply((60,)),),
                2: (LeaveOut((50,)),),
            },
        ),
        (
            {"news": News(CONFIGURATION, arrived=CAME)},
            {
                0: (Apply((50,)), Give(50, 1), LeaveOut((60,))),
                1: (Apply((60,)),),
                2: (LeaveOut((50,)), Take(50), Apply((60,))),
            },
        ),
        ({"frontier": (42,), "batch": ROWS}, {3: (LeaveOut((42,)),)}),
        (
            {"frontier": (42,), "state": replace(STATE, rewritten=frozenset([1, 3]))},
            {1: (Apply((42,)),)},
        ),
        ({"frontier": (42,), "state": AHEAD}, {}),
        ({"frontier": (42,), "state": AHEAD, "query": "another"}, {1: (Apply((42,)),)}),
        ({"frontier": (42,), "state": replace(AHEAD, waiting={})}, {1: (Apply((42,)),)}),
    ],
)
def test_only_the_bins_that_something_happens_to_go_through_stages(given, stages):
    assert {work.bin: work.stages for work in plan(**given).works} == stages


def test_rows_that_wait_stay_as_they_are_until_they_are_written_anew():
    assert plan(AHEAD, (42,)).left == AHEAD.waiting
    old = replace(AHEAD, waiting={1: replace(AHEAD.waiting[1], commit=0)})
    assert plan(old, (42,)).left == {}
    (work,) = plan(AHEAD, (42,), query="another").works
    assert work.comes_again == (40,), "another query reads them once more"


def test_a_bin_that_has_not_come_is_awaited_and_then_made_room_for():
    awaited = plan(frontier=(60,))
    came = BatchResult([BinResult(work.bin) for work in awaited.works])
    commit = awaited.fill(replace(LAST, number=8, frontier=(60,)), came)
    assert [(held.bin, held.since) for held in commit.held] == [(2, 50)]
    state = STATE.made(PendingCommit(commit, STATE.ledger.plus(commit), awaited.works))
    assert state.awaited == {2: 50} and not state.has_arrived(NEWS)
    assert state.position(2).place == "awaited"
    assert state.has_arrived(News(CONFIGURATION, arrived=CAME))
    assert state.retired(CONFIGURATION).since == 49, "the time before the move is needed"


@pytest.mark.parametrize(
    ("updates", "bins", "planned", "reason"),
    [
        ((), None, None, None),
        ((Update(60, 1, 1),), None, None, "has read no rows yet"),
        ((Update(60, 1, 1),), None, (60,), "is at 60 already, and 60 is not ahead of it"),
        ((Update(60, 1, 1),), None, (59,), None),
        ((Update(60, 9, 1),), None, (59,), "there is no bin 9 among 4"),
        ((), 4, (59,), "has 4 bins already"),
        ((), 8, (59,), None),
        ((), 2, (59,), "cannot: bins 0 and 1 are at different workers"),
    ],
)
def test_a_proposal_that_is_late_or_cannot_be_made_is_refused(updates, bins, planned, reason):
    proposal = Proposal(0, updates, 0.0, 30.0, bins=bins)
    assert STATE.reason_against(proposal, CONFIGURATION, planned, ("key",)) == reason


def test_another_number_of_bins_waits_until_all_moves_are_made():
    assert not STATE.can_redistribute(CONFIGURATION)
    later = replace(STATE, ledger=replace(STATE.ledger, last=replace(LAST, frontier=(50,))))
    assert later.can_redistribute(CONFIGURATION)
    assert not replace(later, key_kinds=()).can_redistribute(CONFIGURATION)
    (group,) = list(later.redistributions(2))
    assert [source.bin for source in group.sources] == [0, 1]
