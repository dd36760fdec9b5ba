"""Entries of keyed state by their serializers: keys and values, read to their ends. Pure.

    canonical  key      [timers: i64 time, its sign bit flipped] key, namespace, [MAP: the map's
                        key]
               value    LIST: elements with a comma in between; MAP: u1 null, value; else the value;
                        of timers nothing
    hashmap    for each state of a key group, [compressed: in a snappy stream of its own]
               u16 state, i32 n, n * (namespace, key, value), or of timers n * (i64 time, key,
               namespace)

All raise Unknown for an unknown serializer, and FormatError for bytes that it does not write, or
that do not end where they should. Where an entry of the hashmap ends only serializers tell: what
`hashmap_entries` could not take apart, into the entries that a canonical savepoint has,
`why_closed` says beforehand.

Flink: runtime/state/heap/{HeapSnapshotStrategy, CopyOnWriteStateMapSnapshot,
HeapKeyValueStateIterator}, runtime/state/{SerializedCompositeKeyBuilder, ListDelimitedSerializer},
streaming/api/operators/TimerSerializer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from stateshift.errors import FormatError
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer, Unknown, takes_no_bytes, value

_VOID = "VoidNamespaceSerializer"
_SIGN: Final = -(1 << 63)
_COMMA: Final = 0x2C
_GROUP_BYTES: Final = 4
_NUMBERS = ("Long", "Int", "Short", "Byte", "Boolean", "Double", "Float")
_FIXED: Final = {f"{name}Serializer" for name in (*_NUMBERS, "VoidNamespace", "TimeWindow")}

# Namespaces of one length: keys cannot be ambiguous.
_OF_ONE_LENGTH = ("VoidNamespaceSerializer", "TimeWindowSerializer")
_AS_IT_IS = ("VALUE", "REDUCING", "AGGREGATING", "FOLDING")


@dataclass(frozen=True, slots=True)
class HeapEntry:
    """An entry of the hashmap backend; `state`: its number in the header; `raw_key`: its bytes."""

    state: int
    key: dict[str, object]
    value: object
    raw_key: bytes


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Bytes of a state with unknown serializers; if not compressed, of all behind it, too."""

    state: int
    size: int


def is_known(header: Header, state: StateInfo) -> bool:
    """Whether all serializers of a state's entries are known."""
    if header.key is None or state.value is None:
        return False
    return state.kind == "timers" or state.namespace is not None


def read_key(header: Header, state: StateInfo, raw: bytes) -> dict[str, object]:
    """Return a canonical entry's key without its group's number, read to its end."""
    data = DataInput(raw, "a key")
    parts = dict(key_parts(header, state, data))
    data.require_end(f"bytes behind the end of a key of state {state.name!r}")
    return parts


def key_parts(header: Header, state: StateInfo, data: DataInput) -> Iterator[tuple[str, object]]:
    """Yield the parts of a canonical entry's key, one by one."""
    is_timer = state.kind == "timers"
    if is_timer:
        yield "timestamp", data.i8() ^ _SIGN
    namespace = _namespace(state)
    if header.key is None:
        raise Unknown("a key of a serializer that is not known here", header.unknown)
    yield "key", value(header.key, data)
    if namespace is None:
        raise Unknown("a namespace of a serializer that is not known here", state.unknown)
    # If neither has a fixed length, the lengths of both stand behind them.
    if not (is_timer or _is_fixed(header.key) or _is_fixed(namespace)):
        raise Unknown("a key and a namespace with their lengths behind them")
    yield from _named(namespace, value(namespace, data))
    of_map = state.value
    if state.type == "MAP" and of_map is not None and of_map.name == "MapSerializer":
        yield "map_key", value(of_map.inner[0], data)


def read_value(state: StateInfo, raw: bytes) -> object:
    """Return a canonical entry's value, read to its end."""
    data = DataInput(raw, "a value")
    decoded: object = None
    match state.kind, state.type, state.value:
        case "timers", _, _:
            pass
        case _, _, None:
            raise Unknown("a value of a serializer that is not known here", state.unknown)
        case _, "LIST", Serializer(name="ListSerializer", inner=(inner,)):
            if takes_no_bytes(inner):
                raise Unknown(f"items of no bytes ({inner.name})")
            items = [value(inner, data)]
            while not data.at_end():
                at = data.at
                if data.u1() != _COMMA:
                    raise data.wrong("no comma between the items of a list", at)
                items.append(value(inner, data))
            decoded = items
        case _, "MAP", Serializer(name="MapSerializer", inner=(_, inner)):
            decoded = None if data.boolean() else value(inner, data)
        case _, _, Serializer() as whole:
            decoded = value(whole, data)
    data.require_end(f"bytes behind the end of a value of state {state.name!r}")
    return decoded


