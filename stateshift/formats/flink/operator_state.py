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

    decode_operator_header(head) -> OperatorHeader       everything in front of the first element
    split_elements(...)                                  offset -> bytes, decompressed
    read_element(state, raw) -> [(key, value), ...]      Unknown where a serializer is not known

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
from stateshift.formats.flink.java_data import Input
from stateshift.formats.flink.keyed_state import StateInfo, find_states, read_state
from stateshift.formats.flink.serializers import Unknown, value

COMPRESSED_FROM: Final = 6
VERSIONS: Final = (5, 6)
_WHAT = "operator state"

Pair = tuple[object, object]  # a key, None where there is none, and a value


@dataclass(frozen=True, slots=True)
class OperatorHeader:
    """`states` are those whose names could be read. `known` says that all of them are, and that
    nothing else is in the header.
    """

    version: int
    compressed: bool
    states: tuple[StateInfo, ...]
    known: bool

    def state(self, name: str) -> StateInfo | None:
        """Return the state of a name."""
        return next((state for state in self.states if state.name == name), None)


def decode_operator_header(head: bytes) -> OperatorHeader:
    """Return the header that these bytes are, with the beginning of a snappy stream behind it where
    it is compressed.

    A version that is not known has no states.
    """
    data = Input(head, _WHAT)
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
    if compressed:
        _read_streams_begun(data)
    if not data.at_end():
        raise data.wrong(
            f"{data.end - data.at} bytes between the header's end and the first element"
        )
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


def _read_streams_begun(data: Input) -> None:
    """Read the beginning of a snappy stream; Flink 1.18.0 also left those of states without
    elements there.
    """
    while not data.at_end():
        at = data.at
        if data.take(len(snappy_frames.IDENTIFIER)) != snappy_frames.IDENTIFIER:
            raise data.wrong("no snappy stream begins behind the header", at)


def split_elements(content: bytes, starts: Iterable[int], end: int) -> dict[int, bytes]:
    """Return each element's bytes as they lie in the file, by its offset. `end` is that of the
    last.
    """
    offsets = sorted(set(starts))
    if not offsets:
        return {}
    first, last = offsets[0], offsets[-1]
    if first < 0 or not last <= end <= len(content):
        raise FormatError(
            f"{_WHAT}: elements from byte {first} to {last}, in {len(content)} bytes", None, None
        )
    return {start: content[start:stop] for start, stop in pairwise((*offsets, end))}


def element_bytes(header: OperatorHeader, raw: bytes) -> bytes:
    """Return what an element holds, decompressed where it has to be."""
    return snappy_frames.chunks(raw, _WHAT) if header.compressed else raw


def read_element(state: StateInfo, raw: bytes, count: int = 1) -> list[Pair]:
    """Return the keys and values of an element; of a list's, one without a key. `count` elements of
    a list lie in it: more than one where they are said to begin at one place.

    Raises Unknown where a serializer is not known, and FormatError where the bytes do not end with
    the element.
    """
    data = Input(raw, f"state {state.name!r}")
    if state.kind == "broadcast":
        pairs = _broadcast_pairs(state, data)
    elif state.value is not None:
        pairs = [(None, value(state.value, data)) for _ in range(count)]
    else:
        raise Unknown("a serializer that is not known here", state.unknown)
    if not data.at_end():
        raise data.wrong(f"{data.end - data.at} bytes behind the end of an element")
    return pairs


def _broadcast_pairs(state: StateInfo, data: Input) -> list[Pair]:
    if state.key is None or state.value is None:
        raise Unknown("a serializer that is not known here", state.unknown)
    pairs: list[Pair] = []
    for _ in range(data.items("entries")):
        key = value(state.key, data)
        pairs.append((key, value(state.value, data)))
    return pairs
