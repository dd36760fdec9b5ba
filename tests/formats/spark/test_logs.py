"""Offset log, commit log, metadata: values and bytes both ways, and what is not one."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.commits import CommitEntry, decode_commit, encode_commit
from stateshift.formats.spark.metadata import decode_metadata, encode_metadata
from stateshift.formats.spark.offsets import (
    NAMED_SOURCES,
    PARTITIONS,
    SourceOffset,
    decode_offsets,
    encode_offsets,
    with_conf,
    with_sources,
)
from stateshift.formats.spark.operator_metadata import (
    StoreInfo,
    decode_operator_metadata,
    encode_operator_metadata,
    relocate_schema_files,
    with_partitions,
)
from stateshift.formats.spark.uris import Relocation
from tests.support.encoders import with_id

V1 = (
    b'v1\n{"batchWatermarkMs":7,"batchTimestampMs":1795179852328,"conf":{"spark.sql.shuffle.partitions":"3",'
    b'"x":"\xc3\xa9"}}\n{"logOffset":1}\n-\n5'
)
V2 = (
    b'v2\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{},"sourceMetadataInfo":{}}\n'
    b'0:{"logOffset":1}\norders_src:-\nk:{"a:b":2}'
)
COMMITS = {
    b'v1\n{"nextBatchWatermarkMs":5}': CommitEntry(1, ('{"nextBatchWatermarkMs":5}',), 5),
    b"v1\n{}": CommitEntry(1, ("{}",)),
    b"v1": CommitEntry(1, ()),
    b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a","b"],["c","d"]]}}': CommitEntry(
        2,
        ('{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a","b"],["c","d"]]}}',),
        0,
        {"0": (("a", "b"), ("c", "d"))},
    ),
    b'v3\n{"sinkMetadataMap":{"s":{"isActive":true}}}': CommitEntry(
        3, ('{"sinkMetadataMap":{"s":{"isActive":true}}}',), sinks={"s": {"isActive": True}}
    ),
}
OPERATOR_V2 = (
    b'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"symmetricHashJoin"},"stateStoreInfo":[{"storeName":"default",'
    b'"numColsPrefixKey":0,"numPartitions":5,"stateSchemaFilePaths":["file:/old%20place/state/0/_stateSchema/default/0_x"'
    b']}],"operatorPropertiesJson":"{\\"useVirtualColumnFamilies\\":true}"}'
)
OPERATOR_V1 = (
    b'v1\n{"operatorInfo":{"operatorId":1,"operatorName":"dedupe"},'
    b'"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":5}]}'
)
METADATA = b'{"id":"3f9f2b1e-0000-4000-8000-00000000abcd"}'

DECODERS = [decode_offsets, decode_commit, decode_metadata, decode_operator_metadata]


def test_an_offset_log_says_what_a_batch_reads():
    entry = decode_offsets(V1)
    assert (entry.version, entry.watermark_ms, entry.timestamp_ms) == (1, 7, 1795179852328)
    assert entry.conf == {PARTITIONS: "3", "x": "é"}
    assert entry.offsets == (
        SourceOffset("0", '{"logOffset":1}'),
        SourceOffset("1", None),
        SourceOffset("2", "5"),
    )


def test_version_2_names_its_sources_up_to_the_first_colon():
    assert decode_offsets(V2).offsets == (
        SourceOffset("0", '{"logOffset":1}'),
        SourceOffset("orders_src", None),
        SourceOffset("k", '{"a:b":2}'),
    )


@pytest.mark.parametrize("content", [V1, V2, b"v1\n\n-", V1.replace(b'":7', b'" : 7')])
def test_an_offset_log_is_written_back_byte_for_byte(content):
    assert encode_offsets(decode_offsets(content)) == content


def test_sources_get_names_as_a_spark_that_names_them_writes_them():
    """The golden checkpoints of Spark 4.3: one query without names, and one that was born with one."""
    golden = Path(__file__).parents[2] / "golden" / "spark-4.3.0"
    plain = (golden / "dedup-zstd" / "checkpoint" / "offsets" / "1").read_bytes()
    born = decode_offsets((golden / "dedup-offsets2/checkpoint/offsets/1").read_bytes())
    named = with_sources(decode_offsets(plain), {"0": "events"}, ())
    assert (named.version, named.lines) == (born.version, born.lines)
    assert json.loads(named.header).keys() == json.loads(born.header).keys()
    assert named.conf.keys() == born.conf.keys()
    assert named.conf[NAMED_SOURCES] == born.conf[NAMED_SOURCES]
    renamed = with_sources(born, {"events": "orders"}, ())
    assert (renamed.header, renamed.lines) == (born.header, ('orders:{"logOffset":1}',))


def test_a_changed_configuration_changes_nothing_else():
    entry = with_conf(decode_offsets(V1), {PARTITIONS: "8", "new": "y"})
    assert encode_offsets(entry) == V1.replace(b'"3"', b'"8"').replace(
        b'"\xc3\xa9"', b'"\xc3\xa9","new":"y"'
    )
    assert decode_offsets(encode_offsets(entry)) == entry
    assert with_conf(entry, {"new": "y"}) is entry


@pytest.mark.parametrize(("content", "entry"), COMMITS.items())
def test_a_commit_is_read_and_written_back(content, entry):
    assert decode_commit(content) == entry
    assert encode_commit(entry) == content


def test_metadata_keeps_its_id_on_a_move_and_gets_another_on_a_fork():
    metadata = decode_metadata(METADATA)
    assert metadata.id == "3f9f2b1e-0000-4000-8000-00000000abcd"
    assert encode_metadata(metadata) == METADATA
    assert encode_metadata(with_id(metadata, "new")) == b'{"id":"new"}'


# What Spark 4.3.0 does with each, asked on Java 17: it started, or it did not.
STARTED = {
    METADATA: "3f9f2b1e-0000-4000-8000-00000000abcd",
    METADATA + b"\n": "3f9f2b1e-0000-4000-8000-00000000abcd",
    METADATA + b"garbage": "3f9f2b1e-0000-4000-8000-00000000abcd",
    METADATA + b"\xff\xfe\x00": "3f9f2b1e-0000-4000-8000-00000000abcd",
    METADATA + b'{"id":"x"}': "3f9f2b1e-0000-4000-8000-00000000abcd",
    b"\n " + METADATA: "3f9f2b1e-0000-4000-8000-00000000abcd",
    b'{"id":"3F9F2B1E-0000-4000-8000-00000000ABCD","x":1}': "3f9f2b1e-0000-4000-8000-00000000abcd",
    b'{"id":"1-1-1-1-1"}': "00000001-0001-0001-0001-000000000001",
    b'{"id":"+1-1-1-1-1"}': "00000001-0001-0001-0001-000000000001",
    b'{"id":"123456789-1234-1234-123-123456789012"}': "23456789-1234-1234-0123-123456789012",
}
REFUSED = (
    b'{"id":"abc"}',
    b'{"id":null}',
    b"{}",
    b'{"id":5}',
    b"[" + METADATA + b"]",
    b"\xef\xbb\xbf" + METADATA,
    b'{"id":"3f9f2b1e-0000-4000-8000-00000000abcd0"}',
    b'{"id":" 3f9f2b1e-0000-4000-8000-00000000abcd"}',
    b'{"id":"3f9f2b1e0000400080000000000abcd"}',
    b'{"id":"gf9f2b1e-0000-4000-8000-00000000abcd"}',
    b'{"id":"1-1-1-1"}',
    b'{"id":"1-1-1-1-12345678901234567"}',
    b"{'id':'1-1-1-1-1'}",
    b'{"id":"1-1-1-1-1","id":"abc"}',
    b'{"id":"abc","id":"1-1-1-1-1"}',
    b'{"id":"3f9f2b1\xff-1-1-1-1"}',
)


@pytest.mark.parametrize(("content", "id"), STARTED.items())
def test_a_query_id_is_read_as_spark_reads_it_and_written_back(content, id):
    assert decode_metadata(content).id == id
    assert encode_metadata(decode_metadata(content)) == content


@pytest.mark.parametrize("content", REFUSED)
def test_a_query_id_that_spark_refuses_is_refused(content):
    with pytest.raises(FormatError):
        decode_metadata(content)


def test_operator_metadata_is_read_and_written_back():
    metadata = decode_operator_metadata(OPERATOR_V2)
    path = "file:/old%20place/state/0/_stateSchema/default/0_x"
    assert metadata.stores == (StoreInfo("default", 0, 5, (path,)),)
    assert metadata.properties == {"useVirtualColumnFamilies": True}
    assert metadata.name == "symmetricHashJoin"
    assert encode_operator_metadata(metadata) == OPERATOR_V2
    assert encode_operator_metadata(decode_operator_metadata(OPERATOR_V1)) == OPERATOR_V1


def test_schema_paths_move_and_every_other_byte_stays():
    metadata = decode_operator_metadata(OPERATOR_V2)
    same_scheme = relocate_schema_files(
        metadata, Relocation({"file:///old%20place": "file:///new/place"})
    )
    assert encode_operator_metadata(same_scheme) == OPERATOR_V2.replace(
        b"file:/old%20place", b"file:/new/place"
    )
    other = relocate_schema_files(metadata, Relocation({"file:///old%20place/": "s3a://b/c"}))
    assert other.stores[0].schema_paths == ("s3a://b/c/state/0/_stateSchema/default/0_x",)
    with pytest.raises(FormatError, match="under no directory that moves"):
        relocate_schema_files(metadata, Relocation({"file:///old": "file:///new"}))


def test_another_number_of_partitions_changes_nothing_else():
    metadata = with_partitions(decode_operator_metadata(OPERATOR_V1), 8)
    assert encode_operator_metadata(metadata) == OPERATOR_V1.replace(
        b'Partitions":5', b'Partitions":8'
    )


@pytest.mark.parametrize("decode", [decode_offsets, decode_commit, decode_operator_metadata])
def test_a_version_nobody_knows_is_refused_by_name(decode):
    with pytest.raises(UnknownVersion, match="v9"):
        decode(b"v9\n{}\n-")


@pytest.mark.parametrize(
    ("decode", "content"),
    [
        (decode_offsets, V1),
        (decode_offsets, V2),
        (decode_metadata, METADATA),
        (decode_operator_metadata, OPERATOR_V1),
        (decode_operator_metadata, OPERATOR_V2),
        *((decode_commit, content) for content in COMMITS),
    ],
)
def test_a_log_cut_anywhere_is_refused_or_still_a_whole_one(decode, content):
    """Logs have no length: cut exactly before a source's line, an offset log is a shorter one
    that holds.
    """
    for end in range(len(content)):
        try:
            decode(content[:end])
        except FormatError as error:
            assert error.offset is not None
            assert 0 <= error.offset <= end
        else:
            whole = {content.index(b"\n") if b"\n" in content else 0, content.find(b"\n") + 1}
            ends_of_lines = {i for i in range(end + 1) if content[i : i + 1] == b"\n"}
            ends_of_lines |= {i + 1 for i in ends_of_lines}
            assert end in whole | ends_of_lines or (
                decode is decode_offsets and content[end:].isdigit()
            )


@pytest.mark.parametrize(
    ("decode", "content", "offset"),
    [
        (decode_offsets, b'v1\n{"batchWatermarkMs":x}\n-', 23),
        (decode_offsets, b'v1\n{}\n{"a":1}\n{', 15),
        (decode_offsets, b"v1\n{}\n\xff", 6),
        (decode_offsets, b"v1\n{}", 5),
        (decode_offsets, b"v1", 2),
        (decode_offsets, b"PK\x03\x04", 0),
        (decode_commit, b"v1\n[]", 3),
        (decode_commit, b"v1\n\n{}", 3),
        (decode_metadata, b"\x00", 0),
        (decode_metadata, b'{"id":1}', 0),
    ],
)
def test_an_error_names_the_byte(decode, content, offset):
    with pytest.raises(FormatError) as caught:
        decode(content)
    assert caught.value.offset == offset


@given(
    st.binary(max_size=64),
    st.sampled_from(DECODERS),
    st.sampled_from([b"", b"v1\n", b"v2\n{", b'v1\n{"']),
)
def test_random_bytes_raise_nothing_but_format_errors(content, decode, beginning):
    with contextlib.suppress(FormatError):
        decode(beginning + content)


@pytest.mark.parametrize("decode", DECODERS)
def test_deep_nesting_is_an_error_of_the_format(decode):
    with pytest.raises(FormatError):
        decode(b"v1\n" + b'{"conf":' * 100_000)
