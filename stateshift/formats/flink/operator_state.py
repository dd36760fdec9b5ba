"""The file of a subtask's state that belongs to no key: lists, unions and broadcast state.

    i32 version (5: up to Flink 1.17, 6: since 1.18), [v6] u1 compressed,
    i16 n, n list and union states, i16 m, m broadcast states        the header, see `keyed_state`
    [compressed] the beginning of a snappy stream                    see `snappy_frames`
    elements, one behind the other: `_metadata` says where each begins
        list, union    one value
        broadcast      i32 n, n * (key, value)
    [compressed] each element is chunks of its own; in Flink 1.18.0 and 1.18.1 each state is a
    stream, and all
                 elements of a list are said to begin where that does (FLINK-34063)

Flink: runtime/state/OperatorBackendSerializationProxy, DefaultOperatorStateBackendSnapshotStrategy,
CompressibleFSDataOutputStream.

State that a connector's own serializer wrote is in frames of Flink's. There are no checksums.

    coordinator  i32 version of the frame, 0 or 1         of a source, in `_metadata`
                 i32 version of the enumerator's serializer
                 i32 n, n bytes of the enumerator
                 version 0 only: more may follow, which is not read
    element      i32 length of the rest                   of a list state
                 i32 version of the serializer            (BytePrimitiveArraySerializer)
                 i32 n, n bytes; nothing may follow

Flink reads no other version of the coordinator's frame, and behind version 1 no trailing bytes
("Unexpected trailing bytes in enumerator checkpoint data"). If the lengths of an element differ it
ends with "Corrupt data, conflicting lengths".

Flink 1.15 to 2.3: runtime/source/coordinator/SourceCoordinator.deserializeCheckpoint,
SourceCoordinatorSerdeUtils; core/io/SimpleVersionedSerialization, api/operators/util/
SimpleVersionedListState.

The state of a sink's committer is a list of committables by checkpoint and subtask:

    v1       i4 version of the committables, i4 n, n * (i4 length, committable)    Flink 1.14
    v2       u4 0xb91f252c, list of checkpoints
    list     i4 version, i4 n, n * (i4 length, item)

    checkpoint   v0  i8 id, list of subtasks
                 v1  i8 id, i4 subtasks, list of subtasks
    subtask      v0  list of requests, i4 committables, i4 drained, i4 failed
                 v1  i4 subtask, list of requests, i4 committables, i4 drained, i4 failed
                 v2  i4 subtask, list of requests, i4 committables, i4 failed
    request      v0  i4 version, i4 length, committable; i4 retries, i4 state

The bytes of a committable are its connector's own: see `kafka`. The numbers behind a subtask's
requests are kept as they are. Flink 1.15 to 2.3: streaming/runtime/operators/sink/committables/
CommittableCollectorSerializer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

from stateshift.errors import FormatError, OldVersion, UnknownVersion
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.java_data import DataInput, DataOutput
from stateshift.formats.flink.keyed_state import StateInfo, find_states, read_state
from stateshift.formats.flink.serializers import Unknown, value

COMPRESSED_FROM: Final = 6
VERSIONS: Final = (5, 6)
_WHAT = "operator state"

Pair = tuple[object, object]  # a key, None where there is none, and a value

# The list state of every operator that reads a source (SourceOperator.SPLITS_STATE_DESC).
READER_STATE: Final = "SourceReaderState"
# The committables of a sink that are to be committed (CommitterOperator).
COMMITTER_STATE: Final = "streaming_committer_raw_states"
# Files, or names of transactions, that a sink's writer has begun (SinkWriterStateHandler).
WRITER_STATE: Final = "writer_raw_states"
STATES: Final = (READER_STATE, WRITER_STATE, COMMITTER_STATE)
SERIALIZER: Final = "BytePrimitiveArraySerializer"
COORDINATOR_VERSIONS: Final = (0, 1)
COMMITTER_MAGIC: Final = 0xB91F252C
REQUEST_STATES: Final = 4  # CommitRequestState: received, retry, failed, committed
_COMMITTER = "the state of a sink's committer"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OperatorHeader:
    """The `states` with readable names. `known`: they are all there is in the header."""

    version: int
    compressed: bool
    states: tuple[StateInfo, ...]
    known: bool

    def state(self, name: str) -> StateInfo | None:
        return next((state for state in self.states if state.name == name), None)


def decode_operator_header(head: bytes) -> OperatorHeader:
    """Return the header in these bytes, without states if its version is not known."""
    data = DataInput(head, _WHAT)
    version = data.i4()
    if version not in VERSIONS:
        return OperatorHeader(version, False, (), False)
    compressed = version >= COMPRESSED_FROM and data.boolean()
    states: list[StateInfo] = []
    for _ in range(2):  # lists and unions, then broadcast state
        at, count = data.at, data.i2()
        if count < 0:
            raise data.wrong(f"invalid number of states {count}", at)
        for _ in range(count):
            state = read_state(data)
            if state is None:
                return OperatorHeader(version, compressed, find_states(head), False)
            states.append(state)
    # Flink 1.18.0 also left the beginnings of the streams of states without elements there.
    while compressed and not data.at_end():
        at = data.at
        if data.take(len(snappy_frames.IDENTIFIER)) != snappy_frames.IDENTIFIER:
            raise data.wrong("no snappy stream begins behind the header", at)
    data.require_end("bytes between the header's end and the first element")
    return OperatorHeader(version, compressed, tuple(states), True)


def require_version(header: OperatorHeader) -> None:
    """Raise UnknownVersion for a header that no Flink of today reads."""
    version = header.version
    if version in VERSIONS:
        return
    if 0 < version < VERSIONS[0]:
        raise OldVersion(
            (
                f"{_WHAT} has a header of version {version}, of a Flink before 1.7, whose "
                "states cannot be read"
            ),
            None,
            0,
            hint=(
                "start the job from it in its own Flink, and take a savepoint with Flink 1.15 "
                "or newer"
            ),
        )
    read = f"{VERSIONS[0]} and {VERSIONS[1]}"
    raise UnknownVersion(f"{_WHAT} has version {version}, of which Flink reads {read}", None, 0)


def split_elements(content: bytes, starts: Iterable[int], end: int) -> dict[int, bytes]:
    """Return each element's bytes as they are in the file, by offset, up to `end`."""
    offsets = sorted(set(starts))
    if not offsets:
        return {}
    first, last = offsets[0], offsets[-1]
    if first < 0 or not last <= end <= len(content):
        fact = f"{_WHAT}: elements from byte {first} to {last}, in {len(content)} bytes"
        raise FormatError(fact, None, None)
    return {start: content[start:stop] for start, stop in pairwise((*offsets, end))}


