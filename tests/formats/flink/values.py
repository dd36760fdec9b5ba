"""Metadata of every version and with every kind of handle, made up: what Flink could write,
whether or not it did.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.keyed_handles import (
    Changelog,
    FileDelta,
    Incremental,
    KeyGroups,
    MemoryDelta,
)
from stateshift.formats.flink.metadata import MasterState, Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import (
    Channel,
    ChannelPart,
    MergedChannels,
    Merging,
    Partitioned,
    StateOffsets,
)
from stateshift.formats.flink.stream_handles import (
    AbsoluteFile,
    EmptySegment,
    Inline,
    KeyGroupsStream,
    RelativeFile,
    Segment,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
IMAGES = tuple(sorted(p for p in GOLDEN.glob("flink-*/*/**/_metadata") if p.is_file()))

# What Flink 2.3 puts behind a canonical savepoint that its job was stopped with.
PROPERTIES = next(
    (p.read_bytes()[-756:] for p in IMAGES if "2.3.0/count-canonical-hashmap" in str(p)), b""
)

small = st.integers(0, 9)
sizes = st.integers(0, 2**40)
longs = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(Longs.of)
words = st.text(max_size=6)
blobs = st.binary(max_size=8)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(KeyGroupsStream, small, longs, st.none() | inner)


streams = st.recursive(
    st.one_of(
        st.builds(Inline, words, blobs),
        st.builds(AbsoluteFile, words, sizes),
        st.builds(RelativeFile, words, sizes),
        st.builds(Segment, words, sizes, sizes, st.sampled_from((0, 1)), words),
        st.just(EmptySegment()),
    ),
    _nested,
    max_leaves=2,
)
maybe = st.none() | streams
named = st.lists(st.tuples(words, maybe), max_size=2).map(tuple)


@st.composite
def key_groups(draw: st.DrawFn) -> KeyGroups:
    tag = draw(st.sampled_from((3, 7, 12)))
    return KeyGroups(tag, draw(small), draw(longs), draw(maybe), draw(words) if tag == 12 else None)


@st.composite
def incremental(draw: st.DrawFn) -> Incremental:
    newer = draw(st.booleans())
    more = (draw(sizes), draw(words)) if newer else (None, None)
    return Incremental(
        11 if newer else 5,
        draw(sizes),
        draw(words),
        draw(small),
        draw(small),
        more[0],
        draw(maybe),
        draw(named),
        draw(named),
        more[1],
    )


@st.composite
def file_delta(draw: st.DrawFn) -> FileDelta:
    newer = draw(st.booleans())
    parts = draw(st.lists(st.tuples(sizes, maybe), max_size=2).map(tuple))
    return FileDelta(
        13 if newer else 10,
        draw(small),
        draw(small),
        parts,
        draw(sizes),
        draw(sizes),
        draw(words),
        draw(words) if newer else None,
    )


memory_delta = st.builds(
    MemoryDelta,
    small,
    small,
    sizes,
    sizes,
    st.lists(st.tuples(st.integers(-1, 9), blobs), max_size=2).map(tuple),
    words,
)


@st.composite
def changelog(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Changelog:
    newer = draw(st.booleans())
    some = st.lists(inner, max_size=2).map(tuple)
    return Changelog(
        14 if newer else 8,
        draw(small),
        draw(small),
        draw(sizes),
        draw(some),
        draw(some),
        draw(sizes),
        draw(sizes) if newer else None,
        draw(words),
    )


keyed = st.recursive(
    st.one_of(key_groups(), incremental(), memory_delta, file_delta()),
    lambda inner: changelog(inner),
    max_leaves=3,
)

states = st.lists(
    st.builds(StateOffsets, words, st.sampled_from((0, 1, 2)), longs), max_size=2
).map(tuple)
merging = st.none() | st.builds(Merging, words, words, st.booleans())
partitioned = st.builds(Partitioned, states, maybe, merging)
parts = st.builds(ChannelPart, small, small, sizes, longs)
channels = st.builds(Channel, small, parts, maybe)
merged_channels = st.builds(
    MergedChannels, small, sizes, maybe, st.lists(parts, max_size=2).map(tuple)
)


@st.composite
def subtasks(draw: st.DrawFn, version: int, index: int) -> SubtaskState:
    if draw(st.integers(0, 4)) == 0:
        return SubtaskState(index, finished=True)
    flying = channels if version < 6 else channels | merged_channels
    some = st.lists(flying, max_size=2).map(tuple) if version >= 3 else st.just(())
    return SubtaskState(
        index,
        False,
        draw(st.none() | partitioned),
        draw(st.none() | partitioned),
        draw(st.none() | keyed),
        draw(st.none() | keyed),
        draw(some),
        draw(some),
        draw(st.none() | sizes) if version >= 7 else None,
        draw(sizes) if version == 2 else -1,
    )


@st.composite
def operators(draw: st.DrawFn, version: int) -> OperatorState:
    parallelism = draw(st.integers(0, 3))
    finished = draw(st.integers(0, 5)) == 0
    coordinator = (
        draw(st.none() | st.builds(Inline, words, blobs)) if version >= 3 and not finished else None
    )
    own = (
        None if finished else tuple(draw(subtasks(version, index)) for index in range(parallelism))
    )
    found = OperatorState(
        draw(st.binary(min_size=16, max_size=16)),
        parallelism,
        parallelism + draw(small),
        coordinator,
        own,
    )
    return replace(found, name=draw(words), uid=draw(words)) if version >= 5 else found


@st.composite
def metadata(draw: st.DrawFn) -> Metadata:
    version = draw(st.integers(2, 7))
    masters = st.builds(MasterState, small, words, blobs)
    return Metadata(
        version,
        draw(sizes),
        draw(st.lists(masters, max_size=2).map(tuple)),
        tuple(draw(operators(version)) for _ in range(draw(st.integers(0, 3)))),
        PROPERTIES if version >= 4 else b"",
    )
