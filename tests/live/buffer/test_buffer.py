"""A buffer at work: producers wait for nothing, readers see what is durable, the disk may fail."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.errors import FormatError, PlanError, UnknownVersion
from stateshift.live.buffer.buffer import Buffer, GoneError
from stateshift.live.buffer.folder import Folder
from stateshift.live.buffer.log import Files
from stateshift.live.buffer.queue import RefusedError
from stateshift.live.buffer.runner import forget, look
from tests.live.buffer.ground import (
    LIMITS,
    SECONDS_MAX,
    HeldDisk,
    buffering,
    put,
    values_in,
)

HALF_MIB = [b"x" * 16_000] * 32


def test_producers_are_accepted_while_the_disk_writes_nothing(tmp_path: Path) -> None:
    files = HeldDisk()
    with buffering(tmp_path, files=files) as buffer:
        files.free.clear()
        first = buffer.offer([b"first"])
        assert files.began.wait(SECONDS_MAX)
        others = [buffer.offer([b"%d" % number]) for number in range(1000)]
        assert not first.is_settled and values_in(buffer) == []
        files.free.set()
        buffer.wait(others[-1])
        assert values_in(buffer) == [b"first", *(b"%d" % number for number in range(1000))]


def test_a_memory_that_is_full_refuses_and_what_was_accepted_is_kept(tmp_path: Path) -> None:
    files = HeldDisk()
    with buffering(tmp_path, files=files) as buffer:
        files.free.clear()
        accepted = []
        with pytest.raises(RefusedError, match="the memory is full"):
            while True:
                accepted.append(buffer.offer([b"%04d" % len(accepted) * 1000]))
        assert buffer.status().refused == 1
        files.free.set()
        buffer.wait(accepted[-1])
        assert [int(value[:4]) for value in values_in(buffer)] == list(range(len(accepted)))


def test_records_that_memory_has_no_room_for_are_read_from_the_disk(tmp_path: Path) -> None:
    values = [b"%04d" % number * 5000 for number in range(200)]
    with buffering(tmp_path) as buffer:
        for value in values:
            put(buffer, value)
        status = buffer.status()
        assert status.memory_bytes <= LIMITS.memory < status.disk_bytes
        assert values_in(buffer) == values


def test_a_buffer_that_is_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    with buffering(tmp_path) as buffer:
        assert put(buffer, b"one", b"two") == 0
        buffer.set_position("orders", 1)
    with buffering(tmp_path) as buffer:
        assert put(buffer, b"three") == 2
        assert values_in(buffer) == [b"one", b"two", b"three"]
        (reader,) = buffer.status().readers
        assert (reader.name, reader.next) == ("orders", 1)


def test_what_was_accepted_is_written_before_a_buffer_ends(tmp_path: Path) -> None:
    quick = replace(LIMITS, ack="memory")
    with buffering(tmp_path, quick) as buffer:
        for number in range(500):
            buffer.offer([b"%d" % number])
    with buffering(tmp_path) as buffer:
        assert len(values_in(buffer)) == 500


def test_many_producers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    with buffering(tmp_path) as buffer:

        def produce(name: int) -> None:
            for number in range(50):
                put(buffer, b"%d %d" % (name, number))

        threads = [threading.Thread(target=produce, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pairs = [tuple(map(int, value.split())) for value in values_in(buffer)]
    for name in range(8):
        assert [number for each, number in pairs if each == name] == list(range(50))


# ------------------------------------------------------------------------------------ the disk


def test_a_full_disk_is_told_and_after_it_the_order_is_whole(tmp_path: Path) -> None:
    files = HeldDisk()
    with buffering(tmp_path, files=files) as buffer:
        put(buffer, b"before")
        files.is_full = True
        with pytest.raises(RefusedError, match="the disk of the buffer fails: No space left"):
            put(buffer, b"lost")
        with pytest.raises(RefusedError, match="No space left"):
            put(buffer, b"refused at once, unless a second has passed")
        assert buffer.status().failure is not None
        files.is_full = False
        assert put_when_accepted(buffer, b"after") == 1
        assert values_in(buffer) == [b"before", b"after"]
        assert buffer.status().failure is None and buffer.status().refused >= 2


def put_when_accepted(buffer: Buffer, *values: bytes) -> int:
    """Put a record in, as a producer that asks again."""
    wait = threading.Event()
    for _ in range(1200):
        try:
            return put(buffer, *values)
        except RefusedError:
            wait.wait(0.05)
    raise AssertionError("never accepted")


def test_the_disks_bound_refuses_until_readers_have_read(tmp_path: Path) -> None:
    with buffering(tmp_path, replace(LIMITS, keep_seconds=3600)) as buffer:
        with pytest.raises(RefusedError, match="readers are behind"):
            while True:
                put(buffer, *HALF_MIB)
        promised = buffer.status().next
        assert buffer.status().disk_bytes <= LIMITS.disk
        buffer.set_position("late", 10)
        buffer.set_position("orders", promised)
        with pytest.raises(RefusedError):
            put(buffer, *HALF_MIB)
        buffer.set_position("late", promised)
        assert put_when_accepted(buffer, *HALF_MIB) == promised
        first = buffer.status().first
        with pytest.raises(
            GoneError, match=f"record 0 is not there any more: the first one is {first}"
        ):
            buffer.read(0, 1, 100)


def test_a_record_that_was_never_promised_is_refused(tmp_path: Path) -> None:
    with buffering(tmp_path) as buffer:
        put(buffer, b"only")
        with pytest.raises(GoneError, match="record 2 was never promised: the next one is 1"):
            buffer.read(2, 1, 100)
        with pytest.raises(GoneError, match="reader orders is at 2, but the next record is 1"):
            buffer.set_position("orders", 2)
        assert buffer.read(1, 1, 100) == b""


# ------------------------------------------------------------------------------------ the directory


def test_only_one_process_runs_a_directory(tmp_path: Path) -> None:
    second = buffering(tmp_path)
    with buffering(tmp_path), pytest.raises(PlanError, match="another process runs"), second:
        pass


def test_a_directory_of_a_newer_version_and_a_foreign_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PlanError, match="is not empty, and is no buffer"), buffering(tmp_path):
        pass
    (tmp_path / "buffer.json").write_text(json.dumps({"version": 2, "places": []}))
    with pytest.raises(UnknownVersion, match="buffer version 2"), buffering(tmp_path):
        pass
    (tmp_path / "buffer.json").write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        look(tmp_path)


def test_a_buffer_that_nobody_runs_is_looked_at_and_its_readers_are_forgotten(
    tmp_path: Path,
) -> None:
    with buffering(tmp_path) as buffer:
        put(buffer, b"a", b"b")
        buffer.set_position("old", 1)
    seen = look(tmp_path)
    assert (seen.running, seen.status.next, len(seen.status.readers)) == (None, 2, 1)
    assert forget(tmp_path, "old").status.readers == ()
    with pytest.raises(PlanError, match="has no reader old"):
        forget(tmp_path, "old")
    with pytest.raises(PlanError, match="is no buffer"):
        look(tmp_path / "nothing")


def test_a_kill_in_the_first_moment_leaves_a_directory_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / ".buffer.json.tmp").write_text('{"vers')
    with buffering(tmp_path) as buffer:
        assert put(buffer, b"a") == 0


class BrokenDisk(Files):
    """A disk that meets a bug of ours."""

    def write(self, descriptor: int, content: bytes) -> None:
        raise RuntimeError("a bug")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_thread_that_writes_leaves_no_producer_waiting(tmp_path: Path) -> None:
    with buffering(tmp_path, files=BrokenDisk()) as buffer:
        with pytest.raises(RefusedError, match="the buffer has ended"):
            put(buffer, b"a")
        with pytest.raises(RefusedError, match="the buffer ends"):
            buffer.offer([b"b"])
        assert buffer.has_ended


def test_a_damaged_position_is_named_with_the_way_out(tmp_path: Path) -> None:
    with buffering(tmp_path) as buffer:
        buffer.set_position("orders", 0)
    (tmp_path / "readers" / "orders.json").write_text('{"next": "x"}')
    with pytest.raises(FormatError) as caught:
        Folder(tmp_path).positions()
    assert "orders.json" in str(caught.value) and "remove" in str(caught.value.hint)
