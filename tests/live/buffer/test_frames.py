"""A record's bytes: whole, torn at every byte, damaged at every byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError, UnknownVersion
from stateshift.live.buffer import frames
from stateshift.live.buffer.frames import BufferRecord

THREE = [BufferRecord(7, 1, b"first"), BufferRecord(8, 2, b""), BufferRecord(9, 3, b"third\n\0")]


def block(records: list[BufferRecord]) -> bytes:
    return b"".join(map(frames.encode_record, records))


@given(st.lists(st.binary(max_size=50)), st.integers(0, 1 << 40))
def test_what_is_encoded_is_decoded(values: list[bytes], first: int) -> None:
    records = [BufferRecord(first + place, place, value) for place, value in enumerate(values)]
    assert list(frames.decode_records(block(records), first)) == records


def test_a_block_that_is_cut_anywhere_ends_with_its_last_whole_record() -> None:
    whole = block(THREE)
    ends = [len(block(THREE[:count])) for count in range(4)]
    for length in range(len(whole) + 1):
        count = sum(end <= length for end in ends) - 1
        assert frames.whole_records(whole[:length], 7) == (ends[count], 7 + count)


def test_a_bit_that_differs_anywhere_is_noticed() -> None:
    whole = block(THREE)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        with pytest.raises(FormatError, match="is damaged, or is not there"):
            list(frames.decode_records(bytes(damaged), 7))


def test_a_record_out_of_its_turn_is_noticed() -> None:
    with pytest.raises(FormatError, match="record 8 is damaged, or is not there"):
        list(frames.decode_records(block([THREE[0], THREE[2]]), 7))


def test_a_barrier_is_found_behind_what_is_no_record() -> None:
    later = frames.encode_record(BufferRecord(9, 3, b"later"), is_barrier=True)
    torn = block(THREE)[:20]
    assert frames.has_barrier(torn + later, 7, 0)
    assert not frames.has_barrier(torn + later[:-1], 7, 0)
    assert not frames.has_barrier(torn + frames.encode_record(BufferRecord(9, 3, b"later")), 7, 0)
    far = frames.encode_record(BufferRecord(900, 3, b"later"), is_barrier=True)
    assert not frames.has_barrier(torn + far, 7, 0), "so many records do not fit in between"


@pytest.mark.parametrize(
    ("count", "bytes_max", "passed"), [(0, 99, 0), (2, 99, 2), (9, 99, 3), (9, 60, 2), (9, 1, 1)]
)
def test_records_are_counted_by_their_lengths(count: int, bytes_max: int, passed: int) -> None:
    end = len(block(THREE[:passed]))
    assert frames.skip_records(block(THREE), count, bytes_max) == (end, passed)


def test_a_segment_of_a_newer_version_is_refused_by_name() -> None:
    head = frames.encode_segment_head(12)
    assert frames.decode_segment_head(head) == 12
    with pytest.raises(UnknownVersion, match="segment version 2"):
        frames.decode_segment_head(head[:7] + b"\2" + head[8:])
    with pytest.raises(FormatError, match="magic"):
        frames.decode_segment_head(b"x" + head[1:])
    for length in range(len(head)):
        with pytest.raises(FormatError, match="truncated in its head"):
            frames.decode_segment_head(head[:length])
