import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.schema import SchemaFile, StoreSchema, decode_schema, encode_schema

V1 = b"\x00\x02v1\x00\x01k\x00\x02vv"
V2 = b"\x00\x02v2\x00\x00\x00\x01\x00\x01k\x00\x00\x00\x02\x00\x01v\x00\x03\xc0\x80w"
V3 = (
    b"\x00\x02v3\x00\x00\x00\x01\x00\x02cf\x00\x00\x00\x00\x00\x01\x00\x01k\xff\xff\x00\x00\x00\x01\x00\x01v"
    b"\x00\x00\x00\x01\x00\x02{}\x00\x00\x00\x01\x00\x06{    }"
)
TABLE = [
    (V1, SchemaFile(1, (StoreSchema("k", "vv"),))),
    (V3, SchemaFile(3, (StoreSchema("k", "v", "cf", 0, -1, "{}", "{    }"),))),
]


@pytest.mark.parametrize(("content", "schema"), TABLE)
def test_a_schema_is_read_and_written_back(content, schema):
    assert decode_schema(content) == schema
    assert encode_schema(schema) == content


def test_chunks_are_joined_and_a_nul_is_javas():
    assert decode_schema(V2).stores == (StoreSchema("k", "v\x00w"),)


@given(st.sampled_from([1, 2]), st.text(), st.text())
def test_any_text_comes_back(version, key, value):
    schema = SchemaFile(version, (StoreSchema(key, value),))
    assert decode_schema(encode_schema(schema)) == schema


def test_a_long_schema_is_written_in_chunks():
    schema = SchemaFile(2, (StoreSchema("k" * 70_000, "v"),))
    content = encode_schema(schema)
    assert content[4:10] == b"\x00\x00\x00\x02\xff\xff"
    assert decode_schema(content) == schema


@pytest.mark.parametrize("content", [V1, V2, V3])
def test_a_schema_cut_anywhere_is_refused_at_its_end(content):
    for end in range(len(content)):
        with pytest.raises(FormatError) as caught:
            decode_schema(content[:end])
        assert caught.value.offset == end


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"v1", 0),
        (b"\x00\x02v1\x00\x01\xff\x00\x00", 6),
        (b"\x00\x02v2\xff\xff\xff\xff", 4),
    ],
)
def test_an_error_names_the_byte(content, offset):
    with pytest.raises(FormatError) as caught:
        decode_schema(content)
    assert caught.value.offset == offset


@pytest.mark.parametrize("content", [V1, V2, V3])
def test_what_follows_a_schema_is_not_read(content):
    assert decode_schema(content + b"\n") == decode_schema(content)


def test_a_version_nobody_knows_is_refused_by_name():
    with pytest.raises(UnknownVersion, match="v4"):
        decode_schema(b"\x00\x02v4")


@given(st.binary(max_size=40), st.sampled_from([b"", V1[:4], V2[:4], V3[:10]]))
def test_random_bytes_raise_nothing_but_format_errors(content, beginning):
    with contextlib.suppress(FormatError):
        decode_schema(beginning + content)
