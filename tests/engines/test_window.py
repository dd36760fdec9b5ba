"""What is read of a file through a window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateshift.engines import window
from stateshift.engines.window import FrontToBack, upto


@pytest.mark.parametrize(
    ("size", "expected", "count"),
    [(0, b"", 0), (1, b"a", 1), (4, b"abcd", 1), (5, b"abcda", 2), (99, b"abcdabcd", 2)],
)
def test_no_chunk_is_asked_for_behind_what_is_wanted(
    size: int, expected: bytes, count: int
) -> None:
    asked: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(2):
            asked.append(number)
            yield b"abcd"

    assert b"".join(upto(chunks(), size)) == expected
    assert len(asked) == count


CONTENT = bytes(range(250)) * 40  # 10,000 bytes


class Reading:
    """A file that is given in chunks of 100 bytes, and how often and how far it was read."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.begun: list[int] = []
        self.size = 0

    def __call__(self, offset: int) -> Iterator[bytes]:
        self.begun.append(offset)
        for start in range(offset, len(self.content), 100):
            chunk = self.content[start : start + 100]
            self.size += len(chunk)
            yield chunk


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "CHUNK", 2000)
    monkeypatch.setattr(window, "WINDOW", 500)


@pytest.mark.usefixtures("little")
def test_pieces_that_follow_each_other_are_one_reading_that_ends_with_them() -> None:
    reading = Reading(CONTENT)
    file = FrontToBack(reading, len(CONTENT))
    assert file.ends_there() and file.read(9990, 99) == CONTENT[9990:]
    for offset in range(3000, 4500, 150):
        assert file.read(offset, 140) == CONTENT[offset : offset + 140]
    assert reading.begun == [9500, 3000]
    assert reading.size <= 500 + 1500 + 100


@pytest.mark.usefixtures("little")
def test_a_small_file_is_read_at_once() -> None:
    reading = Reading(CONTENT[:1999])
    file = FrontToBack(reading, 1999)
    assert file.ends_there()
    assert file.read(10, 30) == CONTENT[10:40] and file.read(1900, 500) == CONTENT[1900:1999]
    assert reading.begun == [0]


@pytest.mark.usefixtures("little")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10_100), st.integers(0, 3000)), max_size=8))
def test_whatever_is_asked_for_is_what_the_file_has_there(asked: list[tuple[int, int]]) -> None:
    file = FrontToBack(Reading(CONTENT), len(CONTENT))
    for offset, count in asked:
        assert file.read(offset, count) == CONTENT[offset : offset + count]


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("size", [0, 7, 1999, 2001, 9000, 9999, 10_001, 20_000])
def test_a_file_of_another_length_than_was_said_is_noticed(size: int) -> None:
    content = (CONTENT * 2)[:size]
    assert not FrontToBack(Reading(content), 10_000).ends_there()
    assert FrontToBack(Reading(content), size).ends_there()
    if size:
        assert not FrontToBack(Reading(content), size - 1).ends_there()
