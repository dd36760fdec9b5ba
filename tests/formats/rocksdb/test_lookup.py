"""Keys that are asked for one by one are found where reading whole tables finds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.blocks import binary, block_of
from stateshift.formats.rocksdb import sst_encoding
from stateshift.formats.rocksdb.manifest import KeyPlace, TableFile
from stateshift.formats.rocksdb.sst_blocks import Lookup, StoredTable
from stateshift.formats.rocksdb.table import DELETES, PUT, decode_sst, open_table
from tests.formats.rocksdb.building import table
from tests.formats.rocksdb.test_sst_blocks import SSTS
from tests.formats.rocksdb.test_sst_encoding import table_of

Reads = Callable[[int, int], bytes]
KEYS = st.binary(max_size=2)
WRITES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), min_size=1, max_size=30)


def reading(content: bytes, offset: int, count: int) -> bytes:
    return content[offset : offset + count]


def stored(number: int, content: bytes, read: Reads | None = None) -> StoredTable:
    """A table as its MANIFEST would have it."""
    keys = [entry.key for entry in decode_sst(content)]
    fact = TableFile(number, 0, len(content), KeyPlace(keys[0], 0), KeyPlace(keys[-1], 0), 0, 0)
    opened = partial(open_table, read or partial(reading, content), len(content))
    return StoredTable(fact, f"{number}.sst", opened)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(WRITES, max_size=4),
    st.sets(KEYS, min_size=1, max_size=40).map(sorted),
    st.integers(1, 40),
)
def test_a_key_is_live_if_the_newest_of_all_tables_puts_it(
    writes: list[dict[bytes, bytes | None]], asked: list[bytes], each: int
) -> None:
    usual, sst_encoding.BLOCK = sst_encoding.BLOCK, 16  # some records a block
    try:
        tables = [
            stored(number, table_of([block_of(sorted(own.items()))], sequence=number)[0])
            for number, own in enumerate(writes)
        ]
    finally:
        sst_encoding.BLOCK = usual
    model: dict[bytes, bytes | None] = {}
    for own in writes:
        model |= own
    lookup = Lookup(reversed(tables))
    found: list[bool] = []
    for start in range(0, len(asked), each):
        found += lookup.live(binary(asked[start : start + each])).tolist()
    assert found == [model.get(key) is not None for key in asked]


@pytest.mark.parametrize("path", SSTS, ids=lambda path: "/".join(path.parts[-9:]))
def test_every_key_of_a_golden_table_is_found_and_none_beside_it(path: Path) -> None:
    content = path.read_bytes()
    live: dict[bytes, bool] = {}
    for entry in decode_sst(content):
        live.setdefault(entry.key, entry.kind not in DELETES)
    if not live:
        return
    asked = sorted({*live, *(key + b"\0" for key in live), *(key[:-1] for key in live)})
    found = Lookup([stored(1, content)]).live(binary(asked)).tolist()
    assert found == [live.get(key, False) for key in asked]


def test_of_a_large_table_the_blocks_alone_are_read_in_which_keys_would_stand() -> None:
    records = [(b"%09d" % number, b"%032d" % (number * 7919)) for number in range(40_000)]
    content, _ = table_of([block_of(records)])
    read: list[int] = []

    def counted(offset: int, count: int) -> bytes:
        read.append(count)
        return reading(content, offset, count)

    asked = [b"%09d" % 7, b"%09d+" % 20_000, b"%09d" % 39_999]
    assert Lookup([stored(1, content, counted)]).live(binary(asked)).tolist() == [True, False, True]
    assert sum(read) < len(content) / 5


def test_a_table_with_range_deletions_is_refused_by_its_path() -> None:
    content = table([(b"a", 1, PUT, b"")], [(b"a", b"c", 5)])
    fact = TableFile(1, 0, len(content), KeyPlace(b"a", 0), KeyPlace(b"c", 0), 0, 0)
    opened = partial(open_table, partial(reading, content), len(content))
    with pytest.raises(FormatError, match=r"x/1\.sst.*range_del"):
        Lookup([StoredTable(fact, "x/1.sst", opened)]).live(binary([b"b"]))
