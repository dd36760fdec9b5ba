"""What a group's folder holds stays in proportion to the state, whatever dies in it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stateshift import live
from stateshift.live.bins.batches import unread_batch
from stateshift.live.bins.commits import BinSnapshot, FilePiece
from stateshift.live.bins.hashing import HASH
from stateshift.live.bins.upkeep import SLACK, worth_rewriting
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import Ground, hash_of

KEYS, HOT, ROWS, SIZE = 3000, 100, 100, 1000
LARGE_ROWS = 2 * KEYS // 3
SHORT_LIVES = [pytest.param(life, marks=pytest.mark.slow) for life in (3, 7)]
LIVES = [None, 1, *SHORT_LIVES]


@live.operator(bins=64, key="key", time="at", out="key long", values="at")
def large(key, state, values):
    """Keep a thousand bytes a key, other ones each time."""
    return live.Folded(bytes([values[-1] % 251]) * SIZE)


def batch(number: int) -> pa.Table:
    """First each key once, then the hot ones again and again."""
    rows = range(number * ROWS, (number + 1) * ROWS)
    return table([(row, row if row < KEYS else row % HOT) for row in rows])


def table(rows: list[tuple[int, int]]) -> pa.Table:
    """Rows, each a time and a key, with the hashes that Spark has of keys."""
    at, keys = zip(*rows, strict=True)
    hashes = [hash_of(key) for key in keys]
    signed = [one - (1 << 64) if one >= 1 << 63 else one for one in hashes]
    return pa.table({"at": pa.array(at), "key": pa.array(keys), HASH: pa.array(signed)})


def work(worker, rows: pa.Table, number: int) -> None:
    """Do a batch, and what comes behind it."""
    running = worker.running
    batch = unread_batch(rows, running.operator, running.operator.bins)
    running.step(batch.read((), None), number)
    worker.between()
    if running.is_clean_up_due:
        running.clean_up()


def stored(ground: Ground) -> int:
    return sum(file.size for file in ground.storage.list("bins"))


@live.operator(bins=64, key="key", time="at", out="key long", values="at")
def middling(key, state, values):
    """Keep as many bytes a key as that half of the state is written anew in each batch below."""
    return live.Folded(bytes([values[-1] % 251]) * (SIZE // 2))


def large_batch(number: int) -> pa.Table:
    """Two rows in three keys that are there."""
    rows = range(number * LARGE_ROWS, (number + 1) * LARGE_ROWS)
    return table([(at, at * 7919 % KEYS) for at in rows])


def test_batches_that_are_large_beside_the_state_leave_two_more_of_them_at_most():
    ground = Ground(middling, ["alone"])
    (worker,) = ground.workers.values()
    most = 0
    for number in range(30):
        work(worker, large_batch(number), number)
        most = max(most, stored(ground))
    state, written = KEYS * SIZE // 2, LARGE_ROWS * SIZE // 2
    assert most < 3 * state + 2 * written + SLACK


def test_rows_that_wait_for_a_dead_worker_keep_no_states():
    ground = Ground(middling, ["east", "west"])
    east, west = ground.workers.values()

    def move(bins, number):
        ground.propose([Update(number * LARGE_ROWS + 10, bin, 1) for bin in bins])
        for worker in (east, west):
            worker.running.answer()
        assert ground.decide() == "applied"

    for number in range(6):
        if number == 3:
            move(range(63), number)
        work(east, large_batch(number), number)
        work(west, large_batch(number), number)
    move([63], 6)  # east dies before it gives that one
    most = 0
    for number in range(6, 46):
        work(west, large_batch(number), number)
        most = max(most, stored(ground))
    held = sum(piece.size for one in west.running.ledger.held.values() for piece in one.pieces)
    assert held > 0
    state, written = KEYS * SIZE // 2, LARGE_ROWS * SIZE // 2
    assert most < 3 * state + 2 * (3 * written + SLACK) + held


@pytest.mark.long
@pytest.mark.parametrize("life", LIVES, ids=lambda life: f"life-{life}")
@pytest.mark.parametrize("batches", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_thousand_batches_leave_three_times_the_state_at_most(batches, life):
    """`life` is how many batches a worker comes to until it dies."""
    ground = Ground(large, ["west", "east"])
    workers = list(ground.workers.values())
    most = 0
    for number in range(batches):
        if number == batches // 2:
            at = number * ROWS + 10
            ground.propose([Update(at, bin, 1) for bin in range(32)])
            for worker in workers:
                worker.running.answer()
            assert ground.decide() == "applied"
        for worker in workers:
            work(worker, batch(number), number)
            if life is not None and number % life == 0:
                worker.offsets = [0] * (number + 2)  # nothing is read of a log
                worker.start()
        if number * ROWS > KEYS:
            most = max(most, stored(ground))
    assert sum(len(worker.running.ledger.here) for worker in workers) == 64
    state = KEYS * SIZE
    commits = 2 * 100 * 64 * 150  # of two workers, each with a line for each of 64 bins
    assert most < 3 * state + 2 * SLACK + commits


def test_a_bin_that_keeps_a_dead_file_is_written_anew():
    here = {
        1: BinSnapshot((FilePiece("dead", 0, 1 << 16),)),
        2: BinSnapshot((FilePiece("alive", 0, 1 << 23),)),
    }
    sizes = {"dead": 1 << 24, "alive": 1 << 23}
    assert worth_rewriting(here, sizes) == (1,)


def test_a_bin_that_needs_a_file_of_others_is_written_anew():
    here = {
        1: BinSnapshot((FilePiece("theirs", 0, 10),)),
        2: BinSnapshot((FilePiece("ours", 0, 10),)),
    }
    assert worth_rewriting(here, {"ours": 10}) == (1,)


def test_nothing_is_written_anew_where_little_is_dead():
    here = {1: BinSnapshot((FilePiece("ours", 0, 1 << 23),))}
    assert worth_rewriting(here, {"ours": (1 << 23) + 100}) == ()