def element_bytes(header: OperatorHeader, raw: bytes) -> bytes:
    """Return the content of an element, decompressed if need be."""
    return snappy_frames.chunks(raw, _WHAT) if header.compressed else raw


def read_element(state: StateInfo, raw: bytes, count: int = 1) -> list[Pair]:
    """Return keys (a list has none) and values; `count` elements of a list begin at one place."""
    data = DataInput(raw, f"state {state.name!r}")
    if state.kind == "broadcast":
        pairs = _broadcast_pairs(state, data)
    elif state.value is not None:
        pairs = [(None, value(state.value, data)) for _ in range(count)]
    else:
        raise Unknown("a serializer that is not known here", state.unknown)
    data.require_end("bytes behind the end of an element")
    return pairs


def _broadcast_pairs(state: StateInfo, data: DataInput) -> list[Pair]:
    if state.key is None or state.value is None:
        raise Unknown("a serializer that is not known here", state.unknown)
    pairs: list[Pair] = []
    for _ in range(data.items("entries")):
        key = value(state.key, data)
        pairs.append((key, value(state.value, data)))
    return pairs


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """The bytes of a connector, and the version of its serializer that wrote them."""

    version: int
    content: bytes


def decode_source_coordinator(content: bytes) -> ConnectorState:
    """Return the enumerator's state; raise FormatError for a frame that Flink refuses."""
    data = DataInput(content, "the state of a source's coordinator")
    frame = data.i4()
    if frame not in COORDINATOR_VERSIONS:
        raise data.wrong(f"version {frame}, and Flink reads 0 and 1", 0)
    version = data.i4()
    enumerator = data.take(data.i4())
    if frame > 0:
        data.require_end("trailing bytes, which Flink refuses")
    return ConnectorState(version, enumerator)


def encode_source_coordinator(state: ConnectorState) -> bytes:
    """Return the coordinator's bytes, in the frame of version 1."""
    out = DataOutput()
    out.i4(1, state.version)
    out.sized(state.content)
    return out.content()


