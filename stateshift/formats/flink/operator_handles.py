"""Handles to the state of one subtask that belongs to no key, and to data in flight, as `_metadata`
holds them.

    Partitioned    u1 4 | 17; i4 n, n * (utf state, u1 mode, i4 m, m * i8 offsets);
                   [17] utf task-owned directory, utf shared directory, u1 empty; stream
    Channel        [V6+] u1 1 input, 2 output; i4 subtask, i4 a, i4 b; i4 n, n * i8 offsets;
                   i8 size; stream
    MergedChannels [V6+] u1 3 input, 4 output; i4 subtask, i8 size, stream, i4 length, that many
                   bytes: i4 n, n * (i4 a, i4 b, i8 size, i4 m, m * i8 offsets)

`mode` is 0 for a list that is dealt out, 1 for one that everybody gets whole, 2 for broadcast
state. a and b are gate and channel of an input, partition and subpartition of an output.

Flink: MetadataV2V3SerializerBase (serializeOperatorStateHandle), ChannelStateHandleSerializerV1 and
V2, AbstractMergedChannelStateHandle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from stateshift.formats.flink.java_data import DataInput, DataOutput, Longs
from stateshift.formats.flink.stream_handles import StreamHandle, read_stream, write_stream

SPLIT, UNION, BROADCAST = 0, 1, 2
MODES = {SPLIT: "list", UNION: "union", BROADCAST: "broadcast"}
KINDS_FROM = 6  # the version of `_metadata` since which a channel says of what kind it is
Side = Literal["input", "output"]


@dataclass(frozen=True, slots=True)
class StateOffsets:
    """A state's name, how Flink deals it out, and the offsets of its elements in the file."""

    name: str
    mode: int
    offsets: Longs


@dataclass(frozen=True, slots=True)
class Merging:
    """The directories of file merging, and whether the file is empty."""

    task_owned: str
    shared: str
    empty: bool


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A subtask's operator state: its states, and the file that all of them are in."""

    states: tuple[StateOffsets, ...]
    stream: StreamHandle | None
    merging: Merging | None = None

    @property
    def starts(self) -> list[int]:
        return list(chain.from_iterable(state.offsets for state in self.states))


@dataclass(frozen=True, slots=True)
class ChannelPart:
    """One channel's part of a file, between subtasks `a` and `b` of it."""

    a: int
    b: int
    size: int
    offsets: Longs


@dataclass(frozen=True, slots=True)
class Channel:
    """A handle to one channel of a subtask, in a stream of its own."""

    subtask: int
    part: ChannelPart
    stream: StreamHandle | None


@dataclass(frozen=True, slots=True)
class MergedChannels:
    """A handle to several channels of a subtask in one stream of `size` bytes."""

    subtask: int
    size: int
    stream: StreamHandle | None
    parts: tuple[ChannelPart, ...]


ChannelHandle = Channel | MergedChannels


def read_partitioned(data: DataInput) -> Partitioned:
    """Read a handle to operator state: tag 4, or 17 where Flink merged the file with others."""
    at = data.at
    tag = data.u1()
    if tag not in (4, 17):
        raise data.wrong(f"unknown tag {tag} of a handle to operator state", at)
    states = []
    for _ in range(data.count("states")):
        name = data.utf()
        at = data.at
        mode = data.u1()
        if mode not in MODES:
            raise data.wrong(f"unknown distribution mode {mode}", at)
        states.append(StateOffsets(name, mode, data.longs(data.count("offsets"))))
    merging = None
    if tag == 17:
        task_owned, shared = data.utf(), data.utf()
        merging = Merging(task_owned, shared, data.boolean())
    return Partitioned(tuple(states), read_stream(data), merging)


def write_partitioned(out: DataOutput, handle: Partitioned) -> None:
    """Write what `read_partitioned` reads, byte for byte."""
    out.u1(4 if handle.merging is None else 17)
    out.i4(len(handle.states))
    for state in handle.states:
        out.utf(state.name)
        out.u1(state.mode)
        out.i4(len(state.offsets))
        out.put(state.offsets.raw)
    if handle.merging is not None:
        out.utf(handle.merging.task_owned)
        out.utf(handle.merging.shared)
        out.boolean(handle.merging.empty)
    write_stream(out, handle.stream)


def read_channel(data: DataInput, version: int, side: Side) -> ChannelHandle:
    """Read a handle to data in flight; before V6 it has no kind, and is one channel's."""
    if version < KINDS_FROM:
        return _read_one(data)
    at, kind = data.at, data.u1()
    single, merged = _kinds(side)
    if kind == single:
        return _read_one(data)
    if kind == merged:
        subtask, size, stream = data.i4(), data.i8(), read_stream(data)
        inner = data.within()
        parts = []
        for _ in range(inner.count("channels")):
            a, b, own = inner.i4(), inner.i4(), inner.i8()
            parts.append(ChannelPart(a, b, own, inner.longs(inner.count("offsets"))))
        inner.require_end("bytes behind the last of the merged channels")
        return MergedChannels(subtask, size, stream, tuple(parts))
    raise data.wrong(f"unknown kind {kind} of an {side} channel", at)


def write_channel(out: DataOutput, handle: ChannelHandle, version: int, side: Side) -> None:
    """Write a handle, which before version 6 is no merged one: see `expand_channels`."""
    single, merged = _kinds(side)
    if version >= KINDS_FROM:
        out.u1(single if isinstance(handle, Channel) else merged)
    if isinstance(handle, Channel):
        part = handle.part
        out.i4(handle.subtask, part.a, part.b, len(part.offsets))
        out.put(part.offsets.raw)
        out.i8(part.size)
        write_stream(out, handle.stream)
        return
    assert version >= KINDS_FROM, (
        "merged channels are expanded before they are written for an older version"
    )
    out.i4(handle.subtask)
    out.i8(handle.size)
    write_stream(out, handle.stream)
    inner = DataOutput()
    inner.i4(len(handle.parts))
    for part in handle.parts:
        inner.i4(part.a, part.b)
        inner.i8(part.size)
        inner.i4(len(part.offsets))
        inner.put(part.offsets.raw)
    out.sized(inner.content())


def expand_channels(handles: Iterable[ChannelHandle]) -> Iterator[Channel]:
    """Yield each channel by itself, as versions before 6 have them."""
    for handle in handles:
        if isinstance(handle, Channel):
            yield handle
            continue
        for part in handle.parts:
            yield Channel(handle.subtask, part, handle.stream)


def _kinds(side: Side) -> tuple[int, int]:
    return (1, 3) if side == "input" else (2, 4)


def _read_one(data: DataInput) -> Channel:
    subtask, a, b = data.i4(), data.i4(), data.i4()
    offsets = data.longs(data.count("offsets"))
    part = ChannelPart(a, b, data.i8(), offsets)
    return Channel(subtask, part, read_stream(data))
