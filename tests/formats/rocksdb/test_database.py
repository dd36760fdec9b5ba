"""A database of several tables holds what its writes come to, in their order; and says what is
wrong with it.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.rocksdb.database import decode_options, open_database
from stateshift.formats.rocksdb.manifest import (
    BLOCK,
    HEADER,
    decode_log,
    decode_manifest,
    encode_log,
)
from stateshift.formats.rocksdb.table import decode_sst
from tests.formats.rocksdb.building import Made, Write, database, log, opened, sized, table

DELETE, PUT, MERGE, SINGLE_DELETE = 0, 1, 2, 7

pytestmark = pytest.mark.row("W-10")


def held(files: dict[str, bytes], family: str = "state") -> dict[bytes, bytes]:
    return dict(open_database(opened(files)).entries(family))


def test_the_newest_write_counts_over_all_tables() -> None:
    old, new = (b"k", 1, PUT, b"old"), (b"k", 2, PUT, b"new")
    for levels in ((0, 0), (3, 0), (6, 2)):
        tables = [Made(levels[0], [old]), Made(levels[1], [new])]
        assert held(database({"state": tables})) == {b"k": b"new"}


@pytest.mark.parametrize("kind", [DELETE, SINGLE_DELETE])
def test_what_was_deleted_is_gone_and_what_was_merged_afterwards_is_there(kind: int) -> None:
    tables = [Made(2, [(b"k", 1, PUT, b"a")]), Made(0, [(b"k", 2, kind, b"")])]
    assert held(database({"state": tables})) == {}
    tables.append(Made(0, [(b"k", 3, MERGE, b"b")]))
    assert held(database({"state": tables})) == {b"k": b"b"}


def test_merges_are_joined_in_the_order_in_which_they_came() -> None:
    tables = [
        Made(1, [(b"k", 1, PUT, b"a")]),
        Made(0, [(b"k", 3, MERGE, b"c"), (b"k", 2, MERGE, b"b")]),
    ]
    assert held(database({"state": tables})) == {b"k": b"a,b,c"}


def test_a_range_deletion_reaches_into_older_tables_and_not_into_newer_writes() -> None:
    before = Made(1, [(b"a", 1, PUT, b"1"), (b"b", 2, PUT, b"2"), (b"c", 3, PUT, b"3")])
    cut = Made(0, [(b"b", 9, PUT, b"9")], [(b"a", b"c", 5)])
    assert held(database({"state": [before, cut]})) == {b"b": b"9", b"c": b"3"}


def test_neighbours_of_one_level_may_share_a_key() -> None:
    """As where tables of one key were moved down without being rewritten."""
    tables = [
        Made(1, [(b"k", 4, PUT, b"new")]),
        Made(1, [(b"k", 2, PUT, b"old"), (b"l", 3, PUT, b"l")]),
    ]
    assert held(database({"state": tables})) == {b"k": b"new", b"l": b"l"}


KEYS = st.binary(min_size=1, max_size=2)
WRITE = st.tuples(KEYS, st.sampled_from((PUT, DELETE, MERGE)), st.binary(max_size=3))
RANGE = st.tuples(KEYS, KEYS).filter(lambda pair: pair[0] < pair[1])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(WRITE, RANGE), min_size=1, max_size=40), st.integers(1, 10), st.booleans()
)
def test_a_database_holds_what_a_dictionary_would(
    operations: list[tuple], each: int, partitioned: bool
) -> None:
    model: dict[bytes, bytes] = {}
    tables: list[Made] = []
    for start in range(0, len(operations), each):
        writes: list[Write] = []
        deletions = []
        for number, operation in enumerate(operations[start : start + each], start=start + 1):
            if len(operation) == 2:
                deletions.append((*operation, number))
                model = {
                    key: value
                    for key, value in model.items()
                    if not operation[0] <= key < operation[1]
                }
                continue
            key, kind, value = operation
            writes.append((key, number, kind, b"" if kind == DELETE else value))
            if kind == DELETE:
                model.pop(key, None)
            else:
                model[key] = model[key] + b"," + value if kind == MERGE and key in model else value
        writes.sort(key=lambda write: (write[0], -write[1]))
        tables.append(Made(0, writes, sorted(deletions)))
    assert held(database({"state": tables}, partitioned=partitioned)) == model


def test_a_partitioned_index_is_read() -> None:
    writes = [(bytes((65 + n,)), n + 1, PUT, bytes((n,))) for n in range(20)]
    assert [entry.key for entry in decode_sst(table(writes, partitioned=True))] == [
        write[0] for write in writes
    ]


def test_one_table_with_range_deletions_is_not_read_by_itself() -> None:
    with pytest.raises(FormatError, match="range_del"):
        list(decode_sst(table([(b"a", 1, PUT, b"")], [(b"a", b"c", 5)])))


WHOLE = {
    "state": [
        Made(1, [(b"a", 1, PUT, b"1"), (b"b", 2, PUT, b"2")]),
        Made(0, [(b"a", 3, PUT, b"3")]),
    ]
}


def broken(change: str) -> dict[str, bytes]:
    files = database(WHOLE)
    manifest = files["MANIFEST-000001"]
    match change:
        case "no CURRENT":
            del files["CURRENT"]
        case "CURRENT of another":
            files["CURRENT"] = b"MANIFEST-000007\n"
        case "CURRENT without end":
            files["CURRENT"] = b"MANIFEST-000001"
        case "a table less":
            del files["000010.sst"]
        case "a table more":
            files["000099.sst"] = files["000010.sst"]
        case "tables exchanged":
            files["000010.sst"], files["000011.sst"] = files["000011.sst"], files["000010.sst"]
        case "a newer write than the last":
            files = database(WHOLE, last=2)
        case "entries fewer than claimed":
            writes = WHOLE["state"][0].writes
            files["000010.sst"] = table(writes, count=3)
        case "a manifest cut in a record":
            files["MANIFEST-000001"] = manifest[:-1]
        case "a manifest with a flipped bit":
            files["MANIFEST-000001"] = manifest[:20] + bytes((manifest[20] ^ 1,)) + manifest[21:]
        case "another comparator":
            files["MANIFEST-000001"] = log(b"\x01" + sized(b"mine.Comparator"))
        case "overlapping tables":
            files = database(
                {
                    "state": [
                        Made(1, [(b"a", 1, PUT, b""), (b"c", 2, PUT, b"")]),
                        Made(1, [(b"b", 3, PUT, b"")]),
                    ]
                }
            )
    return files


@pytest.mark.parametrize(
    "change",
    [
        "no CURRENT",
        "CURRENT of another",
        "CURRENT without end",
        "a table less",
        "a table more",
        "tables exchanged",
        "a newer write than the last",
        "entries fewer than claimed",
        "a manifest cut in a record",
        "a manifest with a flipped bit",
        "another comparator",
        "overlapping tables",
    ],
)
def test_what_does_not_fit_is_refused(change: str) -> None:
    assert held(database(WHOLE)) == {b"a": b"3", b"b": b"2"}
    with pytest.raises(FormatError):
        held(broken(change))


def test_a_manifest_cut_between_two_edits_does_not_name_its_newest_table() -> None:
    files = database(WHOLE)
    records = [record for _, record in decode_log(files["MANIFEST-000001"], "a log")]
    files["MANIFEST-000001"] = log(*records[:-2])
    with pytest.raises(FormatError, match=r"does not name 000011\.sst"):
        held(files)


@pytest.mark.parametrize(
    "record",
    [
        b"\x06\x00\x05",
        b"\xc8\x01\x09" + b"\x67",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x07",
        b"\x2a",
        b"\xac\x02\x05",
        b"\x01\x7f",
        b"\xc9\x01\x02\xff\xff",
    ],
)
def test_no_edit_is_believed_that_cannot_be(record: bytes) -> None:
    with pytest.raises(FormatError):
        decode_manifest(log(record))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_no_edit_ends_in_anything_but_a_format_error(record: bytes) -> None:
    with contextlib.suppress(FormatError):
        decode_manifest(log(record))


@pytest.mark.parametrize("size", [0, 1, BLOCK - 7, BLOCK - 6, BLOCK * 2 - 14, BLOCK * 3])
def test_a_record_comes_back_however_many_blocks_it_needs(size: int) -> None:
    record = bytes(size % 251 for size in range(size))
    content = b"".join(encode_log(record))
    assert [found for _, found in decode_log(content, "a log")] == ([record] if size else [])
    for end in (1, 6, len(content) - 1) if size else ():
        with pytest.raises(FormatError):
            list(decode_log(content[:end], "a log"))


@pytest.mark.parametrize("left", range(12))
def test_a_record_comes_back_wherever_it_begins_in_a_block(left: int) -> None:
    first, second = bytes(BLOCK - HEADER - left), b"second"
    content = b"".join(encode_log(first))
    content += b"".join(encode_log(second, len(content)))
    assert [found for _, found in decode_log(content, "a log")] == [first, second]


def test_options_name_the_column_families() -> None:
    text = (
        '# x\n[Version]\n  a=1\n[DBOptions]\n\n[CFOptions "default"]\n  b=2\n[CFOptions '
        '"with \\# and [ ]"]\n'
    )
    assert decode_options(text.encode()) == ("default", "with # and [ ]")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[Version]\n",
        "a=1\n",
        "[Version\n",
        "[Version]\nnothing\n[DBOptions]\n",
        "\0" * 9,
    ],
)
def test_options_that_rocksdb_would_not_write_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        decode_options(text.encode())
