"""What an image says of each of its operators: ids, parallelism, where its state lies, which states
it has, and how evenly its key groups are filled. States are read from the headers of the subtasks'
files; no state itself is.

    Operator.stores   one a role: keyed, operator, raw keyed, raw operator, channels, coordinator
    Operator.details  max_parallelism, finished, states, key_groups: {count, empty, bytes: {min,
                      median, max}}
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from statistics import median
from typing import Any

from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError, StorageError
from stateshift.formats.flink.keyed_handles import (
    SAVEPOINT_KEY_GROUPS,
    Changelog,
    Incremental,
    KeyedHandle,
    KeyGroups,
    MemoryDelta,
)
from stateshift.formats.flink.keyed_state import (
    StateInfo,
    decode_header,
    find_serializers,
    sections,
)
from stateshift.formats.flink.metadata import Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import MODES
from stateshift.formats.flink.references import Reference, references
from stateshift.formats.flink.stream_handles import Inline, StreamHandle, files_of
from stateshift.survey import Operator, Store

HEADER_MAX = 1 << 20
ROLES = ("keyed", "operator", "raw keyed", "raw operator", "channels", "coordinator")


def operators_of(metadata: Metadata, streams: Streams) -> tuple[Operator, ...]:
    held: dict[str, list[Reference]] = {}
    for reference in references(metadata):
        held.setdefault(reference.operator, []).append(reference)
    return tuple(_operator(o, held.get(o.id.hex(), []), streams) for o in metadata.operators)


def _operator(operator: OperatorState, held: list[Reference], streams: Streams) -> Operator:
    subtasks = operator.subtasks or ()
    return Operator(
        id=operator.id.hex(),
        name=operator.name or None,
        uid=operator.uid or None,
        provider=_backend(subtasks, streams),
        shards=operator.parallelism,
        stores=tuple(_stores(operator, held)),
        details={
            "max_parallelism": operator.max_parallelism,
            "finished": operator.subtasks is None or sum(subtask.finished for subtask in subtasks),
            **_read_headers(subtasks, streams),
            "key_groups": _key_groups(subtasks),
        },
    )


def _stores(operator: OperatorState, held: list[Reference]) -> Iterator[Store]:
    for role in ROLES[:-1]:
        streams = {reference.stream for reference in held if reference.role == role}
        changes = _changes_in_metadata(operator, role)
        if streams or changes:
            files = set()
            for stream in streams:
                for file in files_of(stream):
                    files.add(file.path)
            yield Store(
                role, len(files), sum(stream.size for stream in streams) + sum(map(len, changes))
            )
    if operator.coordinator is not None:
        yield Store("coordinator", 0, operator.coordinator.size)


def _changes_in_metadata(operator: OperatorState, role: str) -> list[bytes]:
    """What a changelog holds in the metadata itself, which is state as well."""
    found: list[bytes] = []
    for subtask in operator.subtasks or ():
        handle = {"keyed": subtask.managed_keyed, "raw keyed": subtask.raw_keyed}.get(role)
        for delta in _memory_deltas(handle):
            found += [content for _, content in delta.changes]
    return found


def _memory_deltas(handle: KeyedHandle | None) -> Iterator[MemoryDelta]:
    match handle:
        case MemoryDelta():
            yield handle
        case Changelog(bases=bases, deltas=deltas):
            for inner in (*bases, *deltas):
                yield from _memory_deltas(inner)


def _backend(subtasks: tuple[SubtaskState, ...], streams: Streams) -> str | None:
    handle = next(
        (subtask.managed_keyed for subtask in subtasks if subtask.managed_keyed is not None), None
    )
    return backend_of(handle, streams)


def backend_of(handle: KeyedHandle | None, streams: Streams) -> str | None:
    """What wrote it; a canonical savepoint does not tell, and any backend reads it."""
    match handle:
        case KeyGroups(tag=tag) if tag != SAVEPOINT_KEY_GROUPS:
            with suppress(StorageError, FormatError):
                return "hashmap" if is_hashmap(handle, streams) else "rocksdb (full)"
            return "hashmap"
        case KeyGroups():
            return "canonical"
        case Incremental():
            return "rocksdb"
        case Changelog():
            below = backend_of(next(iter(handle.bases), None), streams)
            return f"changelog over {below}" if below else "changelog"
    return None


def is_hashmap(handle: KeyGroups, streams: Streams) -> bool:
    """Tag 12 alone does not say: hashmap writes the number of every key group in front of it,
    also of empty ones.
    """
    offsets = tuple(handle.offsets)
    if handle.stream is None or not all(offsets):
        return False
    first = offsets[0]
    head = streams.head(handle.stream, first + 4)
    return int.from_bytes(head[first : first + 4], "big") == handle.first


def _read_headers(subtasks: tuple[SubtaskState, ...], streams: Streams) -> dict[str, Any]:
    """States of all subtasks, and the serializers they were written with.

    Headers of one size are taken for one: where there are hundreds of subtasks, each would be a
    read of its own.
    """
    states: list[StateInfo] = []
    serializers: set[str] = set()
    seen: set[int | None] = set()
    keyed = chain.from_iterable(_headers(subtask.managed_keyed) for subtask in subtasks)
    for stream, size in keyed:
        if size in seen and not isinstance(stream, Inline):
            continue
        with suppress(FormatError, StorageError):
            content = streams.head(stream, size or HEADER_MAX)
            states += decode_header(content, size).states
            serializers.update(find_serializers(content))
            seen.add(size)
    states += _operator_states(subtasks)
    told = {(state.name, state.kind): _told(state) for state in reversed(states)}
    return {"states": list(reversed(told.values())), "serializers": sorted(serializers)}


def _operator_states(subtasks: tuple[SubtaskState, ...]) -> Iterator[StateInfo]:
    for subtask in subtasks:
        if subtask.managed_operator is not None:
            for state in subtask.managed_operator.states:
                yield StateInfo(state.name, "operator", MODES[state.mode])


def _headers(handle: KeyedHandle | None) -> Iterator[tuple[StreamHandle, int | None]]:
    """Where the header of a handle's states lies, and how long it is, if that is known."""
    match handle:
        case KeyGroups(stream=stream, offsets=offsets):
            starts = [offset for offset in offsets if offset]
            if stream is not None:
                yield stream, min(starts, default=None)
        case Incremental(meta=meta):
            if meta is not None:
                yield meta, meta.size
        case Changelog(bases=bases):
            for base in bases:
                yield from _headers(base)


def sections_in(handle: KeyGroups) -> tuple[tuple[int, int] | None, ...]:
    """(start, end) of each key group in its file, None where it is empty."""
    end = handle.stream.size if handle.stream is not None else 0
    return sections(tuple(handle.offsets), end)


def _told(state: StateInfo) -> dict[str, Any]:
    return {"name": state.name, "kind": state.kind, "type": state.type}


def _key_groups(subtasks: tuple[SubtaskState, ...]) -> dict[str, Any] | None:
    """How many bytes each key group has, where the metadata tells."""
    handles = [s.managed_keyed for s in subtasks if isinstance(s.managed_keyed, KeyGroups)]
    if not handles:
        return None
    sizes = []
    for handle in handles:
        with suppress(FormatError):
            sizes += [0 if part is None else part[1] - part[0] for part in sections_in(handle)]
    return {
        "count": len(sizes),
        "empty": sum(size == 0 for size in sizes),
        "bytes": {
            "min": min(sizes, default=0),
            "median": int(median(sizes or [0])),
            "max": max(sizes, default=0),
        },
    }
