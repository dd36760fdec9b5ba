"""`_metadata`: read and written again byte for byte, and refused where it is cut short or
damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.flink.metadata import Metadata, decode_metadata, encode_metadata
from stateshift.formats.flink.properties import decode_properties
from stateshift.formats.flink.references import references, with_streams
from tests.formats.flink import values

pytestmark = pytest.mark.row("IF-17")


@pytest.mark.parametrize(
    "path", values.IMAGES, ids=lambda path: str(path.relative_to(values.GOLDEN).parent)
)
def test_what_a_flink_wrote_is_written_again_byte_for_byte(path: Path) -> None:
    content = path.read_bytes()
    assert encode_metadata(decode_metadata(content)) == content


def test_there_are_images_of_every_flink_that_is_claimed() -> None:
    versions = {
        path.relative_to(values.GOLDEN).parts[0].split("-")[1].rpartition(".")[0]
        for path in values.IMAGES
    }
    assert versions >= {"1.15", "1.18", "1.20", "2.0", "2.3"}


@pytest.mark.long
@given(values.metadata())
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_again(image: Metadata) -> None:
    assert decode_metadata(encode_metadata(image)) == image


@given(values.metadata())
@settings(max_examples=100, deadline=None)
def test_streams_that_are_left_as_they_are_change_nothing_but_file_mergings_handles(
    image: Metadata,
) -> None:
    same = with_streams(image, lambda stream, whole: stream)
    again = with_streams(same, lambda stream, whole: stream)
    assert again == same
    assert [r.role for r in references(same)] == [r.role for r in references(again)]


# One with coordinators and key groups, and one with every other kind of handle, as far as Flink
# wrote them.
CUT = tuple(
    path for path in values.IMAGES if "flink-2.3.0/count-canonical-hashmap" in str(path)
) + tuple(
    path
    for path in values.IMAGES
    if "changelog" in str(path) or "merging" in str(path) or "unaligned" in str(path)
)


@pytest.mark.sample(20)
@pytest.mark.parametrize("path", CUT, ids=lambda path: str(path.relative_to(values.GOLDEN).parent))
def test_it_is_refused_wherever_it_is_cut_short(
    path: Path, moments: Callable[[int], range]
) -> None:
    content = path.read_bytes()
    for number in moments(len(content)):
        size = number - 1
        with pytest.raises(FormatError) as caught:
            decode_metadata(content[:size])
        assert caught.value.offset is not None
        assert caught.value.offset <= size


@pytest.mark.parametrize("path", CUT[:1], ids=lambda path: path.parts[-4])
def test_a_flipped_bit_is_refused_or_read_as_what_it_says(path: Path) -> None:
    """There are no checksums: where a flipped bit makes sense, nothing can tell it from what
    Flink wrote.
    """
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in (0, 7):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            with suppress(FormatError):
                assert encode_metadata(decode_metadata(bytes(damaged))) == bytes(damaged)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "ends early"),
        (b"PK\x03\x04 a zip", "no metadata of a Flink"),
        (bytes.fromhex("4960672d 00000063"), "version 99, which is not known"),
        (bytes.fromhex("4960672d 00000003 ffffffffffffffff"), "checkpoint id -1"),
        (bytes.fromhex("4960672d 00000003 0000000000000001 ffffffff"), "-1 master states"),
        (bytes.fromhex("4960672d 00000003 0000000000000001 00000000 7fffffff"), "ends early"),
        (
            bytes.fromhex("4960672d 00000003 0000000000000001 00000000 00000000 00"),
            "behind the end",
        ),
        (bytes.fromhex("4960672d 00000004 0000000000000001 00000000 00000000"), "ends early"),
    ],
)
def test_what_it_is_not_is_said(content: bytes, fact: str) -> None:
    with pytest.raises(FormatError, match=fact):
        decode_metadata(content)


def test_an_unknown_version_is_told_as_that() -> None:
    with pytest.raises(UnknownVersion) as caught:
        decode_metadata(bytes.fromhex("4960672d 00000008"))
    assert caught.value.hint is not None


@pytest.mark.row("IF-16")
@pytest.mark.parametrize(
    ("name", "kind", "layout", "drained"),
    [
        ("flink-2.3.0/count-canonical-hashmap", "savepoint", "canonical", False),
        ("flink-2.3.0/count-native-hashmap", "savepoint", "native", False),
        ("flink-2.3.0/count-drained", "savepoint", "canonical", True),
    ],
)
def test_it_says_of_what_kind_it_is(name: str, kind: str, layout: str, drained: bool) -> None:
    path = next(path for path in values.IMAGES if name in str(path))
    found = decode_properties(decode_metadata(path.read_bytes()).properties)
    assert found is not None
    assert (found.kind, found.layout, found.drained) == (kind, layout, drained)
