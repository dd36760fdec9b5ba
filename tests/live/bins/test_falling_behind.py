"""A worker that has not looked at another one for longer than that one keeps its commits."""

from __future__ import annotations

from stateshift.live.bins.bin_worker import LOOKS_IN_VAIN_MAX
from stateshift.live.bins.files import KEPT_COMMITS, WHOLE_EVERY
from stateshift.live.bins.watch import Watch
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import Ground, alone, count_and_ask

LONG = KEPT_COMMITS + 2 * WHOLE_EVERY
END = 9 + LONG


def test_a_worker_that_has_missed_commits_gets_what_it_was_given_in_them():
    ground = Ground(count_and_ask, ["west", "east"])
    west, east = ground.workers.values()
    west.read(9)
    east.read(9)
    ground.propose([Update(8, bin, 1) for bin in range(4)])
    west.running.answer()
    east.running.answer()
    assert ground.decide() == "applied"
    for until in range(10, END + 1):
        west.read(until)
    east.read(END)
    for _ in range(LOOKS_IN_VAIN_MAX + 1):
        east.between()
    assert len(east.running.ledger.here) == 4
    assert ground.put_out() == alone(count_and_ask, END)


def test_a_watch_that_has_missed_commits_goes_on_from_the_last_ones():
    ground = Ground(count_and_ask, ["west", "east"])
    west, east = ground.workers.values()
    begun = ground.files.begun()
    assert begun is not None
    west.read(9)
    watch = Watch(ground.files, begun)
    for until in range(10, END + 1):
        west.read(until)
        east.read(until)
    watch.meet()
    for part, worker in zip(watch.look().parts, (east, west), strict=True):
        assert part.ledger.number == worker.running.ledger.number
        assert part.frontier == worker.running.frontier
        assert part.recent[-1] == part.ledger.last
