"""What the first moves come to is kept, so that nobody reads each of them at every start."""

from __future__ import annotations

from stateshift.live.bins.files import MOVES_BASE_EVERY, Begun, Files, look
from stateshift.live.protocol.configuration import Update
from tests.live.bins.workers import BINS, TIES, Ground, alone, count_and_ask

MOVES = MOVES_BASE_EVERY + 3


def moved() -> Ground:
    """A group in which bins have gone to and fro."""
    ground = Ground(count_and_ask, ["west", "east"])
    for worker in ground.workers.values():
        worker.read(TIES)
    for number in range(MOVES):
        time = number * 2 + 3
        ground.propose([Update(time, number % BINS, (number // BINS + 1) % 2)])
        for worker in ground.workers.values():
            worker.running.answer()
        assert ground.decide() == "applied"
        for worker in ground.workers.values():
            worker.read((time + 1) * TIES)
        for worker in ground.workers.values():
            worker.between()
    return ground


def keep(ground: Ground) -> None:
    files = Files(ground.storage)
    begun = files.begun()
    assert begun is not None
    files.keep_moves(look(files, files.known_moves(begun, 2)))


def forget_moves(ground: Ground) -> None:
    for number in range(MOVES):
        for file in list(ground.storage.list(f"bins/moves/{number:06d}")):
            ground.storage.remove(file.path)


def test_a_worker_that_starts_needs_none_of_the_moves_that_are_kept():
    ground = moved()
    keep(ground)
    forget_moves(ground)
    end = 3 * MOVES * TIES
    for worker in ground.workers.values():
        worker.start()
        worker.read(end)
    for _ in range(2):
        for worker in ground.workers.values():
            worker.between()
            worker.read(end)
    assert ground.put_out() == alone(count_and_ask, end)


def test_what_is_kept_is_what_the_moves_come_to():
    ground = moved()
    begun = Begun(BINS, ("west",))
    read_one_by_one = look(ground.files, ground.files.known_moves(begun, 2))
    keep(ground)
    assert ground.files.known_moves(begun, 2) == read_one_by_one
    assert read_one_by_one.decided == MOVES


def test_few_moves_are_not_kept():
    ground = Ground(count_and_ask, ["west", "east"])
    keep(ground)
    assert not [file for file in ground.storage.list("bins") if file.path == "bins/moves.json"]
