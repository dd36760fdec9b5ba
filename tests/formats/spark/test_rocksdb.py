import contextlib
import io
import struct
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.crc32c import masked_crc32c
from stateshift.formats.rocksdb.table import MERGE, decode_sst
from stateshift.formats.spark.rocksdb import (
    ListedTable,
    RocksDBSnapshot,
    decode_snapshot_metadata,
    decode_zip,
    encode_snapshot_metadata,
    encode_zip,
)
from tests.formats.golden import CASES, ROOT, paths

SNAPSHOT = RocksDBSnapshot(
    (ListedTable("000015.sst", "000015-u.sst", 1329),), 4, {"default": 1, "$count": 0}
)
FILES = [case / "checkpoint" / name for case in CASES for name, _ in paths(case)]
ZIPS = [path for path in FILES if path.suffix == ".zip"]
SSTS = [path for path in FILES if path.suffix == ".sst"]


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("DOTS", ".."), content)
    return out.getvalue()


def test_a_snapshot_of_ours_reads_as_sparks():
    read = decode_zip(encode_zip(SNAPSHOT))
    assert (read.tables, read.keys, dict(read.families)) == (SNAPSHOT.tables, 4, SNAPSHOT.families)
    assert encode_zip(read) == encode_zip(SNAPSHOT)


def test_the_metadata_in_every_zip_is_written_back_byte_for_byte():
    assert ZIPS
    for path in ZIPS:
        with zipfile.ZipFile(path) as archive:
            content = archive.read("metadata")
        assert encode_snapshot_metadata(decode_snapshot_metadata(content)) == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x05\x06" + bytes(18),
        zipped(CURRENT="x"),
        zipped(metadata="v1"),
        zipped(metadata="v1\n{}"),
        zipped(metadata='v1\n{"sstFiles":[{"localFileName":"a","dfsSstFileName":"DOTS/a"}]}'),
        zipped(metadata='v1\n{"sstFiles":[{}]}'),
        zipped(metadata='v1\n{"sstFiles":[],"logFiles":[{}]}'),
        zipped(metadata='v1\n{"sstFiles":[],"columnFamilyMapping":{"a":1,"b":1}}'),
        zipped(metadata='v1\n{"sstFiles":[]}', DOTS__evil=""),
        zipped(metadata='v1\n{"sstFiles":[]}', __etc__passwd=""),
        zipped(**{"metadata": 'v1\n{"sstFiles":[]}', "000004.log": "unflushed"}),
    ],
)
def test_a_zip_that_is_not_sparks_is_refused(content):
    with pytest.raises(FormatError):
        decode_zip(content)


def batch(count=0, kind=1):
    body = struct.pack("<BQI", kind, 7, count)
    return masked_crc32c(body).to_bytes(4, "little") + b"\x0c\0" + body


def with_log(content):
    return zipped(**{"metadata": 'v1\n{"sstFiles":[],"numKeys":0}', "000004.log": content})


@pytest.mark.parametrize("log", [b"", batch(), batch() * 4])
def test_a_write_ahead_log_without_writes_needs_no_reading(log):
    assert decode_zip(with_log(log)).tables == ()


def test_real_zips_of_old_versions_have_such_logs():
    versions = set()
    for path in ZIPS:
        with zipfile.ZipFile(path) as archive:
            if any(
                member.filename.endswith(".log") and member.file_size
                for member in archive.infolist()
            ):
                versions.add(path.relative_to(ROOT).parts[0])
    assert {"spark-3.3.4", "spark-3.4.4"} <= versions
    assert not [
        name for name in versions if not name.startswith(("spark-3.2.", "spark-3.3.", "spark-3.4."))
    ]


@pytest.mark.parametrize(
    "log", [batch(1), batch(kind=2), batch()[:-1], b"\1" + batch()[1:], batch() * 2000]
)
def test_a_write_ahead_log_with_anything_else_is_refused(log):
    with pytest.raises(FormatError, match=r"write-ahead log with writes"):
        decode_zip(with_log(log))


def test_every_table_is_read_with_its_checksums_and_in_order():
    assert SSTS
    kinds = set()
    for path in SSTS:
        entries = list(decode_sst(path.read_bytes()))
        assert entries == sorted(entries, key=lambda entry: (entry.key, -entry.sequence))
        kinds |= {entry.kind for entry in entries}
    assert {1, MERGE} <= kinds


def test_a_table_cut_anywhere_is_refused():
    content = SSTS[0].read_bytes()
    for end in range(len(content)):
        with pytest.raises(FormatError):
            list(decode_sst(content[:end]))


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_table_is_found_out(data):
    path = data.draw(st.sampled_from(SSTS))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.integers(1, 255))
    before = list(decode_sst(bytes(content)))
    content[place] ^= change
    with contextlib.suppress(FormatError):  # padding, and blocks of statistics, are not read
        assert list(decode_sst(bytes(content))) == before


def test_a_table_of_a_version_nobody_knows_is_refused_by_name():
    content = bytearray(SSTS[0].read_bytes())
    content[-12] = 6
    with pytest.raises(UnknownVersion, match="version 6"):
        list(decode_sst(bytes(content)))


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_zip_raises_nothing_but_format_errors(data):
    content = bytearray(data.draw(st.sampled_from(ZIPS)).read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        decode_zip(bytes(content))


@given(st.binary(max_size=80))
def test_random_bytes_raise_nothing_but_format_errors(content):
    footer = SSTS[0].read_bytes()[-12:]
    for bytes_ in (content, content + footer):
        for decode in (decode_zip, lambda c: list(decode_sst(c)), decode_snapshot_metadata):
            with contextlib.suppress(FormatError):
                decode(bytes_)
