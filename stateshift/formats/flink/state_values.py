"""Entries of keyed state by their serializers: what a key and a value say, and where each ends.
Pure.

    canonical  key      [timers: i64 time, its sign bit flipped] key, namespace, [MAP: the map's
                        key]
               value    LIST: elements with a comma in between; MAP: u1 null, value; else the value;
                        of timers nothing
    hashmap    for each state of a key group, [compressed: in a snappy stream of its own]
               u16 state, i32 n, n * (namespace, key, value), or of timers n * (i64 time, key,
               namespace)

    read_key(header, state, raw) -> {"key": ..., "window": ..., "map_key": ...}
    read_value(state, raw)       -> what stands there
    heap_entries(...)            -> HeapEntry(state, key, value) ...

All raise Unknown where a serializer is not known, and FormatError where the bytes are not what it
writes, or do not end where they should.

Flink: runtime/state/heap/{HeapSnapshotStrategy, CopyOnWriteStateMapSnapshot}, runtime/state/
SerializedCompositeKeyBuilder, streaming/api/operators/TimerSerializer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stateshift.errors import FormatError
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.java_data import Input
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer, Unknown, takes_no_bytes, value

_VOID = "VoidNamespaceSerializer"
_SIGN: Final = -(1 << 63)
_COMMA: Final = 0x2C
_GROUP_BYTES: Final = 4
_FIXED: Final = frozenset(
    (
        "LongSerializer",
        "IntSerializer",
        "ShortSerializer",
        "ByteSerializer",
        "BooleanSerializer",
        "DoubleSerializer",
        "FloatSerializer",
        "VoidNamespaceSerializer",
        "TimeWindowSerializer",
    )
)


@dataclass(frozen=True, slots=True)
class HeapEntry:
    """One entry of the hashmap backend; `state` is its number in the header. `raw_key` is the
    key's own bytes.
    """

    state: int
    key: dict[str, object]
    value: object
    raw_key: bytes


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Bytes of a key group that cannot be taken apart: those of a state whose serializers are not
    known, and in a file that is not compressed those of all states behind it.
    """

    state: int
    size: int


def is_known(header: Header, state: StateInfo) -> bool:
    """Whether all serializers of a state's entries are known."""
    if header.key is None or state.value is None:
        return False
    return state.kind == "timers" or state.namespace is not None


def read_key(header: Header, state: StateInfo, raw: bytes) -> dict[str, object]:
    """Return what a canonical entry's key says, without its key group's number, read to its end."""
    data = Input(raw, "a key")
    parts = dict(key_parts(header, state, data))
    if not data.at_end():
        raise data.wrong(
            f"{data.end - data.at} bytes behind the end of a key of state {state.name!r}"
        )
    return parts


def key_parts(header: Header, state: StateInfo, data: Input) -> Iterator[tuple[str, object]]:
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
    if not is_timer and _has_lengths_behind(header.key, namespace):
        raise Unknown("a key and a namespace with their lengths behind them")
    yield from _named(namespace, value(namespace, data))
    of_map_key = _map_key(state)
    if of_map_key is not None:
        yield "map_key", value(of_map_key, data)


def _has_lengths_behind(key: Serializer, namespace: Serializer) -> bool:
    """Whether the lengths of key and namespace stand behind them: where neither has a fixed one."""
    return not _is_fixed(key) and not _is_fixed(namespace)


def _map_key(state: StateInfo) -> Serializer | None:
    """Return the serializer of a map's keys; None for other states."""
    if state.type != "MAP" or state.value is None:
        return None
    return state.value.inner[0] if state.value.name == "MapSerializer" else None


def read_value(state: StateInfo, raw: bytes) -> object:
    """Return what a canonical entry's value says, read to its end."""
    data = Input(raw, "a value")
    decoded = _canonical_value(state, data)
    if not data.at_end():
        raise data.wrong(
            f"{data.end - data.at} bytes behind the end of a value of state {state.name!r}"
        )
    return decoded


def _canonical_value(state: StateInfo, data: Input) -> object:
    if state.kind == "timers":
        return None
    match state.type, state.value:
        case _, None:
            raise Unknown("a value of a serializer that is not known here", state.unknown)
        case "LIST", Serializer(name="ListSerializer", inner=(inner,)):
            return _joined_by_commas(inner, data)
        case "MAP", Serializer(name="MapSerializer", inner=(_, inner)):
            return None if data.boolean() else value(inner, data)
        case _, Serializer() as whole:
            return value(whole, data)


def _joined_by_commas(serializer: Serializer, data: Input) -> list[object]:
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
    for data in _parts(header, section[_GROUP_BYTES:]):
        while not data.at_end():
            number = _state_number(header, data, seen)
            state = header.states[number]
            if not is_known(header, state):
                yield Undecoded(number, data.end - data.at)
                if not header.compressed:
                    return  # nor can the states behind it be separated
                break
            yield from _heap_state(header, number, data)
            if header.compressed and not data.at_end():
                raise data.wrong(
                    f"{data.end - data.at} bytes behind the end of state {state.name!r}"
                )
    if len(seen) != len(header.states):
        raise FormatError(
            f"key group {group} holds {len(seen)} of {len(header.states)} states",
            None,
            len(section),
        )


def _parts(header: Header, content: bytes) -> Iterator[Input]:
    """Yield what is read front to back: all states, or where each is compressed by itself, one
    state at a time.
    """
    if not header.compressed:
        yield Input(content, "a key group")
        return
    for _, stream in snappy_frames.streams(content, "a key group"):
        yield Input(snappy_frames.decompressed(stream, "a key group"), "a key group")


def _state_number(header: Header, data: Input, seen: list[int]) -> int:
    at, number = data.at, data.i2()
    if not 0 <= number < len(header.states):
        raise data.wrong(f"state {number}, of {len(header.states)} that there are", at)
    if number in seen:
        raise data.wrong(f"state {header.states[number].name!r} occurs twice", at)
    seen.append(number)
    return number


def _heap_state(header: Header, number: int, data: Input) -> Iterator[HeapEntry]:
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


def _with_bytes(serializer: Serializer, data: Input) -> tuple[object, bytes]:
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
