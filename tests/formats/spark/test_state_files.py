import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.compression import CODECS, compress
from stateshift.formats.spark.state_files import (
    Changelog,
    StateRecord,
    decode_changelog,
    decode_delta,
    decode_snapshot,
    encode_delta,
    with_row_checksum,
    without_row_checksum,
)
from tests.support.encoders import encode_changelog

BYTES = st.binary(max_size=20)
PUTS = st.builds(StateRecord, BYTES, BYTES, st.just(False))
DELETES = st.builds(StateRecord, BYTES, st.none(), st.just(False))
MERGES = st.builds(StateRecord, BYTES, BYTES, st.just(True))
DELTA = b"\x00\x00\x00\x02ab\x00\x00\x00\x01c\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"
RECORDS = [StateRecord(b"ab", b"c"), StateRecord(b"", None)]


def packed(content):
    return b"".join(compress([content], "lz4"))


def test_a_delta_is_puts_deletes_and_an_end():
    assert list(decode_delta([packed(DELTA)])) == RECORDS
    assert b"".join(encode_delta(RECORDS)) == packed(DELTA)


def test_a_snapshot_deletes_nothing():
    assert list(decode_snapshot(encode_delta(RECORDS[:1]))) == RECORDS[:1]
    with pytest.raises(FormatError) as caught:
        list(decode_snapshot([packed(DELTA)]))
    assert caught.value.offset == 15


@given(st.lists(PUTS | DELETES, max_size=6), st.sampled_from(CODECS))
def test_a_delta_comes_back(records, codec):
    assert list(decode_delta(encode_delta(records, codec))) == records


@given(st.lists(PUTS | DELETES | MERGES, max_size=6), st.sampled_from([1, 2, 3, 4]))
def test_a_changelog_of_every_version_comes_back(records, version):
    changelog = Changelog(version, ((3, "b-1"), (2, "a")) if version > 2 else ())
    if not changelog.column_families:
        records = [record for record in records if not record.merge]
    header, found = decode_changelog(encode_changelog(changelog, records))
    assert (header, list(found)) == (changelog, records)


def test_an_empty_changelog_of_version_1_is_its_end_mark():
    header, found = decode_changelog([packed(b"\xff\xff\xff\xff")])
    assert (header, list(found)) == (Changelog(1), [])


def test_a_changelog_of_a_version_nobody_knows_is_refused_by_name():
    with pytest.raises(UnknownVersion, match="v5"):
        decode_changelog([packed(b"\x00\x02v5\x00")])


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_records_cut_anywhere_are_refused_at_their_end(version):
    raw = {
        1: DELTA,
        2: b"\x00\x02v2\x01\x00\x00\x00\x01a\x00\x00\x00\x01b\x10\x00\x00\x00\x01a\xff\xff\xff\xff\x00",
        3: b"\x00\x02v3\x00\x02[]" + DELTA,
        4: b"\x00\x02v4\x00\x02[]\x11\x00\x00\x00\x01a\x00\x00\x00\x01b\x00",
    }[version]
    assert list(decode_changelog([packed(raw)])[1])
    for end in range(len(raw)):
        with pytest.raises(FormatError) as caught:
            list(decode_changelog([packed(raw[:end])])[1])
        assert caught.value.offset == end


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        (DELTA + b"x", len(DELTA)),
        (b"\xff\xff\xff\xfe", 0),
        (b"\x00\x00\x00\x00\xff\xff\xff\x00", 4),
        (b"\x00\x02v2\x05", 4),
        (b"\x00\x02v2\x01\xff\xff\xff\xff", 5),
        (b"\x00\x02v2\x10\x00\x00\x00\x00\x00\x00\x00\x00", 9),
        (b"\x00\x02v2\x00\x00", 5),
        (b"\x00\x02v3\x00\x02{}", None),
        (b"\x7f\xff\xff\xff" + b"k" * 9, 13),
    ],
)
def test_an_error_names_the_byte_of_the_decompressed_content(raw, offset):
    with pytest.raises(FormatError) as caught:
        list(decode_changelog([packed(raw)])[1])
    assert caught.value.offset == offset if offset is not None else True


@given(PUTS | DELETES)
def test_row_checksums_come_off_as_they_went_on(record):
    assert without_row_checksum(with_row_checksum(record)) == record


def test_a_row_checksum_is_of_key_and_row():
    assert (
        with_row_checksum(StateRecord(b"k", b"v")).value
        == crc32c(b"kv").to_bytes(4, "little") + b"v"
    )
    with pytest.raises(FormatError, match="checksum"):
        without_row_checksum(StateRecord(b"k", b"\0\0\0\0v"))


@given(st.binary(max_size=60))
def test_random_records_raise_nothing_but_format_errors(content):
    for beginning in (b"", b"\x00\x02v2", b"\x00\x02v3\x00", b"\x00\x02v4\x00\x02[]"):
        with contextlib.suppress(FormatError):
            list(decode_changelog([packed(beginning + content)])[1])


@pytest.mark.long
def test_records_stream_through_in_little_memory():
    import tracemalloc

    def records():
        for i in range(60_000):
            yield StateRecord(i.to_bytes(8, "big"), bytes(200))

    whole = encode_delta(records())
    tracemalloc.start()
    assert sum(1 for _ in decode_delta(whole)) == 60_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000  # of 13 MB