def decode_versioned_elements(
    content: bytes, state: str, count: int = 1
) -> Iterator[ConnectorState]:
    """Yield `count` elements; raise FormatError for a frame that Flink refuses."""
    data = DataInput(content, f"state {state!r}")
    for _ in range(count):
        start = data.at
        frame = DataInput(data.take(data.i4()), data.what)
        version = frame.i4()
        size, left = frame.i4(), frame.end - frame.at
        if size != left:
            raise data.wrong(
                f"an element's length is {size}, and {left} bytes are there: Flink refuses it",
                start + 8,
            )
        yield ConnectorState(version, frame.take(size))


def encode_versioned_element(state: ConnectorState) -> bytes:
    """Return the bytes of one element of a list state."""
    out = DataOutput()
    out.i4(len(state.content) + 8, state.version)
    out.sized(state.content)
    return out.content()


# ---- a sink's committer


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A committable, and how often it was tried. Version 1 of the state says the first alone."""

    committable: ConnectorState
    retries: int = 0
    state: int = 0


@dataclass(frozen=True, slots=True)
class SubtaskCommittables:
    """The requests of one subtask, and the numbers behind them."""

    requests: tuple[CommitRequest, ...]
    numbers: tuple[int, ...]
    subtask: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointCommittables:
    """The requests of one checkpoint, by subtasks, whose layout has a version."""

    id: int
    subtasks: tuple[SubtaskCommittables, ...]
    subtask_version: int
    of: int | None = None


@dataclass(frozen=True, slots=True)
class CommitterState:
    """The state of one subtask of a committer. In version 1 it is `legacy`, and without
    checkpoints; `inner_version` is that of the committables there, and of the checkpoints else.
    """

    version: int
    inner_version: int
    checkpoints: tuple[CheckpointCommittables, ...] = ()
    legacy: tuple[bytes, ...] = ()

    @property
    def committables(self) -> Iterator[ConnectorState]:
        """Yield each committable, of all checkpoints."""
        for content in self.legacy:
            yield ConnectorState(self.inner_version, content)
        for checkpoint in self.checkpoints:
            for subtask in checkpoint.subtasks:
                yield from (request.committable for request in subtask.requests)


def decode_committer(version: int, content: bytes) -> CommitterState:
    """Return the committables of a committer's subtask, by checkpoint."""
    data = DataInput(content, _COMMITTER)
    if version == 1:
        inner_version = data.i4()
        count = data.items("committables")
        state = CommitterState(
            1, inner_version, legacy=tuple(data.take(data.count("bytes")) for _ in range(count))
        )
    elif version == 2:
        if data.i4() & 0xFFFFFFFF != COMMITTER_MAGIC:
            raise data.wrong("another magic number than Flink's", 0)
        inner_version, checkpoints = _read_list(data, (0, 1), read_checkpoint)
        state = CommitterState(2, inner_version, checkpoints)
    else:
        raise UnknownVersion(f"{_COMMITTER} has version {version}, and 1 and 2 are known", None, 0)
    data.require_end("bytes behind the last committable")
    return state


def _read_list(
    data: DataInput, known: tuple[int, ...], read: Callable[[DataInput, int], T]
) -> tuple[int, tuple[T, ...]]:
    at, version = data.at, data.i4()
    if version not in known:
        fact = f"{_COMMITTER} has a list of version {version}, and 0 to {known[-1]} is known"
        raise UnknownVersion(fact, None, at)
    items = []
    for _ in range(data.items("items")):
        inner = data.within()
        items.append(read(inner, version))
        inner.require_end("bytes behind an item's last field")
    return version, tuple(items)


def read_checkpoint(data: DataInput, version: int) -> CheckpointCommittables:
    """Read the committables of one checkpoint."""
    id_, of = data.i8(), data.i4() if version else None
    subtask_version, subtasks = _read_list(data, (0, 1, 2), _read_subtask)
    return CheckpointCommittables(id_, subtasks, subtask_version, of)


def _read_subtask(data: DataInput, version: int) -> SubtaskCommittables:
    subtask = data.i4() if version else None
    _, requests = _read_list(data, (0,), _read_request)
    count = 2 if version == 2 else 3
    numbers = tuple(data.i4() for _ in range(count))
    return SubtaskCommittables(requests, numbers, subtask)


def _read_request(data: DataInput, version: int) -> CommitRequest:
    committable = ConnectorState(data.i4(), data.take(data.count("bytes")))
    retries, at, state = data.i4(), data.at, data.i4()
    if not 0 <= state < REQUEST_STATES:
        raise data.wrong(f"a request's state is {state}", at)
    return CommitRequest(committable, retries, state)
