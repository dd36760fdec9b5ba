"""A worker whose name is taken from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift import live
from stateshift.errors import PlanError
from stateshift.live.bins import worker_state
from stateshift.live.bins.controller import Controller
from stateshift.live.bins.files import KEPT_COMMITS, WHOLE_EVERY, Files
from stateshift.live.bins.move_request import refuse_without_rows
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.parts import OperatorStart
from stateshift.live.bins.state_acts import evict, evict_everywhere, evict_worker
from stateshift.live.bins.watch import Watch
from stateshift.live.folder import Folder
from stateshift.live.protocol.applying import Folded
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Update
from stateshift.storage.opening import open_patiently
from tests.live.bins.workers import BINS, OUT, TIES, Ground, Reader, alone, count_and_ask


def test_whoever_goes_on_under_the_name_has_nothing_twice_and_misses_nothing():
    ground = Ground(count_and_ask, ["west", "east"])
    west = ground.workers["west"]
    for until in (50, 90, 130):
        west.read(until)
        ground.workers["east"].read(until)
    evicted = evict(ground.files, "count_and_ask", "west")
    assert evicted.frontier is not None
    with pytest.raises(PlanError, match="another process has committed"):
        west.read(160)
    west.start()
    west.read_to = evicted.frontier[1] - 25  # from before the frontier, as a new checkpoint would
    west.read(200)
    ground.workers["east"].read(200)
    assert ground.put_out() == alone(count_and_ask, 200, ground.keys)


def count(key, state, values):
    rows = sorted(values)
    first = (state or 0) + 1
    outputs = [(number, key, first + place) for place, number in enumerate(rows)]
    return Folded(first + len(rows) - 1, tuple(outputs))


def counting(name: str, promise: live.InOrder | live.Watermark) -> BinOperator:
    """An operator whose frontier lies before the last rows that it has read: those are held."""
    declared = live.operator(
        bins=BINS, key="key", time="at", out=OUT, values="number", name=name, promise=promise
    )
    return declared(count)


HOLDING = (
    counting("ties", live.InOrder(ties=True)),
    counting("late", live.Watermark(3)),
)


@pytest.mark.parametrize("operator", HOLDING, ids=lambda operator: operator.name)
@pytest.mark.parametrize("home", ["driver", "executors"])
@pytest.mark.parametrize("until", [131, 200])
def test_rows_that_were_held_are_not_there_twice_once_another_query_reads_them_again(
    operator, home, until
):
    ground = Ground(operator, ["west"], homes=(home,))
    west = ground.workers["west"]
    for number in (50, 90, 130):
        west.read(number)
    evicted = evict(ground.files, operator.name, "west")
    assert evicted.frontier is not None and west.running.ledger.held
    west.start()
    west.query = "of a new checkpoint"
    west.read_to = TIES * evicted.frontier[0] - 25
    west.read(until)  # the first time no more than what was held
    west.read(220)
    rows = [row[0] for row in ground.put_out()]
    assert rows == sorted(set(rows))
    assert set(range(TIES * (west.running.frontier[0] - 1))) <= set(rows)


def test_rows_that_wait_for_their_bin_stay_where_another_query_does_not_read_them_again():
    ground = Ground(count_and_ask, ["west", "east"])
    west, east = ground.workers.values()
    for worker in (west, east):
        worker.read(50)
    ground.propose([Update(20, bin, 1) for bin in range(BINS)])
    for worker in (west, east):
        worker.running.answer()
    ground.files.decide(0, Decision("applied", 0.0, "test"))
    east.read(130)  # past the time: it awaits the bins, and holds their rows
    assert east.running.ledger.held
    east.start()
    east.query = "of a new checkpoint"
    east.read_to = 125
    east.read(160)
    west.read(220)
    east.between()
    east.read(220)
    assert ground.put_out() == alone(count_and_ask, 220, ground.keys)


@pytest.mark.parametrize("paused_after", [0, 1])
def test_a_worker_that_was_paused_until_its_next_commit_was_forgotten_ends_all_the_same(
    paused_after,
):
    ground = Ground(count_and_ask, ["west"])
    west = ground.workers["west"]
    for _ in range(paused_after):
        west.read(9)
    heir = Reader(ground, "west", west.offsets)
    for until in range(10, 12 + KEPT_COMMITS + WHOLE_EVERY):
        heir.read(until)
    numbers = ground.files.commit_numbers("count_and_ask", "west")
    assert min(numbers) > paused_after
    with pytest.raises(PlanError, match="another process has committed"):
        west.read(30)
    assert ground.files.commit_numbers("count_and_ask", "west") == numbers
    heir.read(100)
    ground.workers["west"] = heir
    assert ground.put_out() == alone(count_and_ask, 100, ground.keys)


class StartedAtOnce(Files):
    """Files of a group in which somebody starts under a name as soon as it is taken."""

    heir = OperatorStart(
        "count_and_ask", "west", "fold", ("key",), (), "", "new", "", 9.0, host="new"
    )

    def commit(self, operator, worker, commit):
        super().commit(operator, worker, commit)
        self.run(self.heir)


def test_whoever_starts_while_its_name_is_being_taken_is_not_said_to_be_evicted():
    ground = Ground(count_and_ask, ["west"])
    ground.workers["west"].read(9)
    evict_everywhere(StartedAtOnce(ground.storage), "west")
    assert ground.files.runs() == (StartedAtOnce.heir,)


class StartedLater(Files):
    """Files of a group in which somebody starts under a name just before it is said to be free."""

    def evict_start(self, runs):
        super().run(StartedAtOnce.heir)
        super().evict_start(runs)

    def run(self, runs):
        super().run(StartedAtOnce.heir)
        super().run(runs)


@pytest.mark.parametrize("until", [0, 9])
def test_whoever_starts_while_an_eviction_is_written_down_is_not_said_to_be_evicted(until):
    ground = Ground(count_and_ask, ["west"])
    if until:
        ground.workers["west"].read(until)
    evict_everywhere(StartedLater(ground.storage), "west")
    assert ground.files.runs() == (StartedAtOnce.heir,)


def test_what_an_older_version_has_evicted_is_evicted():
    ground = Ground(count_and_ask, ["west"])
    (runs,) = ground.files.runs()
    ground.files.run(replace(runs, is_evicted=True))
    assert all(each.is_evicted for each in ground.files.runs())
    ground.files.run(StartedAtOnce.heir)
    assert not any(each.is_evicted for each in ground.files.runs())


def test_who_has_gone_for_good_and_has_no_bins_need_not_answer(tmp_path):
    storage = open_patiently(f"file://{tmp_path}")
    Folder(storage).ensure()
    ground = Ground(count_and_ask, ["west", "east"], storage=storage)
    for worker in ground.workers.values():
        worker.read(50)
    controller = Controller(str(tmp_path))
    assert {part.runs.worker for part in controller.status().parts} == {"west", "east"}
    evict_worker(str(tmp_path), "east")
    assert {part.runs.worker for part in controller.status().parts} == {"west"}
    evict_worker(str(tmp_path), "west")  # has bins, which wait for somebody
    assert {part.runs.worker for part in controller.status().parts} == {"west"}


def test_an_eviction_counts_no_row_of_the_commit_before_it(monkeypatch):
    monkeypatch.setattr(worker_state, "BUSY", 0)  # every bin is a busy one
    ground = Ground(count_and_ask, ["west", "east"])
    for until in (50, 90, 130):
        ground.workers["west"].read(until)
    last = ground.files.ledger("count_and_ask", "west").last
    assert last is not None and last.busy
    evict(ground.files, "count_and_ask", "west")
    empty = ground.files.ledger("count_and_ask", "west").last
    assert empty is not None and empty.number == last.number + 1
    assert (empty.counts.folded, dict(empty.busy)) == (0, {})


def test_who_is_not_there_is_not_evicted():
    ground = Ground(count_and_ask, ["west", "east"])
    with pytest.raises(PlanError, match="no worker north"):
        evict(ground.files, "count_and_ask", "north")


def test_a_worker_that_dies_before_its_first_commit_is_evicted_and_blocks_nobody():
    ground = Ground(count_and_ask, ["west", "east"])
    ground.workers["west"].read(9)
    begun = ground.files.begun()
    assert begun is not None
    with pytest.raises(PlanError, match="worker east has read no rows yet") as caught:
        refuse_without_rows(Watch(ground.files, begun).look())
    assert "stateshift live evict memory://group east" in str(caught.value.hint)
    evicted = evict_everywhere(ground.files, "east")
    assert [(one.frontier, one.at) for one in evicted] == [(None, None)]
    refuse_without_rows(Watch(ground.files, begun).look())
    with pytest.raises(PlanError, match="was evicted before its first commit"):
        ground.workers["east"].read(9)


def test_a_worker_is_evicted_in_all_that_it_runs_though_it_has_not_committed_everywhere():
    ground = Ground(count_and_ask, ["west"])
    ground.workers["west"].read(9)
    for operator in ("another", "zero"):
        ground.files.run(OperatorStart(operator, "west", "fold", ("key",), (), "", "", "", 0.0))
    evicted = evict_everywhere(ground.files, "west")
    assert [(one.operator, one.commit) for one in evicted] == [
        ("another", 0),
        ("count_and_ask", 1),
        ("zero", 0),
    ]
    assert all(runs.is_evicted for runs in ground.files.runs())
