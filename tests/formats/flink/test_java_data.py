"""Numbers and strings as Java writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.flink.java_data import (
    DataInput,
    DataOutput,
    Longs,
    decode_modified,
    encode_modified,
    fits_utf,
)

# (text, bytes): NUL in two bytes, what is outside the basic plane as two surrogates of three bytes
# each.
STRINGS = [
    ("", ""),
    ("uid", "756964"),
    ("\0", "c080"),
    ("é", "c3a9"),
    ("€", "e282ac"),
    ("😀", "eda0bdedb880"),
    ("\ud83d", "eda0bd"),
]


@pytest.mark.parametrize(("text", "raw"), STRINGS)
def test_strings_are_modified_utf_8(text: str, raw: str) -> None:
    assert encode_modified(text).hex() == raw
    assert decode_modified(bytes.fromhex(raw)) == text


@pytest.mark.parametrize("raw", ["00", "c0", "c081", "f09f9880", "ff", "eda0", "e0808080"])
def test_what_java_would_not_write_is_refused(raw: str) -> None:
    out = DataOutput()
    out.i2(len(raw) // 2)
    out.put(bytes.fromhex(raw))
    with pytest.raises(FormatError, match="modified UTF-8"):
        DataInput(out.content(), "a test").utf()


@given(st.text(alphabet=st.characters(), max_size=20))
def test_any_string_comes_back(text: str) -> None:
    out = DataOutput()
    out.utf(text)
    assert DataInput(out.content(), "a test").utf() == text


def test_a_string_may_be_as_long_as_its_length_can_say() -> None:
    assert fits_utf("a" * 65535)
    assert not fits_utf("é" * 32768)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.integers(-9, 9), st.integers(-9, 9)
)
def test_longs_are_a_sequence_of_numbers(numbers: list[int], start: int, stop: int) -> None:
    found = Longs.of(numbers)
    assert list(found) == numbers
    assert list(found[start:stop]) == numbers[start:stop]
    assert list(found[::2]) == numbers[::2]
    assert [found[place] for place in range(-len(numbers), len(numbers))] == [*numbers, *numbers]


def test_a_length_that_is_claimed_takes_no_memory() -> None:
    out = DataOutput()
    out.i4(2**31 - 1)
    data = DataInput(out.content(), "a test")
    with pytest.raises(FormatError, match="ends early"):
        data.longs(data.count("numbers"))
