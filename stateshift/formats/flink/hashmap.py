"""Key groups of the hashmap backend, taken apart into the entries that a canonical savepoint of the
same state has.

    key group  i32 number, then of every state  u16 state, i32 n, n entries
               if compressed, one stream of framed snappy a state
    entry      namespace, key, value            of a timer: i64 time, key, namespace

    canonical  key, namespace [, key in the map] and its value. A list's elements are joined by
               commas; each of a map's entries has a flag before its value, 1 for null

Only serializers tell where something ends. If one of them is not known, nothing of the file can be
taken apart: `why_closed` says so beforehand.

Source: Flink, runtime/state/heap/HeapSnapshotStrategy, CopyOnWriteStateMapSnapshot,
HeapKeyValueStateIterator, state/ListDelimitedSerializer.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.errors import FormatError
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer
from stateshift.formats.flink.serializers import value as read_value

# Namespaces of one length: keys cannot be ambiguous.
FIXED = ("VoidNamespaceSerializer", "TimeWindowSerializer")
_PLAIN = ("VALUE", "REDUCING", "AGGREGATING", "FOLDING")
_COMMA = b","


def why_closed(header: Header) -> str | None:
    """Return the reason why entries under this header cannot be separated; None if they can."""
    if header.key is None:
        return "the serializer of its keys is not known"
    for state in header.states:
        if not _is_open(state):
            return f"the serializers of state {state.name!r} are not known"
    return None


def hashmap_entries(
    header: Header, group: int, content: bytes
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (state, key without group, value) as in a canonical file, of decompressed `content`."""
    data = DataInput(content, f"key group {group}")
    if data.i4() != group:
        raise FormatError(f"key group {group} begins with another number", None, 0)
    for _ in header.states:
        at, number = data.at, data.i2() & 0xFFFF
        if number >= len(header.states):
            raise data.wrong(f"state {number}, which the header does not have", at)
        state = header.states[number]
        for _ in range(data.count("entries")):
            for key, raw in _entry(header, state, data):
                yield number, key, raw
    data.require_end("bytes behind its end")


def _is_open(state: StateInfo) -> bool:
    """Whether the entries of a state can be separated."""
    if state.value is None:
        return False
    if state.kind == "timers":
        return _is_of(state.value, "TimerSerializer", 2)
    if state.kind != "keyed":
        return False
    if state.namespace is None or state.namespace.name not in FIXED:
        return False
    match state.type:
        case "LIST":
            return _is_of(state.value, "ListSerializer", 1)
        case "MAP":
            return _is_of(state.value, "MapSerializer", 2)
    return state.type in _PLAIN


def _is_of(serializer: Serializer, name: str, arity: int) -> bool:
    return serializer.name == name and len(serializer.inner) == arity


def _entry(header: Header, state: StateInfo, data: DataInput) -> Iterator[tuple[bytes, bytes]]:
    """Yield a canonical file's entries for this one: one too, but for maps."""
    assert header.key is not None and state.value is not None, "asked before: why_closed"
    if state.kind == "timers":
        of_key, of_namespace = state.value.inner
        time = data.take(8)
        key = _raw(of_key, data)
        yield time + key + _raw(of_namespace, data), b""
        return
    assert state.namespace is not None, "asked before: why_closed"
    namespace = _raw(state.namespace, data)
    key = _raw(header.key, data) + namespace
    match state.type:
        case "MAP":
            of_map_key, of_value = state.value.inner
            for _ in range(data.count("entries")):
                map_key, is_null = _raw(of_map_key, data), data.boolean()
                value = b"\x01" if is_null else b"\x00" + _raw(of_value, data)
                yield key + map_key, value
        case "LIST":
            (of_item,) = state.value.inner
            items = [_raw(of_item, data) for _ in range(data.count("items"))]
            if items:
                yield key, _COMMA.join(items)
        case _:
            yield key, _raw(state.value, data)


def _raw(serializer: Serializer, data: DataInput) -> bytes:
    """Return the bytes of the value that stands there."""
    start = data.at
    read_value(serializer, data)
    return data.data[start : data.at]
