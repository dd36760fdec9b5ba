"""The entries of managed keyed state, whichever backend wrote it: the same state gives the same
entries.

    canonical, RocksDB, ForSt    no serializer is needed
    hashmap                      where its serializers are among those that are known
    changelog                    where nothing has changed since its base was written

    why_opaque(handle, streams)        why its entries cannot be told apart, if they cannot
    keyed_entries(handle, ...)         KeyedEntry(header, state, group, key, value)

A key has its namespace behind it, and of a map the key in it; not its key group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from stateshift.engines.flink.entries.databases import open_native
from stateshift.engines.flink.entries.image import (
    canonical_sections,
    in_pieces,
    is_canonical,
    sections_of,
    uncompressed,
)
from stateshift.engines.flink.streams import Streams
from stateshift.formats.flink.hashmap import hashmap_entries, why_closed
from stateshift.formats.flink.key_groups import prefix_bytes
from stateshift.formats.flink.keyed_handles import (
    Changelog,
    FileDelta,
    Incremental,
    KeyedHandle,
    KeyGroups,
    MemoryDelta,
)
from stateshift.formats.flink.keyed_state import Header, StateInfo, decode_header, entries
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.rocksdb.table import NotRead
from stateshift.world import Pairs

_GROUP = 4  # bytes of a key group's number, in front of a compressed stream


class KeyedEntry(NamedTuple):
    """One entry, and what is known of its state."""

    header: Header
    state: StateInfo
    group: int
    key: bytes
    value: bytes


def why_opaque(handle: KeyedHandle | None, streams: Streams) -> str | None:
    """Why the entries of a handle cannot be told apart; None if they can."""
    match handle:
        case KeyGroups() if not is_canonical(handle, streams):
            header = _header(handle, streams)
            why = why_closed(header) if header is not None else None
            return f"it is in the hashmap backend's own format, and {why}" if why else None
        case Incremental():
            try:
                open_native(handle, streams).database.open_tables()
            except NotRead as error:
                return error.fact
        case Changelog() if handle.deltas:
            return "it is a changelog, whose changes are not read"
        case Changelog():
            return next(filter(None, (why_opaque(base, streams) for base in handle.bases)), None)
        case FileDelta() | MemoryDelta():
            return "it is a changelog, whose changes are not read"
    return None


def keyed_entries(
    handle: KeyedHandle | None, prefix: int, streams: Streams
) -> Iterator[KeyedEntry]:
    """All entries of a handle that is not opaque; `prefix` bytes of a key say its group."""
    match handle:
        case KeyGroups() if is_canonical(handle, streams):
            for header, group, content in canonical_sections(handle, streams):
                for number, key, value in entries(content, prefix, group, len(header.states)):
                    yield KeyedEntry(header, header.states[number], group, key[prefix:], value)
        case KeyGroups():
            yield from _of_hashmap(handle, streams)
        case Incremental():
            native = open_native(handle, streams)
            for entry in native.own_entries(prefix):
                yield KeyedEntry(native.header, native.header.states[entry.state], *entry[1:])
        case Changelog():
            for base in handle.bases:
                yield from keyed_entries(base, prefix, streams)


def why_operator_is_opaque(operator: OperatorState, streams: Streams) -> str | None:
    """Why the keyed state of an operator cannot be told apart into entries; None if it can."""
    for subtask in operator.subtasks or ():
        why = why_opaque(subtask.managed_keyed, streams)
        if why is not None:
            return why
    return None


def keyed_pairs_of(operator: OperatorState, streams: Streams) -> Iterator[tuple[str, Pairs]]:
    """The name of a state, and some of its entries as keys and values; of an operator that is
    not opaque.
    """
    prefix = prefix_bytes(operator.max_parallelism)
    for subtask in operator.subtasks or ():
        found = keyed_entries(subtask.managed_keyed, prefix, streams)
        yield from in_pieces((entry.state.name, entry.key, entry.value) for entry in found)


def without_keyed(operator: OperatorState) -> OperatorState:
    """The operator without its managed keyed state."""
    subtasks = operator.subtasks and tuple(
        replace(subtask, managed_keyed=None) for subtask in operator.subtasks
    )
    return replace(operator, subtasks=subtasks)


def keyed_alone(operator: OperatorState) -> OperatorState:
    """The operator with its managed keyed state alone."""
    subtasks = tuple(
        SubtaskState(subtask.index, managed_keyed=subtask.managed_keyed)
        for subtask in operator.subtasks or ()
    )
    return replace(operator, coordinator=None, subtasks=subtasks)


def headers_of(handle: KeyedHandle | None, streams: Streams) -> Iterator[Header]:
    """The headers of a handle's states."""
    match handle:
        case KeyGroups():
            header = _header(handle, streams)
            if header is not None:
                yield header
        case Incremental():
            yield open_native(handle, streams).header
        case Changelog():
            for base in handle.bases:
                yield from headers_of(base, streams)


def _of_hashmap(handle: KeyGroups, streams: Streams) -> Iterator[KeyedEntry]:
    header = _header(handle, streams)
    if header is None:
        return
    for group, content in sections_of(handle, streams):
        if header.compressed:
            content = content[:_GROUP] + uncompressed(content[_GROUP:])
        for number, key, value in hashmap_entries(header, group, content):
            yield KeyedEntry(header, header.states[number], group, key, value)


def _header(handle: KeyGroups, streams: Streams) -> Header | None:
    """The header of a file of key groups, None where there are none."""
    first = min((offset for offset in handle.offsets if offset), default=None)
    if handle.stream is None or first is None:
        return None
    return decode_header(streams.head(handle.stream, first), first)
