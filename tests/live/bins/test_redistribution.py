"""Keys are dealt as Spark hashes them: what was in a bin is in those that it becomes."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from stateshift import live
from stateshift.errors import Incompatible
from stateshift.live.bins.batches import Columns, Records
from stateshift.live.bins.bin_run import Memory, Writing
from stateshift.live.bins.commits import BinSnapshot
from stateshift.live.bins.hashing import encoders, hash_of, hasher, key_kinds
from stateshift.live.bins.redistribution import BinCounts, OldBin, Redistribution, redistribute
from stateshift.live.bins.stores import Objects, rows_as_bytes, rows_from_bytes
from stateshift.live.protocol.configuration import bin_of

UTC = datetime.UTC
KEYS = {
    pa.int64(): [0, -1, 1 << 62, None],
    pa.int32(): [0, -1, 7, None],
    pa.string(): ["", "a", "äöü" * 20, None],
    pa.float64(): [0.5, -0.0, 1e300, None],
    pa.bool_(): [True, False, None],
    pa.date32(): [datetime.date(2026, 11, 26), datetime.date(1969, 1, 1)],
    pa.timestamp("us", "UTC"): [datetime.datetime(2026, 11, 26, 1, 2, 3, 4, UTC)],
}


@live.operator(bins=4, key=("a", "b"), time="at", out="n long")
def paired(key, state, values):
    return live.Folded((state or 0) + len(values))


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_one_column_is_hashed_as_it_is_among_several(kind):
    encode = encoders(pa.schema([("key", kind)]), ["key"])
    for value in KEYS[kind]:
        assert hasher(encode)(value) == hash_of((value,), encode)


def reader(files):
    """Return what reads a piece of files that were written."""
    return lambda piece: files[piece.file][piece.at : piece.at + piece.size]


def test_keys_of_several_columns_states_requests_and_held_rows_are_dealt_together():
    schema = pa.schema([("a", pa.string()), ("b", pa.int32())])
    kinds = key_kinds(schema, ["a", "b"])
    encode = encoders(schema, ["a", "b"])
    keys = [(f"key {number}", number) for number in range(50)]
    store = Objects(paired, dict.fromkeys(keys, 1))
    for number, key in enumerate(keys):
        store.ask((number + 10,), key, number)
    held = rows_as_bytes(Records([((5,), key, key) for key in keys]))
    before = Writing("paired", "west", 0)
    kept = BinSnapshot((before.add(store.whole()),), len(keys), store.due)
    piece = before.add(held)
    files = {}
    before.finish(files.__setitem__)
    memory = Memory(paired, reader(files))
    deal = Redistribution((OldBin(0, kept, (piece,)),), BinCounts(1, 8, kinds))
    dealt = redistribute([deal], memory, Writing("paired", "west", 1), files.__setitem__)
    read = reader(files)
    seen = []
    for one in dealt:
        assert one.kept is not None
        again = Objects(paired).caught_up(map(read, one.kept.pieces))
        assert again.due == one.kept.due
        for key in again.states:
            assert bin_of(hash_of(key, encode), 8) == one.bin
            seen.append(key)
        assert {asked.key for asked in again.pending.heap} == set(again.states)
        (held_piece,) = one.held
        rows = rows_from_bytes(read(held_piece))
        assert [key for _, key, _ in rows.records] == [k for k in keys if k in again.states]
    assert sorted(seen) == sorted(keys)


def test_held_rows_of_tables_are_dealt_in_their_order():
    @live.operator(form="columns", bins=1, key="key", time="at", out="key long", state="n long")
    def kept_as_tables(table, rows):
        return rows, rows

    table = pa.table({"key": list(range(40)), "at": list(range(40))})
    held = rows_as_bytes(Columns([(at,) for at in range(40)], table))
    piece = Writing("kept_as_tables", "west", 0).add(held)
    memory = Memory(kept_as_tables, lambda one: held)
    files = {}
    deal = Redistribution((OldBin(0, None, (piece,)),), BinCounts(1, 2, ("long",)))
    dealt = redistribute([deal], memory, Writing("kept_as_tables", "west", 1), files.__setitem__)
    assert [one.kept for one in dealt] == [None, None]
    found = []
    for one in dealt:
        (part,) = one.held
        rows = rows_from_bytes(reader(files)(part))
        assert rows.moments == sorted(rows.moments)
        found += rows.table.column("key").to_pylist()
    assert sorted(found) == list(range(40))


def test_keys_of_which_nothing_says_how_they_are_hashed_are_not_dealt():
    writing = Writing("paired", "west", 0)
    content = Objects(paired, {("a", 1): 1}).whole()
    kept = BinSnapshot((writing.add(content),), 1)
    memory = Memory(paired, lambda one: content)
    deal = Redistribution((OldBin(0, kept, ()),), BinCounts(4, 8, ()))
    with pytest.raises(Incompatible, match="nothing says how Spark hashes the keys"):
        redistribute([deal], memory, writing, lambda path, content: None)
