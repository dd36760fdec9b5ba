"""What is read of a file through a window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stateshift.engines.window import upto


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
