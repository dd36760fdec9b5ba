import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.spark.compression import CODECS, codec_of, compress, decompress

CONTENT = bytes(range(256)) * 300 + b"the same again " * 4000 + bytes(70_000)


def packed(content, codec):
    return b"".join(compress([content], codec))


def unpacked(*pieces):
    return b"".join(decompress(pieces))


@pytest.mark.parametrize("codec", CODECS)
@given(pieces=st.lists(st.binary(max_size=100), max_size=5))
def test_what_was_compressed_comes_back(codec, pieces):
    whole = b"".join(compress(pieces, codec))
    assert codec_of(whole) == codec
    assert unpacked(*(whole[i : i + 1] for i in range(len(whole)))) == b"".join(pieces)


@pytest.mark.parametrize("codec", CODECS)
def test_many_blocks_come_back_and_streams_may_follow_each_other(codec):
    whole = packed(CONTENT, codec)
    assert unpacked(whole[:1000], whole[1000:]) == CONTENT
    assert unpacked(whole, whole) == CONTENT * 2


@pytest.mark.parametrize("codec", CODECS)
def test_the_pieces_it_came_in_are_small(codec):
    assert max(len(piece) for piece in decompress([packed(bytes(5_000_000), codec)])) <= 256 * 1024


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_stream_cut_anywhere_is_refused_at_its_end(codec):
    whole = packed(bytes(range(100)), codec)
    for end in range(len(whole)):
        with pytest.raises(FormatError) as caught:
            unpacked(whole[:end])
        assert caught.value.offset == end


@pytest.mark.parametrize("codec", ["snappy", "lzf"])
def test_a_stream_without_an_end_mark_is_refused_unless_cut_between_blocks(codec):
    whole = packed(bytes(range(100)), codec)
    for end in range(len(whole)):
        if codec == "snappy" and end == 16:
            assert unpacked(whole[:end]) == b""  # the header alone is an empty stream
            continue
        with pytest.raises(FormatError) as caught:
            unpacked(whole[:end])
        assert caught.value.offset == end


def test_the_empty_lz4_stream_is_javas():
    assert packed(b"", "lz4") == b"LZ4Block\x15" + bytes(12)


def test_any_block_size_of_lz4_is_read():
    big = b"LZ4Block" + struct.pack("<Biii", 0x1A, 5, 5, 0x02CB3D0B)
    with pytest.raises(FormatError, match="checksum"):
        unpacked(big + b"hello" + packed(b"", "lz4"))


def test_a_flipped_bit_in_lz4_is_found():
    whole = bytearray(packed(bytes(range(200)), "lz4"))
    whole[30] ^= 1
    with pytest.raises(FormatError, match="checksum") as caught:
        unpacked(bytes(whole))
    assert caught.value.offset == 0


@pytest.mark.parametrize(
    ("token", "stored", "raw"),
    [
        (0x25, 10, 32 * 1024 + 1),
        (0x25, 10, 2**31 - 1),
        (0x2F, 4, 32 * 1024 * 1024),
        (0x15, 4, 5),
        (0x25, -1, 5),
        (0x25, 2**31 - 1, 5),
        (0x35, 1, 1),
        (0x25, 3, 0),
    ],
)
def test_an_lz4_block_that_claims_too_much_is_refused(token, stored, raw):
    with pytest.raises(FormatError):
        unpacked(b"LZ4Block" + struct.pack("<Biii", token, stored, raw, 0) + b"abcdefghij")


def test_a_zstd_frame_that_claims_too_much_is_refused():
    with pytest.raises(FormatError, match="window"):
        unpacked(b"\x28\xb5\x2f\xfd\x00\xf8")


def test_lzf_copies_that_overlap_are_expanded():
    # a literal "a", then a copy of 9 from one back
    assert unpacked(b"ZV\x01\x00\x05\x00\x0a\x00a\xe0\x00\x00") == b"a" * 10


@pytest.mark.parametrize("content", [b"plain text", b"PK\x03\x04", b"\x00" * 20])
def test_what_no_codec_wrote_is_refused_at_its_beginning(content):
    with pytest.raises(FormatError) as caught:
        unpacked(content)
    assert caught.value.offset == 0


@given(st.sampled_from(CODECS), st.data())
def test_damage_raises_nothing_but_format_errors(codec, data):
    whole = bytearray(packed(b"some content, some content" * 20, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        assert len(unpacked(bytes(whole))) < 40_000_000
