"""What the first moves come to is kept, and their files are removed: nobody reads each of them at
every start, and a group does not grow with its moves.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pytest

from stateshift.errors import PlanError
from stateshift.live.bins import adoption
from stateshift.live.bins.compactions import COMPACTIONS_KEPT, Compaction, MovesBase
from stateshift.live.bins.files import Files, GroupStart, look
from stateshift.live.bins.migration import EVERY, KEPT, compact
from stateshift.live.bins.watch import Watch
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import BEGIN, Update
from stateshift.live.survey import PastMove, past_moves
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.contracts.faulty import Killed
from tests.kill.moments import Doomed, Moments
from tests.live.bins.test_killing import die
from tests.live.bins.workers import BINS, KEYS, TIES, Ground, alone, count_and_ask

OTHER = replace(count_and_ask, name="other")
BEGUN = GroupStart(BINS, ("west",))
MOVES = EVERY + 3
MANY = 3 * EVERY + KEPT


class Group:
    """A group in which a bin at a time goes to the other worker, round after round."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.ground = Ground(count_and_ask, ["west", "east"], storage=storage)
        self.count = 0
        for worker in self.ground.workers.values():
            worker.read(TIES)

    def open_again(self, storage: Storage) -> None:
        """Go on with what is left of the storage."""
        self.ground.storage, self.ground.files = storage, Files(storage)
        for worker in self.ground.workers.values():
            worker.storage = storage

    @property
    def end(self) -> int:
        """How far the workers have read."""
        return (2 * self.count + 2) * TIES

    def time(self, number: int) -> int:
        """When a move is made."""
        return number * 2 + 3

    def move(self, count: int) -> Group:
        """Make so many moves more, all of them decided before any is made."""
        for number in range(self.count, self.count + count):
            update = Update(self.time(number), number % BINS, (number // BINS + 1) % 2)
            self.ground.propose([update])
            self.ground.files.decide(number, Decision("applied", 0.0, "test"))
        self.count += count
        workers = self.ground.workers.values()
        for worker in workers:
            worker.read(self.end)
        while any(held.since for worker in workers for held in worker.running.ledger.held.values()):
            for worker in workers:
                worker.between()
        for worker in workers:
            worker.read(self.end)
        return self

    def compact(self, files: Files | None = None) -> None:
        """Compact as whoever has carried moves does."""
        files = files or Files(self.ground.storage)
        compact(files, BEGUN, lambda: Watch(files, BEGUN).look())

    def past(self) -> tuple[PastMove, ...]:
        return past_moves(self.ground.files, BEGUN)

    def numbers(self) -> list[int]:
        """The moves that have files."""
        files = self.ground.storage.list("bins/moves")
        return sorted({int(file.path.split("/")[2]) for file in files})

    def goes_on(self) -> bool:
        """Whether workers that start now put out what one alone would, through more moves."""
        for worker in self.ground.workers.values():
            worker.start()
        self.move(3)
        return self.ground.put_out() == alone(count_and_ask, self.end)


class OutOfOrder(Group):
    """A group in which of three moves that are decided the first one is made last."""

    def time(self, number: int) -> int:
        return super().time(number + 2 - 2 * (number % 3))


@pytest.fixture(scope="module")
def whole() -> list[str]:
    """What each of many moves was, with none of them removed."""
    return as_told(Group().move(MANY).past())


def as_told(moves: tuple[PastMove, ...]) -> list[str]:
    """What a history says of moves."""
    went = chain.from_iterable((each.proposal.number, *each.went) for each in moves)
    return [str(each) for each in went]


def test_what_is_kept_is_what_the_moves_come_to():
    group = Group().move(MOVES)
    read_one_by_one = look(group.ground.files, group.ground.files.known_moves(BEGUN, 2))
    group.compact()
    kept = group.ground.files.known_moves(BEGUN, 2)
    last = kept.configuration.last
    assert kept.decided == read_one_by_one.decided == MOVES
    for time in range(last - 1, last + 2):
        assert kept.configuration.at(time) == read_one_by_one.configuration.at(time)


def test_few_moves_are_not_kept():
    group = Group()
    group.compact()
    assert group.ground.files.moves_base() is None


def test_a_worker_that_starts_needs_none_of_the_moves_that_are_removed(whole):
    group = Group()
    for _ in range(MANY // EVERY):
        group.move(EVERY)
        group.compact()
    first = group.numbers()[0]
    assert first > 0 and len(group.numbers()) <= KEPT + 2 * EVERY
    told = as_told(group.past())
    assert told == whole[-len(told) :] and told[0] == str(first)
    assert group.goes_on()


def test_what_nobody_needs_of_the_past_is_not_in_what_the_moves_come_to():
    group = Group()
    sizes = []
    for _ in range(4):
        group.move(EVERY)
        group.compact()
        content = group.ground.storage.read("bins/moves.json", 1 << 20)
        sizes.append(len(content))
    assert sizes[-1] < sizes[0] + 100


def test_bins_that_were_given_to_a_part_that_starts_later_are_taken_by_it():
    group = Group()
    again = Ground(replace(count_and_ask, name="again"), ["west"], storage=group.ground.storage)
    again.workers["west"].read(TIES)
    group.move(3)
    again.workers["west"].read(group.end)
    group.ground.move_nothing(EVERY)
    group.compact()
    assert group.ground.files.moves_base() is not None
    again.add("east").read(group.end)
    assert again.put_out() == alone(count_and_ask, group.end)


def test_parts_begin_with_the_same_moves_however_late_they_start():
    group = Group().move(MOVES)
    watch = Watch(group.ground.files, BEGUN)
    compact(watch.files, BEGUN, watch.look)
    again = Ground(replace(count_and_ask, name="again"), ["west"], storage=group.ground.storage)
    first = again.workers["west"].running.moves.configuration
    group.move(EVERY)
    watch.meet()
    compact(watch.files, BEGUN, watch.look)
    assert group.ground.files.known_moves(BEGUN, 2).decided == group.count
    assert again.add("east").running.moves.configuration.since == first.since > BEGIN


class Beside(Files):
    """Files of whoever compacts: at a moment of it the first part of a new operator begins."""

    moment: str
    again: Ground | None = None

    def newest_compaction(self) -> tuple[int, Compaction]:
        newest = super().newest_compaction()
        self._begin_at("its number is read")
        return newest

    def compacted(self, number: int, compaction: Compaction) -> bool:
        self._begin_at("it has looked")
        return super().compacted(number, compaction)

    def keep_moves(self, base: MovesBase) -> None:
        self._begin_at("its number is there")
        if self.moment == "it has died":
            raise Killed(self.moment)
        super().keep_moves(base)

    def _begin_at(self, moment: str) -> None:
        if self.moment == moment and self.again is None:
            operator = replace(count_and_ask, name="again")
            self.again = Ground(operator, ["west"], storage=self.storage)


MOMENTS = ("its number is read", "it has looked", "its number is there", "it has died")


@pytest.mark.parametrize("moment", MOMENTS)
def test_parts_that_begin_beside_a_compaction_have_each_bin_once(moment: str):
    group = Group().move(MOVES)
    files = Beside(group.ground.storage)
    files.moment = moment
    with contextlib.suppress(Killed):
        group.compact(files)
    operator = replace(count_and_ask, name="again")
    again = files.again or Ground(operator, ["west"], storage=files.storage)
    group.move(EVERY)
    group.compact()
    first, later = again.workers["west"].running, again.add("east").running
    assert first.moves.configuration.since == later.moves.configuration.since
    here = sorted([*first.ledger.here, *later.ledger.here])
    assert here == list(range(BINS))


def test_what_an_older_version_has_compacted_is_read():
    group = Group().move(MOVES)
    group.compact()
    for file in list(group.ground.storage.list("bins/compactions")):
        group.ground.storage.remove(file.path)
    since = group.ground.files.known_moves(BEGUN, 2).configuration.since
    again = Ground(replace(count_and_ask, name="again"), ["west"], storage=group.ground.storage)
    group.move(EVERY)
    group.compact()
    parts = [again.workers["west"].running, again.add("east").running]
    assert [part.moves.configuration.since for part in parts] == [since, since] != [BEGIN, BEGIN]


def test_few_numbers_of_compactions_are_kept_and_an_old_one_does_not_hold():
    files = Group().ground.files
    for _ in range(2 * COMPACTIONS_KEPT):
        files.begin_part()
    newest, _ = files.newest_compaction()
    files.forget_compactions(newest)
    assert len(list(files.storage.list("bins/compactions"))) == COMPACTIONS_KEPT + 1
    assert not files.compacted(0, Compaction(99))
    assert files.newest_compaction() == (newest, Compaction(BEGIN))


def test_moves_are_told_that_were_decided_in_another_order_than_made():
    group = OutOfOrder().move(2 * EVERY + 2)
    group.compact()
    group.move(EVERY + 1)
    before = as_told(group.past())
    group.compact()
    told = as_told(group.past())
    assert told == before[-len(told) :] and int(told[0]) % 3 == 2
    assert group.goes_on()


def test_moves_that_somebody_who_runs_has_not_committed_to_know_are_not_removed():
    group = Group()
    known = 2 * EVERY
    for count in range(EVERY, MANY + EVERY, EVERY):
        group.move(EVERY)
        if count == known:
            ledger = group.ground.files.ledger("count_and_ask", "east")
        files = Files(group.ground.storage)
        watch = Watch(files, BEGUN)
        now = watch.look()
        if count > known:  # as if east had slept since
            slept = [replace(part, ledger=ledger) for part in now.parts if part.number == 1]
            now = replace(now, parts=(*slept, *(part for part in now.parts if part.number == 0)))
        compact(files, BEGUN, partial(lambda seen: seen, now))
    assert group.numbers()[0] == known


def test_whoever_watches_for_long_sees_moves_that_were_made_and_removed_meanwhile():
    group = Group()
    watch = Watch(Files(group.ground.storage), BEGUN)
    for _ in range(MANY // EVERY):
        group.move(EVERY)
        group.compact()
    assert group.numbers()[0] > watch.moves.decided
    watch.meet()
    assert watch.look().moves.decided == group.count


@pytest.mark.sample(6)
@pytest.mark.parametrize("effect", range(1, 400, 12))
def test_who_dies_while_moves_are_removed_loses_nothing(effect: int, whole: list[str]):
    group = Group()
    for _ in range(MANY // EVERY - 1):
        group.move(EVERY)
        group.compact()
    group.move(EVERY)
    doomed = Files(Doomed(group.ground.storage, Moments(effect, die)))
    try:
        group.compact(doomed)
    except Killed:
        told = as_told(group.past())
        assert told == whole[-len(told) :] and int(told[0]) <= group.count - KEPT
    assert group.goes_on()
    group.move(EVERY)
    group.compact()
    assert len(group.numbers()) <= KEPT + 2 * EVERY + 3


# ------------------------------------------------------------------------------------ imports


def exported(keys: int) -> pa.Table:
    """Rows as `stateshift export` has them."""
    key = pa.array([{"key": number} for number in range(keys)], pa.struct([("key", pa.int64())]))
    value = pa.array([{"n": 1000} for _ in range(keys)], pa.struct([("n", pa.int64())]))
    return pa.table({"key": key, "value": value})


def bring_in(files: Files) -> None:
    """Import a second operator of the group, whose state begins at 1,000."""
    adoption.bring_in(files, OTHER, exported(KEYS), ("west",), lambda key, value: value["n"])


def started(files: Files, *names: str) -> Ground:
    """The workers of the second operator, as they start: one alone in a group of its own."""
    storage = files.storage
    return Ground(OTHER, names, storage=storage)


def test_an_imported_part_that_starts_later_has_not_missed_what_compactions_left_out():
    group = Group()
    bring_in(group.ground.files)
    group.move(MOVES)
    group.compact()
    ground = started(group.ground.files, "west", "east")
    read_to_the_end(ground, group.end)
    quiet = Files(MemoryStorage(MemoryDisk(), "memory://quiet"))
    bring_in(quiet)
    alone = started(quiet, "west")
    read_to_the_end(alone, group.end)
    assert ground.put_out() == alone.put_out()
    assert {len(worker.running.ledger.here) > 0 for worker in ground.workers.values()} == {True}


def read_to_the_end(ground: Ground, end: int) -> None:
    workers = ground.workers.values()
    for _ in range(3):
        for worker in workers:
            worker.read(end)
        for worker in workers:
            worker.between()


def test_moves_are_compacted_again_once_an_imported_part_has_come_as_far():
    group = Group()
    bring_in(group.ground.files)
    group.move(MOVES)
    group.compact()
    assert group.ground.files.newest_compaction()[1].since == BEGIN
    ground = started(group.ground.files, "west", "east")
    read_to_the_end(ground, group.end)
    group.move(MOVES)
    read_to_the_end(ground, group.end)
    group.compact()
    assert group.ground.files.newest_compaction()[1].since > BEGIN


def test_an_import_behind_a_compaction_is_refused_and_changes_nothing():
    group = Group().move(MOVES)
    group.compact()
    before = list(group.ground.storage.list("bins"))
    with pytest.raises(PlanError, match="the first moves of this group are not known any more"):
        bring_in(group.ground.files)
    assert list(group.ground.storage.list("bins")) == before


class CompactingMeanwhile(Files):
    """Files of a group whose moves are compacted while somebody imports."""

    group: Group | None = None

    def say_keyed(self, keyed):
        if self.group is not None:
            self.group.compact()
        super().say_keyed(keyed)


def test_an_import_beside_a_compaction_is_refused():
    group = Group().move(MOVES)
    files = CompactingMeanwhile(group.ground.storage)
    files.group = group
    with pytest.raises(PlanError, match="the first moves of this group are not known any more"):
        bring_in(files)
    assert files.commit_numbers(OTHER.name, "west") == []
    assert files.imported() == ()


def test_a_compaction_beside_an_import_does_not_hold():
    group = Group().move(MOVES)
    files = group.ground.files

    def look():
        found = Watch(files, BEGUN).look()
        bring_in(files)
        return found

    compact(files, BEGUN, look)
    assert files.moves_base() is None and files.first_time() == BEGIN
    assert len(files.imported()) == 1


# ------------------------------------------------------------------------------------ power cuts


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_tears_nothing_that_a_worker_starts_with(seed: int):
    disk = MemoryDisk()
    group = Group(disk.open("memory://group"))
    for _ in range(4):
        group.move(EVERY).compact()
    disk.crash(random.Random(seed))
    group.open_again(disk.open("memory://group"))
    files = group.ground.files
    assert {(runs.operator, runs.worker) for runs in files.runs()} == {
        ("count_and_ask", "west"),
        ("count_and_ask", "east"),
    }
    keyed = [files.keyed("count_and_ask", name) for name in ("west", "east")]
    assert all(each is not None and each.kinds for each in keyed)
    assert files.moves_base() is not None
    assert files.moves_kept(BEGUN, 2).first == min(group.numbers())
    assert group.goes_on()
