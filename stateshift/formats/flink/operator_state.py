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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from stateshift.errors import FormatError, OldVersion, UnknownVersion
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_state import StateInfo, find_states, read_state
from stateshift.formats.flink.serializers import Unknown, value

COMPRESSED_FROM: Final = 6
VERSIONS: Final = (5, 6)
_WHAT = "operator state"

Pair = tuple[object, object]  # a key, None where there is none, and a value


@dataclass(frozen=True, slots=True)
class OperatorHeader:
    """The `states` with readable names. `known`: they are all there is in the header."""

    version: int
    compressed: bool
    states: tuple[StateInfo, ...]
    known: bool

    def state(self, name: str) -> StateInfo | None:
        """Return the state of a name."""
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
