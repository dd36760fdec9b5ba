"""What connectors keep, in a source's coordinator and in list states: what Flink refuses of the
frames around it is refused, and the golden images of all versions are accepted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from stateshift.errors import FormatError
from stateshift.formats.flink.metadata import OperatorState, decode_metadata, encode_metadata
from stateshift.formats.flink.operator_state import decode_source_coordinator
from stateshift.formats.flink.stream_handles import Inline
from tests.damage import images
from tests.damage.commands import document_of, run
from tests.formats.golden import ROOT as GOLDEN

NAMES = ("flink-1.15.4/count-canonical-rocksdb", "flink-2.3.0/count-canonical-hashmap")
# As every golden has it: frame 1, enumerator of version 1, four bytes of its own.
WHOLE = bytes.fromhex("00000001 00000001 00000004 00000000")


def with_coordinators(name: str, content: bytes) -> tuple[dict[str, bytes], str]:
    """Return an image whose sources' coordinators have this state, and where it lies."""
    golden = images.image(name)
    path = f"{golden.location}/_metadata"
    metadata = decode_metadata(golden.files[path])
    operators = tuple(_with_coordinator(one, content) for one in metadata.operators)
    changed = replace(metadata, operators=operators)
    return {**golden.files, path: encode_metadata(changed)}, golden.location


def _with_coordinator(operator: OperatorState, content: bytes) -> OperatorState:
    if operator.coordinator is None:
        return operator
    assert operator.coordinator.content == WHOLE
    return replace(operator, coordinator=replace(operator.coordinator, content=content))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("hexadecimal", "fact"),
    [
        ("00000002 00000001 00000004 00000000", "version 2, and Flink reads 0 and 1"),
        ("40000001 00000001 00000004 00000000", "version 1073741825"),
        ("00000001 00000001 00000005 00000000", "5 bytes expected, 4 left"),
        ("00000001 00000001 40000004 00000000", "1073741828 bytes expected, 4 left"),
        ("00000001 00000001 80000004 00000000", "a length of -2147483644"),
        ("00000001 00000001 00000000 00000000", "4 trailing bytes"),
        ("00000001 0000", "ends early"),
    ],
)
def test_a_frame_that_flink_refuses_is_refused(name: str, hexadecimal: str, fact: str) -> None:
    files, location = with_coordinators(name, bytes.fromhex(hexadecimal))
    shown = run(images.on_a_disk(files), "verify", location, "--deep", "--json")
    assert shown.code == 5
    assert fact in shown.out


@pytest.mark.parametrize("name", NAMES)
def test_an_unlikely_version_of_an_enumerator_is_said(name: str) -> None:
    files, location = with_coordinators(name, WHOLE[:4] + (16385).to_bytes(4, "big") + WHOLE[8:])
    shown = run(images.on_a_disk(files), "verify", location, "--deep", "--json")
    assert shown.code == 0
    (warning,) = (one for one in document_of(shown)["findings"] if one["level"] == "warn")
    assert "version 16385 of its connector's serializer" in json.dumps(warning)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", [0, 1, 2, 255])
def test_versions_as_connectors_count_them_are_not_spoken_of(name: str, version: int) -> None:
    files, location = with_coordinators(name, WHOLE[:4] + version.to_bytes(4, "big") + WHOLE[8:])
    shown = run(images.on_a_disk(files), "verify", location, "--deep", "--json")
    assert shown.code == 0
    assert not [one for one in document_of(shown)["findings"] if one["level"] != "note"]


def with_split(name: str, change: Callable[[bytes], bytes]) -> tuple[dict[str, bytes], str]:
    """Return an image one of whose splits is changed, but for its length, and where it lies."""
    golden = images.image(name)
    files = dict(golden.files)
    (path,) = (
        path
        for path, content in files.items()
        if b"SourceReaderState" in content and not path.endswith("_metadata")
    )
    content = files[path]
    assert content[-SPLIT:][:8] == bytes.fromhex("0000001b 00000001")
    files[path] = content[:-SPLIT] + change(content[-SPLIT:])
    return files, golden.location


SPLIT = (
    4 + 4 + 4 + 19
)  # its length, its serializer's version, its own length; a sequence of numbers


@pytest.mark.row("W-2")
@pytest.mark.parametrize(
    ("place", "byte", "fact"),
    [
        (11, 0, "an element's length is 0, and 19 bytes are there"),
        (11, 20, "an element's length is 20, and 19 bytes are there"),
        (8, 64, "an element's length is 1073741843, and 19 bytes are there"),
    ],
)
def test_a_split_whose_length_is_not_that_of_its_bytes_is_refused(
    place: int, byte: int, fact: str
) -> None:
    files, location = with_split(NAMES[1], lambda old: _with_byte(old, place, byte))
    shown = run(images.on_a_disk(files), "verify", location, "--deep", "--json")
    assert shown.code == 5
    assert fact in shown.out


@pytest.mark.row("W-2")
def test_an_unlikely_version_of_a_split_is_said() -> None:
    files, location = with_split(NAMES[1], lambda old: _with_byte(old, 5, 4))
    shown = run(images.on_a_disk(files), "verify", location, "--deep", "--json")
    assert shown.code == 0
    (warning,) = (one for one in document_of(shown)["findings"] if one["level"] == "warn")
    assert "an element of SourceReaderState was written by version 262145" in warning["message"]


def test_what_a_connector_keeps_is_said_to_be_checked_by_its_length_alone() -> None:
    files, location = with_split(NAMES[1], lambda old: _with_byte(old, 7, 2))
    shown = run(images.on_a_disk(files), "verify", location, "--deep", "--json")
    assert "of 19 only the lengths were checked" in shown.out
    assert "a connector's own in SourceReaderState" in shown.out


def test_splits_that_are_read_are_checked() -> None:
    golden = images.image(NAMES[1])
    shown = run(images.on_a_disk(golden.files), "verify", golden.location, "--deep", "--json")
    assert "only the lengths were checked" not in shown.out


def _with_byte(content: bytes, place: int, byte: int) -> bytes:
    return content[:place] + bytes((byte,)) + content[place + 1 :]


def test_it_is_refused_wherever_it_is_cut_short() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(FormatError):
            decode_source_coordinator(WHOLE[:end])


def test_splits_behind_the_first_version_of_the_frame_are_left_alone() -> None:
    enumerator = decode_source_coordinator(bytes(4) + WHOLE[4:] + b"assigned splits")
    assert (enumerator.version, enumerator.content) == (1, bytes(4))


@pytest.mark.parametrize("version", ["1.15.4", "1.18.1", "1.20.5", "2.0.2", "2.3.0"])
def test_every_golden_s_coordinators_are_read(version: str) -> None:
    paths = GOLDEN.glob(f"flink-{version}/**/_metadata")
    states = [state for path in paths for state in coordinators_in(path.read_bytes())]
    assert len(states) > 20
    for state in states:
        assert decode_source_coordinator(state.content).version == 1


def coordinators_in(metadata: bytes) -> list[Inline]:
    operators = decode_metadata(metadata).operators
    return [one.coordinator for one in operators if one.coordinator is not None]
