"""Entries that go straight into tables: each in exactly one of them, whoever asks in what order."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite.sources import Straight
from stateshift.engines.spark.rewrite.state import rewrite_state
from stateshift.formats.blocks import RowBlock, block_of
from stateshift.formats.rocksdb.manifest import TableFacts, encode_manifest
from stateshift.formats.rocksdb.sst_encoding import encode_sst
from stateshift.formats.rocksdb.table import decode_sst
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, decode_zip, encode_zip
from stateshift.formats.spark.state_files import Changelog, StateRecord
from stateshift.storage.protocol import Content
from stateshift.world import Contents
from tests.support.encoders import encode_changelog

KEYS = st.lists(st.binary(max_size=2), unique=True, max_size=30).map(sorted)
BOUNDS = st.lists(st.binary(max_size=2), max_size=4).map(sorted)


def straight_of(keys: list[bytes], every: int, bounds: list[bytes]) -> Straight:
    """Entries of these keys; one of each block is Spark's own."""

    def entries() -> Iterator[tuple[RowBlock, int]]:
        for start in range(0, len(keys), every):
            yield block_of((key, b"") for key in keys[start : start + every]), 1

    return Straight(entries, bounds)


def keys_in(straight: Straight, table: int, tables: int) -> list[bytes]:
    return [key for block in straight.blocks(0, table, tables) for key, _ in block.records()]


def expected(keys: list[bytes], bounds: list[bytes], table: int) -> list[bytes]:
    after = [key for key in keys if table == 0 or key > bounds[table - 1]]
    return [key for key in after if table == len(bounds) or key <= bounds[table]]


@given(KEYS, st.integers(1, 9), BOUNDS, st.lists(st.integers(0, 4), max_size=6))
def test_a_table_holds_the_keys_between_its_bounds_whichever_was_asked_for_before(
    keys: list[bytes], every: int, bounds: list[bytes], asked: list[int]
) -> None:
    count = len(bounds) + 1
    straight = straight_of(keys, every, bounds)
    for table in [*range(count), *(number % count for number in asked)]:
        assert keys_in(straight, table, count) == expected(keys, bounds, table)
    assert straight.internal_of(0) == -(-len(keys) // every)


@given(KEYS, st.integers(1, 9), BOUNDS)
def test_a_table_that_was_given_up_is_begun_again(
    keys: list[bytes], every: int, bounds: list[bytes]
) -> None:
    straight = straight_of(keys, every, bounds)
    given_up = straight.blocks(0, 0, len(bounds) + 1)
    next(given_up, None)
    given_up.close()  # type: ignore[attr-defined]
    assert straight.internal_of(0) == -(-len(keys) // every)
    found = [keys_in(straight, table, len(bounds) + 1) for table in range(len(bounds) + 1)]
    assert [key for table in found for key in table] == keys


def test_a_shard_of_several_tables_is_read_once_and_becomes_as_many_as_were_planned() -> None:
    keys = [b"%05d" % number for number in range(9000)]
    facts, files, tables = {}, {}, []
    for number, start in enumerate(range(0, 9000, 3000), start=4):
        own = keys[start : start + 3000]
        content = b"".join(encode_sst([block_of((key, b"old") for key in own)]))
        files[f"SSTs/{number}.sst"] = content
        facts[number] = TableFacts(len(content), len(own), own[0], own[-1])
        tables.append(ListedTable(f"{number:06}.sst", f"{number}.sst", len(content)))
    manifest = {"MANIFEST-000003": encode_manifest(facts)}
    files["1.zip"] = encode_zip(RocksDBSnapshot(tuple(tables), 9000), manifest)
    changes = [StateRecord(keys[7], b"new"), StateRecord(keys[8], None)]
    files["2.changelog"] = b"".join(encode_changelog(Changelog(1), changes))
    opened: list[str] = []

    def content_of(path: str) -> Content:
        def read() -> Iterator[bytes]:
            opened.append(path)
            yield files[path]

        return read

    paths = ["1.zip", *sorted(path for path in files if path.endswith(".sst")), "2.changelog"]
    piece = {
        "operator": "0",
        "store": "default",
        "sources": [[0, paths]],
        "targets": [0],
        "tables": [["a.sst", "b.sst", "c.sst"]],
    }
    options = {
        "pieces": [piece],
        "settings": {},
        "provider": ROCKSDB,
        "codec": "lz4",
        "checksums": False,
        "format": None,
        "format_without_zip": 1,
        "compared": {},
    }
    contents = rewrite_state(options, list(map(content_of, paths)))
    *written, zipped = [b"".join(content()) for content in contents]
    entries = [[(entry.key, entry.value) for entry in decode_sst(table)] for table in written]
    assert [len(table) for table in entries] == [2999, 3000, 3000]
    expected = [(key, b"new" if key == keys[7] else b"old") for key in keys if key != keys[8]]
    assert [entry for table in entries for entry in table] == expected
    assert decode_zip(zipped).keys == 8999
    assert all(opened.count(path) == 1 for path in paths if not path.endswith(".zip"))
    assert isinstance(contents, Contents)
    assert [shard.sums["entries"] for shard in contents.shards_read()] == [8999]
