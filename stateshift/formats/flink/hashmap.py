"""Key groups of the hashmap backend, taken apart into the entries that a canonical savepoint of the
same state has.

    key group  i32 number, then of every state  u16 state, i32 n, n entries           (one stream of framed snappy
                                                                                        a state,
                                                                                        if
                                                                                        compressed)
    entry      namespace, key, value            of a timer: i64 time, key, namespace

    canonical  key, namespace [, key in the map] and its value. A list's elements are joined by
               commas; each of a
               map's entries has a flag before its value, 1 for null

Only serializers tell where something ends. Where one of them is not known, nothing of the file can
be taken apart: `why_closed` says so beforehand.

Source: Flink, runtime/state/heap/HeapSnapshotStrategy, CopyOnWriteStateMapSnapshot,
HeapKeyValueStateIterator, state/ListDelimitedSerializer.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.errors import FormatError
from stateshift.formats.flink.java_data import Input
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer, value

FIXED = (
    "VoidNamespaceSerializer",
    "TimeWindowSerializer",
)  # namespaces of one length: keys cannot be ambiguous
_PLAIN = ("VALUE", "REDUCING", "AGGREGATING", "FOLDING")
_COMMA = b","


def why_closed(header: Header) -> str | None:
    """Why the entries of files with this header cannot be told apart; None if they can."""
    if header.key is None:
        return "the serializer of its keys is not known"
    for state in header.states:
        if not _is_open(state):
            return f"the serializers of state {state.name!r} are not known"
    return None


def hashmap_entries(
    header: Header, group: int, content: bytes
) -> Iterator[tuple[int, bytes, bytes]]:
    """State, key and value of each entry of a key group, as they stand in a canonical file; keys
    without the number of their group. `content` is decompressed, the number of the group in front
    of it.
    """
    data = Input(content, f"key group {group}")
    if data.i4() != group:
        raise FormatError(f"key group {group} begins with another number", None, 0)
    for _ in header.states:
        at, number = data.at, data.i2() & 0xFFFF
        if number >= len(header.states):
            raise data.wrong(f"state {number}, which the header does not have", at)
        state = header.states[number]
        for _ in range(data.count("entries")):
            for key, found in _entry(header, state, data):
                yield number, key, found
    if not data.at_end():
        raise data.wrong(f"{data.end - data.at} bytes behind its end")


def _is_open(state: StateInfo) -> bool:
    if state.value is None:
        return False
    if state.kind == "timers":
        return state.value.name == "TimerSerializer" and len(state.value.inner) == 2
    if state.kind != "keyed" or state.namespace is None or state.namespace.name not in FIXED:
        return False
    match state.type:
        case "LIST":
            return state.value.name == "ListSerializer" and len(state.value.inner) == 1
        case "MAP":
            return state.value.name == "MapSerializer" and len(state.value.inner) == 2
    return state.type in _PLAIN


def _entry(header: Header, state: StateInfo, data: Input) -> Iterator[tuple[bytes, bytes]]:
    """What one entry is in a canonical file: one entry too, but for maps."""
    assert header.key is not None and state.value is not None, "asked before: why_closed"
    if state.kind == "timers":
        time = data.take(8)
        yield time + _raw(state.value.inner[0], data) + _raw(state.value.inner[1], data), b""
        return
    assert state.namespace is not None, "asked before: why_closed"
    namespace = _raw(state.namespace, data)
    key = _raw(header.key, data) + namespace
    match state.type:
        case "MAP":
            of_key, of_value = state.value.inner
            for _ in range(data.count("entries")):
                inner = _raw(of_key, data)
                flag = data.boolean()
                found = b"" if flag else _raw(of_value, data)
                yield key + inner, bytes((flag,)) + found
        case "LIST":
            elements = [_raw(state.value.inner[0], data) for _ in range(data.count("items"))]
            if elements:
                yield key, _COMMA.join(elements)
        case _:
            yield key, _raw(state.value, data)


def _raw(serializer: Serializer, data: Input) -> bytes:
    """The bytes of what stands there."""
    start = data.at
    value(serializer, data)
    return data.data[start : data.at]
