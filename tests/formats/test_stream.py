import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.stream import Stream, lines

PIECES = st.lists(st.binary(max_size=8), max_size=8)


@given(PIECES, st.lists(st.integers(0, 5), max_size=12))
def test_what_is_taken_is_the_content_however_it_came(pieces, counts):
    whole, stream, at = b"".join(pieces), Stream(pieces, "it"), 0
    for count in counts:
        if at + count > len(whole):
            with pytest.raises(FormatError) as caught:
                stream.take(count)
            assert caught.value.offset == len(whole)
            return
        assert stream.peek(count) == whole[at : at + count]
        assert stream.take(count) == whole[at : at + count]
        at += count
        assert stream.offset == at
    assert stream.at_end() == (at == len(whole))
    assert b"".join(stream.rest()) == whole[at:]


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc", b"\n\n"]), max_size=10))
def test_lines_are_the_same_however_they_came(pieces):
    whole = b"".join(pieces)
    found = list(lines(pieces))
    assert b"\n".join(line for _, line in found) == (whole[:-1] if whole.endswith(b"\n") else whole)
    assert all(whole[offset : offset + len(line)] == line for offset, line in found)


def test_a_claimed_length_takes_no_memory():
    with pytest.raises(FormatError) as caught:
        Stream([b"abc"], "it").take(1 << 62)
    assert caught.value.offset == 3
