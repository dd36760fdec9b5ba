import contextlib
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.source_log import (
    census_of,
    decode_initial_offset,
    decode_source_log,
    rewrite_source_log,
    source_kind,
)
from stateshift.formats.spark.uris import Relocation, decode_location, encode_location
from tests.support.encoders import encode_initial_offset, encode_source_log

LOG = (
    'v1\n{"path":"file:///in/a%20b/é.json","timestamp":1767225600000,"batchId":0}\n'
    '{ "batchId" : 1, "path" : "file:///in/c\\"d.json", "timestamp":1}'
).encode()
SINK = b'v1\n{"path":"hdfs://nn:8020/out/p%25.json","size":5,"isDir":false,"action":"add"}'


def rewritten(content, prefixes, unmapped="refuse", size=7):
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(rewrite_source_log(pieces, Relocation(prefixes), unmapped))


def test_entries_are_read_with_their_offsets():
    first, second = decode_source_log([LOG[:10], LOG[10:]])
    assert (first.path, first.fields["timestamp"], first.offset) == (
        "file:///in/a%20b/é.json",
        1767225600000,
        3,
    )
    assert second.path == 'file:///in/c"d.json'
    assert LOG[second.offset : second.offset + 2] == b"{ "


SPELLED = st.sampled_from(
    ["file:/a", "hdfs://nn/in put", "s3a://b/é", 'c"d', "back\\slash", "", "/", "%2F", "~!#[]{}"]
)


@given(
    st.lists(st.tuples(SPELLED, st.text(max_size=3), st.integers(-1, 10**15)), max_size=12),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
    st.integers(1, 40),
)
def test_folders_are_counted_as_the_entries_name_them(entries, separators, escaped, size):
    """By the short way and by the long one, whatever is in a path."""
    told = [
        {"path": f"{folder}/{name}", "timestamp": time, "batchId": 3}
        for folder, name, time in entries
    ]
    lines = [json.dumps(fields, separators=separators, ensure_ascii=escaped) for fields in told]
    content = "\n".join(["v1", *lines]).encode("utf-8", "surrogatepass")
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    try:
        wanted = Counter(entry.path.rsplit("/", 1)[0] for entry in decode_source_log(pieces))
    except FormatError as error:  # half of a surrogate pair
        with pytest.raises(FormatError) as caught:
            census_of(pieces)
        assert caught.value.offset == error.offset
    else:
        assert census_of(pieces).folders == wanted
        assert census_of(pieces).batches == ({3: len(entries)} if entries else {})


@pytest.mark.parametrize(
    "line",
    [
        b'{"path":"a/b","timestamp":1,"batchId":}',
        b'{"path":"a/b","timestamp":1}x',
        b"[]",
        b'{"path":"\xff/b","timestamp":1,"batchId":1}',
        b'{"path":"","timestamp":1,"batchId":1}',
        b'{"path":"a/b","timestamp":01,"batchId":1}',
        b'{"path":"a/b","timestamp":1,"batchId":' + b"1" * 5000 + b"}",
    ],
)
def test_a_damaged_entry_is_refused_where_folders_are_counted_as_where_entries_are_read(line):
    content = LOG + b"\n" + line
    with pytest.raises(FormatError) as wanted:
        list(decode_source_log([content]))
    with pytest.raises(FormatError) as caught:
        census_of([content])
    assert (caught.value.fact, caught.value.offset) == (wanted.value.fact, wanted.value.offset)


def test_only_the_paths_change():
    moved = rewritten(LOG, {"file:///in": "s3a://bucket/in"})
    assert moved == LOG.replace(b"file:///in", b"s3a://bucket/in")
    assert rewritten(SINK, {"hdfs://nn:8020/out": "hdfs://other/o"}) == SINK.replace(
        b"nn:8020/out", b"other/o"
    )


