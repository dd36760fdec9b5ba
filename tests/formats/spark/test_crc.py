import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.crc32c import crc32c
from stateshift.formats.spark.crc import decode_hadoop_crc, decode_spark_crc, spark_checksum
from tests.formats.golden import CASES, paths
from tests.support.encoders import encode_hadoop_crc, encode_spark_crc, hadoop_checksums


def test_crc32c_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4, and every catalogue of CRCs
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


def test_hadoops_checksums_are_those_that_a_real_spark_left_beside_its_files():
    metadata = (
        b'{"id":"0113b5c5-da72-48e8-ac1c-746429ec3c57"}'  # both files as Spark 4.3.0 wrote them
    )
    assert encode_hadoop_crc(hadoop_checksums(metadata)) == bytes.fromhex(
        "63726300000002004a57b877"
    )


@given(st.binary(max_size=1100))
def test_hadoops_checksums_come_back(content):
    checksums = hadoop_checksums(content)
    assert len(checksums.values) == (len(content) + 511) // 512
    assert decode_hadoop_crc(encode_hadoop_crc(checksums)) == checksums


@pytest.mark.parametrize(
    "content", [b"", b"cr", b"crc\x00\x00\x00\x02", b"crc\x00\x00\x00\x02\x00\x01"]
)
def test_a_cut_hadoop_checksum_is_refused_at_its_end(content):
    with pytest.raises(FormatError) as caught:
        decode_hadoop_crc(content)
    assert caught.value.offset == len(content)


def test_sparks_checksum_files_describe_the_files_beside_them():
    found = 0
    for case in CASES:
        for name, what in paths(case):
            if what.kind == "checksum":
                path = case / "checkpoint" / name
                checksum = decode_spark_crc(path.read_bytes())
                content = path.with_name(path.name[:-4]).read_bytes()
                assert (checksum.value, checksum.size) == (crc32c(content), len(content))
                assert encode_spark_crc(checksum) == path.read_bytes()
                found += 1
    assert found


@given(st.binary())
def test_a_checksum_file_of_ours_reads_as_sparks(content):
    made = spark_checksum([content[:3], content[3:]], 17)
    assert decode_spark_crc(encode_spark_crc(made)) == made
    assert (made.value, made.size) == (crc32c(content), len(content))


@given(st.binary(max_size=40))
def test_random_bytes_raise_nothing_but_format_errors(content):
    for decode in (decode_hadoop_crc, decode_spark_crc):
        for beginning in (b"", b"crc\x00", b'{"algorithm":"CRC32C",'):
            with contextlib.suppress(FormatError):
                decode(beginning + content)
