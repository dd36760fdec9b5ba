"""`_metadata`, the one file that a restart of a Flink job begins with: its state, and the places of
the bytes.

    u32 4960672D, i32 version
    i64 checkpoint id, i32 n + n master states, i32 n + n operators
    [V4+] properties to the end of the file

    master state   u32 C96B1696, i32 bytes, i32 version, utf name, i32 length, bytes
    operator       [V5+] utf name, utf uid; 16 bytes id, i32 parallelism, i32 max parallelism,
                   [V2] i32 1 | [V3+] stream handle of the coordinator's state
                   i32 subtasks, -1 where the operator has finished; each:
                     i32 index, < 0: subtask -index - 1 has finished, and nothing follows
                     [V2] i64 duration, i32 0
                     i32 0 | 1 + managed operator state, i32 0 | 1 + raw operator state
                     managed keyed state, raw keyed state
                     [V3+] i32 n + n input channels, i32 n + n output channels
                     [V7] u1 0 | 1 + i64 checkpoint referred to

A file is written again byte for byte: the order of everything is the file's. Integers are
big-endian; there are no checksums. Flink 1.15 writes V3, 1.16 to 1.20 V4, 2.0 V5, 2.1 to 2.3 V6;
each reads all older ones, and none newer.

Flink: checkpoint/Checkpoints, checkpoint/metadata/MetadataV2Serializer to MetadataV7Serializer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stateshift.errors import UnknownVersion
from stateshift.formats.flink import METADATA
from stateshift.formats.flink.java_data import DataInput, DataOutput
from stateshift.formats.flink.java_objects import read_object
from stateshift.formats.flink.keyed_handles import KeyedHandle, read_keyed, write_keyed
from stateshift.formats.flink.operator_handles import (
    ChannelHandle,
    Partitioned,
    Side,
    read_channel,
    read_partitioned,
    write_channel,
    write_partitioned,
)
from stateshift.formats.flink.stream_handles import Inline, read_stream, write_stream

MAGIC: Final = 0x4960672D
MASTER_MAGIC: Final = 0xC96B1696
VERSIONS: Final = (2, 3, 4, 5, 6, 7)
PROPERTIES_FROM, NAMES_FROM, REFERENCES_FROM = 4, 5, 7


@dataclass(frozen=True, slots=True)
class MasterState:
    """The state of a hook of the JobManager's."""

    version: int
    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """The state of one subtask. One that has `finished` has none."""

    index: int
    finished: bool = False
    managed_operator: Partitioned | None = None
    raw_operator: Partitioned | None = None
    managed_keyed: KeyedHandle | None = None
    raw_keyed: KeyedHandle | None = None
    inputs: tuple[ChannelHandle, ...] = ()
    outputs: tuple[ChannelHandle, ...] = ()
    reference: int | None = None
    duration: int = -1


@dataclass(frozen=True, slots=True)
class OperatorState:
    """An operator. `name`, `uid`: None before they existed, "" where the job had none."""

    id: bytes
    parallelism: int
    max_parallelism: int
    coordinator: Inline | None
    subtasks: tuple[SubtaskState, ...] | None
    name: str | None = None
    uid: str | None = None

    @property
    def all_subtasks(self) -> tuple[SubtaskState, ...]:
        return self.subtasks or ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """`properties` are as they stand in the file, empty before V4: see `properties`."""

    version: int
    checkpoint_id: int
    masters: tuple[MasterState, ...]
    operators: tuple[OperatorState, ...]
    properties: bytes = b""


def decode_metadata(content: bytes) -> Metadata:
    """Return the content of a `_metadata`, read to its last byte."""
    data = DataInput(content, METADATA)
    if len(content) >= 4 and int.from_bytes(content[:4], "big") != MAGIC:
        raise data.wrong("this is no metadata of a Flink savepoint or checkpoint")
    data.take(4)
    at, version = data.at, data.i4()
    if version not in VERSIONS:
        hint = f"versions that can be read: {', '.join(map(str, VERSIONS))} (Flink 1.3 to 2.3)"
        fact = f"{METADATA} has version {version}, which is not known"
        raise UnknownVersion(fact, None, at, hint=hint)
    at, checkpoint_id = data.at, data.i8()
    if checkpoint_id < 0:
        raise data.wrong(f"checkpoint id {checkpoint_id}", at)
    masters = tuple(_read_master(data) for _ in range(data.count("master states")))
    operators = tuple(_read_operator(data, version) for _ in range(data.count("operators")))
    return Metadata(version, checkpoint_id, masters, operators, _read_properties(data, version))


def encode_metadata(metadata: Metadata) -> bytes:
    """Return the file. Fields that its version does not have must be empty: see `versions`."""
    out = DataOutput()
    out.put(MAGIC.to_bytes(4, "big"))
    out.i4(metadata.version)
    out.i8(metadata.checkpoint_id)
    out.i4(len(metadata.masters))
    for master in metadata.masters:
        inner = DataOutput()
        inner.i4(master.version)
        inner.utf(master.name)
        inner.sized(master.content)
        out.put(MASTER_MAGIC.to_bytes(4, "big"))
        out.sized(inner.content())
    out.i4(len(metadata.operators))
    for operator in metadata.operators:
        _write_operator(out, operator, metadata.version)
    if metadata.version >= PROPERTIES_FROM:
        out.put(metadata.properties)
    return out.content()


