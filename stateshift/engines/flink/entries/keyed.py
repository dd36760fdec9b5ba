"""The entries of managed keyed state, whichever backend wrote it: the same state gives the same
entries.

    canonical, RocksDB, ForSt    no serializer is needed
    hashmap                      where its serializers are among those that are known, or the bytes
                                 leave one way alone to separate them
    changelog                    where nothing has changed since its base was written

    why_opaque(handle, streams)        why none of its entries can be separated, if they cannot
    keyed_entries(handle, ...)         KeyedEntry(header, state, group, key, value)
    hidden_states(handle, ...)         HiddenState(states, group, content): others, of the hashmap

A key has its namespace behind it, and of a map the key in it; not its key group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from stateshift.engines.flink.entries.databases import open_native
from stateshift.engines.flink.entries.image import (
    KeyedEntry,
    canonical_entries,
    header_of,
    in_pieces,
    is_canonical,
    sections_of,
)
from stateshift.engines.flink.streams import Streams
from stateshift.errors import OldVersion
from stateshift.formats.flink.heap_groups import Hidden, heap_entries, may_hide
from stateshift.formats.flink.key_groups import prefix_bytes
from stateshift.formats.flink.keyed_handles import (
    Changelog,
    FileDelta,
    Incremental,
    KeyedHandle,
    KeyGroups,
    MemoryDelta,
)
from stateshift.formats.flink.keyed_state import Header
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.state_values import canonical_pairs
from stateshift.formats.flink.type_names import unread_name
from stateshift.formats.rocksdb.table import NotRead
from stateshift.world import Pairs

if TYPE_CHECKING:
    from stateshift.formats.blocks import Column


@dataclass(frozen=True, slots=True)
class Shown:
    """An entry, decoded as far as it can be."""

    operator: str
    state: str
    subtask: int
    key: object
    value: object


class TextRows(NamedTuple):
    """Entries of a subtask: the names of their states; keys and values as JSON."""

    subtask: int
    states: Column
    keys: Column
    values: Column


@dataclass(frozen=True, slots=True)
class HiddenState:
    """The bytes of a state in a key group, whose entries cannot be separated; and the states behind
    it, which they hide. `why` says it of the first.
    """

    states: tuple[str, ...]
    group: int
    content: bytes
    why: str


def why_opaque(handle: KeyedHandle | None, streams: Streams) -> str | None:
    """Return the reason for which the entries of a handle cannot be separated; None if they can."""
    match handle:
        case KeyGroups() if is_canonical(handle, streams):
            return None
        case KeyGroups():
            try:
                header = header_of(handle, streams)
            except OldVersion as error:
                return error.fact
            if header is None or (header.key is not None and not header.key.is_opaque):
                return None
            return (
                "it is in the hashmap backend's own format, and the serializer of its keys is not "
                "known"
            )
        case Incremental():
            try:
                open_native(handle, streams).database.open_tables()
            except NotRead as error:
                return error.fact
            return None
        case Changelog(bases=bases, deltas=()):
            return _first_reason(bases, streams)
        case Changelog() | FileDelta() | MemoryDelta():
            return "it is a changelog, whose changes are not read"
    return None


def _first_reason(handles: Iterable[KeyedHandle | None], streams: Streams) -> str | None:
    reasons = (why_opaque(handle, streams) for handle in handles)
    return next((why for why in reasons if why is not None), None)


def keyed_entries(
    handle: KeyedHandle | None, max_parallelism: int, streams: Streams
) -> Iterator[KeyedEntry]:
    """Yield all entries of a handle that is not opaque, but for those of hidden states."""
    match handle:
        case KeyGroups() if is_canonical(handle, streams):
            yield from canonical_entries(handle, prefix_bytes(max_parallelism), streams)
        case KeyGroups():
            for one in _of_hashmap(handle, max_parallelism, streams):
                if isinstance(one, KeyedEntry):
                    yield one
        case Incremental():
            native = open_native(handle, streams)
            header = native.header
            for number, group, key, value in native.entries(prefix_bytes(max_parallelism)):
                if native.holds(group):
                    yield KeyedEntry(header, header.states[number], group, key, value)
        case Changelog():
            for base in handle.bases:
                yield from keyed_entries(base, max_parallelism, streams)


def hidden_states(
    handle: KeyedHandle | None, max_parallelism: int, streams: Streams
) -> Iterator[HiddenState]:
    """Yield the states of a handle that is not opaque whose entries cannot be separated."""
    match handle:
        case KeyGroups() if not is_canonical(handle, streams):
            header = header_of(handle, streams)
            if header is None or not may_hide(header):
                return  # and nothing has to be read to know it
            for one in _of_hashmap(handle, max_parallelism, streams):
                if isinstance(one, HiddenState):
                    yield one
        case Changelog():
            for base in handle.bases:
                yield from hidden_states(base, max_parallelism, streams)


def _of_hashmap(
    handle: KeyGroups, max_parallelism: int, streams: Streams
) -> Iterator[KeyedEntry | HiddenState]:
    header = header_of(handle, streams)
    if header is None:
        return
    for group, content in sections_of(handle, streams):
        for one in heap_entries(header, content, group, max_parallelism):
            if isinstance(one, Hidden):
                yield hidden_state(header, group, one)
                continue
            state, pairs = header.states[one.state], canonical_pairs(header, one)
            if pairs is None:  # of a list or a map: its parts are those of its state
                hidden = Hidden((one.state,), one.key + one.value, 1)
                yield hidden_state(header, group, hidden)
                continue
            for key, value in pairs:
                yield KeyedEntry(header, state, group, key, value)


def hidden_state(header: Header, group: int, hidden: Hidden) -> HiddenState:
    """Return the hidden state of a key group, with the reason."""
    names = tuple(header.states[number].name for number in hidden.states)
    first = header.states[hidden.states[0]]
    of = unread_name(first)
    why = f"state {names[0]!r} has values that only the job's classes can read ({of})"
    if len(names) > 1:
        hides = ", ".join(map(repr, names[1:]))
        why += f", and the bytes do not show where the next state begins: it hides {hides}"
    return HiddenState(names, group, hidden.content, why)


def why_operator_is_opaque(operator: OperatorState, streams: Streams) -> str | None:
    """Return the obstacle to separating an operator's keyed entries; None if there is none."""
    return _first_reason((subtask.managed_keyed for subtask in operator.all_subtasks), streams)