@pytest.mark.parametrize("content", [LOG, LOG + b"\n", b"v1", b"v1\n", SINK])
def test_moving_to_the_same_place_changes_no_byte(content):
    assert (
        rewritten(content, {"file:///in": "file:///in", "hdfs://nn:8020/out": "hdfs://nn:8020/out"})
        == content
    )


def test_a_path_under_no_prefix_is_refused_where_it_stands_or_kept_on_request():
    with pytest.raises(FormatError, match="under no directory that moves") as caught:
        rewritten(LOG, {"file:///in/a%20b": "file:///x", "file:///i": "file:///y"})
    assert caught.value.offset == list(decode_source_log([LOG]))[1].offset
    assert rewritten(LOG, {"file:///i": "file:///y"}, "keep") == LOG


@pytest.mark.parametrize(
    ("uri", "new"),
    [
        ("file:///a/b/c", "file:///long/c"),
        ("file:/a/b/c", "file:/long/c"),
        ("file:///a/x", "hdfs://nn/s/x"),
        ("file:/a/x", "hdfs://nn/s/x"),
        ("file:///a", "hdfs://nn/s"),
        ("file:///ab", None),
        ("s3://a/b", None),
    ],
)
def test_the_longest_prefix_of_whole_names_wins_and_slashes_keep_their_form(uri, new):
    assert Relocation({"file:///a": "hdfs://nn/s/", "file:/a/b/": "file:///long"}).new(uri) == new


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("/data/a b", "file:///data/a%20b"),
        ("file:///data/100%", "file:///data/100%25"),
        ("file:/data", "file:///data"),
        ("hdfs://nn:8020/é+=?#", "hdfs://nn:8020/é+=%3F%23"),
        ("s3a://bucket/a:b[1]", "s3a://bucket/a:b%5B1%5D"),
        ("s3a://bucket", "s3a://bucket"),
    ],
)
def test_locations_are_quoted_as_hadoop_quotes_them(location, uri):
    assert encode_location(location) == uri
    assert encode_location(decode_location(uri)) == uri


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (LOG, "file"),
        (SINK, "file-sink"),
        (b"v1\n1767225600000", "rate"),
        (b'\x00v1\n{"t":{"0":1}}', "kafka"),
        (b"v1", "file"),
        (b'v1\n{"x":1}', "unknown"),
        (b"\x00\x01", "unknown"),
        (b"", "unknown"),
    ],
)
def test_the_kind_of_a_source_is_told_by_its_log(content, kind):
    assert source_kind(content) == kind


@pytest.mark.parametrize("kind", ["kafka", "rate"])
def test_an_initial_offset_is_carried_byte_for_byte(kind):
    content = encode_initial_offset('{"t":{"0":1}}', kind)
    assert decode_initial_offset(content) == '{"t":{"0":1}}'
    assert content.startswith(b"\x00v1\n" if kind == "kafka" else b"v1\n")


def test_a_log_is_written_as_spark_writes_one():
    entries = [entry.fields for entry in decode_source_log([SINK])]
    assert b"".join(encode_source_log(entries)) == SINK


@pytest.mark.parametrize(
    "content", [b"", b"V1\n", b"v1\n{}", b'v1\n{"path":3}', b"v1\n{", b"v1\n\xff"]
)
def test_what_is_no_log_is_refused(content):
    with pytest.raises(FormatError) as caught:
        list(decode_source_log([content]))
    assert caught.value.offset is not None


def test_a_version_nobody_knows_is_refused_by_name():
    with pytest.raises(UnknownVersion, match="v7"):
        list(decode_source_log([b"v7\n{}"]))


@given(st.lists(st.binary(max_size=30), max_size=4))
def test_random_bytes_raise_nothing_but_format_errors(pieces):
    for read in (decode_source_log, lambda p: rewrite_source_log(p, Relocation({}), "keep")):
        with contextlib.suppress(FormatError):
            list(read([b"v1\n", *pieces]))
