"""Entries as a person reads them: keys, namespaces and values decoded, where their serializers are among those that can
be read without the job's classes; what is left is shown as its bytes, in hexadecimal digits.

    Shown(operator, state, subtask, key, value)    key: {"key": ..., "window": ..., "map_key": ...}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stateshift.engines.flink.entries import of_subtask
from stateshift.engines.flink.keyed_entries import headers_of, keyed_entries, why_opaque
from stateshift.engines.flink.reading import Streams
from stateshift.errors import FormatError
from stateshift.formats.flink.java_data import Input
from stateshift.formats.flink.key_groups import prefix_bytes
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.metadata import Metadata, OperatorState
from stateshift.formats.flink.serializers import Serializer, Unknown, value

VOID = "VoidNamespaceSerializer"
COMMA = 0x2C


@dataclass(frozen=True, slots=True)
class Shown:
    operator: str
    state: str
    subtask: int
    key: Any
    value: Any


def shown(metadata: Metadata, streams: Streams) -> Iterator[Shown]:
    for operator in metadata.operators:
        yield from of_operator(operator, streams)


def of_operator(operator: OperatorState, streams: Streams) -> Iterator[Shown]:
    own, prefix = operator.id.hex(), prefix_bytes(operator.max_parallelism)
    for subtask in operator.subtasks or ():
        readable = why_opaque(subtask.managed_keyed, streams) is None
        for header, state, _, key, raw in keyed_entries(subtask.managed_keyed, prefix, streams) if readable else ():
            yield Shown(own, state.name, subtask.index, _key(header, state, key), _value(state, raw))
        for state_name, key, raw in of_subtask(subtask, prefix, streams, keyed=not readable):
            yield Shown(own, state_name, subtask.index, {"bytes": _text(key)}, {"bytes": raw.hex()})


class Shower:
    """Decodes entries of one operator, as `entries` gives them."""

    def __init__(self, operator: OperatorState, streams: Streams) -> None:
        self._states: dict[str, tuple[Header, StateInfo]] = {}
        for subtask in operator.subtasks or ():
            if why_opaque(subtask.managed_keyed, streams) is None:
                for header in headers_of(subtask.managed_keyed, streams):
                    for state in header.states:
                        self._states.setdefault(state.name, (header, state))

    def key(self, state: str, raw: bytes) -> Any:
        return _key(*self._states[state], raw) if state in self._states else {"bytes": _text(raw)}

    def value(self, state: str, raw: bytes) -> Any:
        return _value(self._states[state][1], raw) if state in self._states else {"bytes": raw.hex()}


def _key(header: Header, state: StateInfo, raw: bytes) -> dict[str, Any]:
    data = Input(raw, "a key")
    found: dict[str, Any] = {}
    try:
        if state.kind == "timers":
            found["timestamp"] = data.i8() ^ -(1 << 63)
        found["key"] = _read(header.key, data)
        namespace = _namespace(state)
        window = _read(namespace, data)
        if namespace is not None and namespace.name != VOID:
            found["window" if namespace.name == "TimeWindowSerializer" else "namespace"] = window
        if state.type == "MAP" and state.value is not None and len(state.value.inner) == 2:
            found["map_key"] = _read(state.value.inner[0], data)
    except (Unknown, FormatError):
        return {**found, "bytes": raw.hex()}
    return found


def _namespace(state: StateInfo) -> Serializer | None:
    """Of timers it stands within their own serializer."""
    if state.kind == "timers" and state.value is not None and len(state.value.inner) == 2:
        return state.value.inner[1]
    return state.namespace


def _value(state: StateInfo, raw: bytes) -> Any:
    if state.kind == "timers":
        return None
    data = Input(raw, "a value")
    try:
        found = _decoded(state, data)
    except (Unknown, FormatError):
        return {"bytes": raw.hex()}
    return found if data.at_end() else {"bytes": raw.hex()}


def _decoded(state: StateInfo, data: Input) -> Any:
    serializer = state.value
    match state.type, serializer:
        case "LIST", Serializer(inner=(inner,)):
            items = [value(inner, data)]
            while not data.at_end():
                if data.u1() != COMMA:
                    raise Unknown("a list of another kind")
                items.append(value(inner, data))
            return items
        case "MAP", Serializer(inner=(_, inner)):
            return None if data.boolean() else value(inner, data)
    return _read(serializer, data)


def _read(serializer: Serializer | None, data: Input) -> Any:
    if serializer is None:
        raise Unknown("a class of the job's")
    return value(serializer, data)


def _text(key: bytes) -> str:
    return key.decode("ascii") if key.isascii() else key.hex()
