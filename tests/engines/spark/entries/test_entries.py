"""Folding, on small shards made by hand. That real ones fold as Spark reads them is shown in
formats/test_golden.
"""

import pytest

from stateshift.errors import FormatError
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.offset_conf import MERGE_OPERATOR, ROW_CHECKSUM
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, encode_zip
from stateshift.formats.spark.state_files import (
    Changelog,
    StateRecord,
    encode_delta,
    with_row_checksum,
)
from stateshift.survey import ShardFiles
from tests.support.encoders import encode_changelog
from tests.support.entries import Entry, entries

A, B, ROW, NEW = b"a" * 8, b"b" * 8, b"r" * 16, b"n" * 16
FAMILIES = RocksDBSnapshot((), -1, {"default": 1, "$count": 2})


def reading(files):
    return lambda path, offset=0: iter([files[path.rpartition("/")[2]][offset:]])


def folded(files, settings=None):
    shard = ShardFiles("0", "default", 3, tuple(f"state/0/3/{name}" for name in files))
    found = entries(reading(files), shard, settings or {})
    return sorted(found)


def delta(*records):
    return b"".join(encode_delta(records))


def changelog(version, *records):
    return b"".join(encode_changelog(Changelog(version), records))


def test_later_changes_win_and_deleted_keys_are_gone():
    files = {
        "3.snapshot": delta(StateRecord(A, ROW), StateRecord(B, ROW)),
        "4.delta": delta(StateRecord(A, NEW), StateRecord(B, None), StateRecord(b"", ROW)),
        "5.delta": delta(StateRecord(b"never there", None)),
    }
    assert folded(files) == [Entry("0", "default", b"", ROW), Entry("0", "default", A, NEW)]


def test_a_shard_without_files_has_no_entries():
    assert folded({}) == []


def test_the_four_bytes_that_old_versions_wrote_too_many_do_not_count():
    assert folded({"1.delta": delta(StateRecord(A, ROW + b"junk"))}) == folded(
        {"1.delta": delta(StateRecord(A, ROW))}
    )


def test_row_checksums_are_checked_and_taken_off():
    records = [StateRecord(A, ROW), StateRecord(B, ROW), StateRecord(B, None)]
    with_sums = {"1.delta": delta(*map(with_row_checksum, records))}
    assert folded(with_sums, {ROW_CHECKSUM: "true"}) == folded({"1.delta": delta(*records)})
    with pytest.raises(FormatError, match="checksum"):
        folded({"1.delta": delta(StateRecord(A, bytes(4) + ROW))}, {ROW_CHECKSUM: "true"})


def test_a_damaged_file_is_named():
    with pytest.raises(FormatError) as caught:
        folded({"1.delta": delta(StateRecord(A, ROW))[:-5]})
    assert caught.value.path == "state/0/3/1.delta"


def test_files_of_two_providers_are_refused():
    with pytest.raises(FormatError, match="not of one"):
        folded({"1.delta": delta(), "2.changelog": changelog(1)})


def test_changelogs_alone_are_a_shard_too():
    files = {
        "1.changelog": changelog(1, StateRecord(A, ROW)),
        "2.changelog": changelog(1, StateRecord(A, None)),
    }
    assert folded(files) == []
    assert folded({"1.changelog": files["1.changelog"]}) == [Entry("0", "default", A, ROW)]


def test_two_images_that_number_their_column_families_differently_are_equal():
    def image(first, second):
        families = RocksDBSnapshot((), -1, {"default": first, "$count": second})
        rows = [StateRecord(bytes((first, 0)) + A, ROW), StateRecord(bytes((second, 0)) + A, NEW)]
        return {"1.zip": encode_zip(families), "2.changelog": changelog(2, *rows)}

    assert folded(image(1, 2)) == folded(image(7, 0))
    assert {entry.store for entry in folded(image(1, 2))} == {"default/default", "default/$count"}


@pytest.mark.parametrize(("settings", "value"), [({}, b"x,y"), ({MERGE_OPERATOR: "2"}, b"xy")])
def test_merged_values_are_joined_as_the_merge_operator_of_the_image_does(settings, value):
    files = {
        "1.zip": encode_zip(FAMILIES),
        "2.changelog": changelog(
            2, StateRecord(b"\1\0k", b"x", True), StateRecord(b"\1\0k", b"y", True)
        ),
    }
    assert folded(files, settings) == [Entry("0", "default/default", b"k", value)]


def checked(key, payload):
    crc = crc32c(key + payload)
    return crc.to_bytes(4, "little") + len(payload).to_bytes(4, "little") + payload


@pytest.mark.parametrize("operator", ["1", "2"])
def test_rocksdbs_row_checksums_are_checked_and_taken_off(operator):
    k, gone = b"\1\0k", b"\1\0gone"
    plain = [
        StateRecord(k, b"x", True),
        StateRecord(k, b"value", True),
        StateRecord(gone, b"y"),
        StateRecord(gone, None),
    ]
    sums = [StateRecord(key, value and checked(key, value), merge) for key, value, merge in plain]
    sums[-1] = with_row_checksum(plain[-1])  # a deleted key is checked too
    settings = {MERGE_OPERATOR: operator}
    expected = folded(
        {"1.zip": encode_zip(FAMILIES), "2.changelog": changelog(2, *plain)}, settings
    )
    files = {"1.zip": encode_zip(FAMILIES), "2.changelog": changelog(2, *sums)}
    assert folded(files, {**settings, ROW_CHECKSUM: "true"}) == expected
    assert expected[0].value == (b"x,value" if operator == "1" else b"xvalue")


@pytest.mark.parametrize(
    "value", [b"", b"short", checked(b"other", b"x"), checked(b"\1\0k", b"x") + b"more"]
)
def test_a_value_that_its_checksum_does_not_fit_is_refused(value):
    files = {
        "1.zip": encode_zip(FAMILIES),
        "2.changelog": changelog(2, StateRecord(b"\1\0k", value)),
    }
    with pytest.raises(FormatError, match="checksum"):
        folded(files, {ROW_CHECKSUM: "true"})


def test_a_table_that_is_missing_is_named():
    snapshot = RocksDBSnapshot((ListedTable("1.sst", "1-u.sst", 5),), 1)
    with pytest.raises(FormatError, match=r"1-u\.sst") as caught:
        folded({"1.zip": encode_zip(snapshot)})
    assert caught.value.path == "state/0/3/1.zip"


def test_a_column_family_without_a_name_is_refused():
    with pytest.raises(FormatError, match="no name"):
        folded(
            {
                "1.zip": encode_zip(FAMILIES),
                "2.changelog": changelog(2, StateRecord(b"\x09\0k", b"x")),
            }
        )
    with pytest.raises(FormatError, match="no snapshot before it names them"):
        folded({"2.changelog": changelog(2, StateRecord(b"\1\0k", b"x"))})
