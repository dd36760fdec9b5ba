"""Bins that are split and merged between workers that read meanwhile: every refusal, a worker and a
controller that die anywhere, and which bins are hot.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from stateshift.errors import Incompatible, PlanError, SpecError, StateshiftError
from stateshift.live.bins.adoption import take_out
from stateshift.live.bins.batches import unread_batch
from stateshift.live.bins.compactions import MOVES_BASE, MovesBase
from stateshift.live.bins.files import Files, Proposal, look
from stateshift.live.bins.hashing import HASH
from stateshift.live.bins.migration import CountCarrier, MoveProgress
from stateshift.live.bins.move_request import Manner, advise_count, check_count, moves_even
from stateshift.live.bins.parts import KeyHashing
from stateshift.live.bins.state_acts import evict
from stateshift.live.bins.watch import Load, hot, loads
from stateshift.live.protocol.chains import encode_densely
from stateshift.live.protocol.configuration import Update
from stateshift.live.survey import past_moves
from tests.contracts.faulty import Killed as WorkerKilled
from tests.kill.moments import Doomed, Moments
from tests.live.bins.test_bins_controller import NAMES, QUICK, Killed, Scene, UntilDeath
from tests.live.bins.test_killing import die
from tests.live.bins.workers import (
    BINS,
    KEYS,
    TIES,
    Ground,
    Reader,
    alone,
    count_and_ask,
    hash_of,
    key_of,
)

END = 150


def keyed_of(scene: Scene) -> dict[tuple[str, str], KeyHashing]:
    """What the workers say of how they hash keys."""
    found = {}
    for name in NAMES:
        known = scene.ground.files.keyed("count_and_ask", name)
        if known is not None:
            found["count_and_ask", name] = known
    return found


def resize(
    scene: Scene, count: int, manner: Manner = QUICK, files: Files | None = None, wait=None
) -> MoveProgress:
    """Ask for so many bins."""
    watch = scene.watch(files)
    check_count(watch.look(), count, manner.at, keyed_of(scene))
    carrier = CountCarrier(watch, (), manner, scene.told.append, wait or scene.work, count=count)
    return carrier.carry()


def counts(scene: Scene) -> list[int]:
    return [worker.running.bins for worker in scene.ground.workers.values()]


@pytest.mark.row("M-24")
def test_all_bins_are_split_and_merged_while_their_workers_read_on():
    scene = Scene()
    scene.move("east", [1, 2, 3])
    moved = resize(scene, 4 * BINS)
    assert (moved.state, moved.complete, moved.parts) == ("finished", 2, 2)
    assert counts(scene) == [32, 32]
    assert scene.at("east") == list(range(4, 16))
    scene.move("east", [0, 31])
    scene.move("west", [0, 31])
    assert resize(scene, 4 * BINS).number is None  # there is nothing to do
    assert resize(scene, BINS).state == "finished"
    assert scene.at("east") == [1, 2, 3]
    assert scene.is_as_one_alone()


def test_a_half_of_a_bin_moves_and_the_other_one_stays():
    scene = Scene()
    resize(scene, 2 * BINS)
    before = scene.ground.workers["west"].running.ledger.here[6].keys
    moved = scene.move("east", [7], replace(QUICK, strategy="warm"))
    assert moved.state == "finished" and scene.at("east") == [7]
    assert scene.ground.workers["west"].running.ledger.here[6].keys >= before > 0
    assert scene.is_as_one_alone()


def test_all_keys_are_where_their_hash_says_and_can_be_taken_out():
    scene = Scene()
    before = {entry.key: entry.state for entry in take_out(scene.ground.files, count_and_ask)}
    with_state = len(before)
    resize(scene, 2)
    entries = list(take_out(scene.ground.files, count_and_ask))
    assert len(entries) >= with_state and {entry.bin for entry in entries} == {0, 1}
    assert len({entry.key for entry in entries}) == len(entries) <= KEYS


@pytest.mark.row("M-24")
def test_a_split_that_is_prepared_waits_for_its_time():
    scene = Scene()
    since = 60
    moved = resize(scene, 16, replace(QUICK, at=since, wait_seconds=0.0))
    assert moved.state == "applied" and "did not deal bins anew" in moved.reason
    assert counts(scene) == [8, 8] and scene.bins().count == 16
    with pytest.raises(PlanError, match="worker east has 8 bins still, of the group's 16"):
        scene.move("east", [0])
    with pytest.raises(PlanError, match="has 8 bins still"):
        resize(scene, 32)
    while counts(scene) != [16, 16]:
        scene.work()
    for name in NAMES:
        first = next(each for each in scene.ground.commits(name) if each.bins == 16)
        assert first.frontier is not None and first.frontier >= (since,)
    assert scene.move("east", [0]).state == "finished"
    assert scene.is_as_one_alone()


def test_where_it_is_asked_for_again_those_that_are_left_are_waited_for():
    scene = Scene()
    assert resize(scene, 16, replace(QUICK, wait_seconds=0.0, at=60)).state == "applied"
    assert resize(scene, 16).state == "finished"
    assert scene.ground.files.proposal(1) is None


# ------------------------------------------------------------------------------------ refusals


def refused(scene: Scene, kind: type[StateshiftError], words: str, count=16, at=None, keyed=None):
    now = scene.bins()
    with pytest.raises(kind, match=words):
        check_count(now, count, at, keyed_of(scene) if keyed is None else keyed)


def test_a_number_that_is_no_power_of_two_is_refused():
    refused(Scene(), SpecError, "12 bins are no power of two: take 8 or 16", 12)
    refused(Scene(), SpecError, "more than 1,048,576", 1 << 21)


def test_workers_that_are_too_old_to_split_bins_are_refused():
    scene = Scene()
    words = "at east does not say how its keys are hashed: it is of a version that cannot split"
    known = keyed_of(scene)
    del known["count_and_ask", "east"]
    refused(scene, Incompatible, words, keyed=known)
    for runs in scene.ground.files.runs():  # an older version was started since
        if runs.worker == "east":
            scene.ground.files.run(replace(runs, at=time.time() + 1))
    refused(scene, Incompatible, words)


def test_keys_that_spark_alone_hashes_are_refused():
    scene = Scene()
    runs = scene.ground.files.runs()
    for each in runs:
        scene.ground.files.run(replace(each, key=("key",)))
    known = {
        key: replace(each, kinds=("?decimal128(10, 2)",)) for key, each in keyed_of(scene).items()
    }
    words = r"column key of type decimal128\(10, 2\) is hashed by Spark alone"
    refused(scene, SpecError, words, keyed=known)


def test_bins_that_are_on_their_way_are_waited_for():
    scene = Scene()
    scene.ground.propose([Update(200, 0, 1)])
    refused(scene, PlanError, "move 0 is under way")
    for worker in scene.ground.workers.values():
        worker.running.answer()
    scene.ground.decide()
    refused(scene, PlanError, "bins are on their way: .* has not made the moves of time 200")


@pytest.mark.row("M-24")
def test_halves_that_are_apart_are_not_merged():
    scene = Scene()
    scene.move("east", [1, 6])
    refused(scene, PlanError, "bins 0, 1 would be one, and are at .* and so are 1 more", 4)
    with pytest.raises(PlanError) as caught:
        check_count(scene.bins(), 4, None, keyed_of(scene))
    assert caught.value.hint is not None and "--to west --bins 1" in caught.value.hint


def test_a_time_that_is_past_is_refused():
    refused(Scene(), PlanError, "time 3 is past", at=3)


def test_a_worker_refuses_a_number_that_it_has_and_one_whose_halves_are_apart():
    scene = Scene()
    scene.move("east", [1])
    for count, words in ((BINS, "has 8 bins already"), (4, "bins 0 and 1 are at different")):
        number = scene.bins().moves.decided
        scene.ground.files.propose(Proposal(number, (), time.time(), 30.0, bins=count))
        scene.work()
        decided = scene.ground.files.decided(number)
        assert decided is not None and words in decided.reason


# ------------------------------------------------------------------------------------ troubles


def test_a_dead_worker_costs_a_timeout_and_the_others_go_on():
    scene = Scene()
    west = scene.ground.workers["west"]

    def work(seconds: float) -> None:
        west.between()
        west.read(min(west.read_to + 12, END))

    for seconds in (0.3, 3.0, 30.0):
        moved = resize(scene, 16, replace(QUICK, timeout_seconds=seconds), wait=work)
        assert moved.state == "aborted"
        if moved.silent == ("east",):
            break  # else the machine is slow, and the others have not answered either
    assert "count_and_ask at east did not answer" in moved.reason
    assert counts(scene) == [8, 8] and west.read_to > 30
    assert scene.is_as_one_alone()


def test_a_worker_agrees_once_the_moves_before_are_behind_it():
    ground = Ground(count_and_ask, NAMES)
    west, east = ground.workers.values()
    for worker in (west, east):
        worker.read(9)
    ground.propose([Update(20, bin, 1) for bin in range(4)])
    for worker in (west, east):
        worker.running.answer()
    assert ground.decide() == "applied"
    ground.propose_bins(16)
    east.read(80)  # it has passed the time, and awaits the bins
    west.read(50)
    assert ground.decide() == "" and ground.files.answers(1) == ()
    west.read(80)
    assert ground.decide() == ""
    for worker in (east, west):
        worker.between()
    assert ground.decide() == ""  # west has not seen yet that its bins were taken
    for worker in (west, east):
        worker.running.look()
        worker.running.answer()
    assert ground.decide() == "applied"
    for worker in (west, east, west, east):
        worker.read(END)
    assert ground.put_out() == alone(count_and_ask, END)


def test_whoever_starts_after_all_moves_before_a_split_were_forgotten_deals_anew():
    scene = Scene()
    scene.move("east", [1])
    moved = resize(scene, 16, wait=lambda seconds: _answer(scene), manner=_not_waiting())
    assert moved.state == "applied" and counts(scene) == [8, 8]
    files = scene.ground.files
    begun = files.begun()
    assert begun is not None
    known = look(files, files.known_moves(begun, 2))
    kept = MovesBase(known.decided, known.configuration, known.ahead)
    scene.ground.storage.write(MOVES_BASE, lambda: iter((encode_densely(kept),)))
    for file in list(scene.ground.storage.list("bins/moves")):
        scene.ground.storage.remove(file.path)
    for worker in scene.ground.workers.values():
        worker.start()
    assert counts(scene) == [16, 16] and scene.at("east") == [2, 3]
    assert scene.is_as_one_alone()


def _answer(scene: Scene) -> None:
    for worker in scene.ground.workers.values():
        worker.running.answer()


def _not_waiting() -> Manner:
    return replace(QUICK, wait_seconds=0.0)


def test_whoever_goes_on_under_an_evicted_name_deals_anew():
    scene = Scene()
    scene.move("east", [1])
    resize(scene, 16, wait=lambda seconds: _answer(scene), manner=_not_waiting())
    evict(scene.ground.files, "count_and_ask", "east")
    east = scene.ground.workers["east"]
    scene.ground.workers["east"] = Reader(scene.ground, "east", east.offsets)
    assert scene.ground.workers["east"].running.bins == 16
    assert scene.is_as_one_alone()


def test_a_worker_that_is_new_begins_with_the_number_that_there_is():
    scene = Scene()
    resize(scene, 16)
    files = scene.ground.files
    begun = files.begun()
    assert begun is not None and begun.bins == BINS
    for bins in (BINS, 16):
        files.check_declared(begun, "count_and_ask", bins)
    with pytest.raises(PlanError, match="has 16 bins, and visits is declared with 32"):
        files.check_declared(begun, "visits", 32)


def test_files_of_a_group_whose_bins_are_never_split_say_nothing_of_it():
    scene = Scene()
    scene.move("east", [1])
    for name in ("bins/moves/000000/proposed.json", "bins/states/count_and_ask/east/commits"):
        for file in scene.ground.storage.list(name.rsplit("/", 1)[0]):
            content = scene.ground.storage.read(file.path)
            assert b'"bins"' not in content and b'"since"' not in content


def test_the_past_has_every_number_that_there_was():
    scene = Scene()
    scene.move("east", [1])
    resize(scene, 16)
    scene.move("west", [2, 3])
    begun = scene.ground.files.begun()
    assert begun is not None
    moves = past_moves(scene.ground.files, begun)
    assert [each.proposal.bins for each in moves] == [None, 16, None]
    assert [went.bins for each in moves for went in each.went] == [(1,), (2, 3)]


# ------------------------------------------------------------------------------------ death


@cache
def wanted() -> list[tuple[int, ...]]:
    return alone(count_and_ask, END)


class Story:
    """Two workers, whose bins are split, moved, and merged; one is killed after so many effects."""

    def __init__(self, victim: str, *kills: int) -> None:
        self.ground = Ground(count_and_ask, NAMES)
        self.victim = self.ground.workers[victim]
        self.kills = list(kills)
        self.moments: list[Moments] = []
        self._start()

    def _start(self) -> None:
        moments = Moments(self.kills.pop(0) if self.kills else None, die)
        self.moments.append(moments)
        self.victim.storage = Doomed(self.ground.storage, moments)
        try:
            self.victim.start()
        except WorkerKilled:
            self._start()

    def tell(self) -> Ground:
        workers = self.ground.workers.values()
        for worker in workers:
            self._do(lambda worker=worker: worker.read(9))
        self._propose(lambda: self.ground.propose_bins(16))
        for until in (30, 40):
            for worker in workers:
                self._do(lambda worker=worker, until=until: worker.read(until))
                self._do(worker.between)
        self._propose(lambda: self.ground.propose([Update(16, bin, 1) for bin in (2, 3, 9)]))
        for until in (60, 61, 80):
            for worker in workers:
                self._do(lambda worker=worker, until=until: worker.read(until))
        self._propose(lambda: self.ground.propose([Update(30, 9, 0)]))
        for until in (95, 100, 101):
            for worker in workers:
                self._do(lambda worker=worker, until=until: worker.read(until))
        self._propose(lambda: self.ground.propose_bins(8, since=40))
        for until in (125, END, END):
            for worker in workers:
                self._do(worker.between)
                self._do(lambda worker=worker, until=until: worker.read(until))
        return self.ground

    def _propose(self, propose) -> None:
        before = self.ground.moves
        propose()
        if self.ground.moves == before:
            return
        for worker in (*self.ground.workers.values(), *self.ground.workers.values()):
            self._do(worker.running.look)
        assert self.ground.decide() == "applied"

    def _do(self, act) -> None:
        try:
            act()
        except WorkerKilled:
            self._start()
            self._do(act)


def test_of_two_processes_of_one_name_one_deals_its_bins_and_the_other_one_ends():
    ground = Ground(count_and_ask, NAMES)
    workers = ground.workers
    for worker in workers.values():
        worker.read(9)
    ground.propose_bins(16)
    for worker in workers.values():
        worker.running.answer()
    assert ground.decide() == "applied"
    first = workers["west"]
    second = Reader(ground, "west", first.offsets)  # it deals them when it starts
    with pytest.raises(PlanError, match="another process has committed as worker west"):
        first.read(40)
    workers["west"] = second
    for worker in (*workers.values(), *workers.values()):
        worker.read(END)
    assert ground.put_out() == wanted()


EFFECTS = 92


@pytest.mark.row("M-24")
@pytest.mark.sample(10)
@pytest.mark.parametrize("victim", NAMES)
@pytest.mark.parametrize("number", range(1, EFFECTS + 1))
def test_who_is_killed_at_any_effect_of_a_split_or_a_merge_goes_on(number: int, victim: str):
    ground = Story(victim, number).tell()
    assert ground.put_out() == wanted()
    assert {worker.running.bins for worker in ground.workers.values()} == {8}


@pytest.mark.sample(6)
@pytest.mark.parametrize("victim", NAMES)
@pytest.mark.parametrize("second", [1, 2, 3, 5])
@pytest.mark.parametrize("first", range(3, EFFECTS, 7))
def test_who_is_killed_twice_while_bins_are_split_goes_on(first: int, second: int, victim: str):
    assert Story(victim, first, second).tell().put_out() == wanted()


def test_all_effects_of_a_split_and_a_merge_are_among_those():
    for victim in NAMES:
        story = Story(victim)
        story.tell()
        assert len(story.moments[0].seen) <= EFFECTS


@pytest.mark.long
def test_a_controller_that_dies_at_any_effect_of_a_split_loses_nothing():
    number, moments = 1, Moments(None, die)
    while not moments.seen or len(moments.seen) >= number - 1:
        scene = Scene()
        moments = UntilDeath(number)
        doomed = Files(Doomed(scene.ground.storage, moments))
        with contextlib.suppress(Killed):
            resize(scene, 16, replace(QUICK, timeout_seconds=2.0), files=doomed)
        proposal = scene.bins().moves.open
        if proposal is not None:
            scene.overdue(proposal)
        assert resize(scene, 16).state == "finished", moments.seen[-1]
        assert counts(scene) == [16, 16]
        assert scene.is_as_one_alone(), moments.seen[-1]
        number += 1
    assert number > 5


# ------------------------------------------------------------------------------------ heat


def test_a_bin_with_four_times_the_mean_speaks_for_twice_as_many():
    now = Scene().bins()
    found = loads(now)
    assert [each.bin for each in found] == list(range(BINS))
    assert sum(each.keys for each in found) == now.parts[1].keys
    assert advise_count(now, found).count == BINS
    hot = replace(found[3], times=5.0)
    advice = advise_count(now, (*found[:3], hot, *found[4:]))
    assert (advice.count, advice.reason) == (16, "bin 3 has 5.0 times as much as the mean")


def skewed(batch: int) -> pa.Table:
    """Rows of which four of five have one key."""
    numbers = range(100 * batch, 100 * (batch + 1))
    hot_key = key_of(0)
    keys = [hot_key if number % 5 else key_of(number) for number in numbers]
    hashes = [hash_of(key) for key in keys]
    signed = [one - (1 << 64) if one >= 1 << 63 else one for one in hashes]
    at = [number // TIES for number in numbers]
    return pa.table({"number": list(numbers), "at": at, "key": keys, HASH: signed})


def test_a_bin_with_most_of_the_rows_is_hot_and_the_others_are_moved_away_from_it():
    scene = Scene()
    for number in range(1, 6):
        batch = unread_batch(skewed(number), count_and_ask, BINS).read((), None)
        for worker in scene.ground.workers.values():
            worker.running.step(batch, number)
    now = scene.bins()
    found = loads(now)
    hottest = hot(found)[0]
    assert hottest.bin == hash_of(key_of(0)) >> 61
    assert hottest.rows_per_second > 3 * sum(each.rows_per_second for each in found) / 4
    assert hottest.times > 6 and not any(each.times > 4 for each in found if each != hottest)
    moved = {move.bin for move in moves_even(now, 1.0, by_rows=True)}
    assert moved == set(range(BINS)) - {hottest.bin}
    assert len(moves_even(now, 1.0)) < BINS - 1  # of the state it has no more than others


def test_where_there_are_fewer_keys_than_bins_none_is_hot():
    found = [Load(bin, "west", int(bin == 0), 1, 0.0, 8.0 if bin == 0 else 0.0) for bin in range(8)]
    assert hot(found) == ()


def test_bins_that_are_mostly_empty_speak_for_half_as_many():
    scene = Scene()
    resize(scene, 128)
    now = scene.bins()
    advice = advise_count(now, [replace(each, times=1.0) for each in loads(now)])
    assert advice.count == 64 and advice.reason.endswith("of 128 bins are empty")
