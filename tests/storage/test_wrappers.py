"""Retrying and Throttled: what is tried again, how long is waited, and what a lost answer means."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stateshift.errors import AlreadyThere, MissingFile, StorageError, TransientStorageError
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import Pace, Patience, Retrying, Throttled
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.contracts.faulty import Effects, Faulty, once
from tests.support.ground import Clock


def passing() -> TransientStorageError:
    return TransientStorageError("503", location="memory://m")


def retrying(storage: Storage, clock: Clock | None = None, attempts_max: int = 4) -> Retrying:
    return Retrying(storage, clock or Clock(), random.Random(1), Patience(attempts_max, 1.0, 8.0))


class Flaky(MemoryStorage):
    """Fails the first `failures` times that something is read, after `chunks_before` chunks."""

    def __init__(self, disk: MemoryDisk, failures: int, chunks_before: int = 0) -> None:
        super().__init__(disk, "memory://m")
        self.failures, self.chunks_before = failures, chunks_before
        self.offsets: list[int] = []

    def _fail(self) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise passing()

    def read(self, path: str, size_max: int | None = None) -> bytes:
        self._fail()
        return super().read(path, size_max)

    def stat(self, path: str) -> FileInfo | None:
        self._fail()
        return super().stat(path)

    def list(self, under: str = "") -> Iterator[FileInfo]:
        for number, info in enumerate(super().list(under)):
            if number == self.chunks_before:
                self._fail()
            yield info

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        self.offsets.append(offset)
        content = super().read(path)
        for number, start in enumerate(range(offset, len(content), 10)):
            if number == self.chunks_before:
                self._fail()
            yield content[start : start + 10]


# -- Retrying


def test_what_passes_is_tried_again_until_it_works() -> None:
    disk = MemoryDisk()
    disk.open("memory://m").write("a", lambda: iter([b"x"]))
    assert retrying(Flaky(disk, 3)).read("a") == b"x"
    assert retrying(Flaky(disk, 3)).stat("a") == disk.open("memory://m").stat("a")


def test_after_the_last_attempt_the_error_says_so_and_is_not_tried_again_by_anybody() -> None:
    disk = MemoryDisk()
    with pytest.raises(StorageError, match=r"503 \(given up after 4 attempts\)") as raised:
        retrying(Flaky(disk, 4)).read("a")
    assert not isinstance(raised.value, TransientStorageError)
    assert raised.value.hint


def test_what_does_not_pass_is_not_tried_again() -> None:
    clock = Clock()
    with pytest.raises(MissingFile):
        retrying(MemoryDisk().open("memory://m"), clock).read("gone")
    assert clock.waits == []


def test_waits_double_up_to_a_bound_and_are_spread() -> None:
    seen: list[list[float]] = []
    for seed in range(200):
        clock = Clock()
        storage = Retrying(
            Flaky(MemoryDisk(), 99), clock, random.Random(seed), Patience(6, 1.0, 8.0)
        )
        with pytest.raises(StorageError):
            storage.stat("a")
        seen.append(clock.waits)
    bounds = [1.0, 2.0, 4.0, 8.0, 8.0]
    for waits, bound in zip(zip(*seen, strict=True), bounds, strict=True):
        assert 0 <= min(waits) < 0.1 * bound
        assert 0.9 * bound < max(waits) <= bound


def test_a_stream_goes_on_where_it_had_got_to() -> None:
    disk = MemoryDisk()
    content = bytes(range(100))
    disk.open("memory://m").write("a", lambda: iter([content]))
    flaky = Flaky(disk, 3, chunks_before=2)
    assert b"".join(retrying(flaky).chunks("a", 5)) == content[5:]
    assert flaky.offsets == [5, 25, 45, 65]


def test_a_stream_that_moves_is_never_given_up() -> None:
    disk = MemoryDisk()
    disk.open("memory://m").write("a", lambda: iter([bytes(1000)]))
    assert len(b"".join(retrying(Flaky(disk, 50, chunks_before=1)).chunks("a"))) == 1000
    with pytest.raises(StorageError, match="given up"):
        list(retrying(Flaky(disk, 50, chunks_before=0)).chunks("a"))


def test_a_listing_that_broke_off_is_made_anew() -> None:
    disk = MemoryDisk()
    for name in "abcd":
        disk.open("memory://m").write(name, lambda: iter([b""]))
    assert [i.path for i in retrying(Flaky(disk, 2, chunks_before=2)).list()] == list("abcd")


EFFECTS: dict[str, Callable[[Storage], object]] = {
    "write": lambda s: s.write("new", lambda: iter([b"12", b"34"])),
    "create": lambda s: s.create("new", b"1234"),
    "move": lambda s: s.move("a", "new"),
    "remove": lambda s: s.remove("a"),
    "prune": lambda s: s.prune(),
    "sync": lambda s: s.sync(),
}


@pytest.mark.parametrize("kind", EFFECTS)
@pytest.mark.parametrize("moment", [1, 2, 3, 4])
def test_a_request_or_an_answer_that_is_lost_changes_nothing_about_the_end(
    kind: str, moment: int
) -> None:
    ends = []
    for effects in (Effects(), Effects(once(moment, passing))):
        disk = MemoryDisk()
        disk.open("memory://m").write("a", lambda: iter([b"1234"]))
        EFFECTS[kind](retrying(Faulty(disk.open("memory://m"), effects)))
        ends.append(disk.snapshot(temporaries=True))
    assert ends[0] == ends[1]


def test_a_create_that_somebody_else_won_is_not_taken_for_ours() -> None:
    disk = MemoryDisk()
    disk.open("memory://m").create("lock", b"theirs")
    with pytest.raises(AlreadyThere):
        retrying(Faulty(disk.open("memory://m"), Effects(once(1, passing)))).create("lock", b"ours")
    with pytest.raises(AlreadyThere):
        retrying(disk.open("memory://m")).create(
            "lock", b"theirs"
        )  # at the first attempt it cannot be ours


def test_a_move_of_what_was_never_there_is_an_error() -> None:
    disk = MemoryDisk()
    with pytest.raises(MissingFile):
        retrying(Faulty(disk.open("memory://m"), Effects(once(1, passing)))).move("a", "b")
    disk.open("memory://m").create("b", b"")
    with pytest.raises(MissingFile):
        retrying(disk.open("memory://m")).move("a", "b")


# -- Throttled


def test_bytes_are_read_and_written_no_faster_than_the_pace() -> None:
    clock = Clock(0.0)
    storage = Throttled(MemoryDisk().open("memory://m"), Pace(clock, bytes_per_second=100.0))
    storage.write("a", lambda: iter([bytes(50)] * 20))
    assert clock.now() == pytest.approx(10.0)
    assert len(b"".join(storage.chunks("a"))) == 1000
    assert clock.now() == pytest.approx(20.0)
    storage.read("a")
    assert clock.now() == pytest.approx(30.0)


def test_operations_are_no_more_than_the_pace() -> None:
    clock = Clock(0.0)
    storage = Throttled(MemoryDisk().open("memory://m"), Pace(clock, operations_per_second=10.0))
    for number in range(50):
        storage.create(str(number), b"")
        storage.stat(str(number))
    assert clock.now() == pytest.approx(10.0)


def test_one_pace_is_shared_by_threads_and_storages() -> None:
    clock = Clock(0.0)
    pace = Pace(clock, bytes_per_second=1000.0)
    disk = MemoryDisk()
    storages = [Throttled(disk.open(f"memory://m/{n}"), pace) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda s: s.write("a", lambda: iter([bytes(100)] * 50)), storages))
    assert sum(clock.waits) >= 20.0  # 20,000 bytes; threads that wait at once add up here


def test_no_pace_means_no_wait() -> None:
    clock = Clock()
    storage = Throttled(MemoryDisk().open("memory://m"), Pace(clock))
    storage.write("a", lambda: iter([bytes(10_000_000)]))
    storage.read("a")
    assert clock.waits == []


def test_a_pace_can_be_changed_while_it_is_kept() -> None:
    clock = Clock(0.0)
    pace = Pace(clock, bytes_per_second=10.0)
    storage = Throttled(MemoryDisk().open("memory://m"), pace)
    storage.write("a", lambda: iter([bytes(110)]))
    assert clock.now() == pytest.approx(11.0)
    pace.bytes_per_second = 1000.0
    storage.write("a", lambda: iter([bytes(2000)]))
    assert clock.now() == pytest.approx(12.0)
    pace.bytes_per_second = None
    storage.write("a", lambda: iter([bytes(100_000)]))
    assert clock.now() == pytest.approx(12.0)


def test_a_limit_that_begins_has_saved_nothing_up() -> None:
    clock = Clock(0.0)
    pace = Pace(clock)
    storage = Throttled(MemoryDisk().open("memory://m"), pace)
    storage.write("a", lambda: iter([bytes(100)]))
    clock.sleep(60.0)
    clock.waits.clear()
    pace.bytes_per_second = 10.0
    storage.write("a", lambda: iter([bytes(110)]))
    assert sum(clock.waits) == pytest.approx(11.0)


class JumpingClock(Clock):
    def __init__(self) -> None:
        super().__init__(1000.0)
        self.jump = 0.0

    def now(self) -> float:
        return super().now() + self.jump


def test_a_clock_that_is_set_back_makes_nobody_wait_for_it() -> None:
    clock = JumpingClock()
    storage = Throttled(MemoryDisk().open("memory://m"), Pace(clock, bytes_per_second=100.0))
    storage.write("a", lambda: iter([bytes(100)]))
    clock.jump = -3600.0
    storage.write("a", lambda: iter([bytes(100)]))
    assert sum(clock.waits) <= 3.0
