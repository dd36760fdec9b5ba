"""The entries of managed keyed state, whichever backend wrote it: the same state gives the same
entries.

    canonical, RocksDB, ForSt    no serializer is needed
    hashmap                      where its serializers are among those that are known
    changelog                    where nothing has changed since its base was written

    why_opaque(handle, streams)        why its entries cannot be separated, if they cannot
    keyed_entries(handle, ...)         KeyedEntry(header, state, group, key, value)

A key has its namespace behind it, and of a map the key in it; not its key group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stateshift.engines.flink.entries.databases import open_native
from stateshift.engines.flink.entries.image import (
    KeyedEntry,
    canonical_entries,
    header_of,
    in_pieces,
    is_canonical,
    sections_of,
    uncompress,
)
from stateshift.engines.flink.streams import Streams
from stateshift.errors import OldVersion
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
from stateshift.formats.flink.state_values import hashmap_entries, why_closed
from stateshift.formats.rocksdb.table import NotRead
from stateshift.world import Pairs

_GROUP = 4  # bytes of a key group's number, in front of a compressed stream


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
            why = why_closed(header) if header is not None else None
            return f"it is in the hashmap backend's own format, and {why}" if why else None
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
    handle: KeyedHandle | None, prefix: int, streams: Streams
) -> Iterator[KeyedEntry]:
    """Yield all entries of a handle that is not opaque; `prefix` bytes of a key say its group."""
    match handle:
        case KeyGroups() if is_canonical(handle, streams):
            yield from canonical_entries(handle, prefix, streams)
        case KeyGroups():
            header = header_of(handle, streams)
            if header is None:
                return
            for group, content in sections_of(handle, streams):
                in_front, rest = content[:_GROUP], content[_GROUP:]  # never compressed; may be
                plain = in_front + (uncompress(rest) if header.compressed else rest)
                for number, key, value in hashmap_entries(header, group, plain):
                    yield KeyedEntry(header, header.states[number], group, key, value)
        case Incremental():
            native = open_native(handle, streams)
            for number, group, key, value in native.own_entries(prefix):
                yield KeyedEntry(native.header, native.header.states[number], group, key, value)
        case Changelog():
            for base in handle.bases:
                yield from keyed_entries(base, prefix, streams)


def why_operator_is_opaque(operator: OperatorState, streams: Streams) -> str | None:
    """Return the obstacle to separating an operator's keyed entries; None if there is none."""
    return _first_reason((subtask.managed_keyed for subtask in operator.all_subtasks), streams)


def keyed_pairs_of(operator: OperatorState, streams: Streams) -> Iterator[tuple[str, Pairs]]:
    """Yield states with some of their entries as keys and values; of no opaque operator."""
    prefix = prefix_bytes(operator.max_parallelism)
    for subtask in operator.all_subtasks:
        keyed = keyed_entries(subtask.managed_keyed, prefix, streams)
        yield from in_pieces((entry.state.name, entry.key, entry.value) for entry in keyed)


def without_keyed(operator: OperatorState) -> OperatorState:
    """Return the operator without its managed keyed state."""
    if not operator.subtasks:
        return operator
    subtasks = tuple(replace(subtask, managed_keyed=None) for subtask in operator.subtasks)
    return replace(operator, subtasks=subtasks)


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
