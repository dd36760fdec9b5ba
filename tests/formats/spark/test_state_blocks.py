"""State files as blocks: the same records, and the same errors, as one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.blocks import RowBlock
from stateshift.formats.spark import state_blocks
from stateshift.formats.spark.compression import compress
from stateshift.formats.spark.state_blocks import (
    SMALL,
    decode_changelog_blocks,
    decode_delta_blocks,
    decode_snapshot_blocks,
)
from stateshift.formats.spark.state_files import (
    Changelog,
    StateRecord,
    decode_changelog,
    decode_delta,
    decode_snapshot,
    encode_delta,
)
from tests.formats.golden import CASES, IDS, chunks, files
from tests.support.encoders import encode_changelog

PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "delta": (decode_delta, decode_delta_blocks),
    "snapshot": (decode_snapshot, decode_snapshot_blocks),
    "changelog": (lambda c: decode_changelog(c)[1], lambda c: decode_changelog_blocks(c)[1]),
}


def flat(blocks: Iterable[RowBlock]) -> list[StateRecord]:
    found = []
    for block in blocks:
        merges = [False] * len(block) if block.merges is None else block.merges.tolist()
        found += [StateRecord(k, v, m) for (k, v), m in zip(block.records(), merges, strict=True)]
    return found


def both(kind: str, content: bytes) -> tuple[Any, Any]:
    """What either way gives: records, or the error and its place."""
    results = []
    for decode, listed in zip(PAIRS[kind], (list, flat), strict=True):
        try:
            results.append(listed(decode([content])))
        except FormatError as error:
            results.append((error.fact, error.offset))
    return results[0], results[1]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_golden_files_as_blocks_are_what_they_are_one_by_one(case: Any) -> None:
    for path in files(case, "state"):
        kind = path.name.rpartition(".")[2]
        if kind in PAIRS:
            one_by_one, blocks = both(kind, b"".join(chunks(path)))
            assert blocks == one_by_one


SIZES = st.sampled_from((0, 1, 16, 24, 24, 25, 32, 200))
MANY = st.integers(0, 5000)


def made(seed: int, count: int, sizes: list[int], typed: bool) -> list[StateRecord]:
    """Records of such sizes, some of which hold bytes that look like records."""
    rnd = random.Random(seed)
    bait = next(iter(encode_plain([StateRecord(b"k" * sizes[0], b"v" * sizes[-1])])))
    found = []
    for _ in range(count):
        key = rnd.randbytes(rnd.choice(sizes))
        value = (bait * 9 if rnd.random() < 0.1 else rnd.randbytes(rnd.choice(sizes)))[
            : rnd.choice(sizes)
        ]
        deleted = rnd.random() < 0.1
        found.append(
            StateRecord(
                key, None if deleted else value, typed and not deleted and rnd.random() < 0.2
            )
        )
    return found


def encode_plain(records: list[StateRecord]) -> Iterable[bytes]:
    from stateshift.formats.spark.compression import decompress

    return (b"".join(decompress(encode_delta(records)))[:-4],)


@settings(deadline=None, max_examples=40)
@given(st.integers(), MANY, st.lists(SIZES, min_size=1, max_size=4), st.booleans())
def test_many_records_are_walked_in_many_stretches(
    seed: int, count: int, sizes: list[int], typed: bool
) -> None:
    records = made(seed, count, sizes, typed)
    if typed:
        content = b"".join(encode_changelog(Changelog(2), records))
        assert flat(decode_changelog_blocks([content])[1]) == records
    else:
        assert flat(decode_delta_blocks([b"".join(encode_delta(records))])) == records


def test_a_record_longer_than_a_piece_is_read() -> None:
    records = [StateRecord(b"k%d" % n, bytes(state_blocks.PIECE // 3 * n)) for n in range(5)]
    assert flat(decode_delta_blocks(encode_delta(records))) == records


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 3), st.integers(0, 1 << 20), st.integers(1, 255), st.booleans())
def test_damage_is_said_as_one_by_one(seed: int, place: int, change: int, cut_off: bool) -> None:
    """Of the decompressed bytes, for which there is no checksum."""
    from stateshift.formats.spark.compression import decompress

    typed = seed % 2 == 1
    records = made(seed, 2000, [24, 32, 40], typed)
    encoded = encode_changelog(Changelog(2), records) if typed else encode_delta(records)
    raw = bytearray(b"".join(decompress(encoded)))
    assert len(raw) > SMALL
    place %= len(raw)
    if cut_off:
        del raw[place:]
    else:
        raw[place] ^= change
    content = b"".join(compress([bytes(raw)], "lz4"))
    one_by_one, blocks = both("changelog" if typed else "delta", content)
    assert blocks == one_by_one
