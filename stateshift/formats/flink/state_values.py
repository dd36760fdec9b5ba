"""Entries of keyed state by their serializers: keys and values, read to their ends. Pure.

    canonical  key      [timers: i64 time, its sign bit flipped] key, namespace, [MAP: the map's
                        key]
               value    LIST: elements with a comma in between; MAP: u1 null, value; else the value;
                        of timers nothing
    hashmap    for each state of a key group, [compressed: in a snappy stream of its own]
               u16 state, i32 n, n * (namespace, key, value), or of timers n * (i64 time, key,
               namespace)

All raise Unknown for an unknown serializer, and FormatError for bytes that it does not write, or
that do not end where they should.

Flink: runtime/state/heap/{HeapSnapshotStrategy, CopyOnWriteStateMapSnapshot}, runtime/state/
SerializedCompositeKeyBuilder, streaming/api/operators/TimerSerializer.
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
            decoded = _joined_by_commas(inner, data)
        case _, "MAP", Serializer(name="MapSerializer", inner=(_, inner)):
            decoded = None if data.boolean() else value(inner, data)
        case _, _, Serializer() as whole:
            decoded = value(whole, data)
    data.require_end(f"bytes behind the end of a value of state {state.name!r}")
    return decoded


def _joined_by_commas(serializer: Serializer, data: DataInput) -> list[object]:
    if takes_no_bytes(serializer):
        raise Unknown(f"items of no bytes ({serializer.name})")
    items = [value(serializer, data)]
    while not data.at_end():
        at = data.at
        if data.u1() != _COMMA:
            raise data.wrong("no comma between the items of a list", at)
        items.append(value(serializer, data))
    return items


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
    """Yield a namespace under its name; nothing where there is none."""
    if serializer.name == _VOID:
        return
    name = "window" if serializer.name == "TimeWindowSerializer" else "namespace"
    yield name, namespace


def _is_fixed(serializer: Serializer) -> bool:
    """Whether every value has the same size."""
    if serializer.name == "TupleSerializer":
        return all(map(_is_fixed, serializer.inner))
    return serializer.name in _FIXED
