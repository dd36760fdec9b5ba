"""Bytes that are made to hurt: counts of what is not there, things inside of themselves, names
that take for ever.
"""

from __future__ import annotations

import struct
import time

import cramjam
import pytest

from stateshift.errors import FormatError, TooLarge
from stateshift.formats import bounds
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.keyed_state import (
    decode_header,
    entries,
    find_serializers,
    find_states,
    sections,
)
from stateshift.formats.flink.properties import decode_properties
from stateshift.formats.flink.serializers import (
    Serializer,
    Unknown,
    read_snapshot,
    snapshot_name,
    value,
)

LONG = Serializer("LongSerializer", 3)
NOTHING = Serializer("TupleSerializer", 2)


def snapshot(name: str, *inner: bytes) -> bytes:
    outer = encode_utf("Tuple") if name == "TupleSerializer" else b""
    head = (
        encode_utf(f"org.apache.flink.{name}Snapshot")
        + struct.pack(">ii", 3, 911108)
        + struct.pack(">i", 1)
        + outer
    )
    return head + struct.pack(">iii", 1333245, 1, len(inner)) + b"".join(inner)


def test_a_list_of_things_that_take_no_bytes_is_not_counted_up() -> None:
    with pytest.raises(Unknown):
        value(
            Serializer("ListSerializer", 1, (NOTHING,)),
            DataInput(struct.pack(">i", 0x7FFFFFFF), "a value"),
        )


@pytest.mark.parametrize("count", [0x7FFFFFFF, -1, 9])
def test_a_count_that_cannot_fit_is_refused_at_once(count: int) -> None:
    with pytest.raises(FormatError):
        value(
            Serializer("ListSerializer", 1, (LONG,)),
            DataInput(struct.pack(">iq", count, 1), "a value"),
        )


@pytest.mark.parametrize(
    ("name", "arity"), [("ListSerializer", 0), ("MapSerializer", 1), ("TimerSerializer", 3)]
)
def test_a_composite_of_another_number_of_serializers_is_refused(name: str, arity: int) -> None:
    long = encode_utf("org.apache.flink.LongSerializerSnapshot") + struct.pack(">i", 3)
    with pytest.raises(FormatError, match=name):
        read_snapshot(DataInput(snapshot(name, *([long] * arity)), "a snapshot"), nested=True)


@pytest.mark.parametrize("name", ["EventId", "Long", "List", "Pojo"])
def test_a_class_of_a_job_is_not_taken_for_flinks_of_the_same_name(name: str) -> None:
    own = encode_utf(f"jobs.{name}SerializerSnapshot") + struct.pack(">i", 3)
    with pytest.raises(Unknown, match="not known here") as unknown:
        read_snapshot(DataInput(own, "a snapshot"), nested=True)
    kept = snapshot_name(unknown.value.snapshot or "")
    assert kept == f"jobs.{name}SerializerSnapshot" and Serializer(kept, 0).is_opaque


def test_serializers_inside_of_serializers_end() -> None:
    content = encode_utf("org.apache.flink.LongSerializerSnapshot") + struct.pack(">i", 3)
    for _ in range(2000):
        content = snapshot("ListSerializer", content)
    with pytest.raises(FormatError, match="nested too deeply"):
        read_snapshot(DataInput(content, "a snapshot"), nested=True)


def test_objects_inside_of_objects_end() -> None:
    one = (
        b"\x73\x72"
        + encode_utf("A")
        + bytes(8)
        + b"\x02"
        + struct.pack(">h", 1)
        + b"L"
        + encode_utf("a")
    )
    content = b"\xac\xed\x00\x05" + (one + b"\x74" + encode_utf("LA;") + b"\x78\x70") * 3000
    with pytest.raises(FormatError):
        decode_properties(content)


def test_a_header_that_ends_before_the_first_key_group_is_refused() -> None:
    with pytest.raises(FormatError, match="ends early"):
        decode_header(b"\0\0\0\6\0", 99)


@pytest.mark.parametrize("offsets", [(-5,), (10, 1 << 62), (11,)])
def test_a_key_group_outside_of_its_file_is_refused(offsets: tuple[int, ...]) -> None:
    with pytest.raises(FormatError):
        sections(offsets, 10)


def test_a_state_that_is_not_there_is_refused() -> None:
    section = struct.pack(">HiBBi", 3, 2, 0x80, 1, 0) + b"\xff\xff"
    assert list(entries(section, 1, 0))
    with pytest.raises(FormatError, match="state 3, of 2"):
        list(entries(section, 1, 0, 2))


@pytest.mark.parametrize(
    "content", [b"a" * (1 << 20), b"Snapshot" * (1 << 17), b"Snapshot$" * (1 << 16)]
)
def test_names_of_serializers_are_found_in_time(content: bytes) -> None:
    began = time.thread_time()
    find_serializers(content)
    assert time.thread_time() - began < 5


def test_names_of_states_are_found_in_time() -> None:
    state = (
        encode_utf("x")
        + struct.pack(">iii", 3, 0, 1)
        + encode_utf("VALUE_SERIALIZER")
        + struct.pack(">i", 1)
    )
    began = time.thread_time()
    assert len(find_states(state * 20_000 + bytes(4))) == 20_000
    assert time.thread_time() - began < 10


BEGUN = snappy_frames.IDENTIFIER


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        BEGUN[:9],
        BEGUN + b"\0\xff\xff\xff",
        BEGUN + b"\0\x04\0\0abcd",
        BEGUN + b"\x02\0\0\0",
    ],
)
def test_what_is_no_snappy_stream_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        snappy_frames.decompress(content, "state")


def test_a_snappy_stream_that_expands_beyond_the_bound_is_refused_before_it_does() -> None:
    """64 KiB of zeros take 3 KiB: what is small on disk may be many GiB."""
    chunk = bytes(cramjam.snappy.compress(bytes(1 << 16))).removeprefix(BEGUN)
    assert len(chunk) < 4096
    assert snappy_frames.decompress(BEGUN + chunk * 3, "state") == bytes(3 << 16)
    count = bounds.whole() // (1 << 16)
    with pytest.raises(TooLarge, match="state, decompressed, of") as refused:
        snappy_frames.decompress(BEGUN + chunk * (count + 1), "state")
    assert "STATESHIFT_MEMORY" in str(refused.value.hint)
