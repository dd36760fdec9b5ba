"""Canonical entries of keyed state by their serializers: keys and values, read to their ends. Pure.

    canonical  key      [timers: i64 time, its sign bit flipped] key, namespace, [MAP: the map's
                        key]; where neither of the former has a length of its type, behind each its
                        own: lowest byte first, as many as it has
               value    LIST: elements with a comma in between; MAP: u1 null, value; else the value;
                        of timers nothing

All raise Unknown for an unknown serializer, and FormatError for bytes that it does not write, or
that do not end where they should. `canonical_pairs` gives the entries that a canonical savepoint
has for one of the hashmap backend.

Flink: runtime/state/{SerializedCompositeKeyBuilder, ListDelimitedSerializer},
streaming/api/operators/TimerSerializer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stateshift.formats.flink.heap_groups import AROUND_MAX, HeapEntry, namespace_of
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer, Unknown, takes_no_bytes, value
from stateshift.formats.flink.values import read_around

_SIGN: Final = -(1 << 63)
_COMMA: Final = 0x2C
_NUMBERS = ("Long", "Int", "Short", "Byte", "Boolean", "Double", "Float", "Char")
_TIMES = ("Instant", "LocalDate", "LocalTime", "LocalDateTime", "Date")
_SQL_TIMES = ("SqlDate", "SqlTime", "SqlTimestamp")
_WINDOWS = ("VoidNamespace", "TimeWindow", "GlobalWindow", "CountWindow")
# Serializers whose values have one length: a key and a namespace of which one has it are not
# ambiguous.
_FIXED: Final = {
    f"{name}Serializer" for name in (*_NUMBERS, *_TIMES, *_SQL_TIMES, *_WINDOWS, "Enum")
}
WINDOW_NAMES: Final = {
    "TimeWindowSerializer": "window",
    "CountWindowSerializer": "window",
    "GlobalWindowSerializer": None,
    "VoidNamespaceSerializer": None,
}


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
    yield from own_key_parts(header, state, data)
    of_map = state.value
    if state.type == "MAP" and of_map is not None and of_map.name == "MapSerializer":
        yield "map_key", value(of_map.inner[0], data)


def own_key_parts(
    header: Header, state: StateInfo, data: DataInput
) -> Iterator[tuple[str, object]]:
    """Yield the parts that come before the key in a map."""
    is_timer = state.kind == "timers"
    if is_timer:
        yield "timestamp", data.i8() ^ _SIGN
    namespace = namespace_of(state)
    if header.key is None:
        raise Unknown("a key of a serializer that is not known here", header.unknown)
    start = data.at
    yield "key", value(header.key, data)
    if namespace is None:
        raise Unknown("a namespace of a serializer that is not known here", state.unknown)
    with_lengths = not is_timer and is_ambiguous(header.key, namespace)
    if with_lengths:
        _read_length(data, start)
    start = data.at
    yield from _named(namespace, value(namespace, data))
    if with_lengths:
        _read_length(data, start)


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


def _named(serializer: Serializer, namespace: object) -> Iterator[tuple[str, object]]:
    name = WINDOW_NAMES.get(serializer.name, "namespace")
    if name is not None:
        yield name, namespace


def is_ambiguous(key: Serializer, namespace: Serializer) -> bool:
    """Whether the lengths of both stand behind them, as neither type has one of its own."""
    return not (_is_fixed(key) or _is_fixed(namespace))


def length_of(size: int) -> bytes:
    """Return a length as it stands behind a key or a namespace."""
    return size.to_bytes(max(1, (size.bit_length() + 7) // 8), "little")


def _read_length(data: DataInput, start: int) -> None:
    at, wanted = data.at, length_of(data.at - start)
    if data.take(len(wanted)) != wanted:
        raise data.wrong("a key or a namespace has another length behind it than its own", at)


def _is_fixed(serializer: Serializer) -> bool:
    if serializer.name == "TupleSerializer":
        return all(map(_is_fixed, serializer.inner))
    return serializer.name in _FIXED


def read_value_around(state: StateInfo, raw: bytes) -> object:
    """Return a value with the one part that only the job's classes can read as its bytes.

    If there is more than one such part, or more than one way to read the rest, all from the first
    on is bytes. Unknown: a list, whose items cannot be told apart.
    """
    if state.value is None or state.type == "LIST":
        raise Unknown("a value of a serializer that is not known here", state.unknown)
    serializer, data = state.value, DataInput(raw, "a value")
    if state.type == "MAP" and serializer.name == "MapSerializer":
        data.boolean()  # a null has been read
        serializer = serializer.inner[1]
    start = data.at
    if len(raw) <= AROUND_MAX:
        whole = [value for end, value in read_around(serializer.reader, data) if end == data.end]
        if len(whole) == 1:
            return whole[0]
    data.at = start
    try:
        return value(serializer, data)
    except Unknown as unknown:
        if not unknown.read:
            return {"bytes": raw[start:].hex()}
        return _with_rest(unknown.read, raw[data.at :])


def _with_rest(read: dict[str, object], rest: bytes) -> dict[str, object]:
    """Return the fields of an object that were read, with the rest as bytes in the last."""
    last, inner = list(read.items())[-1]
    ended = _with_rest(inner, rest) if isinstance(inner, dict) and inner else {"bytes": rest.hex()}
    return {**read, last: ended}


def canonical_pairs(header: Header, entry: HeapEntry) -> Iterator[tuple[bytes, bytes]] | None:
    """Return the canonical keys (without group) and values of an entry of the hashmap backend.

    None for a list or a map that nobody has read: its parts cannot be told apart.
    """
    state = header.states[entry.state]
    assert header.key is not None, "an entry was read by it"
    if state.kind == "timers":
        return iter([(entry.time + entry.key + entry.namespace, b"")])
    assert state.namespace is not None, "an entry was read by it"
    key, namespace = entry.key, entry.namespace
    if is_ambiguous(header.key, state.namespace):
        key, namespace = key + length_of(len(key)), namespace + length_of(len(namespace))
    if entry.is_read or state.type not in ("LIST", "MAP"):
        return _split(state, key + namespace, entry.value)
    return None


def _split(state: StateInfo, key: bytes, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of a list or a map, or a value as it is."""
    data = DataInput(content, "a value")
    match state.type, state.value:
        case "LIST", Serializer(name="ListSerializer", inner=(of_item,)):
            items = [_raw(of_item, data) for _ in range(data.items("items"))]
            if items:
                yield key, b",".join(items)
        case "MAP", Serializer(name="MapSerializer", inner=(of_key, of_value)):
            for _ in range(data.items("entries")):
                map_key, is_null = _raw(of_key, data), data.boolean()
                yield key + map_key, b"\x01" if is_null else b"\x00" + _raw(of_value, data)
        case _:
            yield key, content


def _raw(serializer: Serializer, data: DataInput) -> bytes:
    start = data.at
    value(serializer, data)
    return data.data[start : data.at]