def keyed_pairs_of(operator: OperatorState, streams: Streams) -> Iterator[tuple[str, Pairs]]:
    """Yield states with some of their entries as keys and values; of no opaque operator."""
    for subtask in operator.all_subtasks:
        keyed = keyed_entries(subtask.managed_keyed, operator.max_parallelism, streams)
        yield from in_pieces((entry.state.name, entry.key, entry.value) for entry in keyed)


def hidden_states_of(operator: OperatorState, streams: Streams) -> Iterator[HiddenState]:
    """Yield the hidden states of all subtasks of an operator that is not opaque."""
    for subtask in operator.all_subtasks:
        yield from hidden_states(subtask.managed_keyed, operator.max_parallelism, streams)


def keyed_alone(operator: OperatorState) -> OperatorState:
    """Return the operator with its managed keyed state alone."""
    subtasks = tuple(
        SubtaskState(subtask.index, managed_keyed=subtask.managed_keyed)
        for subtask in operator.all_subtasks
    )
    return replace(operator, coordinator=None, subtasks=subtasks)


def headers_of(handle: KeyedHandle | None, streams: Streams) -> Iterator[Header]:
    """Yield the headers of a handle's states."""
    match handle:
        case KeyGroups():
            header = header_of(handle, streams)
            if header is not None:
                yield header
        case Incremental():
            yield open_native(handle, streams).header
        case Changelog():
            for base in handle.bases:
                yield from headers_of(base, streams)
