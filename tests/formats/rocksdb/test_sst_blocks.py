"""SSTs as blocks: the same entries, and the same errors, as one by one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.spark.entries.rocksdb_version import parts_between
from stateshift.errors import FormatError
from stateshift.formats.rocksdb.block import DataBlock
from stateshift.formats.rocksdb.sst_blocks import (
    KEY_MAX,
    _decoded,
    decode_sst_blocks,
    decode_table,
)
from stateshift.formats.rocksdb.table import (
    ALL_KEYS,
    DELETES,
    MERGE,
    PUT,
    KeyRange,
    TableEntry,
    decode_sst,
    entries_of,
    open_content,
)
from tests.formats.golden import CASES
from tests.formats.rocksdb.building import table
from tests.fuzz import sst_files

SSTS = sorted(path for case in CASES for path in (case / "checkpoint").rglob("*.sst"))


def flat(decoded: Any) -> list[tuple[bytes, int, bool, bytes | None]]:
    found = []
    for block, sequences in decoded:
        merges = [False] * len(block) if block.merges is None else block.merges.tolist()
        for (key, value), merge, sequence in zip(
            block.records(), merges, sequences.tolist(), strict=True
        ):
            found.append((key, sequence, merge, value))
    return found


def one_by_one(entries: Any) -> list[tuple[bytes, int, bool, bytes | None]]:
    return [
        (e.key, e.sequence, e.kind == MERGE, None if e.kind in DELETES else e.value)
        for e in entries
    ]


@pytest.mark.parametrize("path", SSTS, ids=lambda path: "/".join(path.parts[-9:]))
def test_golden_tables_as_blocks_are_what_they_are_one_by_one(path: Path) -> None:
    content = path.read_bytes()
    assert flat(decode_sst_blocks(content)) == one_by_one(decode_sst(content))


def varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return found + bytes((number,))


def encoded(entries: list[TableEntry], every: int) -> DataBlock:
    """A data block as RocksDB writes it, a restart every so many entries."""
    content, before, restarts = b"", b"", []
    for number, entry in enumerate(entries):
        key = entry.key + (entry.sequence << 8 | entry.kind).to_bytes(8, "little")
        shared = 0
        if number % every == 0:
            restarts.append(len(content))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        content += (
            varint(shared)
            + varint(len(key) - shared)
            + varint(len(entry.value))
            + key[shared:]
            + entry.value
        )
        before = key
    tail = b"".join(at.to_bytes(4, "little") for at in [*restarts, len(restarts)])
    return DataBlock(content + tail, 7)


def made(seed: int, count: int, key_max: int, value_max: int) -> list[TableEntry]:
    rnd = random.Random(seed)
    keys = sorted(
        rnd.choice((b"", b"a", b"user", b"user-123456")) + rnd.randbytes(rnd.randrange(key_max + 1))
        for _ in range(count)
    )
    kinds = [rnd.choice((0, 1, 1, 1, 2, 7)) for _ in keys]
    return [
        TableEntry(key, rnd.getrandbits(40), kind, rnd.randbytes(rnd.randrange(value_max)))
        for key, kind in zip(keys, kinds, strict=True)
    ]


SEEDS, SIZES = st.integers(), st.sampled_from((1, 100, 300, 20_000))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(SEEDS, min_size=1, max_size=4),
    st.integers(1, 80),
    st.sampled_from((3, 30, KEY_MAX)),
    SIZES,
    st.sampled_from((1, 2, 16, 100)),
)
def test_blocks_are_walked_in_runs(
    seeds: list[int], count: int, key_max: int, value_max: int, every: int
) -> None:
    tables = [made(seed, count, key_max, value_max) for seed in seeds]
    assert flat([_decoded([encoded(table, every) for table in tables])]) == [
        entry for table in tables for entry in one_by_one(table)
    ]


@settings(deadline=None, max_examples=200)
@given(SEEDS, st.integers(0, 1 << 16), st.integers(1, 255), st.sampled_from((4, 16)))
def test_a_damaged_block_is_read_as_one_by_one(
    seed: int, place: int, change: int, every: int
) -> None:
    """Which its checksum would have told, where there is one."""
    good = encoded(made(seed, 40, 30, 50), every)
    content = bytearray(good.content)
    content[place % len(content)] ^= change
    blocks = [good, DataBlock(bytes(content), 9)]
    results: list[Any] = []
    for read in (
        lambda: one_by_one([e for b in blocks for e in entries_of(b)]),
        lambda: flat([_decoded(blocks)]),
    ):
        try:
            results.append(read())
        except FormatError as error:
            results.append((error.fact, error.offset))
    assert results[0] == results[1]


@pytest.mark.parametrize("count", [3, 40, 3000])
@pytest.mark.parametrize("swapped", [0, -1])
def test_a_table_whose_entries_are_not_in_order_is_refused_either_way(
    count: int, swapped: int
) -> None:
    """Within a block, and from one block to the next."""
    tables = [[TableEntry(b"%d-%06d" % (n, i), 9, 1, b"v") for i in range(count)] for n in range(2)]
    tables[1][swapped] = tables[1][swapped]._replace(
        key=b"0-%06d" % (count - 1), sequence=9 - swapped
    )
    content = sst_files.made([encoded(table, 16).content for table in tables], 4, 4)
    told = []
    for read in (lambda: one_by_one(decode_sst(content)), lambda: flat(decode_sst_blocks(content))):
        with pytest.raises(FormatError, match="not in their order") as caught:
            read()
        told.append(caught.value.offset)
    assert told[0] == told[1] != 0


def test_of_one_key_the_newest_comes_first_either_way() -> None:
    entries = [TableEntry(b"k", sequence, 2, b"%d" % sequence) for sequence in (9, 7, 3)]
    content = sst_files.made(
        [encoded(entries[:2], 16).content, encoded(entries[2:], 16).content], 4, 4
    )
    assert (
        flat(decode_sst_blocks(content)) == one_by_one(entries) == one_by_one(decode_sst(content))
    )


@pytest.mark.parametrize("ends", [(b"c", b"a", b"i"), (b"d", b"c", b"i")])
@pytest.mark.parametrize("parts", [[ALL_KEYS], parts_between([b"b", b"e"])], ids=["whole", "parts"])
def test_an_index_that_is_not_in_order_is_refused_whole_and_in_parts(
    ends: tuple[bytes, ...], parts: list[KeyRange]
) -> None:
    """A block could be in no part at all."""
    content = table([(bytes([letter]), 1, PUT, b"") for letter in b"abcdefghi"], ends=ends)
    with pytest.raises(FormatError, match="index that is not in the order"):
        for part in parts:
            list(decode_table(open_content(content), part))


@pytest.mark.parametrize(("ends", "cut"), [((b"b", b"f", b"i"), b"b"), ((b"e", b"f", b"i"), b"e")])
def test_an_index_that_leads_past_a_key_at_a_cut_is_refused(
    ends: tuple[bytes, ...], cut: bytes
) -> None:
    """Else that key could be in no part at all, though every block fits its checksum."""
    content = table([(bytes([letter]), 1, PUT, b"") for letter in b"abcdefghi"], ends=ends)
    with pytest.raises(FormatError, match="index that leads to other keys"):
        for part in parts_between([cut]):
            list(decode_table(open_content(content), part))


@given(st.lists(st.sampled_from(b"abcdefghi"), max_size=4))
def test_the_parts_of_a_table_hold_each_of_its_entries_once(cuts: list[int]) -> None:
    writes = [(bytes([letter]), 1, PUT, b"") for letter in b"abcdefghi"]
    content = table(writes, ends=(b"c", b"f", b"i"))
    parts = parts_between(sorted({bytes([letter]) for letter in cuts}))
    read = []
    for part in parts:
        read += flat(decode_table(open_content(content), part))
    assert read == flat(decode_sst_blocks(content))
