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
from stateshift.formats.flink.serializers import Unknown
from stateshift.formats.flink.state_values import key_parts, read_value


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
        for name, part in key_parts(header, state, data):
            found[name] = part
    except (Unknown, FormatError):
        return {**found, "bytes": raw.hex()}
    return found if data.at_end() else {**found, "bytes": raw.hex()}


def _value(state: StateInfo, raw: bytes) -> Any:
    if state.kind == "timers":
        return None
    try:
        return read_value(state, raw)
    except (Unknown, FormatError):
        return {"bytes": raw.hex()}


def _text(key: bytes) -> str:
    return key.decode("ascii") if key.isascii() else key.hex()