def heap_entries(header: Header, section: bytes, group: int) -> Iterator[HeapEntry | Undecoded]:
    """Yield the entries of a key group of the hashmap backend, which ends with its last state."""
    own_number = int.from_bytes(section[:_GROUP_BYTES], "big")
    if len(section) < _GROUP_BYTES or own_number != group:
        raise FormatError(f"key group {group} begins with the number {own_number}", None, 0)
    seen: list[int] = []
    content, what = section[_GROUP_BYTES:], "a key group"
    parts: Iterable[bytes] = (content,)
    if header.compressed:  # each state by itself
        streams = snappy_frames.streams(content, what)
        parts = (snappy_frames.decompress(stream, what) for _, stream in streams)
    for data in (DataInput(part, what) for part in parts):
        while not data.at_end():
            number = _state_number(header, data, seen)
            state = header.states[number]
            if not is_known(header, state):
                yield Undecoded(number, data.end - data.at)
                if not header.compressed:
                    return  # nor can the states behind it be separated
                break
            yield from _heap_state(header, number, data)
            if header.compressed:
                data.require_end(f"bytes behind the end of state {state.name!r}")
    if len(seen) != len(header.states):
        fact = f"key group {group} holds {len(seen)} of {len(header.states)} states"
        raise FormatError(fact, None, len(section))


def _state_number(header: Header, data: DataInput, seen: list[int]) -> int:
    at, number = data.at, data.i2()
    if not 0 <= number < len(header.states):
        raise data.wrong(f"state {number}, of {len(header.states)} that there are", at)
    if number in seen:
        raise data.wrong(f"state {header.states[number].name!r} occurs twice", at)
    seen.append(number)
    return number


def _heap_state(header: Header, number: int, data: DataInput) -> Iterator[HeapEntry]:
    state = header.states[number]
    namespace = _namespace(state)
    assert header.key is not None, "asked before: is_known"
    assert state.value is not None, "asked before: is_known"
    assert namespace is not None, "asked before: is_known"
    for _ in range(data.items("entries")):
        if state.kind == "timers":
            timestamp = data.i8() ^ _SIGN
            key, raw = _with_bytes(header.key, data)
            parts = dict(_named(namespace, value(namespace, data)))
            yield HeapEntry(number, {"timestamp": timestamp, "key": key, **parts}, None, raw)
        else:
            parts = dict(_named(namespace, value(namespace, data)))
            key, raw = _with_bytes(header.key, data)
            yield HeapEntry(number, {"key": key, **parts}, value(state.value, data), raw)


def _with_bytes(serializer: Serializer, data: DataInput) -> tuple[object, bytes]:
    start = data.at
    decoded = value(serializer, data)
    return decoded, data.data[start : data.at]


def _namespace(state: StateInfo) -> Serializer | None:
    """Return the serializer of namespaces; of timers it stands within their own."""
    if state.kind != "timers":
        return state.namespace
    timer = state.value
    return timer.inner[1] if timer is not None and timer.name == "TimerSerializer" else None


def _named(serializer: Serializer, namespace: object) -> Iterator[tuple[str, object]]:
    if serializer.name == _VOID:
        return
    name = "window" if serializer.name == "TimeWindowSerializer" else "namespace"
    yield name, namespace


def _is_fixed(serializer: Serializer) -> bool:
    if serializer.name == "TupleSerializer":
        return all(map(_is_fixed, serializer.inner))
    return serializer.name in _FIXED


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
    if state.value is None:
        return False
    if state.kind == "timers":
        return _is_of(state.value, "TimerSerializer", 2)
    if state.kind != "keyed":
        return False
    if state.namespace is None or state.namespace.name not in _OF_ONE_LENGTH:
        return False
    match state.type:
        case "LIST":
            return _is_of(state.value, "ListSerializer", 1)
        case "MAP":
            return _is_of(state.value, "MapSerializer", 2)
    return state.type in _AS_IT_IS


def _is_of(serializer: Serializer, name: str, arity: int) -> bool:
    return serializer.name == name and len(serializer.inner) == arity


def _entry(header: Header, state: StateInfo, data: DataInput) -> Iterator[tuple[bytes, bytes]]:
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
                yield key, b",".join(items)
        case _:
            yield key, _raw(state.value, data)


def _raw(serializer: Serializer, data: DataInput) -> bytes:
    return _with_bytes(serializer, data)[1]
