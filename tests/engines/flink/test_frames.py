"""Changelog files and channel state have no checksums: what breaks a frame is refused, whatever
it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import cramjam
import pytest

from stateshift.engines.flink.entries.frames import checked_frames
from stateshift.engines.flink.image import metadata_of
from stateshift.errors import TooLarge
from stateshift.formats import bounds
from stateshift.formats.flink.keyed_handles import Changelog, FileDelta, MemoryDelta
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import expand_channels
from stateshift.formats.flink.snappy_frames import IDENTIFIER
from stateshift.formats.flink.stream_handles import AbsoluteFile, Inline, StreamHandle
from stateshift.survey import Finding
from tests.engines.flink import golden
from tests.engines.flink.test_databases import Place

FILES = [
    name
    for name in golden.NAMES
    if name.split("/")[1] in ("count-changelog-hashmap", "count-changelog-rocksdb")
]
UNALIGNED = [name for name in golden.NAMES if name.split("/")[1].startswith("count-unaligned")]


def subtasks(place: Place) -> Iterator[tuple[OperatorState, SubtaskState]]:
    for operator in metadata_of(place.image).operators:
        for subtask in operator.subtasks or ():
            yield operator, subtask


def found(place: Place) -> list[Finding]:
    return [
        finding
        for operator in metadata_of(place.image).operators
        for finding in checked_frames(operator, place.streams)
    ]


def parts(place: Place) -> list[tuple[int, StreamHandle]]:
    return [
        part
        for _, subtask in subtasks(place)
        if isinstance(subtask.managed_keyed, Changelog)
        for delta in subtask.managed_keyed.deltas
        if isinstance(delta, FileDelta)
        for part in delta.parts
        if part[1] is not None
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_changelog_is_whole_and_every_number_in_its_frames_counts(name: str) -> None:
    place = Place(name)
    assert found(place) == []
    for offset, stream in parts(place):
        for at in (0, 1 + offset, 5 + offset, 9 + offset, 13 + offset):
            content = place.streams.head(stream, 1 << 20)
            place.put(stream, content[:at] + bytes((content[at] ^ 0x15,)) + content[at + 1 :])
            assert [f.level for f in found(place)][:1] == ["refuse"], f"byte {at}"
            place.put(stream, content)
    assert found(place) == []


@pytest.mark.parametrize("name", FILES)
def test_a_changelog_of_nothing_but_zeros_is_refused(name: str) -> None:
    place = Place(name)
    for _, stream in parts(place):
        place.put(stream, bytes(stream.size))
    refusals = found(place)
    assert refusals and all(f.level == "refuse" for f in refusals)


@pytest.mark.parametrize("name", FILES)
def test_changes_of_another_subtask_s_key_groups_are_refused(name: str) -> None:
    place = Place(name)
    for operator, subtask in subtasks(place):
        if isinstance(subtask.managed_keyed, Changelog):
            moved = tuple(replace(delta, first=100) for delta in subtask.managed_keyed.deltas)
            changed = replace(subtask, managed_keyed=replace(subtask.managed_keyed, deltas=moved))
            refusals = list(checked_frames(replace(operator, subtasks=(changed,)), place.streams))
            of_keys = [delta for delta in moved if isinstance(delta, FileDelta | MemoryDelta)]
            assert bool(refusals) == bool(of_keys)


@pytest.mark.parametrize("name", FILES)
def test_changes_that_several_subtasks_name_after_a_rescaling_may_be_of_any_of_them(
    name: str,
) -> None:
    place = Place(name)
    halved = 0
    for operator, subtask in subtasks(place):
        handle = subtask.managed_keyed
        if not isinstance(handle, Changelog):
            continue
        half = handle.count // 2
        first = cut_to(subtask, handle.first, half)
        second = cut_to(subtask, handle.first + half, handle.count - half)
        both = replace(operator, subtasks=(first, second))
        assert list(checked_frames(both, place.streams)) == []
        for one in (first, second):
            alone = replace(operator, subtasks=(one,))
            assert list(checked_frames(alone, place.streams, both)) == []
            halved += bool(list(checked_frames(alone, place.streams)))
    assert halved


def test_key_groups_without_end_cost_no_memory() -> None:
    place = Place(FILES[0])
    operator, subtask = next(
        pair for pair in subtasks(place) if isinstance(pair[1].managed_keyed, Changelog)
    )
    wide = replace(operator, subtasks=(cut_to(subtask, 0, (1 << 31) - 1),))
    assert list(checked_frames(wide, place.streams)) == []


def cut_to(subtask: SubtaskState, first: int, count: int) -> SubtaskState:
    handle = subtask.managed_keyed
    assert isinstance(handle, Changelog)
    deltas = tuple(replace(delta, first=first, count=count) for delta in handle.deltas)
    return replace(subtask, managed_keyed=replace(handle, first=first, count=count, deltas=deltas))


def test_a_compressed_changelog_is_read_as_an_uncompressed_one() -> None:
    place = Place("flink-2.3.0/count-changelog-hashmap")
    for operator, subtask in subtasks(place):
        handle = subtask.managed_keyed
        if not isinstance(handle, Changelog):
            continue
        for delta in handle.deltas:
            assert isinstance(delta, FileDelta)
            for damaged in (False, True):
                squeezed = replace(
                    delta, parts=tuple(compressed(place, part, damaged) for part in delta.parts)
                )
                changed = replace(subtask, managed_keyed=replace(handle, deltas=(squeezed,)))
                refusals = list(
                    checked_frames(replace(operator, subtasks=(changed,)), place.streams)
                )
                assert bool(refusals) == damaged


def test_a_compressed_changelog_that_expands_beyond_the_bound_is_refused_before_it_does() -> None:
    place = Place("flink-2.3.0/count-changelog-hashmap")
    zeros = bytes(cramjam.snappy.compress(bytes(1 << 16))).removeprefix(IDENTIFIER)
    bomb = Inline("x", b"\1" + IDENTIFIER + zeros * (bounds.whole() // (1 << 16) + 1))
    operator, subtask = next(
        pair for pair in subtasks(place) if isinstance(pair[1].managed_keyed, Changelog)
    )
    handle = subtask.managed_keyed
    assert isinstance(handle, Changelog)
    (delta, *_) = handle.deltas
    assert isinstance(delta, FileDelta)
    swollen = replace(handle, deltas=(replace(delta, parts=((0, bomb),)),))
    changed = replace(operator, subtasks=(replace(subtask, managed_keyed=swollen),))
    with pytest.raises(TooLarge, match="a compressed changelog, decompressed, of"):
        list(checked_frames(changed, place.streams))


def compressed(
    place: Place, part: tuple[int, StreamHandle | None], damaged: bool
) -> tuple[int, StreamHandle | None]:
    offset, stream = part
    assert isinstance(stream, AbsoluteFile)
    content = place.streams.head(stream, 1 << 20)
    body = bytes(cramjam.snappy.compress(content[1:]))
    return offset, Inline("x", b"\1" + (body[: len(body) // 2] if damaged else body))


@pytest.mark.parametrize("name", UNALIGNED)
def test_channel_state_is_whole_and_its_buffers_are_as_long_as_its_handles_say(name: str) -> None:
    place = Place(name)
    assert found(place) == []
    broken = 0
    for _, subtask in subtasks(place):
        for handle in (*subtask.inputs, *subtask.outputs):
            for channel in expand_channels([handle]):
                assert channel.stream is not None
                content = place.content(channel.stream)
                for at in (3, *(offset + 3 for offset in channel.part.offsets)):
                    place.put(
                        channel.stream, content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]
                    )
                    assert found(place), f"byte {at}"
                    broken += 1
                place.put(channel.stream, content)
    assert broken and found(place) == []