def _read_master(data: DataInput) -> MasterState:
    at = data.at
    if int.from_bytes(data.take(4), "big") != MASTER_MAGIC:
        raise data.wrong("no master state begins here", at)
    inner = data.within()
    version, name = inner.i4(), inner.utf()
    content = inner.take(inner.i4())
    inner.require_end("bytes behind a master state")
    return MasterState(version, name, content)


def _read_operator(data: DataInput, version: int) -> OperatorState:
    name, uid = None, None
    if version >= NAMES_FROM:
        name, uid = data.utf(), data.utf()
    own = data.take(16)
    at, parallelism, max_parallelism = data.at, data.i4(), data.i4()
    if not 0 <= parallelism <= max_parallelism:
        raise data.wrong(f"parallelism {parallelism} of at most {max_parallelism}", at)
    coordinator = _read_coordinator(data, version)
    at, count = data.at, data.i4()
    if count == -1:
        if coordinator is not None:
            raise data.wrong("an operator that has finished has a coordinator's state", at)
        return OperatorState(own, parallelism, max_parallelism, None, None, name, uid)
    if count < 0:
        raise data.wrong(f"invalid number of subtasks {count}", at)
    subtasks = tuple(_read_subtask(data, version, parallelism) for _ in range(count))
    return OperatorState(own, parallelism, max_parallelism, coordinator, subtasks, name, uid)


def _read_coordinator(data: DataInput, version: int) -> Inline | None:
    at = data.at
    if version == 2:
        if data.i4() != 1:
            raise data.wrong(
                "a chain of operators in one state, which is older than can be read", at
            )
        return None
    handle = read_stream(data)
    if handle is not None and not isinstance(handle, Inline):
        raise data.wrong("a coordinator's state that is not in the metadata", at)
    return handle


def _read_subtask(data: DataInput, version: int, parallelism: int) -> SubtaskState:
    at, index = data.at, data.i4()
    number = index if index >= 0 else -index - 1
    if number >= parallelism:
        raise data.wrong(f"subtask {number} of an operator of parallelism {parallelism}", at)
    if index < 0:
        return SubtaskState(number, finished=True)
    duration = -1
    if version == 2:
        duration, at = data.i8(), data.at
        if data.i4() != 0:
            raise data.wrong("state of a Flink before 1.3, which cannot be read", at)
    managed, raw = _read_optional(data), _read_optional(data)
    keyed, raw_keyed = read_keyed(data), read_keyed(data)
    inputs = _read_channels(data, version, "input")
    outputs = _read_channels(data, version, "output")
    has_reference = version >= REFERENCES_FROM and data.boolean()
    reference = data.i8() if has_reference else None
    return SubtaskState(
        number, False, managed, raw, keyed, raw_keyed, inputs, outputs, reference, duration
    )


def _read_optional(data: DataInput) -> Partitioned | None:
    at, count = data.at, data.i4()
    if count not in (0, 1):
        raise data.wrong(f"{count} handles where one may be", at)
    return read_partitioned(data) if count else None


def _read_channels(data: DataInput, version: int, side: Side) -> tuple[ChannelHandle, ...]:
    if version < 3:
        return ()
    return tuple(read_channel(data, version, side) for _ in range(data.count("channels")))


def _read_properties(data: DataInput, version: int) -> bytes:
    """Read up to the end. Flink looks no further; here a damaged count has left bytes."""
    start = data.at
    if version >= PROPERTIES_FROM:
        read_object(data)
    data.require_end("bytes behind the end")
    return data.data[start : data.end]


def _write_operator(out: DataOutput, operator: OperatorState, version: int) -> None:
    if version >= NAMES_FROM:
        out.utf(operator.name or "", operator.uid or "")
    out.put(operator.id)
    out.i4(operator.parallelism, operator.max_parallelism)
    if version == 2:
        out.i4(1)
    else:
        write_stream(out, operator.coordinator)
    if operator.subtasks is None:
        out.i4(-1)
        return
    out.i4(len(operator.subtasks))
    for subtask in operator.subtasks:
        _write_subtask(out, subtask, version)


def _write_subtask(out: DataOutput, subtask: SubtaskState, version: int) -> None:
    if subtask.finished:
        out.i4(-subtask.index - 1)
        return
    out.i4(subtask.index)
    if version == 2:
        out.i8(subtask.duration)
        out.i4(0)
    _write_optional(out, subtask.managed_operator)
    _write_optional(out, subtask.raw_operator)
    write_keyed(out, subtask.managed_keyed)
    write_keyed(out, subtask.raw_keyed)
    if version >= 3:
        _write_channels(out, subtask.inputs, version, "input")
        _write_channels(out, subtask.outputs, version, "output")
    if version >= REFERENCES_FROM:
        out.boolean(subtask.reference is not None)
        if subtask.reference is not None:
            out.i8(subtask.reference)


def _write_optional(out: DataOutput, handle: Partitioned | None) -> None:
    out.i4(int(handle is not None))
    if handle is not None:
        write_partitioned(out, handle)


def _write_channels(
    out: DataOutput, channels: tuple[ChannelHandle, ...], version: int, side: Side
) -> None:
    out.i4(len(channels))
    for channel in channels:
        write_channel(out, channel, version, side)
