"""Keys and lists as RocksDB's encoders put them together, taken apart again; what does not fit
is refused.
"""

from __future__ import annotations

import struct

import pytest

from stateshift.engines.spark.entries.encoders import (
    Encoder,
    decode_key,
    decode_list,
    encoder_of,
    rows_of_list,
)
from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.types import Atomic, StructType

LONG = Atomic("long")
TWO = StructType(("a", "b"), (LONG, LONG))
ONE = StructType(("a",), (LONG,))


def row(*values):
    return b"\0" + struct.pack(f"<q{len(values)}q", 0, *values)


def sized(content):
    return struct.pack("<i", len(content)) + content


def ordered(*values):
    """A row of binary columns: marker byte and value, big-endian."""
    head = 8 + 8 * len(values)
    slots = b"".join(struct.pack("<II", len(v), head + 16 * at) for at, v in enumerate(values))
    return b"\0" + bytes(8) + slots + b"".join(v.ljust(16, b"\0") for v in values)


KEYS = [
    (Encoder("plain"), row(1, 2)[1:], (1, 2)),
    (Encoder("row"), row(1, 2), (1, 2)),
    (Encoder("prefix", (0,)), sized(row(1)) + row(2), (1, 2)),
    (Encoder("range", (1,)), sized(ordered(b"\1" + (2).to_bytes(8, "big"))) + row(1), (1, 2)),
    (Encoder("range", (0, 1)), sized(ordered(b"\0" + b"\xff" * 8, b"\2")), (-1, None)),
    (Encoder("postfix"), row(1) + (2 + (1 << 63)).to_bytes(8, "big"), (1, 2)),
    (Encoder("before"), ((1 << 63) - 2).to_bytes(8, "big") + row(1), (1, -2)),
]


@pytest.mark.parametrize(("encoder", "content", "key"), KEYS)
def test_a_key_is_taken_apart_and_no_shorter_one_is_taken_for_it(encoder, content, key):
    assert decode_key(content, TWO, encoder) == key
    for end in range(len(content)):
        with pytest.raises(FormatError):
            decode_key(content[:end], TWO, encoder)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("value", [1.5, -1.5, -0.0])
def test_fractions_that_sort_as_bytes_are_read_back(kind, value):
    packed = struct.pack(">f" if kind == "float" else ">d", value)
    bits = packed if packed[0] < 128 else bytes(byte ^ 0xFF for byte in packed)
    content = sized(ordered((b"\1" if packed[0] < 128 else b"\0") + bits))
    found = decode_key(content, StructType(("a",), (Atomic(kind),)), Encoder("range", (0,)))
    assert struct.pack(">d", found[0]) == struct.pack(">d", value)


@pytest.mark.parametrize("delimiter", [b"", b","])
def test_a_list_is_its_items_whatever_stands_between_them(delimiter):
    content = delimiter.join(sized(row(n)) for n in range(3))
    assert decode_list(content, ONE, delimiter) == [(0,), (1,), (2,)]
    for bad in (b"", content[:-1], content + b"x", sized(b"")):
        with pytest.raises(FormatError):
            list(rows_of_list(bad, delimiter))


def test_lists_with_another_delimiter_are_not_misread():
    with pytest.raises(FormatError):
        decode_list(b",".join(sized(row(n)) for n in range(3)), ONE, b"")


@pytest.mark.parametrize(
    ("spec", "encoder"),
    [
        ('{"keyStateEncoderType":"NoPrefixKeyStateEncoderSpec"}', Encoder("row")),
        (
            '{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec","numColsPrefixKey":2}',
            Encoder("prefix", (0, 1)),
        ),
        (
            '{"keyStateEncoderType":"RangeKeyScanStateEncoderSpec","orderingOrdinals":[0]}',
            Encoder("range", (0,)),
        ),
    ],
)
def test_an_encoder_is_told_by_its_json(spec, encoder):
    assert encoder_of(spec) == encoder


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "[]",
        "{}",
        '{"keyStateEncoderType":7}',
        '{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec","numColsPrefixKey":99999999999}',
        '{"keyStateEncoderType":"RangeKeyScanStateEncoderSpec","orderingOrdinals":[-1]}',
    ],
)
def test_an_encoder_that_makes_no_sense_is_refused(spec):
    with pytest.raises(FormatError):
        encoder_of(spec)


def test_an_encoder_of_a_newer_spark_is_refused_by_name():
    with pytest.raises(UnknownVersion, match="NewKeyStateEncoderSpec"):
        encoder_of('{"keyStateEncoderType":"NewKeyStateEncoderSpec"}')
