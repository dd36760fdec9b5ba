"""State walked to its end: what a real Flink wrote passes, and what no Flink could read is
refused, with its place.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stateshift import look
from stateshift.engines.flink.check import elements
from stateshift.engines.flink.entries.image import header_of
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError
from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import Header
from stateshift.formats.flink.metadata import SubtaskState, decode_metadata, encode_metadata
from stateshift.formats.flink.snappy_frames import IDENTIFIER, decompress
from stateshift.formats.flink.state_values import is_known
from stateshift.formats.flink.stream_handles import RelativeFile
from stateshift.storage import locations
from stateshift.testing.memory_storage import MemoryDisk
from tests.cli.support import Outside
from tests.engines.flink import golden
from tests.support.checkpoints import put

OLDEST_AND_NEWEST = [
    name for name in golden.NAMES if name.startswith(("flink-1.15.4", "flink-2.3.0"))
]
HEAP = [
    name for name in OLDEST_AND_NEWEST if name.endswith(("native-hashmap", "checkpoint-hashmap"))
]
CANONICAL = [
    f"flink-2.3.0/{case}" for case in ("typed-canonical", "tables-canonical", "kinds-compressed")
]
COMPRESSED = [name for name in OLDEST_AND_NEWEST if "kinds-compressed" in name]


def state_files(disk: MemoryDisk, location: str) -> Iterator[tuple[str, KeyGroups, Header]]:
    """Yield each file of key groups that lies beside `_metadata`, with its handle and its
    header.
    """
    storage, survey = golden.looked_at(disk, location)
    image = survey.images[0]
    streams = Streams(storage.chunks, places_of(image))
    for operator in metadata_of(image).operators:
        for subtask in operator.subtasks or ():
            handle = subtask.managed_keyed
            if (
                isinstance(handle, KeyGroups)
                and isinstance(handle.stream, RelativeFile)
                and any(handle.offsets)
            ):
                header = header_of(handle, streams)
                assert header is not None
                yield handle.stream.path, handle, header


def deep(disk: MemoryDisk, location: str) -> look.Judgement:
    return look.restartable(location, disk.open, thorough=True)


def refused(disk: MemoryDisk, location: str, name: str, content: bytes) -> str:
    """Return what is said of the image with that file changed, which has to be refused with its
    path.
    """
    put(disk.open(location), name, content)
    judged = deep(disk, location)
    damages = [finding for finding in judged.findings if finding.level == "refuse"]
    assert not judged.restartable, f"{name} was damaged, and nobody noticed"
    of_keys = [finding for finding in damages if "other key groups" in finding.message]
    assert of_keys or any((finding.path or "").endswith(name) for finding in damages), damages
    return " | ".join(finding.message for finding in damages)


def number_at(content: bytes, place: int, number: int, size: int = 4) -> bytes:
    return content[:place] + number.to_bytes(size, "big", signed=True) + content[place + size :]


@pytest.mark.parametrize("name", golden.NAMES)
def test_what_a_real_flink_wrote_is_walked_to_its_end_and_nothing_is_wrong(name: str) -> None:
    disk = MemoryDisk()
    judged = deep(disk, golden.write(disk, name))
    assert judged.restartable
    assert [finding for finding in judged.findings if finding.level == "refuse"] == []


@pytest.mark.parametrize("name", CANONICAL)
def test_entries_are_judged_as_columns_as_they_are_one_by_one(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, chance, seen = MemoryDisk(), random.Random(f"{seed} {name}"), set[bool]()
    location = golden.write(disk, name)
    files = [path for path, _, _ in state_files(disk, location)]
    for _ in range(12):
        path = chance.choice(files)
        content = disk.open(location).read(path)
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        put(disk.open(location), path, bytes(chance.choice((content, changed))))
        monkeypatch.setattr(elements, "COLUMNS_MIN", 0)
        columns = deep(disk, location)
        monkeypatch.setattr(elements, "COLUMNS_MIN", 1 << 60)
        each = deep(disk, location)
        assert columns.findings == each.findings
        assert columns.checked is not None and each.checked is not None
        if each.restartable:
            assert columns.checked.read == each.checked.read
        seen.add(each.restartable)
        put(disk.open(location), path, content)
    assert True in seen


@pytest.mark.parametrize("name", HEAP)
def test_a_count_of_the_hashmap_backend_that_is_not_that_of_its_entries_is_refused(
    name: str,
) -> None:
    disk = MemoryDisk()
    location = golden.write(disk, name)
    for path, handle, header in list(state_files(disk, location))[:6]:
        if not all(is_known(header, state) for state in header.states):
            continue  # its end cannot be found
        content = disk.open(location).read(path)
        count_at = handle.offsets[0] + 4 + 2
        count = int.from_bytes(content[count_at : count_at + 4], "big")
        for wrong in (count + 1, -1, 0x7FFFFFFF):
            refused(disk, location, path, number_at(content, count_at, wrong))
        put(disk.open(location), path, content)
    assert deep(disk, location).restartable


@pytest.mark.parametrize("name", HEAP)
def test_a_key_group_of_the_hashmap_backend_with_another_number_or_a_state_that_is_not_there_is_refused(
    name: str,
) -> None:
    disk = MemoryDisk()
    location = golden.write(disk, name)
    path, handle, _ = next(state_files(disk, location))
    content = disk.open(location).read(path)
    second = handle.offsets[1]
    assert "begins with the number" in refused(
        disk, location, path, number_at(content, second, handle.first + 2)
    )
    assert "state 99" in refused(disk, location, path, number_at(content, second + 4, 99, 2))


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_flipped_bit_of_a_compressed_key_group_is_noticed_unless_it_changes_nothing(
    name: str,
) -> None:
    """The chunks have checksums, which Flink does not look at; we do. A copy from another place in
    snappy's window may give the same bytes.
    """
    disk = MemoryDisk()
    location = golden.write(disk, name)
    path, handle, _ = next(one for one in state_files(disk, location) if one[2].compressed)
    content = disk.open(location).read(path)
    first = min(offset for offset in handle.offsets if offset)
    held = _held(content[first:])
    chance = random.Random(27)
    noticed = 0
    for _ in range(15):
        place = chance.randrange(first, len(content))
        changed = (
            content[:place]
            + bytes((content[place] ^ 1 << chance.randrange(8),))
            + content[place + 1 :]
        )
        put(disk.open(location), path, changed)
        if deep(disk, location).restartable:
            assert _held(changed[first:]) == held
        else:
            noticed += 1
    assert noticed > 9


def _held(content: bytes) -> list[bytes]:
    """What the snappy streams hold, with what lies between them."""
    places = [place for place in range(len(content)) if content.startswith(IDENTIFIER, place)]
    ends = [*places[1:], len(content)]
    return [_of_stream(content[start:end]) for start, end in zip(places, ends, strict=True)]


def _of_stream(stream: bytes) -> bytes:
    """What a stream holds; the number of the key group that follows it is no chunk of it."""
    try:
        return decompress(stream, "a stream")
    except FormatError:
        return decompress(stream[:-4], "a stream")


@pytest.mark.parametrize(
    "name", ["flink-2.3.0/kinds-native-hashmap", "flink-1.15.4/kinds-canonical-rocksdb"]
)
def test_a_file_of_state_that_was_exchanged_for_another_of_its_size_is_refused(name: str) -> None:
    disk = MemoryDisk()
    location = golden.write(disk, name)
    files = {path: disk.open(location).read(path) for path, _, _ in state_files(disk, location)}
    path, content = max(files.items(), key=lambda item: len(item[1]))
    other = next(one for one in files.values() if one != content)
    refused(disk, location, path, (other + bytes(len(content)))[: len(content)])


def test_key_groups_beyond_the_operator_s_are_refused() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, "flink-2.3.0/count-canonical-hashmap")
    metadata = decode_metadata(disk.open(location).read("_metadata"))
    operators = [replace(one, max_parallelism=one.parallelism) for one in metadata.operators]
    put(
        disk.open(location),
        "_metadata",
        encode_metadata(replace(metadata, operators=tuple(operators))),
    )
    judged = deep(disk, location)
    assert not judged.restartable
    assert any("that the operator has" in finding.message for finding in judged.findings)


def test_key_groups_that_lie_elsewhere_in_their_file_are_refused() -> None:
    def exchanged(subtask: SubtaskState) -> SubtaskState:
        handle = subtask.managed_keyed
        if not isinstance(handle, KeyGroups):
            return subtask
        return replace(
            subtask,
            managed_keyed=replace(handle, offsets=Longs.of(reversed(tuple(handle.offsets)))),
        )

    disk = MemoryDisk()
    location = golden.write(disk, "flink-2.3.0/kinds-native-hashmap")
    metadata = decode_metadata(disk.open(location).read("_metadata"))
    operators = tuple(
        replace(one, subtasks=one.subtasks and tuple(map(exchanged, one.subtasks)))
        for one in metadata.operators
    )
    put(disk.open(location), "_metadata", encode_metadata(replace(metadata, operators=operators)))
    assert not deep(disk, location).restartable


def test_an_element_of_operator_state_that_does_not_end_where_the_next_begins_is_refused() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, "flink-2.3.0/kinds-canonical-hashmap")
    storage, survey = golden.looked_at(disk, location)
    operator = next(o for o in metadata_of(survey.images[0]).operators if o.uid == "shares")
    handle = next(
        s.managed_operator for s in operator.subtasks or () if s.managed_operator is not None
    )
    assert isinstance(handle.stream, RelativeFile)
    union = next(state for state in handle.states if state.name == "union")
    content = storage.read(handle.stream.path)
    place = union.offsets[0]
    changed = content[:place] + bytes((content[place] + 1,)) + content[place + 1 :]
    assert "union" in refused(disk, location, handle.stream.path, changed)


@pytest.mark.parametrize(
    "name", ["flink-2.3.0/kinds-native-hashmap", "flink-1.18.1/sql-canonical-hashmap"]
)
def test_what_a_flipped_bit_could_change_unseen_is_said_once_with_its_size(name: str) -> None:
    outside = Outside()
    location = golden.write(outside.disk, name)
    text = outside.run("verify", location, "--deep")
    assert text.code == 0
    assert text.out.count("have no checksum") == 1
    document = outside.run("verify", location, "--deep", "--json").document
    (note,) = [finding for finding in document["findings"] if "checksum" in finding["message"]]
    assert note["level"] == "note"
    held = sum(
        len(content)
        for path, content in outside.disk.snapshot().items()
        if path.startswith(location)
    )
    assert note["message"].startswith(f"{held:,} bytes have no checksum")
    assert json.dumps(document).count("have no checksum") == 1


def test_compressed_state_counts_as_checked() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, "flink-2.3.0/kinds-compressed-native")
    (note,) = [f.message for f in deep(disk, location).findings if "checksum" in f.message]
    held = sum(
        len(c) for path, c in disk.snapshot().items() if path.startswith(locations.normal(location))
    )
    assert int(note.partition(" ")[0].replace(",", "")) < held
