"""Records sorted within a bounded memory: against Python's own sort."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import StorageError
from stateshift.formats import sorting
from stateshift.formats.blocks import RowBlock, block_of
from stateshift.formats.sorting import SortedPile, SortedPiles, index_of, open_piles

Records = list[tuple[bytes, bytes]]
RECORDS = st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=20)), max_size=30)


def records_of(
    pile: SortedPile, after: bytes | None = None, upto: bytes | None = None
) -> list[tuple[bytes, bytes | None]]:
    return [record for block in pile.blocks(after, upto) for record in block.records()]


def filled(parts: list[tuple[int, Records]], bytes_max: int) -> SortedPiles:
    piles = SortedPiles(bytes_max=bytes_max)
    for number, records in parts:
        piles.add(number, block_of(records))
    return piles


@given(
    st.lists(st.tuples(st.integers(0, 2), RECORDS), max_size=20),
    st.sampled_from((200, 2000, 1 << 30)),
)
@settings(max_examples=200, deadline=None)
def test_what_went_in_comes_out_in_order_whole_or_in_parts(
    parts: list[tuple[int, Records]], bytes_max: int
) -> None:
    piles = filled(parts, bytes_max)
    for number in range(3):
        expected = sorted(record for own, records in parts for record in records if own == number)
        pile = piles.pile(number)
        found = records_of(pile)
        assert [key for key, _ in found] == [key for key, _ in expected]
        assert sorted(found) == expected and pile.records == len(expected)
        for count in (1, 2, 7):
            bounds = [None, *pile.bounds(count), None]
            assert len(bounds) == count + 1
            assert [
                r for after, upto in pairwise(bounds) for r in records_of(pile, after, upto)
            ] == found


@given(
    st.lists(st.tuples(st.integers(0, 2), RECORDS), max_size=20), st.sampled_from((200, 1 << 30))
)
@settings(max_examples=100, deadline=None)
def test_what_was_put_aside_is_found_again_by_its_index(
    parts: list[tuple[int, Records]], bytes_max: int
) -> None:
    file = io.BytesIO()
    piles = SortedPiles(lambda: file, bytes_max)
    for number, records in parts:
        piles.add(number, block_of(records))
    piles.put_aside()
    own = {number: piles.pile(number) for number in range(3)}
    again = open_piles(index_of(own), io.BytesIO(file.getvalue()))
    for number, pile in own.items():
        assert records_of(again[number]) == records_of(pile)
        assert again[number].bounds(3) == pile.bounds(3)


def many(count: int, step: int) -> RowBlock:
    return block_of([(b"%012d" % (n * step % 1_000_003), b"v" * 50) for n in range(count)])


@pytest.mark.parametrize("targets", [1, 2, 8])
def test_no_more_is_held_than_is_allowed_with_what_sorting_takes(targets: int) -> None:
    file, written = io.BytesIO(), 0
    piles = SortedPiles(lambda: file, bytes_max=1 << 20)
    held = [0] * targets
    for number in range(40 * targets):
        block = many(1000, 7919 + number)
        piles.add(number % targets, block)
        held[number % targets] += block.size
        if len(file.getbuffer()) > written:
            assert sum(held) + max(held) >= 1 << 20, "no sooner than it has to be"
            written, held = len(file.getbuffer()), [0] * targets
        assert sum(held) + max(held) < 1 << 20
    assert written


def test_of_much_that_was_put_aside_a_chunk_of_each_run_is_read_at_once() -> None:
    opened: list[io.BytesIO] = []

    def scratch() -> io.BytesIO:
        opened.append(io.BytesIO())
        return opened[-1]

    piles = SortedPiles(scratch, bytes_max=1 << 20)
    for start in range(40):
        piles.add(0, many(5000, 7919 + start))
    pile = piles.pile(0)
    assert len(opened) == 1 and len(pile.runs) > 5
    most = max(block.size for block in pile.blocks())
    assert most < len(pile.runs) * 3 * sorting.CHUNK_BYTES
    parts = [sum(map(len, pile.blocks(a, b))) for a, b in pairwise([None, *pile.bounds(4), None])]
    assert sum(parts) == 200_000 and min(parts) > 30_000, "parts are of about the same size"


def test_a_full_disk_is_said_so() -> None:
    class Full(io.BytesIO):
        def write(self, content: object) -> int:
            raise OSError(28, "No space left on device")

    piles = SortedPiles(Full, bytes_max=100)
    with pytest.raises(StorageError, match="put aside: No space left on device") as caught:
        piles.add(0, many(10, 1))
    assert "TMPDIR" in (caught.value.hint or "")
