"""What memory holds, its bounds, and what may be removed from the disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.live.buffer import frames
from stateshift.live.buffer.buffer import encode_batches
from stateshift.live.buffer.queue import (
    BLOCK_BYTES,
    Ack,
    ClosedSegment,
    Limits,
    Queue,
    RefusedError,
    records_in,
    removable,
)

LIMITS = Limits(memory=4000, disk=100_000)


def queue(memory: int = 4000, disk: int = 100_000, ack: Ack = "disk") -> Queue:
    return Queue(Limits(memory, disk, ack=ack), promised=0, disk_bytes=0)


def write(queue: Queue, bytes_max: int = 1 << 20) -> None:
    """Write what waits, as the thread does."""
    content = encode_batches(queue.take(bytes_max))
    queue.written(content, queue.disk_bytes + len(content))


def test_records_are_numbered_in_the_order_in_which_they_came() -> None:
    q = queue()
    batches = [q.offer([b"a", b"b"], 1), q.offer([b"c"], 2)]
    assert [(batch.first, batch.until) for batch in batches] == [(0, 2), (2, 3)]
    write(q)
    content = records_in(q.recent(0, 1 << 20), 0, 99, 1 << 20)
    records = list(frames.decode_records(content, 0))
    assert [(r.number, r.value) for r in records] == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_nothing_is_promised_or_read_before_it_is_written() -> None:
    q = queue()
    batch = q.offer([b"a"], 1)
    q.take(1)
    assert (q.promised, q.recent(0, 100), batch.is_settled) == (0, [], False)


def test_a_full_memory_refuses_whole_requests_until_something_is_written() -> None:
    q = queue(memory=1000)
    q.offer([b"x" * 500], 1)
    with pytest.raises(RefusedError, match="the memory is full"):
        q.offer([b"y" * 400], 2)
    assert (q.next, q.refused) == (1, 1)
    write(q)
    assert q.offer([b"y" * 400], 2).first == 1


def test_what_is_on_disk_makes_room_in_memory_for_what_comes() -> None:
    memory, value = 4 * BLOCK_BYTES, b"x" * (BLOCK_BYTES // 3)
    q = queue(memory, disk=1 << 30)
    for number in range(40):
        assert q.offer([value], 1).first == number, "never refused: it is spilled instead"
        assert q.memory_bytes <= memory
        write(q)
    assert q.recent(0, 1000) == [] and q.recent(39, 1000) != []


def test_memory_gives_records_over_its_blocks_from_any_number_on() -> None:
    q = queue(1 << 20, disk=1 << 30)
    values = [b"%d" % number * 5000 for number in range(40)]
    for value in values:
        q.offer([value], 1)
        write(q)
    for number in range(40):
        content = records_in(q.recent(number, 1 << 20), number, 3, 1 << 20)
        found = [record.value for record in frames.decode_records(content, number)]
        assert found == values[number : number + 3]


def test_the_disks_bound_counts_what_waits() -> None:
    q = queue(memory=100_000, disk=3000)
    q.offer([b"x" * 1400], 1)
    with pytest.raises(RefusedError, match="the disk's bound is reached: readers are behind"):
        q.offer([b"x" * 1600], 1)
    q.offer([b"x" * 1500], 1)


def test_a_failed_write_tells_all_who_wait_and_gives_their_numbers_to_others() -> None:
    q = queue()
    first, second = q.offer([b"a"], 1), q.offer([b"b"], 1)
    q.take(1)
    q.failed("no space left", 0)
    assert (first.failure, second.failure) == ("no space left", "no space left")
    assert (q.next, q.refused, q.memory_bytes, q.has_waiting) == (0, 2, 0, False)
    assert q.offer([b"c"], 1).first == 0
    write(q)
    assert q.failure is None


def test_a_failed_write_of_what_was_answered_already_waits_in_its_order() -> None:
    q = queue(ack="memory")
    q.offer([b"a"], 1)
    q.offer([b"b"], 1)
    q.take(1)
    q.failed("no space left", 0)
    write(q)
    content = records_in(q.recent(0, 1 << 20), 0, 9, 1 << 20)
    assert [record.value for record in frames.decode_records(content, 0)] == [b"a", b"b"]


@given(st.lists(st.sampled_from(["offer", "write", "fail"]), max_size=60), st.booleans())
def test_every_accepted_record_is_written_once_or_its_producer_is_told(
    steps: list[str], is_quick: bool
) -> None:
    q = queue(memory=2000, ack="memory" if is_quick else "disk")
    batches, written = [], b""
    for number, step in enumerate(steps):
        if step == "offer":
            try:
                batches.append(q.offer([b"%d" % number] * (number % 4), 1))
            except RefusedError:
                continue
        elif q.has_waiting:
            content = encode_batches(q.take(64))
            if step == "write":
                written += content
                q.written(content, len(written))
            else:
                q.failed("full", len(written))
    while q.has_waiting:
        written += encode_batches(q.take(64))
        q.written(b"", len(written))
    expected = [value for batch in batches if batch.failure is None for value in batch.values]
    assert [record.value for record in frames.decode_records(written, 0)] == expected
    assert not is_quick or not any(batch.failure for batch in batches)


OLD, YOUNG = 7200.0, 10.0


@pytest.mark.parametrize(
    ("ages", "positions", "used", "count"),
    [
        ((OLD, OLD), (), 30, 0),
        ((OLD, OLD), (20,), 30, 2),
        ((OLD, OLD), (20, 15), 30, 1),
        ((OLD, OLD), (20, 0), 30, 0),
        ((OLD, YOUNG), (20,), 30, 1),
        ((YOUNG, YOUNG), (20,), 95, 1),
        ((YOUNG, YOUNG), (9,), 95, 0),
    ],
)
def test_a_segment_goes_when_all_have_it_and_it_is_old_or_room_is_scarce(
    ages: tuple[float, ...], positions: tuple[int, ...], used: int, count: int
) -> None:
    segments = [ClosedSegment(10 * place, 10, age) for place, age in enumerate(ages, start=1)]
    assert removable(segments, positions, used, Limits(memory=1, disk=100)) == count
